//! The queue of deltas between a reflector and a controller.
//!
//! Deltas come out in the order in which they went in. A whole state is one delta. The queue is bounded by bytes: beyond its
//! budget a delta takes the place of the one that waits for the same key, so that it never holds more than one state of each
//! object, and the reader of the socket never waits for the reader of the queue.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};

use imbl::OrdMap;
use tidings_api::ObjectKey;

use crate::object::{Cached, Uid};
use crate::reflector::Version;
use crate::store::Held;
use crate::sync::{Mutex, lock};

/// How many deltas are handed out at once.
pub(crate) const BATCH: usize = 1000;

/// The queue coalesces beyond this unless told otherwise.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// What happened to an object, or to all.
pub enum Delta<K> {
    /// An object came.
    Added(Arc<Cached<K>>),
    /// An object changed.
    Updated(Arc<Cached<K>>),
    /// An object went.
    Deleted {
        /// Its key.
        key: ObjectKey,
        /// Its last state, if the server said it.
        last: Option<Arc<Cached<K>>>,
        /// The version of the deletion.
        version: Version,
    },
    /// This is the whole state.
    Replaced {
        /// All objects.
        objects: Objects<K>,
        /// The version of which it is the state.
        version: Version,
    },
    /// Handlers that want to should look at everything again.
    Sync,
    /// Nothing else happened up to a version.
    Bookmark(Version),
}

/// All objects of a state, by key.
pub struct Objects<K> {
    pub(crate) by_key: OrdMap<ObjectKey, Held<K>>,
    /// Objects that cannot be decoded: what the store has of them stays.
    pub(crate) left_out: Vec<(ObjectKey, Uid)>,
    /// About how many bytes it has that the store did not have.
    pub(crate) new_bytes: usize,
}

impl<K> Default for Objects<K> {
    fn default() -> Objects<K> {
        Objects {
            by_key: OrdMap::new(),
            left_out: Vec::new(),
            new_bytes: 0,
        }
    }
}

impl<K> FromIterator<Arc<Cached<K>>> for Objects<K> {
    fn from_iter<I: IntoIterator<Item = Arc<Cached<K>>>>(objects: I) -> Objects<K> {
        let pairs = objects
            .into_iter()
            .map(|object| (object.key().clone(), Held(object)));
        Objects {
            by_key: pairs.collect(),
            ..Objects::default()
        }
    }
}

impl<K> Objects<K> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

impl<K> Delta<K> {
    /// The key of the one object that it is about.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Delta::Added(object) | Delta::Updated(object) => Some(object.key()),
            Delta::Deleted { key, .. } => Some(key),
            Delta::Replaced { .. } | Delta::Sync | Delta::Bookmark(_) => None,
        }
    }

    /// The version at which it happened; zero if that is no number.
    fn version(&self) -> u64 {
        match self {
            Delta::Added(object) | Delta::Updated(object) => object.version(),
            Delta::Deleted { version, .. }
            | Delta::Replaced { version, .. }
            | Delta::Bookmark(version) => version.number().unwrap_or_default(),
            Delta::Sync => 0,
        }
    }

    fn memory_bytes(&self) -> usize {
        let object = match self {
            Delta::Added(object) | Delta::Updated(object) => object.memory_bytes(),
            Delta::Deleted { last, .. } => last.as_ref().map_or(0, |last| last.memory_bytes()),
            Delta::Replaced { objects, .. } => objects.new_bytes,
            Delta::Sync | Delta::Bookmark(_) => 0,
        };
        object + size_of::<Delta<K>>()
    }
}

impl<K> std::fmt::Debug for Delta<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Delta::Added(object) => write!(f, "Added({object:?})"),
            Delta::Updated(object) => write!(f, "Updated({object:?})"),
            Delta::Deleted { key, version, .. } => write!(f, "Deleted({key}@{version})"),
            Delta::Replaced { objects, version } => {
                write!(f, "Replaced({} objects@{version})", objects.len())
            }
            Delta::Sync => f.write_str("Sync"),
            Delta::Bookmark(version) => write!(f, "Bookmark({version})"),
        }
    }
}

/// What a queue hands out.
#[derive(Debug)]
pub struct Batch<K> {
    /// The deltas, in order.
    pub deltas: Vec<Delta<K>>,
    /// They belong to the initial state.
    pub initial: bool,
    /// When these are applied, a change at this version still waits: it was taken over by a later one of its key. The state is
    /// complete only before it.
    pub incomplete_from: Option<u64>,
}

