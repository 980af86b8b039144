//! The watch cache of one resource: its current objects, its objects at each older revision within the history, and the log of changes.
//!
//! A [`Reflector`](tidings_informer::Reflector) fills it through [`CacheFiller`](crate::fill::CacheFiller). Readers hold the lock only
//! while they take a snapshot or a log position; they iterate without it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;
use tidings_api::{
    EventType, Facet, Object, ObjectKey, ResourceVersion, ServedObject, UnstampedObject,
};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::log::{EventLog, FellBehind, LogSegment};
use crate::objects::{FacetIndex, ObjectMap};
use crate::own_writes::{OwnWrites, WriteUnderWay};
use crate::scopes::ScopeTable;
use crate::wake::Wakers;

/// [`Cache::reread`] yields to other tasks each time it has read this many bytes.
const REREAD_BYTES: usize = 256 << 10;

/// [`Cache::index`] yields to other tasks each time it has read this many objects.
const INDEXED_AT_ONCE: usize = if cfg!(test) { 2 } else { 128 };
/// An index that no list has used for so long is dropped.
const INDEX_IDLE: Duration = Duration::from_secs(600);
/// An index that a list has used within this time is not replaced by another.
const INDEX_LATELY: Duration = Duration::from_secs(10);

/// Translates the JSON of a stored object to the JSON that readers see; `None` if the stored JSON needs no translation.
pub type StoredReader = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// The objects of a resource at one revision. Clones share the map.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The objects by key.
    pub state: ObjectMap,
    /// The revision of this state.
    pub revision: ResourceVersion,
}

/// The part of a cache that its lock protects.
pub(crate) struct CacheState {
    pub(crate) objects: ObjectMap,
    /// The cache has every change up to this revision.
    pub(crate) revision: ResourceVersion,
    pub(crate) log: EventLog,
    /// The watches of parts of the objects, and their events.
    pub(crate) scopes: ScopeTable,
    /// How often objects were replaced without an event.
    replaced: u64,
    /// Reads and watches of older revisions are refused, even if the log still has them.
    pub(crate) oldest: ResourceVersion,
    /// The store once had the revisions above `revision` up to this one, and lost them: an older backup was restored, for example.
    pub(crate) lost: ResourceVersion,
    /// The stored form of each object that the reader translated, kept so that a later reader can translate it again.
    ///
    /// Bound: the objects that were not written since the reader changed.
    pub(crate) originals: HashMap<ObjectKey, Object>,
    pub(crate) reader: CurrentReader,
}

/// The [`StoredReader`] in use, and a number that grows each time it is replaced.
#[derive(Clone, Default)]
pub(crate) struct CurrentReader {
    reader: Option<StoredReader>,
    number: u64,
}

impl CurrentReader {
    /// True if there is a reader: cached objects may then differ from the stored ones.
    pub(crate) fn translates(&self) -> bool {
        self.reader.is_some()
    }

    /// Translates a stored object; `None` if the stored form needs no translation.
    pub(crate) fn read(&self, stored: &Object, event: EventType) -> Option<Object> {
        let json = self.reader.as_ref()?(stored.as_bytes())?;
        Object::stamped(&json, stored.revision(), event).ok()
    }

    /// True if both are the same reader.
    pub(crate) fn is_same(&self, other: &CurrentReader) -> bool {
        self.number == other.number
    }
}

