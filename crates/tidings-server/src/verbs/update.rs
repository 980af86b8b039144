//! PUT: replace an object, its status, or a namespace's finalizers (W142–W148).

use std::sync::{Mutex, PoisonError};

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, StatusCode};
use tidings_api::{
    EventType, FieldError, FieldErrors, GroupVersionKind, Object, ObjectKey, ResourceVersion,
    Status,
};
use tidings_storage::{Error, Revision, Write};

use super::create::{create_from, settle_namespace};
use super::scale::Wanted;
use super::{Ask, WriteOptions};
use crate::api::Inner;
use crate::clock;
use crate::registry::draft::{Draft, Written};
use crate::registry::{Kind, managed};
use crate::request::{Query, Target};
use crate::respond::Answer;

pub(crate) async fn update(api: &Inner, ask: &mut Ask<'_>) -> Result<Answer, Status> {
    let options = WriteOptions::from_query(ask.query, "UpdateOptions")?;
    let kind = ask.kind();
    if ask.target.subresource.as_deref() == Some("scale") {
        let wanted = Wanted::read(&ask.json()?, &ask.key)?;
        check_name(&wanted.name, ask.key.name())?;
        return change(api, ask, options, &|existing| {
            let mut draft = Draft::of(kind, existing)?;
            wanted.apply(&mut draft);
            Ok(draft)
        })
        .await;
    }
    let json = ask.json()?;
    let mut draft = Draft::read(kind, &json)?;
    ask.warnings.extend(options.odd_fields(kind, &draft.odd)?);
    check_name(&draft.meta.name, ask.key.name())?;
    settle_namespace(&mut draft, ask.target)?;
    ask.warnings.extend(draft.meta.deduplicate_owners(false));
    let draft = Once::new(draft);
    let target = ask.target;
    let again = || {
        let mut draft = Draft::read(kind, &json)?;
        settle_namespace(&mut draft, target)?;
        draft.meta.deduplicate_owners(false);
        Ok(draft)
    };
    if !(kind.create_on_update && target.subresource.is_none()) {
        return change(api, ask, options, &|_| draft.take_or(again)).await;
    }
    let edit = |_: &Object| Ok(Some(draft.take_or(again)?.into()));
    if let Some(changed) = change_if_there(api, ask, options, &edit).await? {
        return Ok(changed);
    }
    let mut draft = draft.take_or(again)?;
    if !draft.meta.uid.is_empty() {
        let why = uid_precondition(&draft.meta.uid, "");
        let resource = kind.group_resource();
        return Err(Status::conflict(resource, ask.key.name(), &why));
    }
    draft.meta.resource_version.clear();
    create_from(api, draft, options, &ask.manager()).await
}

/// What a request brings, for the first try. For another, which is rare, it is read again: a tree that lives while the store
/// writes is often freed by another thread than the one that made it, and that costs more than reading it.
pub(crate) struct Once<T>(Mutex<Option<T>>);

impl<T> Once<T> {
    pub(crate) fn new(read: T) -> Once<T> {
        Once(Mutex::new(Some(read)))
    }

    pub(crate) fn take_or(&self, again: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.map_or_else(again, Ok)
    }
}

/// What an object is to become.
pub(crate) struct Edited {
    pub(crate) new: Draft,
    /// What it is, if that had to be read.
    pub(crate) old: Option<Draft>,
}

impl From<Draft> for Edited {
    fn from(new: Draft) -> Edited {
        Edited { new, old: None }
    }
}

/// What is to become of an object.
type Edit<'a, T> = &'a (dyn Fn(&Object) -> Result<T, Status> + Sync);

/// Changes an object to what `edit` makes of it, again if somebody else was faster.
pub(crate) async fn change(
    api: &Inner,
    ask: &Ask<'_>,
    options: WriteOptions,
    edit: Edit<'_, Draft>,
) -> Result<Answer, Status> {
    let edit = |existing: &Object| Ok(Some(edit(existing)?.into()));
    let changed = change_if_there(api, ask, options, &edit).await?;
    changed.ok_or_else(|| Status::not_found(ask.kind().group_resource(), ask.key.name()))
}

