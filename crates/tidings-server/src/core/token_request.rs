//! POST to `serviceaccounts/{name}/token`: makes a token of a service account.

use bytes::Bytes;
use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Object, ObjectKey, Status};
use tidings_go::quote;
use tidings_identity::{AccountClaims, ObjectRef};
use tidings_json::{Value, json};
use tidings_registry::{Draft, WriteOptions, track_created};

use super::access::check_name;
use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::clock;
use super::namespaces::check_namespace;
use super::state::Core;

/// How long a token lives that asks for nothing.
const DEFAULT_SECONDS: i64 = 3600;
/// The shortest life that may be asked for.
const SECONDS_MIN: i64 = 600;
/// The longest life that may be asked for.
const SECONDS_MAX: i64 = 1 << 32;
/// What the kubelet asks for in the name of a Pod. Such tokens live longer, because programs may not read them again.
const EXTENDED_SECONDS: i64 = 3607;
const YEAR_SECONDS: i64 = 365 * 24 * 3600;

pub(super) async fn issue(
    core: &Core,
    call: &mut Call,
    options: WriteOptions,
    body: &Bytes,
) -> Result<Answer, Status> {
    let kind = call.target.kind.clone();
    let key = call.target.key.clone();
    let accounts = core.service_accounts();
    let mut draft = Draft::read(&kind, body)?;
    let odd = options.validation.odd_fields(&kind, &draft.odd)?;
    call.warnings.extend(odd);
    draft.settle_namespace(&kind, key.namespace())?;
    let resource = call.target.resource()?;
    check_namespace(
        &core.namespaces,
        &resource.kind,
        key.namespace(),
        key.name(),
    )
    .await?;
    let gvk = kind.group_version_kind();
    for (member, said, is) in [
        ("name", &draft.meta.name, key.name()),
        ("namespace", &draft.meta.namespace, key.namespace()),
    ] {
        if !said.is_empty() && said != is {
            let why = format!("must match the service account {member} if specified");
            let error = FieldError::invalid(format!("metadata.{member}"), said, why);
            return Err(Status::invalid(gvk, key.name(), &error.into()));
        }
    }
    let account = resource.current(&key).await?;
    let absent = || Status::not_found(resource.kind.group_resource(), key.name());
    let account = account.ok_or_else(absent)?;
    if !draft.meta.uid.is_empty() && draft.meta.uid != account.uid() {
        let why = format!(
            "the UID in the token request ({}) does not match the UID of the service account ({})",
            draft.meta.uid,
            account.uid()
        );
        let resource = tidings_api::GroupResource {
            group: gvk.group,
            resource: gvk.kind,
        };
        return Err(Status::conflict(resource, key.name(), &why));
    }
    key.name().clone_into(&mut draft.meta.name);
    key.namespace().clone_into(&mut draft.meta.namespace);
    draft.meta.uid = account.uid().into_owned();
    draft.meta.creation_timestamp = Some(clock::now());
    let mut audiences = draft.texts(&["spec", "audiences"]);
    if audiences.is_empty() {
        audiences = accounts.audiences().to_vec();
    }
    let seconds = draft
        .at(&["spec", "expirationSeconds"])
        .and_then(Value::as_i64);
    let mut seconds = seconds.unwrap_or(DEFAULT_SECONDS);
    check_seconds(gvk, seconds)?;
    let mut claims = AccountClaims {
        namespace: key.namespace().to_owned(),
        account: named(&account),
        audiences,
        ..AccountClaims::default()
    };
    bind(core, &draft, &key, &mut claims).await?;
    if let Some(most) = accounts.life_max.filter(|most| seconds > *most) {
        call.warnings.push(format!(
            "requested expiration of {seconds} seconds shortened to {most} seconds"
        ));
        seconds = most;
    }
    claims.seconds = seconds;
    let ours = claims
        .audiences
        .iter()
        .all(|audience| accounts.audiences().contains(audience));
    if accounts.extend && claims.pod.is_some() && seconds == EXTENDED_SECONDS && ours {
        claims.warn_after = Some(seconds);
        claims.seconds = YEAR_SECONDS;
    }
    let mut spec = draft.members.remove("spec").unwrap_or_else(|| json!({}));
    spec["audiences"] = claims.audiences.clone().into();
    spec["expirationSeconds"] = seconds.into();
    if spec.get("boundObjectRef").is_none() {
        spec["boundObjectRef"] = Value::Null;
    }
    draft.members.insert("spec".into(), spec);
    draft.members.remove("status");
    track_created(&mut draft, &call.manager(), &clock::now());
    let now = clock::timestamp().as_second();
    let issued = accounts.issuer.issue(&claims, now);
    let (token, id) = issued.map_err(Status::internal)?;
    call.note(
        "authentication.kubernetes.io/issued-credential-id",
        format!("JTI={id}"),
    );
    let status = json!({ "token": token, "expirationTimestamp": clock::in_seconds(seconds) });
    draft.members.insert("status".into(), status);
    let json = draft.write()?.value().clone();
    let object = Object::parse(json).map_err(Status::internal)?;
    Ok(Answer::Object(ObjectOutcome::Created, object))
}

