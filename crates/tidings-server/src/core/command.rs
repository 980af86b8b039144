//! The commands of the core.

use bytes::Bytes;
use tidings_api::ResourceVersion;
use tidings_registry::{PatchType, Review, WriteOptions};

use super::delete::DeleteOptions;
use super::list::ListCommand;
use super::watch::WatchCommand;

/// What to do with the target of a call. Bodies are JSON, except those of patches and applies. It has no `Debug`, so that nobody can log
/// them.
#[derive(Clone)]
pub(crate) enum Command {
    /// Reads one object, at least as new as this version; `None` is a consistent read.
    Get(Option<ResourceVersion>),
    List(ListCommand),
    Watch(WatchCommand),
    Create {
        options: WriteOptions,
        body: Bytes,
    },
    /// Answers a review, such as a SubjectAccessReview. It is not stored.
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
        /// Takes over conflicting fields from other managers.
        force: bool,
        body: Bytes,
    },
    Delete(DeleteOptions),
    /// Deletes every object that the list would return.
    DeleteCollection(DeleteOptions, ListCommand),
}

impl Command {
    /// True if the command may change what is stored.
    pub(crate) fn writes(&self) -> bool {
        !matches!(
            self,
            Command::Get(_) | Command::List(_) | Command::Watch(_) | Command::Review { .. }
        )
    }

    /// True if admission is asked about the command.
    pub(crate) fn is_admitted(&self) -> bool {
        let acts = matches!(
            self,
            Command::Review {
                review: Review::Binding | Review::Eviction,
                ..
            }
        );
        acts || self.writes()
    }

    /// True if the command may delete objects.
    pub(crate) fn deletes(&self) -> bool {
        matches!(self, Command::Delete(_) | Command::DeleteCollection(..))
    }
}
