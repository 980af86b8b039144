//! The queue of deltas between a reflector and a controller.
//!
//! First in, first out. A complete list is one delta. The queue is bounded by bytes: beyond its budget a delta replaces the one
//! that waits for the same key, so that the queue holds at most one state of each object, and the reflector never waits for the
//! controller.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};

use imbl::OrdMap;
use tidings_api::ObjectKey;

use crate::object::{Cached, Uid};
use crate::store::HeldObject;
use crate::sync::{Mutex, lock};
use crate::version::ServerVersion;

/// The largest number of deltas in a batch.
pub(crate) const BATCH: usize = 1000;

/// The default number of bytes beyond which the queue coalesces.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// A change of one object, or of all.
pub enum Delta<K> {
    /// An object was added.
    Added(Arc<Cached<K>>),
    /// An object changed.
    Updated(Arc<Cached<K>>),
    /// An object was deleted.
    Deleted {
        /// Its key.
        key: ObjectKey,
        /// Its last state, if the server sent one that can be decoded.
        last: Option<Arc<Cached<K>>>,
        /// The resource version of the deletion.
        version: ServerVersion,
    },
    /// A complete list replaces the state.
    Replaced {
        /// All objects.
        objects: Objects<K>,
        /// The resource version of the list.
        version: ServerVersion,
    },
    /// A resync: handlers get every object again.
    Sync,
    /// There are no other changes up to this resource version.
    Bookmark(ServerVersion),
}

/// The objects of a complete list, by key.
pub struct Objects<K> {
    pub(crate) by_key: OrdMap<ObjectKey, HeldObject<K>>,
    /// Objects that cannot be decoded: the store keeps their last decoded state.
    pub(crate) left_out: Vec<(ObjectKey, Uid)>,
    /// Estimated bytes that are not shared with the store.
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
            .map(|object| (object.key().clone(), HeldObject(object)));
        Objects {
            by_key: pairs.collect(),
            ..Objects::default()
        }
    }
}

impl<K> Objects<K> {
    /// The number of objects.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The objects, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cached<K>>> {
        self.by_key.values().map(|held| &held.0)
    }
}

impl<K: 'static> IntoIterator for Objects<K> {
    type Item = Arc<Cached<K>>;
    type IntoIter = Box<dyn Iterator<Item = Arc<Cached<K>>>>;

    /// The objects, sorted by key.
    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.by_key.into_iter().map(|(_, held)| held.0))
    }
}

impl<K> Delta<K> {
    /// The key of the object; `None` for a delta that is not about one object.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Delta::Added(object) | Delta::Updated(object) => Some(object.key()),
            Delta::Deleted { key, .. } => Some(key),
            Delta::Replaced { .. } | Delta::Sync | Delta::Bookmark(_) => None,
        }
    }

    /// The resource version of the change; zero if it is not a number.
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

/// Deltas that are processed together.
#[derive(Debug)]
pub struct Batch<K> {
    /// The deltas, in order.
    pub deltas: Vec<Delta<K>>,
    /// True if the deltas belong to the initial state.
    pub initial: bool,
    /// Set if a change at this version is not in the store after this batch, because a later delta of its key, which still waits
    /// in the queue, replaced it. The store is complete only up to the version before.
    pub incomplete_from: Option<u64>,
}

/// A queue of deltas with one consumer. Clones share it.
pub struct DeltaFifo<K>(Arc<Mutex<FifoState<K>>>);

impl<K> Clone for DeltaFifo<K> {
    fn clone(&self) -> DeltaFifo<K> {
        DeltaFifo(Arc::clone(&self.0))
    }
}

/// The queue under its lock.
struct FifoState<K> {
    /// `None` where a later delta of the same key replaced this one.
    deltas: VecDeque<Option<Delta<K>>>,
    /// How many entries were removed at the front since the queue was created.
    popped: u64,
    /// The position of the last delta of each key. Without the keys of deltas before a complete list or a resync.
    last: HashMap<ObjectKey, u64>,
    /// For each key whose delta was replaced: the version of the first replaced delta, until the replacement is popped.
    owed: HashMap<ObjectKey, u64>,
    /// `owed` sorted by version.
    owed_versions: BTreeSet<(u64, ObjectKey)>,
    /// The number of deltas, without replaced ones.
    waiting: usize,
    bytes: usize,
    bytes_max: usize,
    coalesced: u64,
    initial: InitialSync,
    closed: bool,
    consumer: Option<Waker>,
}

/// How far the initial state has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InitialSync {
    /// It has not been queued.
    Awaited,
    /// It is queued, and ends at this position.
    Queued(u64),
    /// It was popped, and is being processed.
    Processing,
    Done,
}

