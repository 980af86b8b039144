//! PUT: replace an object, its status, or a namespace's finalizers (W142-W148).

use bytes::Bytes;
use tidings_api::{Object, Status};
use tidings_registry::{Draft, ScaleRequest, Subresource, WriteOptions};

use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::create::create_from;
use super::edit::{self, FirstAttempt, uid_precondition};
use super::state::Core;

pub(super) async fn update(
    core: &Core,
    call: &mut Call,
    options: WriteOptions,
    body: &Bytes,
) -> Result<Answer, Status> {
    tracing::trace!(target: "tidings::walk", "replaces an object");
    let kind = call.target.kind.clone();
    let key = call.target.key.clone();
    if call.target.subresource == Some(Subresource::Scale) {
        let wanted = ScaleRequest::read(body, &key)?;
        Draft::check_name(&wanted.name, key.name())?;
        return edit::change(call, options, &|existing| {
            let mut draft = Draft::of(&kind, existing)?;
            wanted.apply(&mut draft);
            Ok(draft)
        })
        .await;
    }
    let mut draft = Draft::read(&kind, body)?;
    let odd = options.validation.odd_fields(&kind, &draft.odd)?;
    call.warnings.extend(odd);
    Draft::check_name(&draft.meta.name, key.name())?;
    draft.settle_namespace(&kind, key.namespace())?;
    call.warnings.extend(draft.meta.deduplicate_owners(false));
    let draft = FirstAttempt::new(draft);
    let parse = || {
        let mut draft = Draft::read(&kind, body)?;
        draft.settle_namespace(&kind, key.namespace())?;
        draft.meta.deduplicate_owners(false);
        Ok(draft)
    };
    if !(kind.create_on_update && call.target.subresource.is_none()) {
        return edit::change(call, options, &|_| draft.take_or(parse)).await;
    }
    let edit = |_: &Object| Ok(Some(draft.take_or(parse)?.into()));
    if let Some(changed) = edit::change_if_there(call, options, &edit).await? {
        return Ok(changed);
    }
    let mut draft = draft.take_or(parse)?;
    if !draft.meta.uid.is_empty() {
        let why = uid_precondition(&draft.meta.uid, "");
        let resource = kind.group_resource();
        return Err(Status::conflict(resource, key.name(), &why));
    }
    draft.meta.resource_version.clear();
    call.decider(core.access())
        .check_create(&call.user, &call.target)?;
    let created = create_from(core, call, draft, options).await?;
    Ok(Answer::Object(ObjectOutcome::Created, created))
}
