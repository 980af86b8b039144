//! DELETE of one object or of a collection (W159-W168).

use std::sync::Arc;

use tidings_admission::Operation;
use tidings_api::validate::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use tidings_api::{
    EventType, FieldError, FieldErrors, GroupResource, Object, ObjectKey, Status, StatusDetails,
};
use tidings_go::quote;
use tidings_json::{Map, Value};
use tidings_registry::{Draft, Kind};

use super::admission::{self, Admitting};
use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::clock;
use super::list::{self, ListCommand};
use super::quotas::HeldNamespace;
use super::resource::{ObjectWrite, Resource};
use super::state::Core;
use super::walk::ListItems;

/// The options of a deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Preconditions,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) propagation_policy: Option<PropagationPolicy>,
    pub(crate) dry_run: bool,
    /// The caller has seen the object in the cache, so the cache is not brought up to date first.
    pub(crate) from_cache: bool,
}

/// The object is deleted only if it has this uid and resourceVersion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// What becomes of the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PropagationPolicy {
    /// The dependents are deleted after the object.
    Background,
    /// The dependents are deleted before the object.
    Foreground,
    /// The dependents stay.
    Orphan,
}

impl PropagationPolicy {
    /// Reads the policy of a request (W164).
    pub(crate) fn read(
        text: Option<&str>,
        orphan_dependents: Option<bool>,
        errors: &mut FieldErrors,
    ) -> Option<PropagationPolicy> {
        let policy = text?;
        if orphan_dependents.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", policy, why));
            return None;
        }
        match policy {
            "Foreground" => Some(PropagationPolicy::Foreground),
            "Background" => Some(PropagationPolicy::Background),
            "Orphan" => Some(PropagationPolicy::Orphan),
            policy => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let path = "propagationPolicy";
                errors.push(FieldError::not_supported(path, quote(policy), &supported));
                None
            }
        }
    }
}

impl DeleteOptions {
    /// Options with the propagation policy Background.
    pub(crate) fn background() -> DeleteOptions {
        DeleteOptions {
            propagation_policy: Some(PropagationPolicy::Background),
            from_cache: true,
            ..DeleteOptions::default()
        }
    }

    /// Options with the uid and resourceVersion of `object` as preconditions: it is deleted only if it has not changed.
    pub(crate) fn exactly(policy: PropagationPolicy, object: &Object) -> DeleteOptions {
        DeleteOptions {
            propagation_policy: Some(policy),
            preconditions: Preconditions {
                uid: Some(object.uid().into_owned()),
                resource_version: Some(object.resource_version().into_owned()),
            },
            from_cache: true,
            ..DeleteOptions::default()
        }
    }

    /// The options as upstream writes them.
    fn to_value(&self) -> Value {
        let mut options = admission::options_of("DeleteOptions", false);
        if let Some(seconds) = self.grace_period_seconds {
            options.insert("gracePeriodSeconds".into(), seconds.into());
        }
        let Preconditions {
            uid,
            resource_version,
        } = &self.preconditions;
        let mut preconditions = Map::new();
        for (name, text) in [("uid", uid), ("resourceVersion", resource_version)] {
            if let Some(text) = text {
                preconditions.insert(name.into(), text.as_str().into());
            }
        }
        if !preconditions.is_empty() {
            options.insert("preconditions".into(), preconditions.into());
        }
        if let Some(orphan) = self.orphan_dependents {
            options.insert("orphanDependents".into(), orphan.into());
        }
        if let Some(policy) = self.propagation_policy {
            options.insert("propagationPolicy".into(), format!("{policy:?}").into());
        }
        if self.dry_run {
            options.insert("dryRun".into(), vec![Value::from("All")].into());
        }
        options.into()
    }

    /// The finalizers of the object under these options (W161). Options without a policy keep the finalizers of an earlier deletion.
    fn finalizers(&self, kind: &Kind, known: &[String]) -> Vec<String> {
        let policy = self.propagation_policy;
        let had = |finalizer: &str| known.iter().any(|known| known == finalizer);
        let orphan = match (policy, self.orphan_dependents) {
            (Some(policy), _) => policy == PropagationPolicy::Orphan,
            (None, Some(orphan)) => orphan,
            (None, None) => had(ORPHAN_FINALIZER) || (kind.orphans && !had(FOREGROUND_FINALIZER)),
        };
        let foreground = match policy {
            Some(policy) => policy == PropagationPolicy::Foreground,
            None => self.orphan_dependents.is_none() && had(FOREGROUND_FINALIZER),
        };
        let own = known
            .iter()
            .filter(|known| *known != ORPHAN_FINALIZER && *known != FOREGROUND_FINALIZER)
            .cloned();
        own.chain(orphan.then(|| ORPHAN_FINALIZER.into()))
            .chain(foreground.then(|| FOREGROUND_FINALIZER.into()))
            .collect()
    }