impl CacheState {
    /// True for a revision that the store has lost and not reached again.
    pub(crate) fn is_lost(&self, revision: ResourceVersion) -> bool {
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
    indexes_max: usize,
    /// Held while an index is made: one at a time.
    indexing: tokio::sync::Mutex<()>,
    started: Instant,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = self.stats();
        f.debug_struct("Cache")
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

/// Why the objects at a revision cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// It is older than the history, which starts at this revision.
    TooOld(ResourceVersion),
    /// The cache has only reached this revision.
    NotYet(ResourceVersion),
}

impl Cache {
    /// An empty cache, to be filled. Its log holds at most `log_bytes_max` bytes of objects; `changed` is notified of every change.
    pub(crate) fn new(
        log_bytes_max: usize,
        indexes_max: usize,
        changed: Arc<Notify>,
        reader: Option<StoredReader>,
    ) -> Arc<Cache> {
        let none = ResourceVersion::default();
        let state = CacheState {
            objects: ObjectMap::new(),
            revision: none,
            log: EventLog::new(ObjectMap::new(), none, log_bytes_max),
            scopes: ScopeTable::default(),
            replaced: 0,
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
            indexes_max,
            indexing: tokio::sync::Mutex::default(),
            started: Instant::now(),
        })
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, CacheState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, CacheState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current objects and their revision.
    pub fn snapshot(&self) -> Snapshot {
        snapshot(&self.state())
    }

    /// The objects at exactly this revision.
    ///
    /// # Errors
    /// If the revision is outside the history.
    pub fn snapshot_at(&self, revision: ResourceVersion) -> Result<Snapshot, Unavailable> {
        let state = self.state();
        if state.is_lost(revision) {
            return Err(Unavailable::TooOld(state.oldest));
        }
        if revision > state.revision {
            return Err(Unavailable::NotYet(state.revision));
        }
        if revision < state.oldest {
            return Err(Unavailable::TooOld(state.oldest));
        }
        match state.log.state_at(revision) {
            Some(state) => Ok(Snapshot { state, revision }),
            None => Err(Unavailable::TooOld(state.log.oldest())),
        }
    }

    /// One object as the cache has it.
    pub fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.state().objects.get(key).cloned()
    }

