//! Certificate signing requests: who asked, who may approve and sign, and when conditions changed.

use tidings_access::{Attributes, MASTERS, User};
use tidings_api::Status;
use tidings_go::quote;
use tidings_json::{Map, Value};
use tidings_registry::{Draft, Kind, Subresource, read_request};

use super::access::Decider;

/// The group of certificate signing requests.
const GROUP: &str = "certificates.k8s.io";
/// The signer of certificates that clients show to the server.
pub(crate) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// True for certificate signing requests.
pub(super) fn is_request(kind: &Kind) -> bool {
    *kind.group == *GROUP && *kind.plural == *"certificatesigningrequests"
}

/// Notes who asks for a certificate. What the client says about it does not count.
pub(super) fn note_requestor(draft: &mut Draft, user: &User) {
    let Some(Value::Object(spec)) = draft.members.get_mut("spec") else {
        return;
    };
    for name in ["username", "uid", "groups", "extra"] {
        spec.remove(name);
    }
    spec.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let values = |(key, values): (&String, &Vec<String>)| (key.clone(), values.clone().into());
        let extra: Map = user.extra.iter().map(values).collect();
        spec.insert("extra".into(), extra.into());
    }
}

/// Refuses a request for a certificate of an administrator: it could never be taken back.
pub(super) fn check_subject(draft: &Draft) -> Result<(), Status> {
    if draft.text(&["spec", "signerName"]) != CLIENT_SIGNER {
        return Ok(());
    }
    let request = read_request(draft.text(&["spec", "request"]));
    let is_master =
        request.is_ok_and(|request| request.organizations.iter().any(|group| group == MASTERS));
    match is_master {
        true => {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            Err(forbidden(draft, &why))
        }
        false => Ok(()),
    }
}

fn forbidden(draft: &Draft, why: &str) -> Status {
    Status::forbidden(draft.kind.group_resource(), &draft.meta.name, why)
}

/// Refuses an approval or a certificate by somebody who may not approve or sign for the signer.
pub(super) fn check_signer(
    decider: &Decider<'_>,
    user: &User,
    subresource: Option<Subresource>,
    new: &Draft,
    old: &Draft,
) -> Result<(), Status> {
    let verb = match subresource {
        Some(Subresource::Approval) => "approve",
        Some(Subresource::Status) if changes_decision(new, old) => "sign",
        _ => return Ok(()),
    };
    let signer = old.text(&["spec", "signerName"]);
    let domain = signer.split('/').next().unwrap_or_default();
    let names = [signer.to_owned(), format!("{domain}/*")];
    let is_allowed = |name: &String| {
        let asked = Attributes::resource(user, verb, GROUP, "signers")
            .named(name.as_str())
            .with_version("*");
        decider.authorize(&asked).is_allowed()
    };
    match names.iter().any(is_allowed) {
        true => Ok(()),
        false => {
            let why = format!(
                "user not permitted to {verb} requests with signerName {}",
                quote(signer)
            );
            Err(forbidden(old, &why))
        }
    }
}

fn changes_decision(new: &Draft, old: &Draft) -> bool {
    ["certificate", "conditions"]
        .iter()
        .any(|name| new.at(&["status", name]) != old.at(&["status", name]))
}

/// Fills in when conditions were changed, where the client does not say.
pub(super) fn stamp_conditions(new: &mut Draft, old: &Draft, now: &str) {
    let before = old.at(&["status", "conditions"]).and_then(Value::as_array);
    let before = before.cloned().unwrap_or_default();
    let status = new.members.get_mut("status");
    let conditions = status.and_then(|status| status.get_mut("conditions"));
    let conditions = conditions.and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let Value::Object(condition) = condition else {
            continue;
        };
        let is_unset = |condition: &Map, name: &str| {
            let value = condition.get(name).and_then(Value::as_str);
            value.is_none_or(str::is_empty)
        };
        if is_unset(condition, "lastUpdateTime") {
            condition.insert("lastUpdateTime".into(), now.into());
        }
        if is_unset(condition, "lastTransitionTime") {
            let is_same = |other: &&Value| {
                ["type", "status"]
                    .iter()
                    .all(|name| other.get(*name) == condition.get(name))
            };
            let known = before.iter().find(is_same);
            let known = known
                .and_then(|other| other.get("lastTransitionTime"))
                .and_then(Value::as_str);
            let time = known.unwrap_or(now).to_owned();
            condition.insert("lastTransitionTime".into(), time.into());
        }
    }
}
