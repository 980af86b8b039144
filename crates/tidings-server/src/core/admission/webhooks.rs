//! Asks webhooks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use tidings_admission::{
    FailurePolicy, MatchVerdict, ResourceKind, Review, ReviewAnswer, Variables,
    Webhook as Configured,
};
use tidings_api::{Object, Status};
use tidings_go::quote;
use tidings_json::{Value, json};
use tidings_registry::{Draft, FieldValidation, Kind, Patch, PatchType, Subresource};
use uuid::Uuid;

use super::super::webhook_clients::not_answered;
use super::counts::CallOutcome;
use super::index::Configured as Index;
use super::questions::{Authorizing, request_resource};
use super::{Admitting, Objects};

/// The steps, as metrics name them.
const ADMIT: &str = "admit";
const VALIDATE: &str = "validating";

/// Why a webhook has not let a request go on.
enum Stopped {
    /// It could not be asked, or its answer was none; the code is for metrics.
    Failed(String, u16),
    /// It refused.
    Refused(Status),
    /// Something is wrong here, or with what it wants.
    Broken(Status),
}

/// A webhook and what it is asked about.
struct Invocation {
    webhook: Arc<Configured>,
    about: ResourceKind,
    kind: Arc<Kind>,
}

impl Admitting<'_> {
    /// Whether a webhook is asked, and about what.
    async fn invocation(
        &self,
        webhook: &Arc<Configured>,
        objects: Objects<'_>,
        step: &'static str,
    ) -> Result<Option<Invocation>, Status> {
        let Some(about) = self.about(&webhook.matching) else {
            return Ok(None);
        };
        if !self.selects(&webhook.matching, objects)? {
            return Ok(None);
        }
        let kind = self.kind_of(&about)?;
        self.prepare(&kind, objects).await?;
        if !webhook.conditions().is_empty() {
            let (object, old_object) = (
                self.shown_value(&kind, objects.new)?,
                self.shown_value(&kind, objects.old)?,
            );
            let request = self.request.to_value(&about);
            let verdict = webhook.conditions().evaluate(&Variables {
                object: &object,
                old_object: &old_object,
                request: &request,
                namespace: &Value::Null,
                params: None,
                authorizer: Arc::new(Authorizing::new(self)),
                asked: Arc::new(request_resource(self)),
            });
            match verdict {
                MatchVerdict::Holds => {}
                MatchVerdict::Fails => {
                    let operation = self.request.operation.as_str();
                    let counts = &self.context.admission.counts;
                    counts.left_out(&webhook.name, "webhook", step, operation);
                    return Ok(None);
                }
                MatchVerdict::Error(why) => {
                    let resource = self.kind.group_resource();
                    return Err(Status::forbidden(resource, self.request.name, &why));
                }
            }
        }
        Ok(Some(Invocation {
            webhook: webhook.clone(),
            about,
            kind,
        }))
    }

    /// Asks one webhook.
    async fn ask(
        &self,
        asked: &Invocation,
        objects: Objects<'_>,
        mutates: bool,
    ) -> Result<ReviewAnswer, Stopped> {
        let webhook = &asked.webhook;
        if self.request.dry_run && !webhook.may_be_asked_dry() {
            let name = quote(&webhook.name);
            let why = format!("admission webhook {name} does not support dry run");
            return Err(Stopped::Broken(Status::bad_request(why)));
        }
        let failed = |why: String, code: u16| {
            let name = quote(&webhook.name);
            Stopped::Failed(format!("failed calling webhook {name}: {why}"), code)
        };
        let Some(version) = webhook.version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(failed(why.to_owned(), 400));
        };
        let uid = Uuid::new_v4().to_string();
        let (object, old_object) = (
            self.shown(&asked.kind, objects.new)
                .map_err(Stopped::Broken)?,
            self.shown(&asked.kind, objects.old)
                .map_err(Stopped::Broken)?,
        );
        let review = Review {
            uid: &uid,
            version,
            request: &self.request,
            about: &asked.about,
            object: object.as_deref(),
            old_object: old_object.as_deref(),
        };
        let clients = &self.context.admission.clients;
        let client = clients
            .client(&webhook.client, webhook.timeout_seconds)
            .map_err(|why| failed(format!("could not get REST client: {why}"), 500))?;
        let deadline = Duration::from_secs(webhook.timeout_seconds.into());
        let answered = client.post(Bytes::from(review.to_json()), deadline).await;
        let answered = answered.map_err(|error| {
            tracing::warn!(webhook = webhook.name, %error, "a webhook has not answered");
            failed(format!("failed to call webhook: {}", error.in_go()), 503)
        })?;
        if let Some(why) = not_answered(&answered) {
            return Err(failed(
                format!("failed to call webhook: {why}"),
                answered.code,
            ));
        }
        let answer = review.read(mutates, &answered.body);
        let answer = answer.map_err(|why| failed(why, 503))?;
        self.warn(&answer.warnings);
        for (name, text) in &answer.audit_annotations {
            self.note(format!("{}/{name}", webhook.name), text.clone());
        }
        match answer.allowed {
            true => Ok(answer),
            false => Err(Stopped::Refused(answer.refusal(&webhook.name))),
        }
    }

    /// Counts a call, and decides what its failure means for the request.
    fn settle<T>(
        &self,
        webhook: &Configured,
        step: &'static str,
        note: &str,
        began: Instant,
        answer: Result<T, Stopped>,
    ) -> Result<Option<T>, Status> {
        let ignores = webhook.failure_policy == FailurePolicy::Ignore;
        let (code, error, rejected) = match &answer {
            Ok(_) => (200, "", false),
            Err(Stopped::Failed(_, code)) => (*code, "calling_webhook_error", !ignores),
            Err(Stopped::Refused(status)) => (status.code, "no_error", true),
            Err(Stopped::Broken(_)) => (0, "apiserver_internal_error", true),
        };
        let counts = &self.context.admission.counts;
        let outcome = CallOutcome {
            name: &webhook.name,
            step,
            operation: self.request.operation.as_str(),
            code,
            rejected,
            error,
        };
        counts.called(&outcome, began.elapsed());
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(Stopped::Refused(status) | Stopped::Broken(status)) => Err(status),
            // The reason may quote what the webhook has sent, so only the client is told.
            Err(Stopped::Failed(_, code)) if ignores => {
                let name = &webhook.name;
                tracing::warn!(
                    webhook = name,
                    code,
                    "a webhook failed, and the request goes on"
                );
                counts.failed_open(name, step);
                self.note(note.to_owned(), name.clone());
                Ok(None)
            }
            Err(Stopped::Failed(why, code)) => {
                let name = &webhook.name;
                tracing::warn!(
                    webhook = name,
                    code,
                    "a webhook failed, and the request is refused"
                );
                Err(Status::internal(why))
            }
        }
    }
}

