//! DELETE of one object or of many (W159–W168).

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use tidings_api::{
    EventType, FieldError, FieldErrors, GroupResource, Object, ObjectKey, ResourceVersion, Status,
    StatusDetails, go,
};
use tidings_storage::{Revision, Write};

use super::update::retry_or_fail;
use super::{Ask, dry_run, invalid_options, list};
use crate::api::Inner;
use crate::clock;
use crate::garbage::{FOREGROUND, ORPHAN};
use crate::registry::draft::{Draft, document, unregistered};
use crate::registry::{Kind, Special};
use crate::respond::Answer;
use crate::respond::list::Items;

/// Namespaces that stay (W174).
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

const ORPHANS_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                               remove them or set propagationPolicy=Orphan to suppress this warning";

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
    /// What nobody waits for.
    pub(crate) fn background() -> DeleteOptions {
        DeleteOptions {
            propagation_policy: Some("Background".into()),
            ..DeleteOptions::default()
        }
    }

    /// Only the object that was looked at, exactly as it was.
    pub(crate) fn exactly(policy: &str, uid: &str, resource_version: &str) -> DeleteOptions {
        DeleteOptions {
            propagation_policy: Some(policy.to_owned()),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: Some(resource_version.to_owned()),
            }),
            ..DeleteOptions::default()
        }
    }

    /// From the body, or from the query if there is none (W159).
    fn read(ask: &Ask<'_>) -> Result<DeleteOptions, Status> {
        let query = ask.query;
        let options = if ask.body.is_empty() {
            let grace = query
                .get("gracePeriodSeconds")
                .map(go::parse_int)
                .transpose();
            let text = |name: &str| query.get(name).map(ToOwned::to_owned);
            let preconditions = Preconditions {
                uid: text("uid"),
                resource_version: text("resourceVersion"),
            };
            let given = preconditions.uid.is_some() || preconditions.resource_version.is_some();
            DeleteOptions {
                grace_period_seconds: grace
                    .map_err(|error| Status::bad_request(error.to_string()))?,
                preconditions: given.then_some(preconditions),
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
            DeleteOptions::from_body(&ask.options_json()?)?
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
                .and_then(tidings_json::Value::as_str)
                .filter(|text| !text.is_empty())
        };
        if let Some(kind) = text("kind").filter(|kind| *kind != "DeleteOptions") {
            let version = text("apiVersion").unwrap_or("meta.k8s.io/v1");
            return Err(Status::bad_request(unregistered(kind, version)));
        }
        tidings_json::from_value(members.into())
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
    fn finalizers(&self, kind: &Kind, known: &[String]) -> Vec<String> {
        let policy = self.propagation_policy.as_deref();
        let had = |finalizer: &str| known.iter().any(|known| known == finalizer);
        let orphan = match (policy, self.orphan_dependents) {
            (Some(policy), _) => policy == "Orphan",
            (None, Some(orphan)) => orphan,
            (None, None) => had(ORPHAN) || (kind.orphans && !had(FOREGROUND)),
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
    fn check(&self, kind: &Kind, object: &Object) -> Result<(), Status> {
        let Some(preconditions) = &self.preconditions else {
            return Ok(());
        };
        let named = GroupResource {
            group: kind.group,
            resource: kind.kind,
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
            return Err(Status::conflict(named, &name, &why));
        }
        let version = preconditions.resource_version.as_deref();
        if let Some(version) = version.filter(|version| *version != object.resource_version()) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
                 object might have been modified",
                object.resource_version()
            );
            return Err(Status::conflict(named, &name, &why));
        }
        Ok(())
    }
}

pub(crate) async fn delete(api: &Inner, ask: &mut Ask<'_>) -> Result<Answer, Status> {
    let options = DeleteOptions::read(ask)?;
    let kind = ask.kind();
    if kind.kind == "Job"
        && options.propagation_policy.is_none()
        && options.orphan_dependents.is_none()
    {
        ask.warnings.push(ORPHANS_WARNING.into());
    }
    if kind.special == Special::Namespace && PROTECTED.contains(&ask.key.name()) {
        return Err(Status::forbidden(
            kind.group_resource(),
            ask.key.name(),
            "this namespace may not be deleted",
        ));
    }
    api.refresh(kind).await?;
    let deletion = delete_one(api, kind, &ask.key, &options).await?;
    if kind.special == Special::Namespace {
        api.namespace_deleted.notify_one();
    }
    Ok(deletion.answer(kind))
}

/// DELETE of a collection: each object that a LIST would show, one after the other (W167).
pub(crate) async fn delete_collection(api: &Inner, ask: &Ask<'_>) -> Result<Answer, Status> {
    let options = DeleteOptions::read(ask)?;
    let Answer::List(head, items) = list::list(api, ask).await? else {
        return Err(Status::internal("a list is no list"));
    };
    let objects = items.collect();
    for object in &objects {
        let deleted = delete_one(api, ask.kind(), &object.key(), &options).await;
        // What is gone already needs no deletion.
        if let Err(status) = deleted.map(drop)
            && status.code != 404
        {
            return Err(status);
        }
    }
    Ok(Answer::List(head, Items::Page(objects.into_iter())))
}

/// Deletes an object, or begins to, again if somebody else was faster.
pub(crate) async fn delete_one(
    api: &Inner,
    kind: &'static Kind,
    key: &ObjectKey,
    options: &DeleteOptions,
) -> Result<Deletion, Status> {
    loop {
        let Some(existing) = api.cache(kind).get(key) else {
            return Err(Status::not_found(kind.group_resource(), key.name()));
        };
        options.check(kind, &existing)?;
        if let Some(deletion) = remove(api, kind, key, options, &existing).await? {
            return Ok(deletion);
        }
        api.refresh(kind).await?; // someone else was faster: look again
    }
}

/// What a deletion has led to.
#[derive(Debug)]
pub(crate) enum Deletion {
    /// Something holds the object: it is marked.
    Held(StatusCode, Object),
    /// It is gone; its last state.
    Done(Object),
}

impl Deletion {
    fn answer(self, kind: &'static Kind) -> Answer {
        match self {
            Deletion::Held(code, object) => Answer::Object(code, object),
            Deletion::Done(object) if kind.returns_deleted => {
                Answer::Object(StatusCode::OK, object)
            }
            // W160.
            Deletion::Done(object) => Answer::Status(Status::success(StatusDetails {
                name: object.name().into_owned(),
                group: kind.group.into(),
                kind: kind.plural.into(),
                uid: object.uid().into_owned(),
                ..StatusDetails::default()
            })),
        }
    }
}

/// One try to delete an object. `None` if it is not as the cache has it.
async fn remove(
    api: &Inner,
    kind: &'static Kind,
    key: &ObjectKey,
    options: &DeleteOptions,
    existing: &Object,
) -> Result<Option<Deletion>, Status> {
    let mut draft = Draft::of(kind, existing)?;
    let grace = draft.grace_seconds(options.grace_period_seconds);
    let finalizers = match kind.special {
        // A definition waits for its objects, whatever the policy.
        Special::Definition => draft.meta.finalizers.clone(),
        _ => options.finalizers(kind, &draft.meta.finalizers),
    };
    let refinalized = finalizers != draft.meta.finalizers;
    draft.meta.finalizers = finalizers;
    draft.hold_definition();
    let held = !draft.meta.finalizers.is_empty()
        || !draft.namespace_is_empty()
        || grace.is_some_and(|grace| grace > 0);
    let at = Revision(existing.revision().get());
    let mut marked = None;
    // An object that is held, and one that is deleted gracefully, is first marked as being deleted.
    let marks = mark(&mut draft, grace, options.grace_period_seconds.is_some());
    if (held && (marks || refinalized)) || (grace.is_some() && marks) {
        let written = draft.write()?;
        if options.is_dry_run() {
            let object = written.stamped(existing.revision(), EventType::Modified);
            return Ok(Some(Deletion::Held(StatusCode::OK, object)));
        }
        marked = api.put(kind, key, Some(at), &written).await?;
        if marked.is_none() {
            return Ok(None);
        }
    }
    let object = marked.unwrap_or_else(|| existing.clone());
    if held {
        let code = if options.orphan_dependents == Some(false) {
            StatusCode::ACCEPTED
        } else {
            StatusCode::OK
        };
        return Ok(Some(Deletion::Held(code, object)));
    }
    if options.is_dry_run() {
        return Ok(Some(Deletion::Done(object)));
    }
    let at = Revision(object.revision().get());
    match api
        .store
        .write(Write::delete(api.store_key(kind, key)?, at))
        .await
    {
        Ok(revision) => {
            let last = object.restamped(ResourceVersion::new(revision.0), EventType::Deleted);
            Ok(Some(Deletion::Done(last)))
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
    } else if let Some(generation) = draft.meta.generation
        && draft.kind.special != Special::Definition
    {
        draft.meta.generation = Some(generation.saturating_add(1));
    }
    draft.meta.deletion_timestamp = Some(clock::in_seconds(grace_seconds));
    match draft.kind.special {
        Special::Namespace => {
            let status = tidings_json::json!({ "phase": "Terminating" });
            draft.members.insert("status".into(), status);
        }
        Special::Definition => {}
        _ => draft.meta.deletion_grace_period_seconds = Some(grace_seconds),
    }
    true
}
