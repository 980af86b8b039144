//! The entry points of the core: commands, and edits by controllers.

use std::sync::Arc;

use tidings_api::Status;
use tidings_registry::{Draft, WriteOptions};

use super::admission;
use super::answer::{Answer, ObjectOutcome};
use super::call::{Call, CallRules};
use super::command::Command;
use super::edit::{EditFn, change};
use super::plugins::CallPlugins;
use super::policy_index::is_policy;
use super::quotas::CallQuotas;
use super::state::Core;
use super::webhook_authorizer::AccessAnswers;
use super::{
    apply, certificates, create, delete, get, list, long_work, patch, review, service_accounts,
    update, watch,
};

impl Core {
    /// Performs a command. The future may be dropped: a write is then either complete or not done, and what it took of a quota may stay counted until
    /// the objects are counted again.
    pub(crate) async fn perform(
        &self,
        call: &mut Call,
        command: Command,
    ) -> Result<Answer, Status> {
        let decides = is_policy(&call.target.kind) && command.writes();
        let configures = admission::is_configuration(&call.target.kind) && command.writes();
        call.admission = match command.is_admitted() {
            true => self.admission_of(),
            false => None,
        };
        if command.writes() {
            let plugins = CallPlugins::of(self.plugins(), &call.target.kind);
            let quotas = CallQuotas::of(self.quotas(), &call.target);
            let owners = self.plugins().checks_owners.then(|| self.served());
            if owners.is_some() {
                call.grants = Some(self.access().clone());
            }
            call.rules = CallRules::of(plugins, quotas, owners);
        }
        let configures =
            configures || (command.writes() && self.plugins().decide_by(&call.target.kind));
        if decides || certificates::is_request(&call.target.kind) {
            call.grants = Some(self.access().clone());
        }
        long_work::compile(&call.target.kind, command.writes());
        let ends_tokens = command.deletes() && service_accounts::ends_tokens(&call.target.kind);
        let answer = match self.access().answers() {
            None => self.dispatch(call, command).await,
            Some(answers) => Box::pin(self.dispatch_asking(call, command, answers)).await,
        };
        if let Some(context) = &call.admission {
            let said = context.take_said();
            call.warnings.extend(said.warnings);
            call.notes.extend(said.notes);
        }
        if let Some(plugins) = call.plugins() {
            let said = plugins.take_said();
            call.warnings.extend(said.warnings);
            let notes = said.notes.into_iter();
            call.notes
                .extend(notes.map(|(name, text)| (name.into(), text)));
        }
        let answer = answer?;
        if decides || configures || ends_tokens {
            // Who has the answer may rely on the role, binding or configuration that was written, or that the tokens have ended.
            Box::pin(call.target.resource()?.refresh()).await?;
        }
        if let Answer::Object(ObjectOutcome::Created, object) = &answer {
            let warnings = call.target.kind.strategy.created_warnings(object);
            call.warnings.extend(warnings);
        }
        Ok(answer)
    }

    /// A call of a controller, counted in quotas.
    pub(crate) fn counted(&self, mut call: Call) -> Call {
        let quotas = CallQuotas::of(self.quotas(), &call.target);
        call.rules = CallRules::of(None, quotas, None);
        call
    }

    /// Changes an existing object by a function instead of a body: the command of controllers. `edit` is called again if another write was
    /// faster.
    pub(crate) async fn edit(
        &self,
        call: &Call,
        edit: EditFn<'_, Draft>,
    ) -> Result<Answer, Status> {
        change(call, WriteOptions::default(), edit).await
    }

    /// Performs a command in which decisions may be needed that a webhook makes: it is asked, and the command is begun again. One that was refused
    /// has changed nothing.
    async fn dispatch_asking(
        &self,
        call: &mut Call,
        command: Command,
        answers: Arc<AccessAnswers>,
    ) -> Result<Answer, Status> {
        call.answers = Some(answers.clone());
        let (warnings, notes) = (call.warnings.len(), call.notes.len());
        loop {
            let answer = self.dispatch(call, command.clone()).await;
            let is_refused = matches!(&answer, Err(status) if status.code == 403);
            if !is_refused || !self.access().complete(&answers).await {
                return answer;
            }
            if let Some(context) = &call.admission {
                context.take_said();
            }
            call.warnings.truncate(warnings);
            call.notes.truncate(notes);
        }
    }

    /// The futures of writes are boxed: they are large, and every request, also a GET, would otherwise move a future of that size.
    async fn dispatch(&self, call: &mut Call, command: Command) -> Result<Answer, Status> {
        tracing::trace!(target: "tidings::walk", "chooses the command");
        match command {
            Command::Get(version) => get::get(call, version).await,
            Command::List(list) => list::list(self, call, &list).await,
            Command::Watch(watch) => Box::pin(watch::watch(self, call, watch)).await,
            Command::Create { options, body } => {
                Box::pin(create::create(self, call, options, &body)).await
            }
            Command::Review {
                review,
                options,
                body,
            } => Box::pin(review::review(self, call, review, options, &body)).await,
            Command::Update { options, body } => {
                Box::pin(update::update(self, call, options, &body)).await
            }
            Command::Patch {
                options,
                patch_type,
                body,
            } => Box::pin(patch::patch(call, options, patch_type, &body)).await,
            Command::Apply {
                options,
                force,
                body,
            } => Box::pin(apply::apply(self, call, options, force, &body)).await,
            Command::Delete(options) => Box::pin(delete::delete(call, &options)).await,
            Command::DeleteCollection(options, list) => {
                Box::pin(delete::delete_collection(self, call, &options, &list)).await
            }
        }
    }
}
