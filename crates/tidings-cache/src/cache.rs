//! The watch cache of one resource: its state in memory, at every revision within the history, and the log of its changes.
//!
//! A [`Reflector`](tidings_informer::Reflector) fills it through [`CacheFiller`](crate::fill::CacheFiller). Readers take a snapshot
//! or a position under a lock that is held for a moment, and walk without it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, UnstampedObject};
use tokio::sync::{Notify, watch};

use crate::log::{EventLog, FellBehind, LogSegment, ObjectMap};
use crate::own_writes::{OwnWrites, WriteUnderWay};
use crate::wake::{WakeSlot, Wakers, WatchScope};

/// How many bytes are read again under another [`StoredReader`] before other tasks get the thread.
const REREAD_BYTES: usize = 256 << 10;

/// Translates the JSON of a stored object to what readers see; `None` if readers see it as it is stored.
pub type StoredReader = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// The state of a resource at a revision. A clone shares it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The objects by key.
    pub state: ObjectMap,
    /// The revision that the state is of.
    pub revision: ResourceVersion,
}

/// The part of a cache that its lock protects.
pub(crate) struct CacheState {
    pub(crate) state: ObjectMap,
    /// The cache is complete up to here.
    pub(crate) revision: ResourceVersion,
    pub(crate) log: EventLog,
    /// Reads and watches of older revisions are refused, though the log may still have them.
    pub(crate) oldest: ResourceVersion,
    /// Revisions after the current one and up to this belong to a state that the store has lost.
    pub(crate) lost: ResourceVersion,
    /// Stored objects whose readers see something else: another reader may show again what this one leaves out.
    ///
    /// Bound: the objects that were not written since the reader changed.
    pub(crate) originals: HashMap<ObjectKey, Object>,
    pub(crate) reader: CurrentReader,
}

/// The reader in use, and how often it was replaced.
#[derive(Clone, Default)]
pub(crate) struct CurrentReader {
    reader: Option<StoredReader>,
    number: u64,
}

impl CurrentReader {
    /// True if objects may be read otherwise than they are stored.
    pub(crate) fn translates(&self) -> bool {
        self.reader.is_some()
    }

    /// A stored object as readers see it; `None` if that is how it is stored.
    pub(crate) fn read(&self, stored: &Object, event: EventType) -> Option<Object> {
        let json = self.reader.as_ref()?(stored.as_bytes())?;
        Object::stamped(&json, stored.revision(), event).ok()
    }

    /// True if both are the same reader.
    pub(crate) fn is(&self, other: &CurrentReader) -> bool {
        self.number == other.number
    }
}

impl CacheState {
    /// True if the store had a revision that the cache has not reached, and has lost it.
    fn is_lost(&self, revision: ResourceVersion) -> bool {
        revision > self.revision && revision <= self.lost
    }
}

/// The watch cache of one resource.
pub struct Cache {
    state: RwLock<CacheState>,
    pub(crate) wakers: Arc<Wakers>,
    /// The revision that the cache has reached; `None` before the first list.
    pub(crate) reached: watch::Sender<Option<ResourceVersion>>,
    pub(crate) own: OwnWrites,
    /// Notified of every change.
    pub(crate) changed: Arc<Notify>,
    closed: AtomicBool,
    /// See [`Cache::rereads`].
    rereads: AtomicU64,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = self.stats();
        f.debug_struct("Cache")
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

/// Why the state at a revision cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// It is older than the history, which starts at this revision.
    TooOld(ResourceVersion),
    /// The cache has only reached this revision.
    NotYet(ResourceVersion),
}

