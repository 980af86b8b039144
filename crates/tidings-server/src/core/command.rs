//! Commands and answers: what can be asked of the core.

use bytes::Bytes;
use tidings_api::{Object, ResourceVersion, Status};
use tidings_merge::Manager;
use tidings_registry::{PatchType, Review, WriteOptions, stored};

use super::access::User;
use super::delete::DeleteOptions;
use super::list::{ListCommand, ListHead};
use super::target::Target;
use super::walk::Items;

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

/// What is to be done with the target of a call. Bodies are JSON, except those of patches and applies.
#[derive(Debug)]
pub(crate) enum Command {
    /// One object, at a version or a later one; `None` asks for a consistent read.
    Get(Option<ResourceVersion>),
    List(ListCommand),
    Create {
        options: WriteOptions,
        body: Bytes,
    },
    /// A question, which is answered and not stored.
    Review {
        review: Review,
        options: WriteOptions,
        body: Bytes,
    },
    Update {
        options: WriteOptions,
        body: Bytes,
    },
    Patch {
        options: WriteOptions,
        patch_type: PatchType,
        body: Bytes,
    },
    /// Server-side apply. The body is JSON or YAML.
    Apply {
        options: WriteOptions,
        /// Conflicts are won.
        force: bool,
        body: Bytes,
    },
    Delete(DeleteOptions),
    /// Deletes every object that the list would have.
    DeleteCollection(DeleteOptions, ListCommand),
}

/// The answer to a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An object of the kind that was asked for.
    Object(Created, Object),
    /// A document of another kind, as JSON.
    Document(Vec<u8>),
    List(ListHead, Items),
    Status(Status),
}

/// What a request did to bring its answer about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object was there, or has changed.
    No,
    /// The object is new.
    Yes,
    /// The object goes later.
    Later,
}