impl<K> DeltaFifo<K> {
    /// An empty queue that coalesces beyond `bytes_max`.
    pub fn new(bytes_max: usize) -> DeltaFifo<K> {
        DeltaFifo(Arc::new(Mutex::new(FifoState {
            deltas: VecDeque::new(),
            popped: 0,
            last: HashMap::new(),
            owed: HashMap::new(),
            owed_versions: BTreeSet::new(),
            waiting: 0,
            bytes: 0,
            bytes_max,
            coalesced: 0,
            initial: InitialSync::Awaited,
            closed: false,
            consumer: None,
        })))
    }

    /// Appends a delta.
    pub fn push(&self, delta: Delta<K>) {
        self.extend([delta]);
    }

    /// Appends deltas atomically: the consumer sees all or none of them.
    pub fn extend(&self, deltas: impl IntoIterator<Item = Delta<K>>) {
        tracing::trace!(target: "tidings::walk", "queues the changes in order");
        let mut fifo = lock(&self.0);
        for delta in deltas {
            fifo.push(delta);
        }
        let consumer = fifo.consumer.take();
        drop(fifo);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }

    /// Pops the next deltas: of distinct keys, at most a thousand, and none after a complete list. Waits for a delta; returns
    /// `None` when the queue is closed and empty. A batch counts as processed when the next one is popped.
    ///
    /// Cancel-safe: a dropped future has popped nothing.
    pub async fn pop_batch(&self) -> Option<Batch<K>> {
        std::future::poll_fn(|context| {
            let mut fifo = lock(&self.0);
            fifo.processed();
            if let Some(batch) = fifo.pop_batch() {
                return Poll::Ready(Some(batch));
            }
            if fifo.closed {
                return Poll::Ready(None);
            }
            fifo.consumer = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Pops the next deltas as [`DeltaFifo::pop_batch`] does, if there are any.
    pub fn try_pop_batch(&self) -> Option<Batch<K>> {
        let mut fifo = lock(&self.0);
        fifo.processed();
        fifo.pop_batch()
    }

    /// Marks the popped batch as processed.
    pub fn processed(&self) {
        lock(&self.0).processed();
    }

    /// True when the initial state was popped and processed.
    pub fn has_synced(&self) -> bool {
        lock(&self.0).initial == InitialSync::Done
    }

    /// Closes the queue. Deltas that wait can still be popped.
    pub fn close(&self) {
        let mut fifo = lock(&self.0);
        fifo.closed = true;
        let consumer = fifo.consumer.take();
        drop(fifo);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }

    /// The number of deltas that wait.
    pub fn len(&self) -> usize {
        lock(&self.0).waiting
    }

    /// True if no delta waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimated bytes of the deltas that wait.
    pub fn bytes(&self) -> usize {
        lock(&self.0).bytes
    }

    /// How many deltas a later delta of the same key replaced, so far.
    pub fn coalesced(&self) -> u64 {
        lock(&self.0).coalesced
    }
}

/// The queue keeps its allocation up to this many entries when it is empty.
const CAPACITY_KEPT: usize = 4 * BATCH;

impl<K> FifoState<K> {
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
                if self.initial == InitialSync::Awaited {
                    self.initial = InitialSync::Done;
                }
            }
            Delta::Replaced { .. } | Delta::Sync => {
                // A delta before a complete list or a resync must not be replaced by one after it.
                self.last.clear();
                let is_state = matches!(delta, Delta::Replaced { .. });
                if is_state && self.initial == InitialSync::Awaited {
                    self.initial = InitialSync::Queued(position + 1);
                }
            }
            Delta::Bookmark(_) => {}
        }
        self.bytes += delta.memory_bytes();
        self.waiting += 1;
        self.deltas.push_back(Some(delta));
    }

    /// Drops all waiting deltas: a complete list follows.
    fn supersede(&mut self) {
        self.coalesced += self.waiting as u64;
        self.popped += self.deltas.len() as u64;
        self.deltas.clear();
        self.owed.clear();
        self.owed_versions.clear();
        (self.waiting, self.bytes) = (0, 0);
        if matches!(self.initial, InitialSync::Queued(_)) {
            self.initial = InitialSync::Awaited; // the list that follows is the initial state
        }
    }

    /// Drops a waiting delta that a later delta of the same key replaces.
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
        if self.initial == InitialSync::Processing {
            self.initial = InitialSync::Done;
        }
    }

    fn pop_batch(&mut self) -> Option<Batch<K>> {
        let initial = matches!(self.initial, InitialSync::Queued(_));
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
                    // A complete list and a resync are batches of their own; a bookmark may follow other deltas.
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
        if let InitialSync::Queued(end) = self.initial
            && self.popped >= end
        {
            self.initial = InitialSync::Processing;
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
        let fifo = lock(&self.0);
        f.debug_struct("DeltaFifo")
            .field("waiting", &fifo.waiting)
            .field("bytes", &fifo.bytes)
            .field("initial", &fifo.initial)
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
            queue.push(Delta::Bookmark(ServerVersion::new(&version.to_string())));
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
