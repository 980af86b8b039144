//! Jobs.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_go::quote;
use tidings_json::{Map, Value, json};

use crate::complete::{TypeDefaults, defaults};
use crate::draft::Draft;
use crate::kind::{Generation, Kind, SelectableField, Subresource};
use crate::kinds::workload::{self, Runs, TEMPLATE};
use crate::kinds::{field, immutable, names};
use crate::printers::batch as printers;
use crate::strategy::Strategy;
use crate::typed;

const ORPHAN_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                              remove them or set propagationPolicy=Orphan to suppress this warning";

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Job".into(),
        orphans: true,
        orphan_warning: ORPHAN_WARNING,
        plural: "jobs".into(),
        printer: &printers::JOB,
        categories: names(["all"]),
        // The name of the field is not that of the member that it shows.
        fields: vec![SelectableField {
            absent: "0",
            ..field("status.successful", &[&["status", "succeeded"]])
        }],
        generation: Generation::Counted,
        status: true,
        fixed: vec![
            immutable(&["spec", "selector"]),
            immutable(&["spec", "completionMode"]),
        ],
        strategy: Arc::new(Jobs),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "batch/v1.PodFailurePolicyOnPodConditionsPattern",
    &[("status", r#""True""#)],
)];

#[derive(Debug)]
struct Jobs;

impl Strategy for Jobs {
    fn check_field(&self, kind: &Kind, field: &str) -> Result<(), String> {
        let supported = typed::check_field(kind, field);
        supported.map_err(|_| format!("field label {} not supported for Job", quote(field)))
    }

    fn complete(&self, draft: &mut Draft) -> bool {
        let Some(spec) = workload::spec_mut(draft) else {
            return false;
        };
        complete_spec(spec);
        workload::label_as_template(draft);
        true
    }

    fn prepare_create(&self, draft: &mut Draft) {
        select_own_pods(draft);
    }

    fn check_fixed(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        if let (Some(new), Some(old)) = (new.members.get("spec"), old.members.get("spec")) {
            check_spec_update(new, old, errors);
        }
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_replicas(new, errors);
        workload::check_pods(new, &TEMPLATE, Runs::ToCompletion, errors);
    }
}

fn complete_spec(spec: &mut Map) {
    let absent = |name: &str| spec.get(name).is_none_or(Value::is_null);
    let mut defaults = Vec::new();
    if absent("parallelism") {
        defaults.push(("parallelism", json!(1)));
        if absent("completions") {
            defaults.push(("completions", json!(1)));
        }
    }
    let backoff = if absent("backoffLimitPerIndex") {
        6
    } else {
        i32::MAX
    };
    let replacement = if absent("podFailurePolicy") {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    let others = [
        ("backoffLimit", json!(backoff)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(replacement)),
        ("manualSelector", json!(false)),
    ];
    defaults.extend(others.into_iter().filter(|(name, _)| absent(name)));
    for (name, value) in defaults {
        spec.insert(name.to_owned(), value);
    }
}

/// Labels the Pods of a Job with its uid, and selects them by it.
fn select_own_pods(draft: &mut Draft) {
    let (uid, name) = (draft.meta.uid.clone(), draft.meta.name.clone());
    let labelled = draft.meta.labels.is_empty();
    let Some(Value::Object(spec)) = draft.members.get_mut("spec") else {
        return;
    };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let own = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let labels = &mut template["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for (label, value) in own {
        labels[label] = value.as_str().into();
        if labelled {
            draft.meta.labels.insert(label.to_owned(), value.clone());
        }
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.sort_keys();
    }
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    spec.insert("selector".into(), selector);
}

/// Refuses changes of a Job's spec that no update may make.
fn check_spec_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut fixed = |name: &str| {
        if new.get(name) != old.get(name) {
            let value = new.get(name).unwrap_or(&Value::Null);
            let path = format!("spec.{name}");
            errors.push(FieldError::invalid_value(path, value, "field is immutable"));
        }
    };
    // An indexed job can be made larger or smaller, as long as both numbers say so.
    let indexed = new["completionMode"] == "Indexed" && new["completions"] == new["parallelism"];
    if !indexed {
        fixed("completions");
    }
    // A job that has not begun can be scheduled otherwise.
    if old["suspend"] != true {
        fixed("template");
    }
}
