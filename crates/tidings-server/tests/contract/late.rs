//! A store whose watch delivers changes late, like that of a store on another machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use tidings_storage::{
    BoxFuture, Embedded, EmbeddedOptions, Error, Expected, Range, RangeResult, Revision, Stats,
    Storage, WatchStream, Write,
};

/// How often the watch yields to other tasks before it delivers a change.
const YIELDS: usize = 100;

/// A store whose watch delivers changes late, and which can refuse updates.
pub(crate) struct LateStore {
    store: Arc<Embedded>,
    /// While this is true, updates and deletions of existing keys are refused.
    refuses: Arc<AtomicBool>,
}

impl LateStore {
    pub(crate) fn new() -> LateStore {
        LateStore::of(Arc::new(Embedded::ephemeral(EmbeddedOptions::default())))
    }

    /// A late view of a store that another server uses too.
    pub(crate) fn of(store: Arc<Embedded>) -> LateStore {
        LateStore {
            store,
            refuses: Arc::default(),
        }
    }

    /// The switch: while it is true, updates and deletions of existing keys are refused.
    pub(crate) fn refuses(&self) -> Arc<AtomicBool> {
        self.refuses.clone()
    }
}

impl Storage for LateStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.store.revision()
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.store.oldest()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>> {
        let changes = matches!(write.expected, Expected::At(_));
        if changes && self.refuses.load(Ordering::Relaxed) {
            return Box::pin(async { Err(Error::Unavailable("for a while".into())) });
        }
        self.store.write(write)
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        self.store.range(range)
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async move {
            let changes = self.store.watch(prefix, after).await?;
            let late = changes.then(|batch| async {
                for _ in 0..YIELDS {
                    tokio::task::yield_now().await;
                }
                batch
            });
            Ok(Box::pin(late) as WatchStream)
        })
    }

    fn request_progress(&self, prefix: &[u8]) {
        self.store.request_progress(prefix);
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }
}
