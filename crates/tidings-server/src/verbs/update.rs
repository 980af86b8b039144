//! PUT: replace an object, its status, or a namespace's finalizers (W142–W148).

use bytes::Bytes;
use http::{Response, StatusCode};
use tidings_api::{
    EventType, FieldError, FieldErrors, GroupVersionKind, Object, ObjectKey, ResourceVersion,
    Status,
};
use tidings_storage::{Error, Revision, Write};

use super::WriteOptions;
use super::create::{respond_created, settle_namespace};
use crate::api::Inner;
use crate::registry::draft::Draft;
use crate::request::{Query, Target};
use crate::respond::{self, ResponseBody};

pub(crate) async fn update(
    api: &Inner,
    target: &Target,
    key: &ObjectKey,
    query: &Query,
    body: &Bytes,
    warnings: &mut Vec<String>,
) -> Result<Response<ResponseBody>, Status> {
    let options = WriteOptions::from_query(query, "UpdateOptions")?;
    let kind = target.kind;
    let mut draft = Draft::read(kind, body)?;
    warnings.extend(options.unknown(kind, &draft.unknown)?);
    check_name(&draft, key.name())?;
    settle_namespace(&mut draft, target)?;
    warnings.extend(draft.meta.deduplicate_owners());
    // Upstream answers 500 to a version that is not a number (W62); it is the client's mistake.
    let expected: ResourceVersion = match draft.meta.resource_version.as_str() {
        "" => ResourceVersion::default(),
        text => text
            .parse()
            .map_err(|error: tidings_api::go::ParseNumberError| {
                Status::bad_request(error.to_string())
            })?,
    };
    loop {
        let Some(existing) = api.current(kind, key).await? else {
            let create = kind.create_on_update && target.subresource.is_none();
            if !create {
                return Err(Status::not_found(kind.group_resource(), key.name()));
            }
            if !draft.meta.uid.is_empty() {
                let why = uid_precondition(&draft.meta.uid, "");
                return Err(Status::conflict(kind.group_resource(), key.name(), &why));
            }
            draft.meta.resource_version.clear();
            return respond_created(api, draft, options).await;
        };
        match replace(api, target, key, &draft, expected, &existing, options).await? {
            Some(response) => return Ok(response),
            None => api.refresh(kind).await?, // someone else was faster: look again
        }
    }
}

/// W142.
fn check_name(draft: &Draft, name: &str) -> Result<(), Status> {
    match draft.meta.name.as_str() {
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
    target: &Target,
    key: &ObjectKey,
    draft: &Draft,
    expected: ResourceVersion,
    existing: &Object,
    options: WriteOptions,
) -> Result<Option<Response<ResponseBody>>, Status> {
    let kind = target.kind;
    let resource = kind.group_resource();
    let at = existing.revision();
    if expected > ResourceVersion::default() && expected != at {
        api.refresh(kind).await?; // the cache may be the one that is behind
        return match api.cache(kind).get(key) {
            Some(fresh) if fresh.revision() == expected => Ok(None),
            _ => Err(Status::modified(resource, key.name())),
        };
    }
    let old = Draft::of(kind, existing)?;
    let mut new = draft.clone();
    if !new.meta.uid.is_empty() && new.meta.uid != old.meta.uid {
        let why = uid_precondition(&new.meta.uid, &old.meta.uid);
        return Err(Status::conflict(resource, key.name(), &why));
    }
    if kind.conditional_update && expected == ResourceVersion::default() {
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
    inherit(&mut new, &old);
    new.prepare_for_update(&old, target.subresource.as_deref());
    let mut errors = FieldErrors::new();
    new.validate_update(&old, &mut errors);
    new.meta.validate(kind, &mut errors);
    new.validate(&mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid(
            kind.group_version_kind(),
            key.name(),
            &errors,
        ));
    }
    let value = new.to_bytes()?;
    let revision = Revision(at.get());
    let store_key = api.store_key(kind, key);
    let stamped = |at: ResourceVersion| {
        Object::stamped(&value, at, EventType::Modified).map_err(Status::internal)
    };
    if options.dry_run {
        return Ok(Some(respond::object(StatusCode::OK, &stamped(at)?)));
    }
    if new.meta.may_go() && new.namespace_is_empty() {
        // W147: the last thing that held the object is gone. The answer has the revision it had.
        return match api.store.write(Write::delete(store_key, revision)).await {
            Ok(_) => Ok(Some(respond::object(StatusCode::OK, &stamped(at)?))),
            Err(error) => retry_or_fail(api, error),
        };
    }
    if value == old.to_bytes()? {
        // W103: nothing changes, if this is really the current object.
        api.refresh(kind).await?;
        let current = api
            .cache(kind)
            .get(key)
            .is_some_and(|fresh| fresh.revision() == at);
        return Ok(current.then(|| respond::object(StatusCode::OK, existing)));
    }
    match api
        .store
        .write(Write::update(store_key, revision, value.clone()))
        .await
    {
        Ok(revision) => Ok(Some(respond::object(
            StatusCode::OK,
            &stamped(ResourceVersion::new(revision.0))?,
        ))),
        Err(error) => retry_or_fail(api, error),
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
    if new.meta.generate_name.is_empty() {
        new.meta.generate_name.clone_from(&old.meta.generate_name);
    }
}