impl Cache {
    /// A cache that is not filled yet. Its log holds at most `log_bytes_max` bytes of objects; `changed` is notified of every change.
    pub(crate) fn new(
        log_bytes_max: usize,
        changed: Arc<Notify>,
        reader: Option<StoredReader>,
    ) -> Arc<Cache> {
        let none = ResourceVersion::default();
        let state = CacheState {
            state: ObjectMap::new(),
            revision: none,
            log: EventLog::new(ObjectMap::new(), none, log_bytes_max),
            oldest: none,
            lost: none,
            originals: HashMap::new(),
            reader: CurrentReader { reader, number: 0 },
        };
        Arc::new(Cache {
            state: RwLock::new(state),
            wakers: Arc::default(),
            reached: watch::Sender::new(None),
            own: OwnWrites::default(),
            changed,
            closed: AtomicBool::new(false),
            rereads: AtomicU64::new(0),
        })
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, CacheState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, CacheState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current state.
    pub fn snapshot(&self) -> Snapshot {
        snapshot(&self.state())
    }

    /// The state at exactly a revision.
    ///
    /// # Errors
    /// If the revision is outside the history.
    pub fn snapshot_at(&self, revision: ResourceVersion) -> Result<Snapshot, Unavailable> {
        let inner = self.state();
        if inner.is_lost(revision) {
            return Err(Unavailable::TooOld(inner.oldest));
        }
        if revision > inner.revision {
            return Err(Unavailable::NotYet(inner.revision));
        }
        if revision < inner.oldest {
            return Err(Unavailable::TooOld(inner.oldest));
        }
        match inner.log.state_at(revision) {
            Some(state) => Ok(Snapshot { state, revision }),
            None => Err(Unavailable::TooOld(inner.log.oldest())),
        }
    }

    /// One object as the cache has it.
    pub fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.state().state.get(key).cloned()
    }

