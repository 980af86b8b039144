//! Who asks, and about what.

use tidings_merge::Manager;
use tidings_registry::stored;

use super::access::User;
use super::target::Target;

/// Who asks for what.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) user: User,
    /// The name of the writer in managedFields.
    pub(crate) manager: String,
    /// Warnings for the client, besides the answer.
    pub(crate) warnings: Vec<String>,
}

impl Call {
    pub(crate) fn new(target: Target, user: User, manager: String) -> Call {
        Call {
            target,
            user,
            manager,
            warnings: Vec::new(),
        }
    }

    /// The writer, as managedFields name it (W157).
    pub(crate) fn manager(&self) -> Manager {
        let subresource = self.target.subresource;
        Manager {
            name: self.manager.clone(),
            // The fields of a view are those of the kind that is stored.
            api_version: stored(&self.target.kind).group_version().to_string(),
            subresource: subresource.map_or("", |part| part.as_str()).to_owned(),
        }
    }
}
