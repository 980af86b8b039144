//! POST to `pods/{name}/binding`: puts a Pod on a node.

use bytes::Bytes;
use tidings_admission::Operation;
use tidings_api::{FieldError, FieldErrors, GroupResource, Object, Status};
use tidings_go::quote;
use tidings_json::{Value, json};
use tidings_plugins::topology_labels;
use tidings_registry::{Draft, WriteOptions};

use super::admission::check_posted;
use super::answer::Answer;
use super::call::Call;
use super::clock;
use super::rewrite::{rewrite, set_condition};
use super::state::Core;

pub(super) async fn bind(
    core: &Core,
    call: &mut Call,
    options: WriteOptions,
    body: &Bytes,
) -> Result<Answer, Status> {
    let (kind, key) = (call.target.kind.clone(), call.target.key.clone());
    let mut binding = Draft::read(&kind, body)?;
    let odd = options.validation.odd_fields(&kind, &binding.odd)?;
    call.warnings.extend(odd);
    binding.settle_namespace(&kind, key.namespace())?;
    if binding.meta.name != key.name() {
        let why = "name in URL does not match name in Binding object";
        return Err(Status::bad_request(why));
    }
    check_target(&binding)?;
    let node = binding.text(&["target", "name"]).to_owned();
    let plugins = core.plugins();
    let on_node = binding.text(&["target", "kind"]) == "Node";
    if on_node && plugins.set.has("PodTopologyLabels") {
        let labels = topology_labels(&**plugins, &node);
        binding.meta.labels.extend(labels);
    }
    let admitting = call.admitting(Operation::Create, &key, options);
    check_posted(admitting.as_ref(), &binding).await?;
    let pods = call.target.resource()?;
    let assigned = |existing: &Object| {
        check_preconditions(&binding, existing)?;
        let pod = assign(Draft::of(&pods.kind, existing)?, &node, &binding);
        let pod = pod.map_err(|why| {
            let resource = GroupResource {
                group: "",
                resource: "pods/binding",
            };
            Status::conflict(resource, key.name(), &why)
        })?;
        Ok(Some(pod))
    };
    let absent = || Status::not_found(pods.kind.group_resource(), key.name());
    if options.dry_run {
        pods.refresh().await?;
        assigned(&pods.get(&key).ok_or_else(absent)?)?;
    } else {
        let bound = rewrite(pods, &key, &assigned).await?;
        bound.ok_or_else(absent)?;
    }
    Ok(Answer::done())
}

fn check_target(binding: &Draft) -> Result<(), Status> {
    let mut errors = FieldErrors::new();
    let kind = binding.text(&["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        let kinds = ["Node", "<empty>"];
        errors.push(FieldError::not_supported(
            "target.kind",
            quote(kind),
            &kinds,
        ));
    }
    if binding.text(&["target", "name"]).is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let message = match texts.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    // As in kube-apiserver, which has no other code for it.
    let mut status = Status::internal("");
    (status.message, status.reason, status.details) = (message, None, None);
    Err(status)
}

fn check_preconditions(binding: &Draft, existing: &Object) -> Result<(), Status> {
    let said = [
        ("UID", &binding.meta.uid, existing.uid()),
        (
            "ResourceVersion",
            &binding.meta.resource_version,
            existing.resource_version(),
        ),
    ];
    for (what, wanted, is) in said {
        if !wanted.is_empty() && *wanted != is {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
            );
            let resource = GroupResource {
                group: "",
                resource: "pods",
            };
            return Err(Status::conflict(resource, &existing.name(), &why));
        }
    }
    Ok(())
}

/// The Pod on its node.
fn assign(mut pod: Draft, node: &str, binding: &Draft) -> Result<Draft, String> {
    let name = &pod.meta.name;
    if pod.meta.deletion_timestamp.is_some() {
        return Err(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    let on = pod.text(&["spec", "nodeName"]);
    if !on.is_empty() {
        return Err(format!(
            "pod {name} is already assigned to node {}",
            quote(on)
        ));
    }
    let gates = pod
        .at(&["spec", "schedulingGates"])
        .and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    if let Some(spec) = pod.members.get_mut("spec") {
        spec["nodeName"] = node.into();
    }
    let more = binding.meta.annotations.clone();
    pod.meta.annotations.extend(more);
    pod.meta.labels.extend(binding.meta.labels.clone());
    if let Some(status) = pod.members.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    set_condition(
        &mut pod,
        json!({"type": "PodScheduled", "status": "True"}),
        &clock::now(),
    );
    Ok(pod)
}
