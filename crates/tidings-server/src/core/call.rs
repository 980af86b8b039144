//! A call: the user and the target of a command.

use std::sync::Arc;

use tidings_access::User;
use tidings_merge::Manager;
use tidings_registry::stored;

use super::access::{Access, Decider};
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
    /// The name of the field manager.
    pub(crate) manager: String,
    /// Warnings that are sent to the client with the answer.
    pub(crate) warnings: Vec<String>,
    /// What the audit log says besides: name and text.
    pub(crate) notes: Vec<(&'static str, String)>,
}

impl Call {
    pub(crate) fn new(target: Target, user: Arc<User>, manager: String) -> Call {
        Call {
            target,
            user,
            grants: None,
            answers: None,
            manager,
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Decides what the command needs to know.
    pub(super) fn decider<'a>(&'a self, access: &'a Access) -> Decider<'a> {
        access.with(self.answers.as_deref())
    }

    /// Adds a note to the audit log.
    pub(super) fn note(&mut self, name: &'static str, text: String) {
        self.notes.push((name, text));
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
