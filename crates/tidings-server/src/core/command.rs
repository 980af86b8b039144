//! What can be asked of the core.

use bytes::Bytes;
use tidings_api::ResourceVersion;
use tidings_registry::{PatchType, Review, WriteOptions};

use super::delete::DeleteOptions;
use super::list::ListCommand;

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