/// A queue of deltas with one consumer. Clones share it.
pub struct DeltaFifo<K>(Arc<Mutex<Inner<K>>>);

impl<K> Clone for DeltaFifo<K> {
    fn clone(&self) -> DeltaFifo<K> {
        DeltaFifo(Arc::clone(&self.0))
    }
}

struct Inner<K> {
    /// `None` where a later delta of the same key took over.
    deltas: VecDeque<Option<Delta<K>>>,
    /// How many were taken out at the front, ever.
    popped: u64,
    /// Where the last delta of a key waits. Of keys before a whole state there is none.
    last: HashMap<ObjectKey, u64>,
    /// The first version of each key that was taken over by a delta which still waits.
    owed: HashMap<ObjectKey, u64>,
    owed_versions: BTreeSet<(u64, ObjectKey)>,
    waiting: usize,
    bytes: usize,
    bytes_max: usize,
    coalesced: u64,
    initial: Initial,
    closed: bool,
    consumer: Option<Waker>,
}

/// How far the initial state has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Initial {
    /// It has not come.
    Awaited,
    /// It waits behind this many deltas, itself counted.
    Queued(u64),
    /// It was handed out, and is being processed.
    Processing,
    Done,
}

impl<K> DeltaFifo<K> {
    /// An empty queue with a budget of bytes.
    pub fn new(bytes_max: usize) -> DeltaFifo<K> {
        DeltaFifo(Arc::new(Mutex::new(Inner {
            deltas: VecDeque::new(),
            popped: 0,
            last: HashMap::new(),
            owed: HashMap::new(),
            owed_versions: BTreeSet::new(),
            waiting: 0,
            bytes: 0,
            bytes_max,
            coalesced: 0,
            initial: Initial::Awaited,
            closed: false,
            consumer: None,
        })))
    }

    /// Appends a delta.
    pub fn push(&self, delta: Delta<K>) {
        self.extend([delta]);
    }

    /// Appends deltas, as one: the consumer sees all or none of them.
    pub fn extend(&self, deltas: impl IntoIterator<Item = Delta<K>>) {
        let mut inner = lock(&self.0);
        for delta in deltas {
            inner.push(delta);
        }
        let consumer = inner.consumer.take();
        drop(inner);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }

    /// The next deltas: of different keys, at most a thousand, and none behind a whole state. Waits for one; `None` when the
    /// queue is closed and empty. What is handed out counts as processed when the next batch is asked for.
    ///
    /// Cancel-safe: a dropped future has taken nothing.
    pub async fn pop_batch(&self) -> Option<Batch<K>> {
        std::future::poll_fn(|context| {
            let mut inner = lock(&self.0);
            inner.processed();
            if let Some(batch) = inner.pop_batch() {
                return Poll::Ready(Some(batch));
            }
            if inner.closed {
                return Poll::Ready(None);
            }
            inner.consumer = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// What was handed out has been processed.
    pub fn processed(&self) {
        lock(&self.0).processed();
    }

    /// True when the initial state was handed out and processed.
    pub fn has_synced(&self) -> bool {
        lock(&self.0).initial == Initial::Done
    }

    /// Nothing comes any more. What waits is still handed out.
    pub fn close(&self) {
        let mut inner = lock(&self.0);
        inner.closed = true;
        let consumer = inner.consumer.take();
        drop(inner);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }

    /// How many deltas wait.
    pub fn len(&self) -> usize {
        lock(&self.0).waiting
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes wait.
    pub fn bytes(&self) -> usize {
        lock(&self.0).bytes
    }

    /// How many deltas were taken over by a later one of the same key.
    pub fn coalesced(&self) -> u64 {
        lock(&self.0).coalesced
    }
}

/// Room for fewer deltas than this is not given back.
const CAPACITY_KEPT: usize = 4 * BATCH;

impl<K> Inner<K> {
    fn push(&mut self, delta: Delta<K>) {
        let over_budget = self.bytes > self.bytes_max;
        if over_budget && matches!(delta, Delta::Replaced { .. }) {
            self.supersede();
        }
        let position = self.popped + self.deltas.len() as u64;
        match &delta {
            Delta::Added(_) | Delta::Updated(_) | Delta::Deleted { .. } => {
                if let Some(key) = delta.key() {
                    let before = self.last.insert(key.clone(), position);
                    if let Some(before) = before.filter(|_| over_budget) {
                        self.take_over(before);
                    }
                }
                if self.initial == Initial::Awaited {
                    self.initial = Initial::Done;
                }
            }
            Delta::Replaced { .. } | Delta::Sync => {
                // Deltas before a state or a sync must not move behind it.
                self.last.clear();
                let is_state = matches!(delta, Delta::Replaced { .. });
                if is_state && self.initial == Initial::Awaited {
                    self.initial = Initial::Queued(position + 1);
                }
            }
            Delta::Bookmark(_) => {}
        }
        self.bytes += delta.memory_bytes();
        self.waiting += 1;
        self.deltas.push_back(Some(delta));
    }

    /// A whole state comes: what waits before it need not be seen.
    fn supersede(&mut self) {
        self.coalesced += self.waiting as u64;
        self.popped += self.deltas.len() as u64;
        self.deltas.clear();
        self.owed.clear();
        self.owed_versions.clear();
        (self.waiting, self.bytes) = (0, 0);
        if matches!(self.initial, Initial::Queued(_)) {
            self.initial = Initial::Awaited; // the state that comes is the initial one
        }
    }

    /// A later delta of the same key has come: this one need not be seen.
    fn take_over(&mut self, position: u64) {
        let Some(index) = position.checked_sub(self.popped) else {
            return;
        };
        let Some(delta) = self.deltas.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        self.bytes -= delta.memory_bytes();
        self.waiting -= 1;
        self.coalesced += 1;
        if let Some(key) = delta.key().filter(|key| !self.owed.contains_key(*key)) {
            self.owed.insert(key.clone(), delta.version());
            self.owed_versions.insert((delta.version(), key.clone()));
        }
    }

    fn processed(&mut self) {
        if self.initial == Initial::Processing {
            self.initial = Initial::Done;
        }
    }

    fn pop_batch(&mut self) -> Option<Batch<K>> {
        let initial = matches!(self.initial, Initial::Queued(_));
        let mut deltas = Vec::new();
        let mut keys: HashSet<ObjectKey> = HashSet::new();
        while deltas.len() < BATCH {
            match self.deltas.front() {
                None => break,
                Some(None) => {}
                Some(Some(delta)) => match delta.key() {
                    Some(key) if keys.contains(key) => break,
                    Some(key) => {
                        keys.insert(key.clone());
                    }
                    // A whole state and a sync stand alone; a bookmark may follow what it closes.
                    None if !deltas.is_empty() && !matches!(delta, Delta::Bookmark(_)) => break,
                    None => {}
                },
            }
            let popped = self.deltas.pop_front().flatten();
            self.popped += 1;
            let Some(delta) = popped else { continue };
            if let Some(key) = delta.key() {
                if self.last.get(key).is_some_and(|last| *last < self.popped) {
                    self.last.remove(key);
                }
                if let Some((key, version)) = self.owed.remove_entry(key) {
                    self.owed_versions.remove(&(version, key));
                }
            }
            self.bytes -= delta.memory_bytes();
            self.waiting -= 1;
            let alone = matches!(delta, Delta::Replaced { .. } | Delta::Sync);
            deltas.push(delta);
            if alone {
                break;
            }
        }
        if self.deltas.is_empty() && self.deltas.capacity() > CAPACITY_KEPT {
            self.deltas.shrink_to(BATCH);
            self.last.shrink_to(BATCH);
        }
        if let Initial::Queued(end) = self.initial
            && self.popped >= end
        {
            self.initial = Initial::Processing;
        }
        let incomplete_from = self.owed_versions.first().map(|(version, _)| *version);
        (!deltas.is_empty()).then_some(Batch {
            deltas,
            initial,
            incomplete_from,
        })
    }
}

impl<K> std::fmt::Debug for DeltaFifo<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = lock(&self.0);
        f.debug_struct("DeltaFifo")
            .field("waiting", &inner.waiting)
            .field("bytes", &inner.bytes)
            .field("initial", &inner.initial)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::future::Future;

    use super::*;

    #[test]
    fn b36_d16_room_is_given_back_after_a_burst() {
        let queue: DeltaFifo<()> = DeltaFifo::new(QUEUE_BYTES_MAX);
        for version in 0..100_000 {
            queue.push(Delta::Bookmark(Version::new(&version.to_string())));
        }
        let room = || lock(&queue.0).deltas.capacity();
        assert!(room() >= 100_000);
        let mut context = std::task::Context::from_waker(Waker::noop());
        while std::pin::pin!(queue.pop_batch())
            .poll(&mut context)
            .is_ready()
        {}
        assert!(room() <= CAPACITY_KEPT, "{}", room());
    }
}