/// Changes an object as a client would, for the server itself, if it is still the one that is meant.
pub(crate) async fn edit(
    api: &Inner,
    kind: &'static Kind,
    key: &ObjectKey,
    is_meant: impl Fn(&Object) -> bool + Sync,
    subresource: Option<&str>,
    edit: impl Fn(&mut Draft) + Sync,
) -> Result<(), Status> {
    let namespace = Some(key.namespace()).filter(|_| kind.namespaced);
    let target = Target {
        kind,
        namespace: namespace.map(ToOwned::to_owned),
        name: Some(key.name().to_owned()),
        subresource: subresource.map(ToOwned::to_owned),
        forced_watch: false,
    };
    let (query, mut headers) = (Query::default(), HeaderMap::new());
    headers.insert(USER_AGENT, HeaderValue::from_static("tidings"));
    let ask = Ask::new(&target, &query, &headers);
    let edited = |existing: &Object| {
        if !is_meant(existing) {
            return Err(Status::not_found(kind.group_resource(), key.name()));
        }
        let mut draft = Draft::of(kind, existing)?;
        edit(&mut draft);
        Ok(draft)
    };
    change(api, &ask, WriteOptions::default(), &edited).await?;
    Ok(())
}

/// The same; `None` if there is no such object. One that the cache still has may be gone, so this alone tells. An edit that knows
/// that an object is as it is to become says `None` too, and saves the work.
pub(crate) async fn change_if_there(
    api: &Inner,
    ask: &Ask<'_>,
    options: WriteOptions,
    edit: Edit<'_, Option<Edited>>,
) -> Result<Option<Answer>, Status> {
    let kind = ask.kind();
    loop {
        let Some(existing) = api.current(kind, &ask.key).await? else {
            return Ok(None);
        };
        let tried = match edit(&existing) {
            Ok(Some(edited)) => replace(api, ask, edited, &existing, options).await,
            Ok(None) if options.dry_run => Ok(Some(existing.clone())),
            Ok(None) => leave(api, ask, &existing).await,
            Err(status) => Err(status),
        };
        match tried {
            Ok(Some(changed)) => return answer(ask, changed).map(Some),
            // What the store says is not about the object, and a write that may have been done is not done again.
            Err(status) if status.code >= 500 || matches!(status.code, 413 | 429) => {
                return Err(status);
            }
            _ => {}
        }
        api.refresh(kind).await?;
        // Either someone else was faster, or what is wrong may be wrong only with what the cache had: look again.
        let fresh = api.cache(kind).get(&ask.key);
        let same = fresh.is_some_and(|fresh| fresh.revision() == existing.revision());
        if let (Err(status), true) = (tried, same) {
            return Err(status);
        }
    }
}

fn answer(ask: &Ask<'_>, changed: Object) -> Result<Answer, Status> {
    match ask.target.subresource.as_deref() {
        Some("scale") => Ok(Answer::Document(
            StatusCode::OK,
            super::scale::of(&changed, ask.kind())?.to_json()?,
        )),
        _ => Ok(Answer::Object(StatusCode::OK, changed)),
    }
}

/// W142.
pub(crate) fn check_name(said: &str, name: &str) -> Result<(), Status> {
    match said {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        said if said == name => Ok(()),
        said => Err(Status::bad_request(format!(
            "the name of the object ({said}) does not match the name on the URL ({name})"
        ))),
    }
}

/// One try to replace an object. `None` if it is not as the cache has it, and the client did not say which it means.
async fn replace(
    api: &Inner,
    ask: &Ask<'_>,
    edited: Edited,
    existing: &Object,
    options: WriteOptions,
) -> Result<Option<Object>, Status> {
    let (kind, key) = (ask.kind(), &ask.key);
    let at = existing.revision();
    let expected = expected_version(&edited.new)?;
    if expected > ResourceVersion::default() && expected != at {
        api.refresh(kind).await?; // the cache may be the one that is behind
        return match api.cache(kind).get(key) {
            Some(fresh) if fresh.revision() == expected => Ok(None),
            _ => Err(Status::modified(kind.group_resource(), key.name())),
        };
    }
    let Next { written, then } = next(ask, edited, existing, expected)?;
    let revision = Revision(at.get());
    let stamped = |at: ResourceVersion| written.stamped(at, EventType::Modified);
    if options.dry_run {
        return Ok(Some(stamped(at)));
    }
    match then {
        // W147: the last thing that held the object is gone. The answer has the revision it had.
        Then::Delete => {
            let delete = Write::delete(api.store_key(kind, key)?, revision);
            match api.store.write(delete).await {
                Ok(_) => Ok(Some(stamped(at))),
                Err(error) => retry_or_fail(api, error),
            }
        }
        Then::Leave => leave(api, ask, existing).await,
        Then::Write => api.put(kind, key, Some(revision), &written).await,
    }
}

