//! Changes an existing object: reads, edits, validates and commits it, and retries if another write was faster.

use std::sync::{Mutex, PoisonError};

use tidings_admission::Operation;
use tidings_api::{
    EventType, FieldError, GroupVersionKind, Object, ResourceVersion, Status, UnstampedObject,
};
use tidings_registry::{Draft, ScaleView, Subresource, WriteOptions, keep_times, track_updated};

use super::admission::Admitting;
use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::certificates;
use super::clock;
use super::long_work::check;
use super::policy_index::is_policy;
use super::resource::ObjectWrite;
use super::target::Target;

/// The parsed body of a request, for the first attempt to write it. A second attempt is rare and parses the body again. The alternative, to
/// keep the tree while the store writes, costs more: the tree is then often freed by another thread than the one that allocated it.
pub(crate) struct FirstAttempt<T>(Mutex<Option<T>>);

impl<T> FirstAttempt<T> {
    pub(super) fn new(parsed: T) -> FirstAttempt<T> {
        FirstAttempt(Mutex::new(Some(parsed)))
    }

    pub(super) fn take_or(&self, parse: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.map_or_else(parse, Ok)
    }
}

/// An object after an edit.
pub(crate) struct EditedObject {
    pub(super) new: Draft,
    /// The object before the edit, if the edit has parsed it.
    pub(super) old: Option<Draft>,
    /// The writer takes fields that others own: an apply does so only if it is forced.
    pub(super) takes: bool,
}

impl From<Draft> for EditedObject {
    fn from(new: Draft) -> EditedObject {
        EditedObject {
            new,
            old: None,
            takes: true,
        }
    }
}

/// Makes a new state from the existing object.
pub(crate) type EditFn<'a, T> = &'a (dyn Fn(&Object) -> Result<T, Status> + Sync);

/// Replaces an object by what `edit` makes of it. Retries if another write was faster.
pub(crate) async fn change(
    call: &Call,
    options: WriteOptions,
    edit: EditFn<'_, Draft>,
) -> Result<Answer, Status> {
    let edit = |existing: &Object| Ok(Some(edit(existing)?.into()));
    let changed = change_if_there(call, options, &edit).await?;
    changed.ok_or_else(|| call.target.not_found())
}

/// Changes an object like [`change`]; `None` if it does not exist. Callers must not check the cache for that: it may still have an object
/// that is gone. `edit` returns `None` if the object needs no change.
pub(crate) async fn change_if_there(
    call: &Call,
    options: WriteOptions,
    edit: EditFn<'_, Option<EditedObject>>,
) -> Result<Option<Answer>, Status> {
    tracing::trace!(target: "tidings::walk", "changes the current object, again if another write was faster");
    let (resource, key) = (call.target.resource()?, &call.target.key);
    loop {
        let Some(existing) = resource.current(key).await? else {
            return Ok(None);
        };
        let existing = resource
            .edited_in_version(&call.target.kind, existing)
            .await?;
        let tried = match edit(&existing) {
            Ok(Some(edited)) => replace(call, edited, &existing, options).await,
            Ok(None) if options.dry_run => Ok(Some(existing.clone())),
            Ok(None) => leave(call, &existing).await,
            Err(status) => Err(status),
        };
        match tried {
            Ok(Some(changed)) => return answer(call, changed).map(Some),
            // A failure of the store is not retried: the write may have been done.
            Err(status) if status.code >= 500 || matches!(status.code, 413 | 429) => {
                return Err(status);
            }
            _ => {}
        }
        resource.refresh().await?;
        // Another write was faster, or the edit was refused because the cache was behind. Try again, unless the object is still the same.
        let fresh = resource.get(key);
        let same = fresh.is_some_and(|fresh| fresh.revision() == existing.revision());
        if let (Err(status), true) = (tried, same) {
            return Err(status);
        }
    }
}

fn answer(call: &Call, changed: Object) -> Result<Answer, Status> {
    match call.target.subresource {
        Some(Subresource::Scale) => {
            let scale = ScaleView::of(&changed, &call.target.kind)?;
            Ok(Answer::Document(scale.to_json()?))
        }
        _ => Ok(Answer::Object(ObjectOutcome::Existing, changed)),
    }
}