    /// Refuses an object that does not meet the preconditions (W163).
    pub(super) fn check(&self, kind: &Kind, object: &Object) -> Result<(), Status> {
        let Preconditions {
            uid,
            resource_version,
        } = &self.preconditions;
        let named = GroupResource {
            group: &kind.group,
            resource: &kind.kind,
        };
        let name = object.name();
        if let Some(uid) = uid.as_deref().filter(|uid| *uid != object.uid()) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                object.uid()
            );
            return Err(Status::conflict(named, &name, &why));
        }
        let version = resource_version.as_deref();
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

pub(super) async fn delete(call: &mut Call, options: &DeleteOptions) -> Result<Answer, Status> {
    let kind = call.target.kind.clone();
    let no_policy = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    if no_policy && !kind.orphan_warning.is_empty() {
        call.warnings.push(kind.orphan_warning.into());
    }
    let (resource, key) = (call.target.resource()?, &call.target.key);
    if let Err(why) = kind.strategy.check_delete(key.name()) {
        return Err(Status::forbidden(kind.group_resource(), key.name(), why));
    }
    if !options.from_cache {
        resource.refresh().await?;
    }
    let admitting = admitting(call, key, options);
    let held = hold(call, key.namespace()).await;
    let deletion = delete_one(resource, &kind, key, options, admitting.as_ref()).await?;
    settle(held.as_ref(), resource, options, &deletion).await;
    Ok(deletion.answer(&kind))
}

/// DELETE of a collection: deletes each object that a LIST would return, one after the other (W167).
pub(super) async fn delete_collection(
    core: &Core,
    call: &Call,
    options: &DeleteOptions,
    command: &ListCommand,
) -> Result<Answer, Status> {
    let Answer::List(head, items) = list::list(core, call, command).await? else {
        return Err(Status::internal("the list command did not return a list"));
    };
    let resource = call.target.resource()?;
    let objects = items.collect();
    // As upstream, the review of each names the namespace only.
    let collection = ObjectKey::new(call.target.key.namespace(), "");
    let admitting = admitting(call, &collection, options);
    for object in &objects {
        let (kind, key) = (&call.target.kind, object.key());
        let held = hold(call, key.namespace()).await;
        let deleted = delete_one(resource, kind, &key, options, admitting.as_ref()).await;
        match deleted {
            Ok(deletion) => settle(held.as_ref(), resource, options, &deletion).await,
            Err(status) if status.code == 404 => {} // another client has deleted the object
            Err(status) => return Err(status),
        }
    }
    Ok(Answer::List(head, ListItems::Page(objects.into_iter())))
}

/// Holds the namespace of an object that is deleted, if quotas count there.
async fn hold(call: &Call, namespace: &str) -> Option<HeldNamespace> {
    Some(call.quotas()?.hold(namespace).await)
}

/// Tells the quotas of an object that is gone.
async fn settle(
    held: Option<&HeldNamespace>,
    resource: &Resource,
    options: &DeleteOptions,
    deletion: &DeletionResult,
) {
    if let (Some(held), DeletionResult::Done(object), false) = (held, deletion, options.dry_run) {
        Box::pin(held.gone(&resource.kind, object)).await;
    }
}

/// The deletion on its way through admission; `None` if nobody is asked.
fn admitting<'a>(
    call: &'a Call,
    key: &'a ObjectKey,
    options: &DeleteOptions,
) -> Option<Admitting<'a>> {
    call.admitting_with(Operation::Delete, key, options.dry_run, || {
        options.to_value()
    })
}

