//! How an existing object is changed: read, edited, checked, committed, and again if another write was faster.

use std::sync::{Mutex, PoisonError};

use tidings_api::{
    EventType, FieldError, FieldErrors, GroupVersionKind, Object, ResourceVersion, Status,
    UnstampedObject,
};
use tidings_registry::{Draft, ScaleView, Subresource, WriteOptions, keep_times, track_updated};

use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::clock;
use super::resource::ObjectWrite;
use super::target::Target;

/// The draft of a request, for the first try. For another try, which is rare, it is read again: a tree that lives while the store writes is
/// often freed by another thread than the one that made it, and that costs more than reading it.
pub(crate) struct FirstAttempt<T>(Mutex<Option<T>>);

impl<T> FirstAttempt<T> {
    pub(super) fn new(read: T) -> FirstAttempt<T> {
        FirstAttempt(Mutex::new(Some(read)))
    }

    pub(super) fn take_or(&self, again: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.map_or_else(again, Ok)
    }
}

/// An object after an edit.
pub(crate) struct EditedObject {
    pub(super) new: Draft,
    /// The object before it, if the edit had to read it.
    pub(super) old: Option<Draft>,
}

impl From<Draft> for EditedObject {
    fn from(new: Draft) -> EditedObject {
        EditedObject { new, old: None }
    }
}

/// Makes something of an existing object.
pub(crate) type EditFn<'a, T> = &'a (dyn Fn(&Object) -> Result<T, Status> + Sync);

/// Changes an object to what `edit` makes of it, again if another write was faster.
pub(crate) async fn change(
    call: &Call,
    options: WriteOptions,
    edit: EditFn<'_, Draft>,
) -> Result<Answer, Status> {
    let edit = |existing: &Object| Ok(Some(edit(existing)?.into()));
    let changed = change_if_there(call, options, &edit).await?;
    changed.ok_or_else(|| call.target.not_found())
}

/// Changes an object like [`change`]; `None` if it does not exist. Only this tells whether it exists: the cache may still have an object that
/// is gone. An edit returns `None` if the object is as it is to be.
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
        let tried = match edit(&existing) {
            Ok(Some(edited)) => replace(call, edited, &existing, options).await,
            Ok(None) if options.dry_run => Ok(Some(existing.clone())),
            Ok(None) => leave(call, &existing).await,
            Err(status) => Err(status),
        };
        match tried {
            Ok(Some(changed)) => return answer(call, changed).map(Some),
            // Failures of the store are not about the object, and a write that may have been done is not done again.
            Err(status) if status.code >= 500 || matches!(status.code, 413 | 429) => {
                return Err(status);
            }
            _ => {}
        }
        resource.refresh().await?;
        // Either another write was faster, or the refusal may be due to the cache being behind: look again.
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

/// Tries once to replace an object. `None` if it is not as the cache has it, and the client did not name a version.
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
        resource.refresh().await?; // the cache may be the one that is behind
        return match resource.get(key) {
            Some(fresh) if fresh.revision() == expected => Ok(None),
            _ => Err(Status::modified(kind.group_resource(), key.name())),
        };
    }
    let NextState { written, step } = next_state(call, edited, existing, expected)?;
    let unchanged_version = || written.stamped(at, EventType::Modified);
    if options.dry_run {
        return Ok(Some(unchanged_version()));
    }
    match step {
        WriteStep::Delete => {
            let deleted = resource
                .commit(kind, key, ObjectWrite::Delete(existing))
                .await?;
            // The answer has the revision that the object had (W147).
            Ok(deleted.map(|_| unchanged_version()))
        }
        WriteStep::Leave => leave(call, existing).await,
        WriteStep::Write => {
            resource
                .commit(kind, key, ObjectWrite::Update(at, &written))
                .await
        }
    }
}

/// The object after an update, and what is to be done about it.
struct NextState {
    written: UnstampedObject,
    step: WriteStep,
}

enum WriteStep {
    Write,
    /// Nothing has changed.
    Leave,
    /// The last thing that held the object is gone (W147).
    Delete,
}

/// Everything that is done before the store is asked. Both drafts end here.
fn next_state(
    call: &Call,
    edited: EditedObject,
    existing: &Object,
    expected: ResourceVersion,
) -> Result<NextState, Status> {
    let (kind, key) = (&call.target.kind, &call.target.key);
    let subresource = call.target.subresource;
    let EditedObject { mut new, old } = edited;
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
    new.prepare_for_update(&old, subresource);
    let mut errors = FieldErrors::new();
    new.validate(kind, Some(&old), subresource, &mut errors);
    if !errors.is_empty() {
        let kind = kind.group_version_kind();
        return Err(Status::invalid(kind, key.name(), &errors));
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

/// Leaves an object as it is, if the cache really has its current state (W103).
async fn leave(call: &Call, existing: &Object) -> Result<Option<Object>, Status> {
    let resource = call.target.resource()?;
    resource.refresh().await?;
    let fresh = resource.get(&call.target.key);
    let current = fresh.is_some_and(|fresh| fresh.revision() == existing.revision());
    Ok(current.then(|| existing.clone()))
}

/// The version that the client names. Upstream answers 500 to one that is not a number (W62); it is the client's mistake.
fn expected_version(draft: &Draft) -> Result<ResourceVersion, Status> {
    match draft.meta.resource_version.as_str() {
        "" => Ok(ResourceVersion::default()),
        text => text
            .parse()
            .map_err(|error: tidings_go::ParseNumberError| Status::bad_request(error.to_string())),
    }
}

/// The reason of a conflict about the uid (W144).
pub(super) fn uid_precondition(said: &str, stored: &str) -> String {
    format!("Precondition failed: UID in precondition: {said}, UID in object meta: {stored}")
}

/// Takes from the stored object the metadata that clients cannot set (W146).
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
