//! A call: the user and the target of a command.

use std::borrow::Cow;
use std::sync::Arc;

use tidings_access::User;
use tidings_admission::Operation;
use tidings_api::{ObjectKey, Status};
use tidings_json::Value;
use tidings_merge::Manager;
use tidings_registry::{Draft, WriteOptions, posted_kind, stored};

use super::access::{Access, Decider};
use super::admission::{AdmissionContext, Admitting, Asked, SentOptions};
use super::owner_rights::check_owners;
use super::plugins::{CallPlugins, WriteBy};
use super::quotas::CallQuotas;
use super::served::ServedSet;
use super::target::Target;
use super::webhook_authorizer::AccessAnswers;

/// The user and the target of a command.
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) user: Arc<User>,
    /// Decides whether the user may write what the call writes, if the target is a role or binding.
    pub(super) grants: Option<Arc<Access>>,
    /// What the webhook that decides has answered, if there is one.
    pub(super) answers: Option<Arc<AccessAnswers>>,
    /// Whom admission may ask about the write, if anybody.
    pub(super) admission: Option<Box<AdmissionContext>>,
    /// What plugins and quotas say of the write, if any of them looks at it.
    pub(super) rules: Option<Box<CallRules>>,
    /// What the request said of itself.
    pub(crate) sent: Option<Box<SentOptions>>,
    /// The name of the field manager.
    pub(crate) manager: String,
    /// Warnings that are sent to the client with the answer.
    pub(crate) warnings: Vec<String>,
    /// What the audit log says besides: name and text.
    pub(crate) notes: Vec<(Cow<'static, str>, String)>,
}

/// The plugins and quotas that a write concerns.
pub(super) struct CallRules {
    plugins: Option<CallPlugins>,
    quotas: Option<CallQuotas>,
    /// What is served, if it matters who gives objects their owners.
    owners: Option<Arc<ServedSet>>,
}

impl CallRules {
    /// `None` if the write concerns none.
    pub(super) fn of(
        plugins: Option<CallPlugins>,
        quotas: Option<CallQuotas>,
        owners: Option<Arc<ServedSet>>,
    ) -> Option<Box<CallRules>> {
        let any = plugins.is_some() || quotas.is_some() || owners.is_some();
        let rules = || CallRules {
            plugins,
            quotas,
            owners,
        };
        any.then(|| Box::new(rules()))
    }
}

impl Call {
    pub(crate) fn new(target: Target, user: Arc<User>, manager: String) -> Call {
        Call {
            target,
            user,
            grants: None,
            answers: None,
            admission: None,
            rules: None,
            sent: None,
            manager,
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The admission plugins that look at what is written, if there are any.
    pub(super) fn plugins(&self) -> Option<&CallPlugins> {
        self.rules.as_ref()?.plugins.as_ref()
    }

    /// The quotas that may be about what is written, if there are any.
    pub(super) fn quotas(&self) -> Option<&CallQuotas> {
        self.rules.as_ref()?.quotas.as_ref()
    }

    /// Refuses owners that the user may not give to an object, if that matters.
    pub(super) fn check_owners(&self, new: &Draft, old: Option<&Draft>) -> Result<(), Status> {
        let rules = self.rules.as_ref();
        let served = rules.and_then(|rules| rules.owners.as_ref());
        if let (Some(served), Some(access)) = (served, &self.grants) {
            let decider = self.decider(access);
            check_owners(&decider, served, &self.user, &self.target, new, old)?;
        }
        Ok(())
    }

    /// Decides what the command needs to know.
    pub(super) fn decider<'a>(&'a self, access: &'a Access) -> Decider<'a> {
        access.with(self.answers.as_deref())
    }

    /// The write on its way through admission; `None` if nobody is asked. `key` is that of the object.
    pub(super) fn admitting<'a>(
        &'a self,
        operation: Operation,
        key: &'a ObjectKey,
        options: WriteOptions,
    ) -> Option<Admitting<'a>> {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            _ => "UpdateOptions",
        };
        self.admitting_with(operation, key, options.dry_run, || {
            let sent = self.sent.as_deref().cloned().unwrap_or_default();
            sent.to_value(kind, options.dry_run)
        })
    }

    /// As [`Call::admitting`], with other options.
    pub(super) fn admitting_with<'a>(
        &'a self,
        operation: Operation,
        key: &'a ObjectKey,
        dry_run: bool,
        options: impl FnOnce() -> Value,
    ) -> Option<Admitting<'a>> {
        let context = self.admission.as_deref()?;
        let resource = self.target.resource.as_ref()?;
        let posted = self.target.subresource.and_then(posted_kind);
        let asked = Asked {
            operation,
            // What is posted to a part of an object is about the kind of the object.
            kind: posted.map_or(&self.target.kind, |_| &resource.kind),
            resource,
            subresource: self.target.subresource,
            key,
            user: &self.user,
            dry_run,
            options: options(),
            answers: self.answers.as_ref(),
        };
        Admitting::new(context, asked)
    }

    /// Who does what, for plugins.
    pub(super) fn by(&self, operation: Operation) -> WriteBy<'_> {
        WriteBy {
            operation,
            target: &self.target,
            user: &self.user,
        }
    }

    /// Adds a note to the audit log.
    pub(super) fn note(&mut self, name: &'static str, text: String) {
        self.notes.push((name.into(), text));
    }

    /// The field manager, as it is written in managedFields (W157).
    pub(crate) fn manager(&self) -> Manager {
        let subresource = self.target.subresource;
        Manager {
            name: self.manager.clone(),
            // managedFields are stored in the version of the stored kind, whichever view the client uses.
            api_version: stored(&self.target.kind).group_version().to_string(),
            subresource: subresource.map_or("", |part| part.as_str()).to_owned(),
        }
    }
}
