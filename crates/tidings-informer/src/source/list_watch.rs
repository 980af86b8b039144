//! A lister-watcher made of two functions.

use std::fmt;
use std::sync::Arc;

use tidings_api::{ListOptions, ShardSelector};

use crate::source::sharded::{shard_of_events, shard_of_list};
use crate::source::{
    BoxFuture, EventStream, ListStream, Lister, ListerWatcher, SourceError, Watcher,
};

/// A function that lists.
pub type ListFunc =
    Arc<dyn Fn(ListOptions) -> BoxFuture<'static, Result<ListStream, SourceError>> + Send + Sync>;

/// A function that watches.
pub type WatchFunc =
    Arc<dyn Fn(ListOptions) -> BoxFuture<'static, Result<EventStream, SourceError>> + Send + Sync>;

/// A function that changes the options of lists and watches.
type OptionsModifier = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

/// A lister-watcher made of two functions. Modifiers such as selectors apply to both.
#[derive(Clone)]
pub struct ListWatch {
    list: ListFunc,
    watch: WatchFunc,
    modifiers: Vec<OptionsModifier>,
    shard: Option<Arc<ShardSelector>>,
    sends_initial_events: bool,
}

impl ListWatch {
    /// A lister-watcher that calls these functions.
    pub fn new(list: ListFunc, watch: WatchFunc) -> ListWatch {
        ListWatch {
            list,
            watch,
            modifiers: Vec::new(),
            shard: None,
            sends_initial_events: true,
        }
    }

    /// A lister-watcher that calls another one.
    pub fn over(source: Arc<dyn ListerWatcher>) -> ListWatch {
        let sends_initial_events = source.sends_initial_events();
        let watcher = Arc::clone(&source);
        let list: ListFunc = Arc::new(move |options| {
            let source = Arc::clone(&source);
            Box::pin(async move { source.list(options).await })
        });
        let watch: WatchFunc = Arc::new(move |options| {
            let source = Arc::clone(&watcher);
            Box::pin(async move { source.watch(options).await })
        });
        ListWatch {
            sends_initial_events,
            ..ListWatch::new(list, watch)
        }
    }

    /// Changes the options of every list and watch.
    ///
    /// Only changes to the selectors and the timeout count. The reflector relies on the other options (resource version, match,
    /// `watch`, bookmarks, initial events, paging), so they stay as it set them.
    #[must_use]
    pub fn modify_options(
        mut self,
        modifier: impl Fn(&mut ListOptions) + Send + Sync + 'static,
    ) -> ListWatch {
        self.modifiers.push(Arc::new(modifier));
        self
    }

    /// Restricts lists and watches to objects that a field selector matches.
    #[must_use]
    pub fn field_selector(self, selector: impl Into<String>) -> ListWatch {
        let selector = selector.into();
        self.modify_options(move |options| options.field_selector.clone_from(&selector))
    }

    /// Restricts lists and watches to objects that a label selector matches.
    #[must_use]
    pub fn label_selector(self, selector: impl Into<String>) -> ListWatch {
        let selector = selector.into();
        self.modify_options(move |options| options.label_selector.clone_from(&selector))
    }

    /// Restricts lists and watches to the objects of one shard, so that several replicas of a program share a resource. A server that does not
    /// know shards, as most do, sends all objects; those of other shards are then left out here.
    #[must_use]
    pub fn shard(mut self, shard: ShardSelector) -> ListWatch {
        self.shard = Some(Arc::new(shard));
        self
    }

    /// Declares that watches cannot send initial events, so that no reflector asks for them.
    #[must_use]
    pub fn without_initial_events(mut self) -> ListWatch {
        self.sends_initial_events = false;
        self
    }

    fn modified(&self, asked: ListOptions) -> ListOptions {
        let mut options = asked.clone();
        for modifier in &self.modifiers {
            modifier(&mut options);
        }
        ListOptions {
            label_selector: options.label_selector,
            field_selector: options.field_selector,
            shard_selector: match &self.shard {
                Some(shard) => shard.to_string(),
                None => options.shard_selector,
            },
            timeout_seconds: options.timeout_seconds,
            ..asked
        }
    }
}

impl Lister for ListWatch {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        let listing = (self.list)(self.modified(options));
        let Some(shard) = self.shard.clone() else {
            return listing;
        };
        Box::pin(async move { Ok(shard_of_list(listing.await?, shard)) })
    }
}

impl Watcher for ListWatch {
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>> {
        let opening = (self.watch)(self.modified(options));
        let Some(shard) = self.shard.clone() else {
            return opening;
        };
        Box::pin(async move { Ok(shard_of_events(opening.await?, shard)) })
    }

    fn sends_initial_events(&self) -> bool {
        self.sends_initial_events
    }
}

impl fmt::Debug for ListWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWatch")
            .field("modifiers", &self.modifiers.len())
            .finish_non_exhaustive()
    }
}
