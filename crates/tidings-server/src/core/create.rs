//! POST: create an object (W132-W141).

use bytes::Bytes;
use tidings_admission::Operation;
use tidings_api::{Object, ObjectKey, ResourceVersion, Status};
use tidings_registry::{Draft, Kind, WriteOptions, track_created, without_revision};
use uuid::Uuid;

use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::certificates;
use super::clock;
use super::long_work::check;
use super::names::generate_name;
use super::namespaces::check_namespace;
use super::policy_index::is_policy;
use super::resource::ObjectWrite;
use super::state::Core;

/// How many generated names are tried before the create fails because all exist (W137).
const GENERATE_TRIES: usize = 8;

pub(super) async fn create(
    core: &Core,
    call: &mut Call,
    options: WriteOptions,
    body: &Bytes,
) -> Result<Answer, Status> {
    tracing::trace!(target: "tidings::walk", "creates an object");
    let kind = call.target.kind.clone();
    let mut draft = Draft::read(&kind, body)?;
    let odd = options.validation.odd_fields(&kind, &draft.odd)?;
    call.warnings.extend(odd);
    draft.settle_namespace(&kind, call.target.key.namespace())?;
    call.warnings.extend(draft.meta.deduplicate_owners(false));
    let created = create_from(core, call, draft, options).await?;
    Ok(Answer::Object(ObjectOutcome::Created, created))
}

/// Creates an object from a draft whose namespace is already that of the URL.
pub(super) async fn create_from(
    core: &Core,
    call: &Call,
    mut draft: Draft,
    options: WriteOptions,
) -> Result<Object, Status> {
    let resource = call.target.resource()?;
    let kind = draft.kind.clone();
    if let Some(access) = &call.grants
        && is_policy(&kind)
    {
        call.decider(access).check_grant(
            &call.user,
            call.target.name().unwrap_or_default(),
            &draft,
            None,
        )?;
    }
    resource.check_accepts_creates(&kind, &draft.meta.name)?;
    let meta = &mut draft.meta;
    // kube-apiserver treats a resourceVersion that is not a number as unset.
    let sent_version: ResourceVersion = meta.resource_version.parse().unwrap_or_default();
    meta.uid.clear();
    meta.creation_timestamp = None;
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    let generated = meta.name.is_empty() && !meta.generate_name.is_empty();
    let tries = if generated { GENERATE_TRIES } else { 1 };
    if kind.namespaced {
        let name = match meta.name.is_empty() {
            true => &meta.generate_name,
            false => &meta.name,
        };
        check_namespace(&core.namespaces, &kind, &meta.namespace, name).await?;
    }
    draft.check_depth()?;
    let is_request = certificates::is_request(&kind);
    if is_request {
        certificates::note_requestor(&mut draft, &call.user);
    }
    draft.fill_in();
    track_created(&mut draft, &call.manager(), &clock::now());
    let fill = async |draft: &mut Draft| match call.plugins() {
        Some(plugins) => Box::pin(plugins.change(call.by(Operation::Create), draft, None)).await,
        None => Ok(()),
    };
    fill(&mut draft).await?;
    let sent_key = ObjectKey::new(&draft.meta.namespace, &draft.meta.name);
    let admitting = call.admitting(Operation::Create, &sent_key, options);
    if let Some(admitting) = &admitting
        && let Some(changed) = Box::pin(admitting.change(&draft, None, Ok)).await?
    {
        draft = changed;
        draft.fill_in();
        fill(&mut draft).await?; // plugins see what webhooks have changed
    }
    draft.meta.uid = Uuid::new_v4().to_string();
    draft.meta.creation_timestamp = Some(clock::now());
    draft.prepare_for_create();
    for attempt in 1..=tries {
        if generated {
            draft.meta.name = generate_name(&draft.meta.generate_name);
            draft.prepare_for_create(); // a namespace has its name as a label
        }
        check(&kind, &draft.meta.name, &draft, None, None)?;
        if is_request {
            certificates::check_subject(&draft)?;
        }
        call.check_owners(&draft, None)?;
        if let Some(plugins) = call.plugins() {
            plugins.check(call.by(Operation::Create), &draft, None)?;
        }
        let key = ObjectKey::new(&draft.meta.namespace, &draft.meta.name);
        let written = draft.write()?;
        if let Some(admitting) = call.admitting(Operation::Create, &key, options)
            && admitting.is_checked()
        {
            let new = without_revision(&written, ResourceVersion::default())?;
            Box::pin(admitting.check(Some(&new), None)).await?;
        }
        if sent_version > ResourceVersion::default() && !options.dry_run {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::bad_request(message));
        }
        let counted = match call.quotas() {
            Some(quotas) => {
                let new = (Some(&**written.value()), None);
                Some(Box::pin(quotas.begin(&call.target, &key, new, options.dry_run)).await?)
            }
            None => None,
        };
        if options.dry_run {
            resource.refresh().await?;
            return match resource.get(&key) {
                // The object without a resourceVersion (W139).
                None => {
                    let written = Box::pin(resource.as_read_again(&kind, written)).await?;
                    without_revision(&written, ResourceVersion::default())
                }
                Some(existing) => Err(already_exists(&kind, &key, Some(&existing))),
            };
        }
        if attempt == tries {
            draft.members.clear(); // freed before the store writes, see `FirstAttempt`
        }
        let create = ObjectWrite::Create(&written);
        let created = resource.commit(&kind, &key, create).await;
        if let Some(counted) = counted {
            Box::pin(counted.end(&created)).await;
        }
        if let Some(object) = created? {
            return Ok(object);
        }
        if attempt == tries {
            resource.refresh().await?;
            let mut status = already_exists(&kind, &key, resource.get(&key).as_ref());
            if generated {
                status
                    .message
                    .push_str(", the server was not able to generate a unique name for the object");
                status.details.get_or_insert_default().retry_after_seconds = 1;
            }
            return Err(status);
        }
    }
    Err(Status::internal("no attempt was made to create the object"))
}

fn already_exists(kind: &Kind, key: &ObjectKey, existing: Option<&Object>) -> Status {
    Status::already_exists(
        kind.group_resource(),
        key.name(),
        existing.is_some_and(Object::is_terminating),
    )
}
