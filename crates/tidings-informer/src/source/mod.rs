//! Where objects come from.

mod error;
mod list_watch;
mod pager;

use std::future::Future;
use std::pin::Pin;

use futures_core::Stream;
use tidings_api::{ListMetadata, ListOptions, Object, WatchEvent};

pub use error::SourceError;
pub(crate) use error::story;
pub use list_watch::{ListFunc, ListWatch, WatchFunc};
pub use pager::{Listed, PAGE_SIZE, Paged, Pager};

/// A boxed future: lister-watchers are used as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A watch: batches of events in order. It ends cleanly, or with an error as its last item.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Vec<WatchEvent>, SourceError>> + Send>>;

/// One page of a list while it arrives: objects, and [`ListPart::End`] as its last item unless that is an error.
pub type ListStream = Pin<Box<dyn Stream<Item = Result<ListPart, SourceError>> + Send>>;

/// A part of a page.
#[derive(Debug)]
pub enum ListPart {
    /// What the page says about itself in front of its objects, if it does: the next page can be asked for now.
    Begin(ListMetadata),
    /// The next objects.
    Items(Vec<Object>),
    /// There are no more on this page; this is what the page says about itself.
    End(ListMetadata),
}

/// A page that is complete: for sources that have it at once.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// The objects.
    pub items: Vec<Object>,
    /// What the page says about itself: its version, and where the next page starts.
    pub metadata: ListMetadata,
}

impl List {
    /// The page as a stream.
    pub fn into_stream(self) -> ListStream {
        let parts = [ListPart::Items(self.items), ListPart::End(self.metadata)];
        Box::pin(Parts(parts.into_iter()))
    }
}

struct Parts(std::array::IntoIter<ListPart, 2>);

impl Stream for Parts {
    type Item = Result<ListPart, SourceError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.next().map(Ok))
    }
}

/// Lists the objects of a resource.
pub trait Lister: Send + Sync + 'static {
    /// One page of the state of the resource, as the options ask. Paging is the [`Pager`]'s business.
    ///
    /// May be cancelled by dropping the future or the stream.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>>;
}

/// Watches the changes of a resource.
pub trait Watcher: Send + Sync + 'static {
    /// The changes of the resource after the version that the options name.
    ///
    /// May be cancelled by dropping the future; dropping the stream ends the watch. A future that fails leaves nothing open.
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>>;

    /// False if [`Watcher::watch`] cannot send the initial state (`sendInitialEvents`). A server that cannot is found out; this
    /// saves the question.
    fn sends_initial_events(&self) -> bool {
        true
    }

    /// True if "0" is a version like any other: a watch from there is one from the beginning. To an API server it means any
    /// state, which comes first, in no order.
    fn zero_is_a_version(&self) -> bool {
        false
    }
}

/// Lists the objects of a resource and watches their changes: over HTTP, from a store, from memory, from a script in a test.
pub trait ListerWatcher: Lister + Watcher {}

impl<T: Lister + Watcher + ?Sized> ListerWatcher for T {}

pub(crate) async fn next<T>(stream: &mut Pin<Box<dyn Stream<Item = T> + Send>>) -> Option<T> {
    std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await
}