/// Tries once to replace an object. `None` if the object in the store is newer than `existing` and the client did not require a version.
async fn replace(
    call: &Call,
    edited: EditedObject,
    existing: &Object,
    options: WriteOptions,
) -> Result<Option<Object>, Status> {
    let Target { kind, key, .. } = &call.target;
    let resource = call.target.resource()?;
    let at = existing.revision();
    let expected = expected_version(&edited.new)?;
    if expected > ResourceVersion::default() && expected != at {
        resource.refresh().await?; // the client may know a newer version than the cache
        return match resource.get(key) {
            Some(fresh) if fresh.revision() == expected => Ok(None),
            _ => Err(Status::modified(kind.group_resource(), key.name())),
        };
    }
    let mut edited = edited;
    if let Some(plugins) = call.plugins() {
        let old = match edited.old.take() {
            Some(old) => old,
            None => Draft::of(kind, existing)?,
        };
        let old = edited.old.insert(old);
        let filled = plugins.change(call.by(Operation::Update), &mut edited.new, Some(old));
        Box::pin(filled).await?;
    }
    let admitting = call.admitting(Operation::Update, key, options);
    let edited = match &admitting {
        Some(admitting) => Box::pin(admitted(call, admitting, edited, existing)).await?,
        None => edited,
    };
    let takes = edited.takes;
    let NextState { written, step } = next_state(call, edited, existing, expected)?;
    let written = match (&step, kind.is_converted_by_webhook()) {
        (WriteStep::Write, true) => {
            let manager = call.manager();
            let settled = resource.settle_owners(kind, existing, written, (&manager, takes));
            Box::pin(settled).await?
        }
        _ => written,
    };
    if let Some(admitting) = admitting.filter(Admitting::is_checked) {
        let new = written.stamped(at, EventType::Modified);
        Box::pin(admitting.check(Some(&new), Some(existing))).await?;
    }
    let counted = match call.quotas() {
        Some(quotas) if matches!(step, WriteStep::Write) => {
            let states = (Some(&**written.value()), Some(existing));
            Some(Box::pin(quotas.begin(&call.target, key, states, options.dry_run)).await?)
        }
        _ => None,
    };
    if options.dry_run {
        let written = Box::pin(resource.as_read_again(kind, written)).await?;
        return Ok(Some(written.stamped(at, EventType::Modified)));
    }
    let unchanged_version = || written.stamped(at, EventType::Modified);
    let written = match step {
        WriteStep::Delete => {
            let held = match call.quotas() {
                Some(quotas) => Some(quotas.hold(key.namespace()).await),
                None => None,
            };
            let deleted = resource
                .commit(kind, key, ObjectWrite::Delete(existing))
                .await?;
            if let (Some(_), Some(held)) = (&deleted, &held) {
                Box::pin(held.gone(&resource.kind, existing)).await;
            }
            // The answer keeps the resourceVersion that the object had before (W147).
            Ok(deleted.map(|_| unchanged_version()))
        }
        WriteStep::Leave if !resource.is_outdated(key).await? => leave(call, existing).await,
        WriteStep::Leave | WriteStep::Write => {
            resource
                .commit(kind, key, ObjectWrite::Update(at, &written))
                .await
        }
    };
    if let Some(counted) = counted {
        Box::pin(counted.end(&written)).await;
    }
    written
}

/// An edited object with what admission changes of it.
async fn admitted(
    call: &Call,
    admitting: &Admitting<'_>,
    edited: EditedObject,
    existing: &Object,
) -> Result<EditedObject, Status> {
    // Those who are asked see who will own which fields.
    let tracked = |mut draft: Draft| {
        if draft.keeps_owners {
            return Ok(draft);
        }
        let old = Draft::of(&call.target.kind, existing)?;
        track_updated(&mut draft, &old, &call.manager(), &clock::now());
        Ok(draft)
    };
    let changed = admitting
        .change(&edited.new, Some(existing), tracked)
        .await?;
    Ok(match changed {
        Some(new) => EditedObject { new, ..edited },
        None => edited,
    })
}

/// The object after an update, and how to store it.
struct NextState {
    written: UnstampedObject,
    step: WriteStep,
}