    /// Notes that this process is about to write an object: the cache recognises it when the store brings it, until the returned
    /// guard is dropped.
    pub(crate) fn begin_write(
        &self,
        key: &ObjectKey,
        object: &UnstampedObject,
    ) -> WriteUnderWay<'_> {
        self.own.begin(key, object)
    }

    /// Notes that this process has written an object. The next write to it need not wait until the store has brought it back.
    pub(crate) fn end_write(&self, value: &Bytes, object: &Object) {
        let is_new = || object.revision() > self.state().revision;
        self.own.done(value, object, is_new);
    }

    /// The object that the store brings, if this process has written it.
    pub(crate) fn recognise(
        &self,
        key: &ObjectKey,
        value: &[u8],
        revision: ResourceVersion,
        event: EventType,
    ) -> Option<Object> {
        self.own.recognise(key, value, revision, event)
    }

    /// One object as the cache has it, or as this process has written it since.
    pub fn newest(&self, key: &ObjectKey) -> Option<Object> {
        self.own.newest(key).or_else(|| self.get(key))
    }

    /// The revision that the cache has reached; `None` before it is filled.
    pub fn reached(&self) -> Option<ResourceVersion> {
        *self.reached.borrow()
    }

    /// Waits until the cache has reached a revision.
    pub async fn reach(&self, revision: ResourceVersion) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as the cache.
        let _ = reached
            .wait_for(|reached| reached.is_some_and(|reached| reached >= revision))
            .await;
    }

    /// The current state, and a cursor behind it.
    pub fn follow(&self, scope: WatchScope) -> (Snapshot, Cursor) {
        let slot = self.wakers.enter(scope);
        let inner = self.state();
        let cursor = Cursor {
            position: inner.log.end(),
            slot,
        };
        (snapshot(&inner), cursor)
    }

    /// A cursor behind a revision, which may be one that the cache has not reached yet.
    ///
    /// # Errors
    /// If the revision is older than the history, or lost.
    pub fn follow_after(
        &self,
        revision: ResourceVersion,
        scope: WatchScope,
    ) -> Result<Cursor, Unavailable> {
        let slot = self.wakers.enter(scope);
        let inner = self.state();
        // A watch that waited for a lost revision would miss the events that took its place (W94).
        if revision < inner.oldest || inner.is_lost(revision) {
            return Err(Unavailable::TooOld(inner.oldest));
        }
        let position = inner
            .log
            .position_after(revision)
            .ok_or(Unavailable::TooOld(inner.log.oldest()))?;
        Ok(Cursor { position, slot })
    }

    /// The segment that a cursor stands in, the position behind the last event, and the revision up to which the log is complete.
    ///
    /// # Errors
    /// If the log was trimmed past the cursor.
    pub fn read(
        &self,
        cursor: &Cursor,
    ) -> Result<(Arc<LogSegment>, u64, ResourceVersion), FellBehind> {
        self.read_at(cursor.position())
    }

    /// As [`Cache::read`], for a reader that keeps a position without being woken by the cache.
    ///
    /// # Errors
    /// If the log was trimmed past the position.
    pub fn read_at(
        &self,
        position: u64,
    ) -> Result<(Arc<LogSegment>, u64, ResourceVersion), FellBehind> {
        let inner = self.state();
        Ok((
            inner.log.segment(position)?,
            inner.log.end(),
            inner.revision,
        ))
    }

    /// The current state, and the position behind it.
    pub fn tail(&self) -> (Snapshot, u64) {
        let inner = self.state();
        (snapshot(&inner), inner.log.end())
    }

    /// Refuses revisions before `oldest` from now on, and drops the segments that only they needed.
    pub fn forget_before(&self, oldest: ResourceVersion) {
        let mut inner = self.state_mut();
        if oldest > inner.oldest {
            inner.oldest = oldest;
            inner.log.trim(oldest);
        }
    }

    /// Tells whenever the cache has reached another revision.
    pub fn changes(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.reached.subscribe()
    }

    /// The reader in use.
    pub(crate) fn reader(&self) -> CurrentReader {
        self.state().reader.clone()
    }

    /// Reads objects with another reader from now on. Those that the cache has stay as they are until [`Cache::reread`].
    pub fn set_reader(&self, reader: StoredReader) {
        let mut inner = self.state_mut();
        let number = inner.reader.number + 1;
        inner.reader = CurrentReader {
            reader: Some(reader),
            number,
        };
    }

    /// Reads every stored object again with the current reader. If readers see any object otherwise than before, the history
    /// before now is refused: its events are not what a list or a watch would show now.
    pub async fn reread(&self) {
        let reader = self.reader();
        let (mut read, mut bytes, mut changed) = (Vec::new(), 0, false);
        for original in self.originals() {
            bytes += original.as_bytes().len();
            let seen = reader.read(&original, EventType::Added);
            read.push((original, seen));
            if bytes > REREAD_BYTES {
                changed |= self.replace_read(std::mem::take(&mut read));
                bytes = 0;
                tokio::task::yield_now().await; // the thread has other tasks
            }
        }
        changed |= self.replace_read(read);
        if !changed {
            return;
        }
        let mut inner = self.state_mut();
        inner.oldest = inner.revision;
        let oldest = inner.oldest;
        inner.log.trim(oldest);
        drop(inner);
        self.rereads.fetch_add(1, Ordering::AcqRel);
        self.wake_all();
    }

    /// Every object as it is stored.
    fn originals(&self) -> Vec<Object> {
        let inner = self.state();
        let original = |(key, object)| inner.originals.get(key).unwrap_or(object).clone();
        inner.state.iter().map(original).collect()
    }

    /// Replaces objects, given as they are stored, by what readers see if that is different; versions do not change. True if
    /// readers see any object otherwise than before.
    fn replace_read(&self, read: Vec<(Object, Option<Object>)>) -> bool {
        let mut inner = self.state_mut();
        let mut changed = false;
        for (original, seen) in read {
            let key = original.key();
            let Some(known) = inner.state.get(&key) else {
                continue;
            };
            let shown = seen.as_ref().unwrap_or(&original);
            if known.revision() != original.revision() || known == shown {
                continue;
            }
            changed = true;
            inner.state.insert(key.clone(), shown.clone());
            match seen {
                Some(_) => inner.originals.insert(key, original),
                None => inner.originals.remove(&key),
            };
        }
        changed
    }

    /// How often [`Cache::reread`] changed what readers see. A watch that compares two numbers knows whether to trust its selection.
    pub fn rereads(&self) -> u64 {
        self.rereads.load(Ordering::Acquire)
    }

    /// Ends every watch once it has sent what is pending: the resource is gone.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake_all();
    }

    /// True after [`Cache::close`].
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Wakes every watch, to look at something else than the log.
    pub fn wake_all(&self) {
        self.wakers.wake_all();
    }

    /// Figures for metrics.
    pub fn stats(&self) -> CacheStats {
        let inner = self.state();
        CacheStats {
            objects: inner.state.len(),
            revision: inner.revision.get(),
            oldest: inner.oldest.max(inner.log.oldest()).get(),
            log_events: inner.log.len(),
            log_bytes: inner.log.bytes(),
            watches: self.wakers.len(),
        }
    }
}

fn snapshot(inner: &CacheState) -> Snapshot {
    Snapshot {
        state: inner.state.clone(),
        revision: inner.revision,
    }
}