/// Deletes an object, or marks it as being deleted. Retries if another write was faster.
async fn delete_one(
    resource: &Resource,
    kind: &Arc<Kind>,
    key: &ObjectKey,
    options: &DeleteOptions,
    admitting: Option<&Admitting<'_>>,
) -> Result<DeletionResult, Status> {
    loop {
        let Some(existing) = resource.get(key) else {
            return Err(Status::not_found(kind.group_resource(), key.name()));
        };
        let existing = match kind.is_converted_by_webhook() {
            true => Box::pin(resource.in_version(kind, existing)).await?,
            false => existing,
        };
        options.check(kind, &existing)?;
        if let Some(admitting) = admitting {
            Box::pin(admitting.check(None, Some(&existing))).await?;
        }
        let draft = Draft::of(kind, &existing)?;
        if let Some(deletion) = remove(resource, key, options, &existing, draft).await? {
            return Ok(deletion);
        }
        resource.refresh().await?;
    }
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum DeletionResult {
    /// The object is marked as being deleted; a finalizer or its grace period holds it.
    Held(ObjectOutcome, Object),
    /// The object is gone; this is its last state.
    Done(Object),
}

impl DeletionResult {
    fn answer(self, kind: &Kind) -> Answer {
        match self {
            DeletionResult::Held(outcome, object) => Answer::Object(outcome, object),
            DeletionResult::Done(object) if kind.returns_deleted => {
                Answer::Object(ObjectOutcome::Existing, object)
            }
            // A Status of success that names the object (W160).
            DeletionResult::Done(object) => Answer::Status(Status::success(StatusDetails {
                name: object.name().into_owned(),
                group: kind.group.to_string(),
                kind: kind.plural.to_string(),
                uid: object.uid().into_owned(),
                ..StatusDetails::default()
            })),
        }
    }
}

/// Tries once to delete an object. `None` if another write was faster.
async fn remove(
    resource: &Resource,
    key: &ObjectKey,
    options: &DeleteOptions,
    existing: &Object,
    mut draft: Draft,
) -> Result<Option<DeletionResult>, Status> {
    let kind = draft.kind.clone();
    let grace = kind
        .strategy
        .grace_seconds(&draft, options.grace_period_seconds);
    let finalizers = match kind.strategy.ignores_policy() {
        true => draft.meta.finalizers.clone(),
        false => options.finalizers(&kind, &draft.meta.finalizers),
    };
    let finalizers_change = finalizers != draft.meta.finalizers;
    draft.meta.finalizers = finalizers;
    kind.strategy.hold(&mut draft, &clock::now());
    let held = !draft.meta.finalizers.is_empty()
        || kind.strategy.is_held(&draft)
        || grace.is_some_and(|grace| grace > 0);
    let mut marked = None;
    // An object that is held or has a grace period is first marked as being deleted.
    let marks = mark(&mut draft, grace, options.grace_period_seconds.is_some());
    if (held && (marks || finalizers_change)) || (grace.is_some() && marks) {
        let written = draft.write()?;
        if options.dry_run {
            let object = written.stamped(existing.revision(), EventType::Modified);
            return Ok(Some(DeletionResult::Held(ObjectOutcome::Existing, object)));
        }
        let mark = ObjectWrite::Mark(existing.revision(), &written);
        marked = resource.commit(&kind, key, mark).await?;
        if marked.is_none() {
            return Ok(None);
        }
    }
    let object = marked.unwrap_or_else(|| existing.clone());
    if held {
        let outcome = match options.orphan_dependents {
            Some(false) => ObjectOutcome::Accepted,
            _ => ObjectOutcome::Existing,
        };
        return Ok(Some(DeletionResult::Held(outcome, object)));
    }
    if options.dry_run {
        return Ok(Some(DeletionResult::Done(object)));
    }
    let deleted = resource
        .commit(&kind, key, ObjectWrite::Delete(&object))
        .await?;
    Ok(deleted.map(DeletionResult::Done))
}

/// Marks an object as being deleted, or shortens the grace period of an earlier mark. False if nothing changes.
fn mark(draft: &mut Draft, grace: Option<i64>, grace_requested: bool) -> bool {
    let grace_seconds = grace.unwrap_or(0);
    let first = draft.meta.deletion_timestamp.is_none();
    if !first {
        let known = draft.meta.deletion_grace_period_seconds;
        let sooner = known.is_some_and(|known| grace_seconds < known);
        if !(sooner && grace_requested) {
            return false;
        }
    }
    draft.meta.deletion_timestamp = Some(clock::in_seconds(grace_seconds));
    let kind = draft.kind.clone();
    kind.strategy.mark_deleted(draft, grace_seconds, first);
    true
}