/// What webhooks have made of an object.
struct Changing {
    draft: Draft,
    object: Object,
    is_changed: bool,
    /// Webhooks that were asked and want to be asked again.
    asked: HashSet<String>,
    /// Of those, the ones before another that has changed the object.
    again: HashSet<String>,
}

/// Asks the webhooks that may change an object, one after the other; those that want it a second time if a later one has changed it.
pub(super) async fn change(
    admitting: &Admitting<'_>,
    index: &Index,
    seen: Draft,
    old: Option<&Object>,
) -> Result<Option<Draft>, Status> {
    let mut changing = Changing {
        object: seen.preview()?,
        draft: seen,
        is_changed: false,
        asked: HashSet::new(),
        again: HashSet::new(),
    };
    for round in 0..2 {
        for (at, webhook) in index.mutating.iter().enumerate() {
            if round == 1 && !changing.again.contains(&webhook.id) {
                continue;
            }
            let objects = Objects {
                new: Some(&changing.object),
                old,
            };
            let Some(asked) = admitting.invocation(webhook, objects, ADMIT).await? else {
                continue;
            };
            let began = Instant::now();
            let answer = admitting.ask(&asked, objects, true).await;
            let changed = match answer {
                Ok(answer) => patched(admitting, &asked, &changing, &answer, objects).await,
                Err(stopped) => Err(stopped),
            };
            let note =
                format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{at}");
            let changed = admitting.settle(webhook, ADMIT, &note, began, changed)?;
            let changed = changed.flatten();
            let said = json!({
                "configuration": webhook.configuration,
                "webhook": webhook.name,
                "mutated": changed.is_some(),
            });
            let note = format!("mutation.webhook.admission.k8s.io/round_{round}_index_{at}");
            admitting.note(note, said.to_string());
            if let Some((draft, object)) = changed {
                (changing.draft, changing.object) = (draft, object);
                changing.is_changed = true;
                let asked = std::mem::take(&mut changing.asked);
                changing.again.extend(asked);
            }
            if webhook.reinvoked {
                changing.asked.insert(webhook.id.clone());
            }
        }
        if !changing.is_changed || changing.again.is_empty() {
            break;
        }
    }
    Ok(changing.is_changed.then_some(changing.draft))
}