/// Figures of one cache.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CacheStats {
    /// Objects in the current state.
    pub objects: usize,
    /// The revision that the cache is complete up to.
    pub revision: u64,
    /// The oldest revision that can be read and watched from.
    pub oldest: u64,
    /// Events in the log.
    pub log_events: u64,
    /// Bytes of the objects in the log.
    pub log_bytes: usize,
    /// Watches that are registered.
    pub watches: usize,
}

/// The position of a watch in the log, and its registration to be woken.
#[derive(Debug)]
pub struct Cursor {
    position: u64,
    slot: WakeSlot,
}

impl Cursor {
    /// The number of the next event.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves past one event.
    pub fn advance(&mut self) {
        self.position += 1;
    }

    /// Asks to be woken at the next event in the scope. The caller reads the log once more afterwards: an event may have come before
    /// the call.
    pub fn wait(&self, waker: &std::task::Waker) {
        self.slot.wait(waker);
    }
}

#[cfg(test)]
mod tests {
    use tidings_api::{EventType, WatchEvent};
    use tidings_informer::{ReflectorStore, ServerVersion};

    use super::*;
    use crate::fill::CacheFiller;

    fn object(name: &str, revision: u64, event: EventType) -> Object {
        let json = format!(r#"{{"metadata":{{"name":"{name}","uid":"u"}}}}"#);
        Object::stamped(json.as_bytes(), ResourceVersion::new(revision), event).unwrap()
    }

    fn filled(revision: u64, names: &[&str]) -> (Arc<Cache>, CacheFiller) {
        let cache = Cache::new(1 << 20, Arc::default(), None);
        let mut store = CacheFiller::new(cache.clone());
        list(&mut store, revision, names);
        (cache, store)
    }

    fn list(store: &mut CacheFiller, revision: u64, names: &[&str]) {
        let added = |name: &&str| WatchEvent::Added(object(name, 1, EventType::Added));
        store.collect(names.iter().map(added).collect());
        store.replace(&ServerVersion::new(&revision.to_string()));
    }

    #[test]
    fn what_a_lease_ends_goes_in_one_revision() {
        let (cache, mut store) = filled(5, &["a", "b", "c"]);
        let cursor = cache
            .follow_after(ResourceVersion::new(5), WatchScope::All)
            .unwrap();
        let deleted = |name| WatchEvent::Deleted(object(name, 9, EventType::Deleted));
        store.apply(vec![deleted("a"), deleted("b")]);
        assert_eq!(cache.snapshot().state.len(), 1);
        let (segment, end, revision) = cache.read(&cursor).unwrap();
        assert_eq!(segment.from(cursor.position()).count(), 2);
        assert_eq!((end - cursor.position(), revision.get()), (2, 9));
    }

    #[test]
    fn w94_a_lost_revision_is_refused_until_the_store_has_passed_it() {
        let (cache, mut store) = filled(20, &["a"]);
        let at = |revision| cache.follow_after(ResourceVersion::new(revision), WatchScope::All);
        assert!(at(25).is_ok(), "it may come");
        list(&mut store, 10, &["a"]);
        assert!(matches!(at(20), Err(Unavailable::TooOld(_))), "it was lost");
        assert!(matches!(
            cache.snapshot_at(ResourceVersion::new(15)),
            Err(Unavailable::TooOld(_))
        ));
        assert!(at(10).is_ok() && at(25).is_ok());
        let changed = object("a", 20, EventType::Modified);
        store.apply(vec![WatchEvent::Modified(changed)]);
        assert!(at(20).is_ok(), "it is another one now");
    }

    #[test]
    fn an_own_write_is_known_until_the_store_has_brought_it() {
        let (cache, mut store) = filled(5, &["a"]);
        let key = ObjectKey::new("", "a");
        let newest = || cache.newest(&key).unwrap().revision().get();
        cache.end_write(&Bytes::new(), &object("a", 7, EventType::Modified));
        assert_eq!(
            (newest(), cache.get(&key).unwrap().revision().get()),
            (7, 1)
        );
        let theirs = object("a", 8, EventType::Modified);
        store.apply(vec![WatchEvent::Modified(theirs)]);
        assert_eq!(newest(), 8);
        cache.end_write(&Bytes::new(), &object("a", 7, EventType::Modified));
        assert_eq!(newest(), 8, "what comes late is not kept");
    }
}
