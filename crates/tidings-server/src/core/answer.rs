//! The answers of the core.

use std::sync::Arc;
use std::time::Duration;

use tidings_api::{Object, ResourceVersion, ShardSelector, Status, StatusDetails};
use tidings_cache::Cursor;
use tidings_registry::Selection;

use super::counts::WatchCounter;
use super::reading::Reading;
use super::resource::Resource;
use super::walk::ListItems;
use super::watch_limits::WatchPermit;

/// The answer to a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An object of the kind that was asked for.
    Object(ObjectOutcome, Object),
    /// A document of another kind, as JSON.
    Document(Vec<u8>),
    List(ListHead, ListItems),
    Watch(Box<OpenWatch>),
    Status(Status),
}

/// What a request did to the object of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectOutcome {
    /// The object existed before; it may have changed.
    Existing,
    /// The request created the object.
    Created,
    /// The deletion is accepted; the object is removed later.
    Accepted,
}

impl Answer {
    /// The answer to something that was done and has no object.
    pub(super) fn done() -> Answer {
        let mut status = Status::success(StatusDetails::default());
        (status.details, status.code) = (None, 201);
        Answer::Status(status)
    }

    /// A copy that can be shown too; `None` of a watch.
    pub(crate) fn shown_again(&self) -> Option<Answer> {
        Some(match self {
            Answer::Object(outcome, object) => Answer::Object(*outcome, object.clone()),
            Answer::Document(json) => Answer::Document(json.clone()),
            Answer::List(head, items) => Answer::List(head.clone(), items.clone()),
            Answer::Status(status) => Answer::Status(status.clone()),
            Answer::Watch(_) => return None,
        })
    }
}

/// The metadata of a list.
#[derive(Debug, Clone)]
pub(crate) struct ListHead {
    /// The revision of the list.
    pub(crate) revision: ResourceVersion,
    /// The token for the next page; empty on the last page.
    pub(crate) continue_token: String,
    /// How many objects follow this page, if known.
    pub(crate) remaining: Option<u64>,
    /// The shard, if only objects of one are listed. A client learns from it that its selector was understood.
    pub(crate) shard: Option<Arc<ShardSelector>>,
}

/// A watch that is open.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    pub(crate) resource: Arc<Resource>,
    /// Where it reads the objects.
    pub(crate) reading: Reading,
    pub(crate) selection: Selection,
    /// The objects to send as initial events, and their revision. Boxed, because an idle watch no longer has it.
    pub(crate) initial: Option<Box<(ListItems, ResourceVersion)>>,
    /// A bookmark marks the end of the initial events.
    pub(crate) mark_end: bool,
    /// Events up to this revision are not sent (W94).
    pub(crate) after: ResourceVersion,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    pub(crate) cursor: Cursor,
    /// Becomes true when the server stops.
    pub(crate) stopping: tokio::sync::watch::Receiver<bool>,
    pub(crate) counter: WatchCounter,
    /// Counts among the watches that may be open.
    #[allow(dead_code, reason = "it counts as long as it lives")]
    pub(crate) permit: Option<Arc<WatchPermit>>,
    /// The value of [`Cache::rereads`](tidings_cache::Cache::rereads) before the watch was opened.
    pub(crate) rereads: u64,
}