/// What an object becomes, and what is to be done about it.
struct Next {
    written: Written,
    then: Then,
}

enum Then {
    Write,
    Leave,
    Delete,
}

/// All that is done before the store is asked. Both drafts end here.
fn next(
    ask: &Ask<'_>,
    edited: Edited,
    existing: &Object,
    expected: ResourceVersion,
) -> Result<Next, Status> {
    let (kind, key) = (ask.kind(), &ask.key);
    let Edited { mut new, old } = edited;
    let old = match old {
        Some(old) => old,
        None => Draft::of(kind, existing)?,
    };
    if !new.meta.uid.is_empty() && new.meta.uid != old.meta.uid {
        let why = uid_precondition(&new.meta.uid, &old.meta.uid);
        return Err(Status::conflict(kind.group_resource(), key.name(), &why));
    }
    let scales = ask.target.subresource.as_deref() == Some("scale");
    if kind.conditional_update && !scales && expected == ResourceVersion::default() {
        let wrong = FieldError::invalid_value(
            "metadata.resourceVersion",
            0,
            "must be specified for an update",
        );
        let kind = GroupVersionKind {
            kind: kind.plural,
            ..kind.group_version_kind()
        };
        return Err(Status::invalid(kind, key.name(), &wrong.into()));
    }
    new.check_depth()?;
    inherit(&mut new, &old);
    new.prepare_for_update(&old, ask.target.subresource.as_deref());
    let mut errors = FieldErrors::new();
    new.meta.validate(kind, &mut errors);
    new.validate(Some(&old), ask.target.subresource.as_deref(), &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid(
            kind.group_version_kind(),
            key.name(),
            &errors,
        ));
    }
    managed::track_updated(&mut new, &old, &ask.manager(), &clock::now());
    managed::keep_times(&mut new, &old);
    let then = if new.meta.may_go() && new.namespace_is_empty() {
        Then::Delete
    } else if new.is_same_as(&old) {
        Then::Leave
    } else {
        Then::Write
    };
    Ok(Next {
        written: new.write()?,
        then,
    })
}

/// W103: nothing changes, if this is really the current object.
async fn leave(api: &Inner, ask: &Ask<'_>, existing: &Object) -> Result<Option<Object>, Status> {
    let kind = ask.kind();
    api.refresh(kind).await?;
    let fresh = api.cache(kind).get(&ask.key);
    let current = fresh.is_some_and(|fresh| fresh.revision() == existing.revision());
    Ok(current.then(|| existing.clone()))
}

/// The version that the client means. Upstream answers 500 to one that is not a number (W62); it is the client's mistake.
fn expected_version(draft: &Draft) -> Result<ResourceVersion, Status> {
    match draft.meta.resource_version.as_str() {
        "" => Ok(ResourceVersion::default()),
        text => text
            .parse()
            .map_err(|error: tidings_api::go::ParseNumberError| {
                Status::bad_request(error.to_string())
            }),
    }
}

/// W144.
fn uid_precondition(said: &str, stored: &str) -> String {
    format!("Precondition failed: UID in precondition: {said}, UID in object meta: {stored}")
}

/// A lost race is tried again: the client's own version, if it gave one, is compared then.
pub(crate) fn retry_or_fail<T>(api: &Inner, error: Error) -> Result<Option<T>, Status> {
    match error {
        Error::Conflict { .. } => Ok(None),
        error => Err(api.store_failed(error)),
    }
}

/// W146: what the client cannot set is as it was.
fn inherit(new: &mut Draft, old: &Draft) {
    new.meta.uid.clone_from(&old.meta.uid);
    new.meta
        .resource_version
        .clone_from(&old.meta.resource_version);
    new.meta
        .creation_timestamp
        .clone_from(&old.meta.creation_timestamp);
    if new.meta.deletion_timestamp.is_none() {
        new.meta
            .deletion_timestamp
            .clone_from(&old.meta.deletion_timestamp);
    }
    if new.meta.deletion_grace_period_seconds.is_none() {
        new.meta.deletion_grace_period_seconds = old.meta.deletion_grace_period_seconds;
    }
}
