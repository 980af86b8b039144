//! DELETE of one object (W159–W165).

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::Deserialize;
use tidings_api::{
    EventType, FieldError, FieldErrors, GroupResource, Object, ObjectKey, ResourceVersion, Status,
    StatusDetails, go,
};
use tidings_storage::{Revision, Write};

use super::update::retry_or_fail;
use super::{dry_run, invalid_options};
use crate::api::Inner;
use crate::clock;
use crate::registry::Special;
use crate::registry::draft::{Draft, document, unregistered};
use crate::request::{Query, Target};
use crate::respond::{self, ResponseBody};

/// Namespaces that stay (W174).
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a DELETE asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// From the body, or from the query if there is none (W159).
    fn read(query: &Query, body: &Bytes) -> Result<DeleteOptions, Status> {
        let options = if body.is_empty() {
            let grace = query
                .get("gracePeriodSeconds")
                .map(go::parse_int)
                .transpose();
            let uid = query.get("uid").map(ToOwned::to_owned);
            DeleteOptions {
                grace_period_seconds: grace
                    .map_err(|error| Status::bad_request(error.to_string()))?,
                preconditions: uid.map(|uid| Preconditions {
                    uid: Some(uid),
                    resource_version: None,
                }),
                orphan_dependents: query.get("orphanDependents").map(go::query_bool),
                propagation_policy: query.get("propagationPolicy").map(ToOwned::to_owned),
                dry_run: Some(
                    query
                        .all("dryRun")
                        .into_iter()
                        .map(ToOwned::to_owned)
                        .collect(),
                ),
            }
        } else {
            DeleteOptions::from_body(body)?
        };
        options.validate()?;
        Ok(options)
    }

    /// Any served group's `DeleteOptions`, or an object that does not say what it is.
    fn from_body(body: &Bytes) -> Result<DeleteOptions, Status> {
        let members = document(body).map_err(Status::bad_request)?;
        let text = |name: &str| {
            members
                .get(name)
                .and_then(serde_json::Value::as_str)
                .filter(|text| !text.is_empty())
        };
        if let Some(kind) = text("kind").filter(|kind| *kind != "DeleteOptions") {
            let version = text("apiVersion").unwrap_or("meta.k8s.io/v1");
            return Err(Status::bad_request(unregistered(kind, version)));
        }
        serde_json::from_value(members.into())
            .map_err(|error| Status::bad_request(error.to_string()))
    }

    /// W164.
    fn validate(&self) -> Result<(), Status> {
        let mut errors = FieldErrors::new();
        match self.propagation_policy.as_deref() {
            Some(policy) if self.orphan_dependents.is_some() => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", policy, why));
            }
            None | Some("Foreground" | "Background" | "Orphan") => {}
            Some(policy) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    go::quote(policy),
                    &supported,
                ));
            }
        }
        let values: Vec<&str> = self.dry_run.iter().flatten().map(String::as_str).collect();
        dry_run(&values, &mut errors);
        if errors.is_empty() {
            Ok(())
        } else {
            Err(invalid_options("DeleteOptions", &errors))
        }
    }

    fn is_dry_run(&self) -> bool {
        self.dry_run
            .as_ref()
            .is_some_and(|values| !values.is_empty())
    }

    /// The finalizers that the object has under the policy (W161): one that says nothing keeps what an earlier one said.
    fn finalizers(&self, known: &[String]) -> Vec<String> {
        let policy = self.propagation_policy.as_deref();
        let had = |finalizer: &str| known.iter().any(|known| known == finalizer);
        let orphan = match (policy, self.orphan_dependents) {
            (Some(policy), _) => policy == "Orphan",
            (None, Some(orphan)) => orphan,
            (None, None) => had(ORPHAN),
        };
        let foreground = match policy {
            Some(policy) => policy == "Foreground",
            None => self.orphan_dependents.is_none() && had(FOREGROUND),
        };
        let own = known
            .iter()
            .filter(|known| *known != ORPHAN && *known != FOREGROUND)
            .cloned();
        own.chain(orphan.then(|| ORPHAN.into()))
            .chain(foreground.then(|| FOREGROUND.into()))
            .collect()
    }

    /// W163.
    fn check(&self, target: &Target, object: &Object) -> Result<(), Status> {
        let Some(preconditions) = &self.preconditions else {
            return Ok(());
        };
        let kind = GroupResource {
            group: target.kind.group,
            resource: target.kind.kind,
        };
        let name = object.name();
        if let Some(uid) = preconditions
            .uid
            .as_deref()
            .filter(|uid| *uid != object.uid())
        {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                object.uid()
            );
            return Err(Status::conflict(kind, &name, &why));
        }
        let version = preconditions.resource_version.as_deref();
        if let Some(version) = version.filter(|version| *version != object.resource_version()) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
                 object might have been modified",
                object.resource_version()
            );
            return Err(Status::conflict(kind, &name, &why));
        }
        Ok(())
    }
}

