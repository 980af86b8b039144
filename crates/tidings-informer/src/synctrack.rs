//! Tracks whether the items of an initial state have been processed, and caches a value that is computed from them.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::watch;

use crate::source::BoxFuture;
use crate::sync::{Mutex, lock};
use crate::synced::{DoneChecker, NeverDone};

/// A flag that is set once and never reset.
#[derive(Debug)]
struct Latch(watch::Sender<bool>);

impl Latch {
    fn new() -> Latch {
        Latch(watch::Sender::new(false))
    }

    fn set_if(&self, done: bool) {
        self.0
            .send_if_modified(|latched| done && !std::mem::replace(latched, true));
    }

    fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    async fn wait(&self) {
        // The sender is in `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|latched| *latched).await;
    }
}

/// Tracks items that are processed in order. Synced when the upstream has synced and all started items are finished. Once synced,
/// it stays synced.
#[derive(Debug)]
pub struct SingleFileTracker {
    name: String,
    state: Mutex<StartedCount>,
    synced: Latch,
}

/// How many items are started and not finished.
#[derive(Debug, Default)]
struct StartedCount {
    count: u64,
    upstream_synced: bool,
}

impl SingleFileTracker {
    /// A tracker without items, whose upstream has not synced. The name is for logs and errors.
    pub fn new(name: impl Into<String>) -> SingleFileTracker {
        SingleFileTracker {
            name: name.into(),
            state: Mutex::default(),
            synced: Latch::new(),
        }
    }

    /// Starts an item of the initial state. Call it for all of them before [`SingleFileTracker::upstream_has_synced`].
    pub fn start(&self) {
        lock(&self.state).count += 1;
    }

    /// Finishes an item.
    ///
    /// # Panics
    /// If more items are finished than were started: the tracker could not know any longer whether it has synced.
    pub fn finished(&self) {
        let mut state = lock(&self.state);
        let left = state.count.checked_sub(1);
        let Some(left) = left else {
            drop(state);
            panic!("{}: more items are finished than were started", self.name);
        };
        state.count = left;
        self.synced.set_if(left == 0 && state.upstream_synced);
    }

    /// The upstream has passed on the complete initial state.
    pub fn upstream_has_synced(&self) {
        let mut state = lock(&self.state);
        state.upstream_synced = true;
        self.synced.set_if(state.count == 0);
    }

    /// True when the complete initial state has been processed.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }
}

/// Tracks items by key, for items that are processed concurrently and in any order. Once synced, it stays synced.
#[derive(Debug)]
pub struct AsyncTracker<T> {
    name: String,
    state: Mutex<StartedKeys<T>>,
    synced: Latch,
}

/// The keys of the items that are started and not finished.
#[derive(Debug)]
struct StartedKeys<T> {
    keys: HashSet<T>,
    upstream_synced: bool,
}

impl<T: Eq + Hash> AsyncTracker<T> {
    /// A tracker without items, whose upstream has not synced. The name is for logs and errors.
    pub fn new(name: impl Into<String>) -> AsyncTracker<T> {
        AsyncTracker {
            name: name.into(),
            state: Mutex::new(StartedKeys {
                keys: HashSet::new(),
                upstream_synced: false,
            }),
            synced: Latch::new(),
        }
    }

    /// Starts an item of the initial state. Starting it again has no effect.
    pub fn start(&self, key: T) {
        lock(&self.state).keys.insert(key);
    }

    /// Finishes an item. Has no effect on an item that was not started.
    pub fn finished(&self, key: &T) {
        let mut state = lock(&self.state);
        state.keys.remove(key);
        self.synced
            .set_if(state.keys.is_empty() && state.upstream_synced);
    }

    /// The upstream has passed on the complete initial state.
    pub fn upstream_has_synced(&self) {
        let mut state = lock(&self.state);
        state.upstream_synced = true;
        self.synced.set_if(state.keys.is_empty());
    }

    /// True when the complete initial state has been processed.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }
}

impl DoneChecker for SingleFileTracker {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_done(&self) -> bool {
        self.has_synced()
    }

    fn done(&self) -> BoxFuture<'_, Result<(), NeverDone>> {
        Box::pin(async move {
            self.synced.wait().await;
            Ok(())
        })
    }
}

impl<T: Eq + Hash + Send> DoneChecker for AsyncTracker<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_done(&self) -> bool {
        self.has_synced()
    }

    fn done(&self) -> BoxFuture<'_, Result<(), NeverDone>> {
        Box::pin(async move {
            self.synced.wait().await;
            Ok(())
        })
    }
}

/// A value that is computed on demand and kept until [`LazyValue::notify`]. client-go's `synctrack.Lazy`.
///
/// If several threads call [`LazyValue::get`] at once, one computes the value and the others block until it is done. Errors are
/// not kept.
pub struct LazyValue<T, E> {
    evaluate: Box<dyn Fn() -> Result<T, E> + Send + Sync>,
    /// The value since the last notification. `notify` replaces the inner mutex, so that a thread that still computes an outdated
    /// value does not store it here.
    kept: Mutex<Arc<KeptValue<T>>>,
}

type KeptValue<T> = Mutex<Option<Arc<T>>>;

impl<T, E> LazyValue<T, E> {
    /// A value that this function computes.
    pub fn new(evaluate: impl Fn() -> Result<T, E> + Send + Sync + 'static) -> LazyValue<T, E> {
        LazyValue {
            evaluate: Box::new(evaluate),
            kept: Mutex::new(Arc::new(Mutex::new(None))),
        }
    }

    /// Marks the value as outdated. Later calls of [`LazyValue::get`] return a value that was computed after this call.
    pub fn notify(&self) {
        *lock(&self.kept) = Arc::new(Mutex::new(None));
    }

    /// The value, computed if necessary.
    ///
    /// # Errors
    /// If the function fails. The next call tries again.
    pub fn get(&self) -> Result<Arc<T>, E> {
        let kept = Arc::clone(&lock(&self.kept));
        let mut value = lock(&kept);
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        let evaluated = Arc::new((self.evaluate)()?);
        *value = Some(Arc::clone(&evaluated));
        Ok(evaluated)
    }
}

impl<T, E> fmt::Debug for LazyValue<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyValue")
    }
}
