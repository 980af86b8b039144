//! POST: create an object (W132–W141).

use bytes::Bytes;
use http::StatusCode;
use tidings_api::{Cause, FieldErrors, Object, ObjectKey, ResourceVersion, Status};
use tidings_merge::Manager;
use uuid::Uuid;

use super::{Ask, WriteOptions};
use crate::api::Inner;
use crate::clock;
use crate::registry::draft::Draft;
use crate::registry::managed;
use crate::registry::{self, Kind};
use crate::request::Target;
use crate::respond::Answer;

/// How often a generated name may be taken already (W137).
const GENERATE_TRIES: usize = 8;

pub(crate) async fn create(api: &Inner, ask: &mut Ask<'_>) -> Result<Answer, Status> {
    let options = WriteOptions::from_query(ask.query, "CreateOptions")?;
    let mut draft = Draft::read(ask.kind(), &ask.json()?)?;
    ask.warnings
        .extend(options.odd_fields(ask.kind(), &draft.odd)?);
    settle_namespace(&mut draft, ask.target)?;
    ask.warnings.extend(draft.meta.deduplicate_owners(false));
    if ask.kind().custom.is_some() {
        ask.warnings.extend(draft.meta.finalizer_warnings(&[]));
    }
    create_from(api, draft, options, &ask.manager()).await
}

/// W134.
pub(crate) fn settle_namespace(draft: &mut Draft, target: &Target) -> Result<(), Status> {
    let said = &mut draft.meta.namespace;
    match &target.namespace {
        Some(namespace) if said.is_empty() => said.clone_from(namespace),
        Some(namespace) if namespace == said => {}
        Some(_) => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
        None => said.clear(),
    }
    Ok(())
}

/// Creates an object from a draft whose namespace is settled.
pub(crate) async fn create_from(
    api: &Inner,
    mut draft: Draft,
    options: WriteOptions,
    manager: &Manager,
) -> Result<Answer, Status> {
    let kind = draft.kind;
    if kind.live().is_some_and(|live| live.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status::forbidden(
            kind.group_resource(),
            &draft.meta.name,
            why,
        ));
    }
    let meta = &mut draft.meta;
    // Upstream takes what is not a number as unset.
    if meta
        .resource_version
        .parse()
        .unwrap_or(ResourceVersion::default())
        > ResourceVersion::default()
    {
        return Err(Status::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    meta.uid = Uuid::new_v4().to_string();
    meta.creation_timestamp = Some(clock::now());
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    let generated = meta.name.is_empty() && !meta.generate_name.is_empty();
    let tries = if generated { GENERATE_TRIES } else { 1 };
    if kind.namespaced {
        let name = if meta.name.is_empty() {
            meta.generate_name.clone()
        } else {
            meta.name.clone()
        };
        check_namespace(api, kind, &meta.namespace.clone(), &name).await?;
    }
    draft.check_depth()?;
    draft.fill_in();
    managed::track_created(&mut draft, manager, &clock::now());
    draft.prepare_for_create();
    for attempt in 1..=tries {
        if generated {
            draft.meta.name = generate_name(&draft.meta.generate_name);
            draft.prepare_for_create(); // a namespace carries its name as a label
        }
        let mut errors = FieldErrors::new();
        draft.meta.validate(kind, &mut errors);
        draft.validate(None, None, &mut errors);
        if !errors.is_empty() {
            return Err(Status::invalid(
                kind.group_version_kind(),
                &draft.meta.name,
                &errors,
            ));
        }
        let key = ObjectKey::new(&draft.meta.namespace, &draft.meta.name);
        let written = draft.write()?;
        if options.dry_run {
            api.refresh(kind).await?;
            return match api.cache(kind).get(&key) {
                None => Ok(Answer::Object(
                    StatusCode::CREATED,
                    unstored(written.value)?,
                )),
                Some(existing) => Err(already_exists(kind, &key, Some(&existing))),
            };
        }
        if attempt == tries {
            draft.members.clear(); // before the store writes, see `Once`
        }
        if let Some(object) = api.put(kind, &key, None, &written).await? {
            return Ok(Answer::Object(StatusCode::CREATED, object));
        }
        if attempt == tries {
            api.refresh(kind).await?;
            let mut status = already_exists(kind, &key, api.cache(kind).get(&key).as_ref());
            if generated {
                status
                    .message
                    .push_str(", the server was not able to generate a unique name for the object");
                status.details.get_or_insert_default().retry_after_seconds = 1;
            }
            return Err(status);
        }
    }
    Err(Status::internal("no name was tried"))
}

/// W139: an object that is not stored has no resource version. In that of a custom resource there is a place for it.
fn unstored(value: Bytes) -> Result<Object, Status> {
    let object = Object::parse(value).map_err(Status::internal)?;
    let place = object.spans().resource_version;
    if place.is_empty() {
        return Ok(object);
    }
    let json = object.as_bytes();
    let name = "\"resourceVersion\":".len();
    // The uid stands behind it, so there is a comma.
    let (start, end) = (place.start as usize - name, place.end as usize + 1);
    let without = [&json[..start], &json[end..]].concat();
    Object::parse(without.into()).map_err(Status::internal)
}

fn already_exists(kind: &Kind, key: &ObjectKey, existing: Option<&Object>) -> Status {
    Status::already_exists(
        kind.group_resource(),
        key.name(),
        existing.is_some_and(Object::is_terminating),
    )
}

/// W140, W175: the namespace exists and stays.
async fn check_namespace(
    api: &Inner,
    kind: &'static Kind,
    namespace: &str,
    name: &str,
) -> Result<(), Status> {
    let Some(namespaces) = registry::find("", "v1", "namespaces") else {
        return Ok(());
    };
    let key = ObjectKey::new("", namespace);
    let mut found = api.cache(namespaces).get(&key);
    if found.is_none() {
        api.refresh(namespaces).await?;
        found = api.cache(namespaces).get(&key);
    }
    match found {
        None => Err(Status::not_found(namespaces.group_resource(), namespace)),
        Some(object) if object.is_terminating() => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            Err(
                Status::forbidden(kind.group_resource(), name, &why).with_cause(Cause {
                    reason: "NamespaceTerminating".into(),
                    message: format!("namespace {namespace} is being terminated"),
                    field: "metadata.namespace".into(),
                }),
            )
        }
        Some(_) => Ok(()),
    }
}

/// W137: the prefix, cut so that the name fits, and five characters that make no words.
fn generate_name(prefix: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut name: String = prefix.to_owned();
    while name.len() > 58 {
        name.pop();
    }
    // A random UUID has more than enough random bytes.
    let random = Uuid::new_v4();
    name.extend(
        random.as_bytes()[..5]
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])),
    );
    name
}

#[cfg(test)]
mod tests {
    use super::generate_name;

    #[test]
    fn w137_generated_names_are_cut_to_fit() {
        let name = generate_name("gen-");
        assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
        assert_eq!(generate_name(&"x".repeat(100)).len(), 63);
        assert_ne!(generate_name("a"), generate_name("a"));
    }
}