    /// Notes that this process is about to write an object. Until the returned guard is dropped, the cache recognises the object when
    /// the watch of the store delivers it.
    pub(crate) fn begin_write(
        &self,
        key: &ObjectKey,
        object: &UnstampedObject,
    ) -> WriteUnderWay<'_> {
        self.own.begin(key, object)
    }

    /// Notes that the store has acknowledged a write of this process. The next write to the same object need not wait until the watch of
    /// the store has delivered it.
    pub(crate) fn end_write(&self, value: &Bytes, object: &Object) {
        let is_new = || object.revision() > self.state().revision;
        self.own.done(value, object, is_new);
    }

    /// The object in a value that the watch of the store delivered, if this process wrote that value.
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

    /// Like [`Cache::read`], for a reader that keeps a log position itself and is not woken by the cache.
    ///
    /// # Errors
    /// If the log was trimmed past the position.
    pub fn read_at(
        &self,
        position: u64,
    ) -> Result<(Arc<LogSegment>, u64, ResourceVersion), FellBehind> {
        let state = self.state();
        Ok((
            state.log.segment(position)?,
            state.log.end(),
            state.revision,
        ))
    }

    /// The current objects, and the log position right after them.
    pub fn tail(&self) -> (Snapshot, u64) {
        let state = self.state();
        (snapshot(&state), state.log.end())
    }

    /// The oldest objects that can be read, and the log position right after them.
    pub(crate) fn oldest_state(&self) -> (Snapshot, u64) {
        let state = self.state();
        let revision = state.oldest.max(state.log.oldest());
        let found = state.log.state_at(revision);
        match (found, state.log.position_after(revision)) {
            (Some(state), Some(position)) => (Snapshot { state, revision }, position),
            _ => (snapshot(&state), state.log.end()),
        }
    }

    /// The position after the last event of the log: it grows with every change.
    pub fn log_end(&self) -> u64 {
        self.state().log.end()
    }

    /// Refuses reads and watches of revisions before `oldest` from now on, and drops the log segments that only they needed.
    pub fn forget_before(&self, oldest: ResourceVersion) {
        let mut state = self.state_mut();
        if oldest > state.oldest {
            state.oldest = oldest;
            let state = &mut *state;
            state.log.end_segment(oldest, &state.objects);
            state.log.trim(oldest);
            state.scopes.dropped(state.log.front());
        }
        if let Some(idle) = self.now().checked_sub(INDEX_IDLE.as_secs()) {
            state.objects.drop_unused(idle);
        }
    }

    /// Seconds since the cache was opened.
    fn now(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Makes an index for a facet, unless there is one. Lists that name a value of the facet then cost what they find. It gives up if another index
    /// is being made, if objects change in a way that the log does not tell, or if there are as many indexes as there may be and all of them were used
    /// lately.
    ///
    /// Dropping the future leaves the cache as it was.
    pub async fn index(&self, facet: &Facet) {
        if self.uses_index(facet) {
            return;
        }
        let Ok(_one_at_a_time) = self.indexing.try_lock() else {
            return;
        };
        let (objects, position, replaced) = {
            let state = self.state();
            if !state.objects.has_room(self.indexes_max, self.long_ago()) {
                return;
            }
            (state.objects.clone(), state.log.end(), state.replaced)
        };
        let mut index = FacetIndex::new(facet.clone());
        for (at, (key, object)) in objects.iter().enumerate() {
            if at % INDEXED_AT_ONCE == INDEXED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            index.change(key, None, Some(object));
        }
        let mut state = self.state_mut();
        if state.replaced == replaced && state.log.follow(position, &mut index).is_ok() {
            index.use_at(self.now());
            state.objects.add_index(index, self.indexes_max);
        }
    }

    /// An index that was used after this time is not replaced by another.
    fn long_ago(&self) -> u64 {
        self.now().saturating_sub(INDEX_LATELY.as_secs())
    }

    /// True if there is an index for a facet. Notes that it is used.
    fn uses_index(&self, facet: &Facet) -> bool {
        let state = self.state();
        let index = state.objects.index(facet);
        index.inspect(|index| index.use_at(self.now())).is_some()
    }

    /// A channel with the revision that the cache has reached.
    pub fn changes(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.reached.subscribe()
    }

    /// The reader in use.
    pub(crate) fn reader(&self) -> CurrentReader {
        self.state().reader.clone()
    }

    /// Translates objects with another reader from now on. Objects already in the cache do not change until [`Cache::reread`].
    pub fn set_reader(&self, reader: StoredReader) {
        let mut state = self.state_mut();
        let number = state.reader.number + 1;
        state.reader = CurrentReader {
            reader: Some(reader),
            number,
        };
    }

    /// Translates every stored object again with the current reader. If that changes any cached object, all older revisions are refused:
    /// the events in the log were translated by the reader before.
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
                tokio::task::yield_now().await;
            }
        }
        changed |= self.replace_read(read);
        if !changed {
            return;
        }
        let mut state = self.state_mut();
        state.oldest = state.revision;
        let (oldest, objects) = (state.oldest, state.objects.clone());
        state.log.trim(oldest);
        // Reads at an exact revision begin here, not with events that the reader before has translated. Watches that are behind still find them.
        state.log.start_segment(objects, oldest);
        let front = state.log.front();
        state.scopes.dropped(front);
        drop(state);
        self.rereads.fetch_add(1, Ordering::AcqRel);
        self.wake_all();
    }

    /// Every object as it is stored.
    fn originals(&self) -> Vec<Object> {
        let state = self.state();
        let original = |(key, object)| state.originals.get(key).unwrap_or(object).clone();
        state.objects.iter().map(original).collect()
    }

    /// Replaces cached objects by their new translations; versions do not change. Each item is a stored object and its translation, if it
    /// needs one. True if any cached object changed.
    fn replace_read(&self, read: Vec<(Object, Option<Object>)>) -> bool {
        let mut state = self.state_mut();
        let mut changed = false;
        for (original, seen) in read {
            let key = original.key();
            let Some(known) = state.objects.get(&key) else {
                continue;
            };
            let shown = seen.as_ref().unwrap_or(&original);
            if known.revision() != original.revision() || known == shown {
                continue;
            }
            changed = true;
            state.replaced += 1;
            state.objects.insert(key.clone(), shown.clone());
            match seen {
                Some(_) => state.originals.insert(key, original),
                None => state.originals.remove(&key),
            };
        }
        changed
    }

    /// How often [`Cache::reread`] changed cached objects. A watch that sees this grow can no longer rely on what it has sent before.
    pub fn rereads(&self) -> u64 {
        self.rereads.load(Ordering::Acquire)
    }

    /// Ends every watch once it has sent its pending events, because the resource is no longer served.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake_all();
    }

    /// True after [`Cache::close`].
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Wakes every watch, so that it looks at more than the log: whether the cache is closed or the server stops.
    pub fn wake_all(&self) {
        self.wakers.wake_all();
    }

    /// Figures for metrics.
    pub fn stats(&self) -> CacheStats {
        let state = self.state();
        CacheStats {
            objects: state.objects.len(),
            revision: state.revision.get(),
            oldest: state.oldest.max(state.log.oldest()).get(),
            log_events: state.log.len(),
            log_bytes: state.log.bytes(),
            watches: self.wakers.len(),
            scopes: state.scopes.len(),
            listed_events: state.scopes.listed(),
            indexes: state.objects.indexes(),
        }
    }
}