/// The object with the patch of an answer; `None` if that changes nothing.
async fn patched(
    admitting: &Admitting<'_>,
    asked: &Invocation,
    changing: &Changing,
    answer: &ReviewAnswer,
    objects: Objects<'_>,
) -> Result<Option<(Draft, Object)>, Stopped> {
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let webhook = &asked.webhook;
    let failed = |why: String| {
        let name = quote(&webhook.name);
        Stopped::Failed(format!("failed calling webhook {name}: {why}"), 503)
    };
    let patch = Bytes::from(answer.patch.clone());
    let patch =
        Patch::read(PatchType::Json, &patch, FieldValidation::Ignore).map_err(|status| {
            let why = status.message.trim_start_matches("error decoding patch: ");
            let why = why.replace("[]handlers.jsonPatchOp", "jsonpatch.Patch");
            failed(format!(
                "received undecodable patch in webhook response: {why}"
            ))
        })?;
    if patch.is_empty() {
        return Ok(None);
    }
    if answer.patch_type != "JSONPatch" {
        let named = quote(&answer.patch_type);
        return Err(failed(format!("unsupported patch type {named}")));
    }
    if admitting.subresource == Some(Subresource::Scale) {
        let name = quote(&webhook.name);
        let why =
            format!("admission webhook {name} wants to change a Scale, which is not supported");
        return Err(Stopped::Broken(Status::internal(why)));
    }
    let broken = |why: &dyn std::fmt::Display| Stopped::Broken(Status::internal(why));
    let before = admitting
        .shown_value(&asked.kind, objects.new)
        .map_err(Stopped::Broken)?;
    let after = patch.apply_to(before).map_err(|why| broken(&why))?;
    let changed = admitting.with_changes(&changing.draft, &asked.kind, after);
    let draft = changed.await.map_err(Stopped::Broken)?;
    let object = draft.preview().map_err(Stopped::Broken)?;
    let is_same = object.as_bytes() == changing.object.as_bytes();
    Ok((!is_same).then_some((draft, object)))
}

/// Asks the webhooks that may change objects about one that is deleted.
pub(super) async fn check_each(
    admitting: &Admitting<'_>,
    index: &Index,
    old: Option<&Object>,
) -> Result<(), Status> {
    let objects = Objects { new: None, old };
    for (at, webhook) in index.mutating.iter().enumerate() {
        let Some(asked) = admitting.invocation(webhook, objects, ADMIT).await? else {
            continue;
        };
        let began = Instant::now();
        let answer = admitting.ask(&asked, objects, true).await;
        let answer = answer.and_then(|answer| match answer.patch.is_empty() {
            true => Ok(()),
            false => {
                let name = quote(&webhook.name);
                let why = format!(
                    "admission webhook {name} attempted to modify the object, which is not supported for this operation"
                );
                Err(Stopped::Broken(Status::internal(why)))
            }
        });
        let note = format!("failed-open.mutation.webhook.admission.k8s.io/round_0_index_{at}");
        admitting.settle(webhook, ADMIT, &note, began, answer)?;
    }
    Ok(())
}

/// Asks the webhooks that may refuse, all at once. The first refusal in their order counts.
pub(super) async fn check(
    admitting: &Admitting<'_>,
    index: &Index,
    new: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), Status> {
    let objects = Objects { new, old };
    let mut asked = Vec::new();
    for webhook in &index.validating {
        asked.extend(admitting.invocation(webhook, objects, VALIDATE).await?);
    }
    let answers = asked.iter().enumerate().map(|(at, asked)| async move {
        let began = Instant::now();
        let answer = admitting.ask(asked, objects, false).await;
        let note = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{at}");
        let settled = admitting.settle(&asked.webhook, VALIDATE, &note, began, answer);
        settled.map(drop)
    });
    let answers = join_all(answers).await;
    answers.into_iter().collect()
}
