//! Server-side apply: PATCH with an applied configuration (W154-W158).

use bytes::Bytes;
use tidings_api::{Object, Reason, Status};
use tidings_registry::{Configured, WriteOptions};

use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::clock;
use super::create::create_from;
use super::edit::{EditedObject, FirstAttempt, change_if_there};
use super::state::Core;

pub(super) async fn apply(
    core: &Core,
    call: &mut Call,
    options: WriteOptions,
    force: bool,
    body: &Bytes,
) -> Result<Answer, Status> {
    tracing::trace!(target: "tidings::walk", "applies a configuration");
    let (kind, key) = (call.target.kind.clone(), call.target.key.clone());
    let subresource = call.target.subresource;
    let read = || Configured::read(&kind, &key, subresource, body, options.validation);
    let mut config = read()?;
    call.warnings.append(&mut config.warnings);
    let config = FirstAttempt::new(config);
    let manager = call.manager();
    let applied = |existing: Option<&Object>| {
        let config = config.take_or(read)?;
        config.apply(&kind, &key, &manager, force, existing, &clock::now())
    };
    loop {
        let edit = |existing: &Object| {
            let applied = applied(Some(existing))?;
            Ok(applied.map(|(new, old)| EditedObject {
                new,
                old,
                takes: force,
            }))
        };
        if let Some(changed) = change_if_there(call, options, &edit).await? {
            return Ok(changed);
        }
        if subresource.is_some() {
            return Err(call.target.not_found());
        }
        let Some((mut draft, _)) = applied(None)? else {
            return Err(Status::internal(
                "applying to an object that does not exist reported no change",
            ));
        };
        if !draft.meta.uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                draft.meta.uid
            );
            return Err(Status::conflict(kind.group_resource(), key.name(), &why));
        }
        draft.meta.resource_version.clear();
        call.decider(core.access())
            .check_create(&call.user, &call.target)?;
        match create_from(core, call, draft, options).await {
            // Another client has created the object meanwhile: change it instead.
            Err(status) if status.reason == Some(Reason::AlreadyExists) => {}
            created => return Ok(Answer::Object(ObjectOutcome::Created, created?)),
        }
    }
}