pub(crate) async fn delete(
    api: &Inner,
    target: &Target,
    key: &ObjectKey,
    query: &Query,
    body: &Bytes,
) -> Result<Response<ResponseBody>, Status> {
    let options = DeleteOptions::read(query, body)?;
    let kind = target.kind;
    if kind.special == Special::Namespace && PROTECTED.contains(&key.name()) {
        return Err(Status::forbidden(
            kind.group_resource(),
            key.name(),
            "this namespace may not be deleted",
        ));
    }
    api.refresh(kind).await?;
    loop {
        let Some(existing) = api.cache(kind).get(key) else {
            return Err(Status::not_found(kind.group_resource(), key.name()));
        };
        options.check(target, &existing)?;
        if let Some(response) = remove(api, target, key, &options, &existing).await? {
            return Ok(response);
        }
        api.refresh(kind).await?; // someone else was faster: look again
    }
}

/// One try to delete an object. `None` if it is not as the cache has it.
async fn remove(
    api: &Inner,
    target: &Target,
    key: &ObjectKey,
    options: &DeleteOptions,
    existing: &Object,
) -> Result<Option<Response<ResponseBody>>, Status> {
    let kind = target.kind;
    let mut draft = Draft::of(kind, existing)?;
    let grace = draft.grace_seconds(options.grace_period_seconds);
    let finalizers = options.finalizers(&draft.meta.finalizers);
    let refinalized = finalizers != draft.meta.finalizers;
    draft.meta.finalizers = finalizers;
    let held = !draft.meta.finalizers.is_empty()
        || !draft.namespace_is_empty()
        || grace.is_some_and(|grace| grace > 0);
    let at = Revision(existing.revision().get());
    let mut marked = None;
    // An object that is held, and one that is deleted gracefully, is first marked as being deleted.
    let marks = mark(&mut draft, grace, options.grace_period_seconds.is_some());
    if (held && (marks || refinalized)) || (grace.is_some() && marks) {
        let value = draft.to_bytes()?;
        if options.is_dry_run() {
            let object = Object::stamped(&value, existing.revision(), EventType::Modified)
                .map_err(Status::internal)?;
            return Ok(Some(respond::object(StatusCode::OK, &object)));
        }
        match api
            .store
            .write(Write::update(api.store_key(kind, key), at, value.clone()))
            .await
        {
            Ok(revision) => {
                let object = Object::stamped(
                    &value,
                    ResourceVersion::new(revision.0),
                    EventType::Modified,
                );
                marked = Some(object.map_err(Status::internal)?);
            }
            Err(error) => return retry_or_fail(api, error),
        }
    }
    let object = marked.as_ref().unwrap_or(existing);
    if held {
        let code = if options.orphan_dependents == Some(false) {
            StatusCode::ACCEPTED
        } else {
            StatusCode::OK
        };
        return Ok(Some(respond::object(code, object)));
    }
    if options.is_dry_run() {
        return Ok(Some(deleted(target, object)));
    }
    let at = Revision(object.revision().get());
    match api
        .store
        .write(Write::delete(api.store_key(kind, key), at))
        .await
    {
        Ok(revision) => {
            let last = object.restamped(ResourceVersion::new(revision.0), EventType::Deleted);
            Ok(Some(deleted(target, &last)))
        }
        Err(error) => retry_or_fail(api, error),
    }
}

/// Marks an object as being deleted, or as being deleted sooner than was asked for before. False if nothing changes.
fn mark(draft: &mut Draft, grace: Option<i64>, asked: bool) -> bool {
    let grace_seconds = grace.unwrap_or(0);
    if draft.meta.deletion_timestamp.is_some() {
        let sooner = draft
            .meta
            .deletion_grace_period_seconds
            .is_some_and(|known| grace_seconds < known);
        if !(sooner && asked) {
            return false;
        }
    } else if let Some(generation) = draft.meta.generation.filter(|generation| *generation > 0) {
        draft.meta.generation = Some(generation + 1);
    }
    draft.meta.deletion_timestamp = Some(clock::in_seconds(grace_seconds));
    if draft.kind.special == Special::Namespace {
        draft.members.insert(
            "status".into(),
            serde_json::json!({ "phase": "Terminating" }),
        );
    } else {
        draft.meta.deletion_grace_period_seconds = Some(grace_seconds);
    }
    true
}

/// W160.
fn deleted(target: &Target, object: &Object) -> Response<ResponseBody> {
    let kind = target.kind;
    if kind.returns_deleted {
        return respond::object(StatusCode::OK, object);
    }
    respond::status(&Status::success(StatusDetails {
        name: object.name().into_owned(),
        group: kind.group.into(),
        kind: kind.plural.into(),
        uid: object.uid().into_owned(),
        ..StatusDetails::default()
    }))
}
