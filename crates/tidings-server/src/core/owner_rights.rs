//! `OwnerReferencesPermissionEnforcement`: who changes the owners of an object may delete it, and who makes an owner wait for it may change the owner's
//! finalizers.

use tidings_access::{Attributes, User, Verdict};
use tidings_api::Status;
use tidings_json::Value;
use tidings_registry::{Draft, Subresource};

use super::access::Decider;
use super::served::ServedSet;
use super::target::Target;

/// Refuses owners that the user may not give to the object.
pub(super) fn check_owners(
    decider: &Decider<'_>,
    served: &ServedSet,
    user: &User,
    target: &Target,
    new: &Draft,
    old: Option<&Draft>,
) -> Result<(), Status> {
    let (owners, before) = (
        &new.meta.owner_references,
        old.map_or(&[][..], |old| &old.meta.owner_references),
    );
    let is_pod_status =
        *target.kind.kind == *"Pod" && target.subresource == Some(Subresource::Status);
    if *owners == *before || is_pod_status {
        return Ok(());
    }
    let forbidden = |why: &str, verdict: &Verdict| {
        let Verdict { reason, error, .. } = verdict;
        let error = if error.is_empty() { "<nil>" } else { error };
        let why = format!("{why}: {reason}, {error}");
        let (meta, kind) = (&new.meta, &target.kind);
        let name = match (&*meta.name, &*meta.generate_name) {
            ("", generated) => generated,
            (name, _) => name,
        };
        Status::forbidden(kind.group_resource(), name, &why)
    };
    let namespace = &new.meta.namespace;
    if old.is_some() {
        let kind = &target.kind;
        let asked = Attributes::resource(user, "delete", &kind.group, &kind.plural)
            .with_version(&*kind.version)
            .in_namespace(namespace)
            .subresource(target.subresource.map_or("", Subresource::as_str))
            .named(&new.meta.name);
        let verdict = decider.authorize(&asked);
        if !verdict.is_allowed() {
            let why = "cannot set an ownerRef on a resource you can't delete";
            return Err(forbidden(why, &verdict));
        }
    }
    let anything = Attributes::resource(user, "update", "*", "*")
        .with_version("*")
        .subresource("finalizers")
        .named("*");
    let blocking: Vec<&Value> = owners
        .iter()
        .filter(|owner| blocks(owner) && !before.iter().any(|known| was_blocking(known, owner)))
        .collect();
    if blocking.is_empty() || decider.authorize(&anything).is_allowed() {
        return Ok(());
    }
    for owner in blocking {
        let text = |name: &str| owner[name].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some((known, _)) = served.find_kind(group, version, kind) else {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: no matches for kind \"{kind}\" in version \"{api_version}\""
            );
            return Err(Status::forbidden(
                target.kind.group_resource(),
                &new.meta.name,
                &why,
            ));
        };
        let asked = Attributes::resource(user, "update", &known.group, &known.plural)
            .with_version(&*known.version)
            .subresource("finalizers")
            .named(text("name"));
        // An owner in a namespace is in that of the object.
        let asked = match known.namespaced {
            true => asked.in_namespace(namespace),
            false => asked,
        };
        let verdict = decider.authorize(&asked);
        if !verdict.is_allowed() {
            let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
            return Err(forbidden(why, &verdict));
        }
    }
    Ok(())
}

fn blocks(owner: &Value) -> bool {
    owner["blockOwnerDeletion"] == Value::Bool(true)
}

fn was_blocking(known: &Value, owner: &Value) -> bool {
    known["uid"] == owner["uid"] && blocks(known)
}