pub(crate) fn snapshot(state: &CacheState) -> Snapshot {
    Snapshot {
        state: state.objects.clone(),
        revision: state.revision,
    }
}

/// Figures of one cache.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CacheStats {
    /// Objects in the current state.
    pub objects: usize,
    /// The cache has every change up to this revision.
    pub revision: u64,
    /// The oldest revision that can be read and watched from.
    pub oldest: u64,
    /// Events in the log.
    pub log_events: u64,
    /// Bytes of the objects in the log.
    pub log_bytes: usize,
    /// Watches that are registered.
    pub watches: usize,
    /// Scopes that have watches, besides that of all objects.
    pub scopes: usize,
    /// Positions of events that are listed for scopes.
    pub listed_events: usize,
    /// Indexes that lists use.
    pub indexes: usize,
}

#[cfg(test)]
mod tests {
    use tidings_api::{EventType, WatchEvent};
    use tidings_informer::{ReflectorStore, ServerVersion};

    use super::*;
    use crate::fill::CacheFiller;
    use crate::scopes::WatchScope;

    fn object(name: &str, revision: u64, event: EventType) -> Object {
        let json = format!(r#"{{"metadata":{{"name":"{name}","uid":"u"}}}}"#);
        Object::stamped(json.as_bytes(), ResourceVersion::new(revision), event).unwrap()
    }

    fn filled(revision: u64, names: &[&str]) -> (Arc<Cache>, CacheFiller) {
        let cache = Cache::new(1 << 20, 2, Arc::default(), None);
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
    fn deletions_of_an_expired_etcd_lease_share_one_revision() {
        let (cache, mut store) = filled(5, &["a", "b", "c"]);
        let cursor = cache
            .follow_after(ResourceVersion::new(5), WatchScope::default())
            .unwrap();
        let deleted = |name| WatchEvent::Deleted(object(name, 9, EventType::Deleted));
        store.apply(vec![deleted("a"), deleted("b")]);
        assert_eq!(cache.snapshot().state.len(), 1);
        let read = cache.read(&cursor).unwrap();
        assert_eq!(read.events().count(), 2);
        assert_eq!((read.end - cursor.position, read.revision.get()), (2, 9));
    }

    #[test]
    fn a_quiet_resource_keeps_no_events_beyond_the_history() {
        let (cache, mut store) = filled(5, &["a"]);
        let at = |revision| ResourceVersion::new(revision);
        let mut watch = cache.follow_after(at(5), WatchScope::default()).unwrap();
        let changed = |revision| WatchEvent::Modified(object("a", revision, EventType::Modified));
        store.apply(vec![changed(6), changed(7)]);
        let read = cache.read(&watch).unwrap();
        assert_eq!(read.events().count(), 2);
        for (position, _) in read.events() {
            watch.pass(position);
        }
        cache.forget_before(at(6));
        assert_eq!(cache.stats().log_events, 2, "one of them can still be read");
        cache.forget_before(at(9));
        let stats = cache.stats();
        assert_eq!((stats.log_events, stats.log_bytes), (0, 0));
        store.apply(vec![WatchEvent::Bookmark {
            resource_version: "9".into(),
            initial_events_end: false,
        }]);
        assert_eq!(cache.snapshot_at(at(9)).unwrap().state.len(), 1);
        assert!(cache.snapshot_at(at(8)).is_err());
        let resumed = cache.follow_after(at(9), WatchScope::default()).unwrap();
        store.apply(vec![changed(10)]);
        for watch in [&watch, &resumed] {
            assert_eq!(cache.read(watch).unwrap().events().count(), 1);
        }
    }

    #[test]
    fn w94_a_lost_revision_is_refused_until_the_store_reaches_it_again() {
        let (cache, mut store) = filled(20, &["a"]);
        let at =
            |revision| cache.follow_after(ResourceVersion::new(revision), WatchScope::default());
        assert!(at(25).is_ok(), "a future revision");
        list(&mut store, 10, &["a"]);
        assert!(
            matches!(at(20), Err(Unavailable::TooOld(_))),
            "a lost revision"
        );
        assert!(matches!(
            cache.snapshot_at(ResourceVersion::new(15)),
            Err(Unavailable::TooOld(_))
        ));
        assert!(at(10).is_ok() && at(25).is_ok());
        let changed = object("a", 20, EventType::Modified);
        store.apply(vec![WatchEvent::Modified(changed)]);
        assert!(at(20).is_ok(), "the store has reached it again");
    }

    #[tokio::test]
    async fn every_revision_shows_objects_as_the_current_reader_translates_them() {
        let (cache, mut store) = filled(5, &["a"]);
        let changed = |revision| WatchEvent::Modified(object("a", revision, EventType::Modified));
        store.apply(vec![changed(6), changed(7)]);
        let behind = cache.follow_after(ResourceVersion::new(6), WatchScope::default());
        let behind = behind.unwrap();
        cache.set_reader(Arc::new(|json: &[u8]| {
            let text = String::from_utf8_lossy(json);
            Some(text.replace(r#""uid":"u""#, r#""uid":"v""#).into_bytes())
        }));
        cache.reread().await;
        let at = |revision| cache.snapshot_at(ResourceVersion::new(revision));
        assert!(matches!(at(6), Err(Unavailable::TooOld(_))));
        let shown = at(7).unwrap().state.get(&ObjectKey::new("", "a")).cloned();
        assert_eq!(shown.unwrap().uid(), "v");
        let read = cache.read(&behind).unwrap();
        assert_eq!(read.events().count(), 1, "goes on");
        let end = read.end;
        let (next, ..) = cache.read_at(end).unwrap();
        store.apply(vec![changed(8)]);
        let event = next.from(end).next().unwrap();
        assert_eq!(event.object.uid(), "v", "in the new segment");
        // A definition may change often without a change of its objects.
        for uid in ["w", "x", "y"] {
            cache.set_reader(Arc::new(move |json: &[u8]| {
                let text = String::from_utf8_lossy(json);
                let new = format!(r#""uid":"{uid}""#);
                Some(text.replace(r#""uid":"u""#, &new).into_bytes())
            }));
            cache.reread().await;
        }
        assert_eq!(cache.snapshot().state.len(), 1);
    }

    #[test]
    fn an_own_write_is_kept_until_the_watch_of_the_store_delivers_it() {
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
        assert_eq!(newest(), 8, "a late acknowledgement is not kept");
    }
}
