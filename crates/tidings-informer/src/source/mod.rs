//! Sources of objects: the traits of listers and watchers, and the streams that they return.

mod error;
mod list_watch;
mod pager;
mod sharded;

use std::future::Future;
use std::pin::Pin;

use futures_core::Stream;
use tidings_api::{ListMetadata, ListOptions, Object, WatchEvent};

pub use error::{SourceError, story};
pub use list_watch::{ListFunc, ListWatch, WatchFunc};
pub use pager::{Listed, PAGE_SIZE, Paged, Pager};

/// A boxed future: lister-watchers are used as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A watch: batches of events in order. It ends cleanly, or with an error as its last item.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Vec<WatchEvent>, SourceError>> + Send>>;

/// One page of a list as it arrives. The last item is [`ListPart::End`] or an error.
pub type ListStream = Pin<Box<dyn Stream<Item = Result<ListPart, SourceError>> + Send>>;

/// One part of a page of a list.
#[derive(Debug)]
pub enum ListPart {
    /// The metadata of the page, if it comes before the objects. The next page can be requested at once.
    Begin(ListMetadata),
    /// The next objects.
    Items(Vec<Object>),
    /// The end of the page, with its metadata.
    End(ListMetadata),
}

/// A complete page, for sources that do not stream.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// The objects.
    pub items: Vec<Object>,
    /// The resource version of the page, and the continue token of the next one.
    pub metadata: ListMetadata,
}

impl List {
    /// The page as a stream.
    pub fn into_stream(self) -> ListStream {
        let parts = [ListPart::Items(self.items), ListPart::End(self.metadata)];
        Box::pin(CompletePageStream(parts.into_iter()))
    }
}

/// The stream of [`List::into_stream`].
struct CompletePageStream(std::array::IntoIter<ListPart, 2>);

impl Stream for CompletePageStream {
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
    /// Lists one page with these options. A [`Pager`] requests the further pages.
    ///
    /// May be cancelled by dropping the future or the stream.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>>;
}

/// Watches the changes of a resource.
pub trait Watcher: Send + Sync + 'static {
    /// Watches the changes after the resource version in the options.
    ///
    /// May be cancelled by dropping the future; dropping the stream ends the watch. A future that fails leaves nothing open.
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>>;

    /// False if [`Watcher::watch`] cannot send initial events (`sendInitialEvents`). A reflector also notices this by itself;
    /// false saves it the attempt.
    fn sends_initial_events(&self) -> bool {
        true
    }

    /// True if a watch from "0" starts at the beginning of history. For an API server "0" means any version: the watch begins
    /// with an unordered list of the current objects.
    fn zero_is_a_version(&self) -> bool {
        false
    }
}

/// Lists the objects of a resource and watches their changes: over HTTP, from a store, from memory, from a script in a test.
pub trait ListerWatcher: Lister + Watcher {}

impl<T: Lister + Watcher + ?Sized> ListerWatcher for T {}

/// The next item of a stream.
pub(crate) async fn next<T>(stream: &mut Pin<Box<dyn Stream<Item = T> + Send>>) -> Option<T> {
    std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await
}