fn named(object: &Object) -> ObjectRef {
    ObjectRef {
        name: object.name().into_owned(),
        uid: object.uid().into_owned(),
    }
}

fn check_seconds(kind: GroupVersionKind<'_>, seconds: i64) -> Result<(), Status> {
    let mut errors = FieldErrors::new();
    let mut refuse = |why: &str| {
        errors.push(FieldError::invalid_value(
            "spec.expirationSeconds",
            seconds,
            why,
        ));
    };
    if seconds < SECONDS_MIN {
        refuse("may not specify a duration less than 10 minutes");
    }
    if seconds > SECONDS_MAX {
        refuse("may not specify a duration larger than 2^32 seconds");
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid(kind, "", &errors)),
    }
}

/// Notes the object that the request binds the token to.
async fn bind(
    core: &Core,
    draft: &Draft,
    account: &ObjectKey,
    claims: &mut AccountClaims,
) -> Result<(), Status> {
    let Some(bound) = draft
        .at(&["spec", "boundObjectRef"])
        .filter(|bound| !bound.is_null())
    else {
        return Ok(());
    };
    let text = |name: &str| bound[name].as_str().unwrap_or_default();
    let (version, kind, name, uid) = (text("apiVersion"), text("kind"), text("name"), text("uid"));
    let (plural, namespace) = match (version, kind) {
        (version, _) if version.contains('/') => ("", ""),
        (_, "Pod") => ("pods", account.namespace()),
        (_, "Secret") => ("secrets", account.namespace()),
        (_, "Node") => ("nodes", ""),
        _ => ("", ""),
    };
    let served = core.served();
    let found = served
        .find("", "v1", plural)
        .and_then(|(_, resource)| resource);
    let Some(resource) = found.filter(|_| !plural.is_empty()) else {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let said = format!("{group}/{version}, Kind={kind}");
        return Err(Status::bad_request(format!(
            "cannot bind token to object of type {said}"
        )));
    };
    check_name(name)?;
    let found = resource.current(&ObjectKey::new(namespace, name)).await?;
    let object = found.ok_or_else(|| Status::not_found(resource.kind.group_resource(), name))?;
    if kind == "Pod" {
        let runs_as = object
            .field(&["spec", "serviceAccountName"])
            .unwrap_or_default();
        if runs_as != account.name() {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                quote(account.name())
            )));
        }
        let node = object.field(&["spec", "nodeName"]).unwrap_or_default();
        if !node.is_empty() {
            claims.node = Some(node_of(core, &node).await?);
        }
    }
    if !uid.is_empty() && uid != object.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        let resource = tidings_api::GroupResource {
            group: "",
            resource: kind,
        };
        return Err(Status::conflict(resource, name, &why));
    }
    let bound = Some(named(&object));
    match kind {
        "Pod" => claims.pod = bound,
        "Secret" => claims.secret = bound,
        _ => claims.node = bound,
    }
    Ok(())
}

/// The node of a Pod. One that does not exist is named without its uid.
async fn node_of(core: &Core, name: &str) -> Result<ObjectRef, Status> {
    let served = core.served();
    let nodes = served.find("", "v1", "nodes").and_then(|(_, nodes)| nodes);
    let nodes = nodes.ok_or_else(Status::no_such_resource)?;
    let node = nodes.current(&ObjectKey::new("", name)).await?;
    Ok(node.map_or_else(
        || ObjectRef {
            name: name.to_owned(),
            uid: String::new(),
        },
        |node| named(&node),
    ))
}