enum WriteStep {
    Write,
    /// Nothing has changed, so nothing is written.
    Leave,
    /// The object is being deleted, and the update removed its last finalizer (W147).
    Delete,
}

/// Prepares and validates the new state. Both drafts are dropped here, before the store writes.
fn next_state(
    call: &Call,
    edited: EditedObject,
    existing: &Object,
    expected: ResourceVersion,
) -> Result<NextState, Status> {
    let (kind, key) = (&call.target.kind, &call.target.key);
    let subresource = call.target.subresource;
    let EditedObject { mut new, old, .. } = edited;
    let old = match old {
        Some(old) => old,
        None => Draft::of(kind, existing)?,
    };
    if !new.meta.uid.is_empty() && new.meta.uid != old.meta.uid {
        let why = uid_precondition(&new.meta.uid, &old.meta.uid);
        return Err(Status::conflict(kind.group_resource(), key.name(), &why));
    }
    let scales = subresource == Some(Subresource::Scale);
    if kind.conditional_update && !scales && expected == ResourceVersion::default() {
        let wrong = FieldError::invalid_value(
            "metadata.resourceVersion",
            0,
            "must be specified for an update",
        );
        let kind = GroupVersionKind {
            kind: &kind.plural,
            ..kind.group_version_kind()
        };
        return Err(Status::invalid(kind, key.name(), &wrong.into()));
    }
    new.check_depth()?;
    inherit(&mut new, &old);
    if let Some(access) = &call.grants
        && is_policy(kind)
    {
        call.decider(access)
            .check_grant(&call.user, key.name(), &new, Some(&old))?;
    }
    new.prepare_for_update(&old, subresource);
    let is_request = certificates::is_request(kind);
    if is_request {
        certificates::stamp_conditions(&mut new, &old, &clock::now());
    }
    check(kind, key.name(), &new, Some(&old), subresource)?;
    call.check_owners(&new, Some(&old))?;
    if let Some(plugins) = call.plugins() {
        plugins.check(call.by(Operation::Update), &new, Some(&old))?;
    }
    if let Some(access) = call.grants.as_ref().filter(|_| is_request) {
        let decider = call.decider(access);
        certificates::check_signer(&decider, &call.user, subresource, &new, &old)?;
    }
    track_updated(&mut new, &old, &call.manager(), &clock::now());
    keep_times(&mut new, &old);
    let step = if new.may_go() {
        WriteStep::Delete
    } else if new.is_same_as(&old) {
        WriteStep::Leave
    } else {
        WriteStep::Write
    };
    Ok(NextState {
        written: new.write()?,
        step,
    })
}

/// Answers a write that changes nothing, if the cache has the current state of the object (W103). `None` if the cache was behind.
async fn leave(call: &Call, existing: &Object) -> Result<Option<Object>, Status> {
    let resource = call.target.resource()?;
    resource.refresh().await?;
    let fresh = resource.get(&call.target.key);
    let current = fresh.is_some_and(|fresh| fresh.revision() == existing.revision());
    Ok(current.then(|| existing.clone()))
}

/// The resourceVersion in the body of the client. To one that is not a number kube-apiserver answers 500 (W62); we answer 400, because it
/// is the client's mistake.
fn expected_version(draft: &Draft) -> Result<ResourceVersion, Status> {
    match draft.meta.resource_version.as_str() {
        "" => Ok(ResourceVersion::default()),
        text => text
            .parse()
            .map_err(|error: tidings_go::ParseNumberError| Status::bad_request(error.to_string())),
    }
}

/// The message of a conflict about the uid (W144).
pub(super) fn uid_precondition(requested: &str, stored: &str) -> String {
    format!("Precondition failed: UID in precondition: {requested}, UID in object meta: {stored}")
}

/// Copies the metadata that clients cannot set from the stored object (W146).
fn inherit(new: &mut Draft, old: &Draft) {
    let (new, old) = (&mut new.meta, &old.meta);
    new.uid.clone_from(&old.uid);
    new.resource_version.clone_from(&old.resource_version);
    new.creation_timestamp.clone_from(&old.creation_timestamp);
    if new.deletion_timestamp.is_none() {
        new.deletion_timestamp.clone_from(&old.deletion_timestamp);
    }
    if new.deletion_grace_period_seconds.is_none() {
        new.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    }
}
