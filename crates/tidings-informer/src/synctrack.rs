//! Tracks whether what was handed on has been dealt with, and keeps what is worked out from it.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::watch;

use crate::source::BoxFuture;
use crate::sync::{Mutex, lock};
use crate::synced::{DoneChecker, NeverDone};

/// Set once, and then for good.
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
        // The sender is ours: it cannot be gone.
        let _ = self.0.subscribe().wait_for(|latched| *latched).await;
    }
}

/// Tracks items that are dealt with one at a time: synced when where they come from has synced and as many are finished as were
/// started. Once synced, it stays so.
#[derive(Debug)]
pub struct SingleFileTracker {
    name: String,
    state: Mutex<Counted>,
    synced: Latch,
}

#[derive(Debug, Default)]
struct Counted {
    count: u64,
    upstream_synced: bool,
}

impl SingleFileTracker {
    /// Nothing has started, and where the items come from has not synced. The name is for logs and errors.
    pub fn new(name: impl Into<String>) -> SingleFileTracker {
        SingleFileTracker {
            name: name.into(),
            state: Mutex::default(),
            synced: Latch::new(),
        }
    }

    /// An item of the initial state is about to be dealt with. Before [`SingleFileTracker::upstream_has_synced`] for the last
    /// of them.
    pub fn start(&self) {
        lock(&self.state).count += 1;
    }

    /// An item has been dealt with.
    ///
    /// # Panics
    /// If more are finished than were started: whether it has synced could not be told any more.
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

    /// Where the items come from has handed on the whole initial state.
    pub fn upstream_has_synced(&self) {
        let mut state = lock(&self.state);
        state.upstream_synced = true;
        self.synced.set_if(state.count == 0);
    }

    /// True when the whole initial state has been dealt with.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }
}

/// Tracks items by key, for those that are dealt with many at once and in any order. Once synced, it stays so.
#[derive(Debug)]
pub struct AsyncTracker<T> {
    name: String,
    state: Mutex<Waiting<T>>,
    synced: Latch,
}

#[derive(Debug)]
struct Waiting<T> {
    keys: HashSet<T>,
    upstream_synced: bool,
}

impl<T: Eq + Hash> AsyncTracker<T> {
    /// Nothing has started, and where the items come from has not synced. The name is for logs and errors.
    pub fn new(name: impl Into<String>) -> AsyncTracker<T> {
        AsyncTracker {
            name: name.into(),
            state: Mutex::new(Waiting {
                keys: HashSet::new(),
                upstream_synced: false,
            }),
            synced: Latch::new(),
        }
    }

    /// An item of the initial state is about to be dealt with. Starting it twice is starting it once.
    pub fn start(&self, key: T) {
        lock(&self.state).keys.insert(key);
    }

    /// An item has been dealt with. One that was not started changes nothing.
    pub fn finished(&self, key: &T) {
        let mut state = lock(&self.state);
        state.keys.remove(key);
        self.synced
            .set_if(state.keys.is_empty() && state.upstream_synced);
    }

    /// Where the items come from has handed on the whole initial state.
    pub fn upstream_has_synced(&self) {
        let mut state = lock(&self.state);
        state.upstream_synced = true;
        self.synced.set_if(state.keys.is_empty());
    }

    /// True when the whole initial state has been dealt with.
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

/// A value that is worked out when it is asked for, and kept until [`Lazy::notify`] says that it is out of date.
///
/// Any number may ask at once: one works it out, the others wait for it, on their threads. What fails is not kept.
pub struct Lazy<T, E> {
    evaluate: Box<dyn Fn() -> Result<T, E> + Send + Sync>,
    /// The value since the last notification; replaced, not emptied, so that who works on an old one does not leave it here.
    kept: Mutex<Arc<Kept<T>>>,
}

type Kept<T> = Mutex<Option<Arc<T>>>;

impl<T, E> Lazy<T, E> {
    /// Works the value out by this function.
    pub fn new(evaluate: impl Fn() -> Result<T, E> + Send + Sync + 'static) -> Lazy<T, E> {
        Lazy {
            evaluate: Box::new(evaluate),
            kept: Mutex::new(Arc::new(Mutex::new(None))),
        }
    }

    /// The value is out of date. Who asks from now on gets one that was worked out from now on.
    pub fn notify(&self) {
        *lock(&self.kept) = Arc::new(Mutex::new(None));
    }

    /// The value.
    ///
    /// # Errors
    /// If it cannot be worked out; who asks next tries again.
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

impl<T, E> fmt::Debug for Lazy<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lazy")
    }
}
