//! The watch cache of one resource: its state in memory, at every revision within the history, and the log of its changes.
//!
//! A [`Reflector`](tidings_informer::Reflector) fills it through [`CacheStore`]; requests read it. Readers take a snapshot or a
//! position under a lock that is held for a moment, and walk without it.

mod fill;
pub(crate) mod log;
mod own;
pub(crate) mod shared;
pub(crate) mod wake;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use tidings_api::{EventType, Object, ObjectKey, ResourceVersion};
use tokio::sync::{Notify, watch};

pub(crate) use fill::CacheStore;
use log::{FellBehind, Log, Segment, State};
use own::{OwnWrites, UnderWay};
use wake::{Place, Scope, Wakers};

use crate::registry::draft::Written;

/// The state of a resource at a revision. Cloning it costs nothing.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) state: State,
    pub(crate) revision: ResourceVersion,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// The cache is complete up to here.
    revision: ResourceVersion,
    log: Log,
    /// Reads and watches of older revisions are refused, though the log may still have them.
    oldest: ResourceVersion,
    /// Revisions after the current one and up to this are of a state that the store has lost.
    lost: ResourceVersion,
    /// Objects of a custom resource as they are stored, where that is not how they are read: what a definition takes away it may
    /// give back.
    ///
    /// Bound: the objects that have not been written since their definition changed.
    originals: HashMap<ObjectKey, Object>,
}

impl Inner {
    /// True if a revision that the cache has not reached is one that the store had and has lost.
    fn is_lost(&self, revision: ResourceVersion) -> bool {
        revision > self.revision && revision <= self.lost
    }
}

/// The watch cache of one resource.
#[derive(Debug)]
pub(crate) struct Cache {
    inner: RwLock<Inner>,
    wakers: Arc<Wakers>,
    /// The revision that the cache has reached; `None` before the first list.
    reached: watch::Sender<Option<ResourceVersion>>,
    own: OwnWrites,
    /// Told of every change, for the one who follows all caches.
    told: Arc<Notify>,
    closed: AtomicBool,
    /// See [`Cache::forms`].
    forms: AtomicU64,
}

/// Why a snapshot of a revision cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// It is older than the history; history starts at this revision.
    TooOld(ResourceVersion),
    /// The cache has not come that far.
    NotYet(ResourceVersion),
}

impl Cache {
    pub(crate) fn new(log_bytes_max: usize, told: Arc<Notify>) -> Arc<Cache> {
        let log = Log::new(State::new(), ResourceVersion::default(), log_bytes_max);
        let none = ResourceVersion::default();
        let inner = Inner {
            state: State::new(),
            revision: none,
            log,
            oldest: none,
            lost: none,
            originals: HashMap::new(),
        };
        Arc::new(Cache {
            inner: RwLock::new(inner),
            wakers: Arc::default(),
            reached: watch::Sender::new(None),
            own: OwnWrites::default(),
            told,
            closed: AtomicBool::new(false),
            forms: AtomicU64::new(0),
        })
    }

    fn inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner_mut(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let inner = self.inner();
        Snapshot {
            state: inner.state.clone(),
            revision: inner.revision,
        }
    }

    /// The state at exactly a revision.
    pub(crate) fn snapshot_at(&self, revision: ResourceVersion) -> Result<Snapshot, Unavailable> {
        let inner = self.inner();
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

    /// One object as it is now.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.inner().state.get(key).cloned()
    }

    /// This server is about to write an object. It is recognised when the store brings it, until what is returned is dropped.
    pub(crate) fn writes(&self, key: &ObjectKey, written: &Written) -> UnderWay<'_> {
        self.own.begin(key, written)
    }

    /// This server has written an object. The next write to it need not wait until the store has brought it back.
    pub(crate) fn wrote(&self, value: &Bytes, object: &Object) {
        let is_new = || object.revision() > self.inner().revision;
        self.own.done(value, object, is_new);
    }

    /// The object that the store brings, if this server has written it.
    pub(crate) fn recognise(
        &self,
        key: &ObjectKey,
        value: &[u8],
        revision: ResourceVersion,
        event: EventType,
    ) -> Option<Object> {
        self.own.recognise(key, value, revision, event)
    }

    /// One object as it is now, or as this server has written it since.
    pub(crate) fn newest(&self, key: &ObjectKey) -> Option<Object> {
        self.own.newest(key).or_else(|| self.get(key))
    }

    /// The revision that the cache has reached; `None` before it is filled.
    pub(crate) fn reached(&self) -> Option<ResourceVersion> {
        *self.reached.borrow()
    }

    /// Waits until the cache has reached a revision.
    pub(crate) async fn reach(&self, revision: ResourceVersion) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as the cache.
        let _ = reached
            .wait_for(|reached| reached.is_some_and(|reached| reached >= revision))
            .await;
    }

    /// A cursor behind the current state, and that state.
    pub(crate) fn follow(&self, scope: Scope) -> (Snapshot, Cursor) {
        let place = self.wakers.enter(scope);
        let inner = self.inner();
        let snapshot = Snapshot {
            state: inner.state.clone(),
            revision: inner.revision,
        };
        (
            snapshot,
            Cursor {
                position: inner.log.end(),
                place,
            },
        )
    }

    /// A cursor behind a revision, which may be one that the cache has not reached yet.
    pub(crate) fn follow_after(
        &self,
        revision: ResourceVersion,
        scope: Scope,
    ) -> Result<Cursor, Unavailable> {
        let place = self.wakers.enter(scope);
        let inner = self.inner();
        // Who waited for a revision that is lost would miss what happens instead (W94).
        if revision < inner.oldest || inner.is_lost(revision) {
            return Err(Unavailable::TooOld(inner.oldest));
        }
        let position = inner
            .log
            .position_after(revision)
            .ok_or(Unavailable::TooOld(inner.log.oldest()))?;
        Ok(Cursor { position, place })
    }

    /// What a cursor can read now: the segment it stands in, and up to which revision the cache is complete. Whatever the
    /// segment and those after it hold, they hold everything up to that revision.
    pub(crate) fn read(
        &self,
        cursor: &Cursor,
    ) -> Result<(Arc<Segment>, u64, ResourceVersion), FellBehind> {
        self.read_at(cursor.position)
    }

    /// The same for one who is told of changes in another way than watches are.
    pub(crate) fn read_at(
        &self,
        position: u64,
    ) -> Result<(Arc<Segment>, u64, ResourceVersion), FellBehind> {
        let inner = self.inner();
        Ok((
            inner.log.segment(position)?,
            inner.log.end(),
            inner.revision,
        ))
    }

    /// The current state, and the position behind it.
    pub(crate) fn tail(&self) -> (Snapshot, u64) {
        let inner = self.inner();
        let snapshot = Snapshot {
            state: inner.state.clone(),
            revision: inner.revision,
        };
        (snapshot, inner.log.end())
    }

    /// Refuses revisions before `oldest` from now on and forgets what only they needed.
    pub(crate) fn forget_before(&self, oldest: ResourceVersion) {
        let mut inner = self.inner_mut();
        if oldest > inner.oldest {
            inner.oldest = oldest;
            inner.log.trim(oldest);
        }
    }

    /// Told whenever the cache has reached another revision.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.reached.subscribe()
    }

    /// All objects as they are stored.
    pub(crate) fn originals(&self) -> Vec<Object> {
        let inner = self.inner();
        let original = |(key, object)| inner.originals.get(key).unwrap_or(object).clone();
        inner.state.iter().map(original).collect()
    }

    /// Puts other forms of the same versions of objects in their place: each as it is stored, and as it is read if that is
    /// something else. True if anything is another form than before.
    pub(crate) fn put_forms(&self, forms: Vec<(Object, Option<Object>)>) -> bool {
        let mut inner = self.inner_mut();
        let mut changed = false;
        for (original, form) in forms {
            let key = original.key();
            let Some(known) = inner.state.get(&key) else {
                continue;
            };
            let read = form.as_ref().unwrap_or(&original);
            if known.revision() != original.revision() || known == read {
                continue;
            }
            changed = true;
            inner.state.insert(key.clone(), read.clone());
            match form {
                Some(_) => inner.originals.insert(key, original),
                None => inner.originals.remove(&key),
            };
        }
        changed
    }

    /// Objects are of other forms from now on: what was before is not what a list or a watch would show now.
    pub(crate) fn forms_changed(&self) {
        let mut inner = self.inner_mut();
        inner.oldest = inner.revision;
        let oldest = inner.oldest;
        inner.log.trim(oldest);
        drop(inner);
        self.forms.fetch_add(1, Ordering::AcqRel);
        self.wake_all();
    }

    /// How often objects have come to be of other forms.
    pub(crate) fn forms(&self) -> u64 {
        self.forms.load(Ordering::Acquire)
    }

    /// The resource is gone: watches end when they have sent what there is.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Wakes every watch, to look at something else than the log.
    pub(crate) fn wake_all(&self) {
        self.wakers.wake_all();
    }

    /// Figures for metrics.
    pub(crate) fn stats(&self) -> CacheStats {
        let inner = self.inner();
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

#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheStats {
    pub(crate) objects: usize,
    pub(crate) revision: u64,
    pub(crate) oldest: u64,
    pub(crate) log_events: u64,
    pub(crate) log_bytes: usize,
    pub(crate) watches: usize,
}

/// Where a watch stands in the log, and how it is woken.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The number of the next event.
    pub(crate) position: u64,
    pub(crate) place: Place,
}

#[cfg(test)]
mod tests {
    use tidings_api::{EventType, WatchEvent};
    use tidings_informer::{ReflectorStore, Version};

    use super::*;

    fn object(name: &str, revision: u64, event: EventType) -> Object {
        let json = format!(r#"{{"metadata":{{"name":"{name}","uid":"u"}}}}"#);
        Object::stamped(json.as_bytes(), ResourceVersion::new(revision), event).unwrap()
    }

    fn filled(revision: u64, names: &[&str]) -> (Arc<Cache>, CacheStore) {
        let cache = Cache::new(1 << 20, Arc::default());
        let mut store = CacheStore::new(cache.clone(), None);
        list(&mut store, revision, names);
        (cache, store)
    }

    fn list(store: &mut CacheStore, revision: u64, names: &[&str]) {
        let added = |name: &&str| WatchEvent::Added(object(name, 1, EventType::Added));
        store.collect(names.iter().map(added).collect());
        store.replace(&Version::new(&revision.to_string()));
    }

    #[test]
    fn what_a_lease_ends_goes_in_one_revision() {
        let (cache, mut store) = filled(5, &["a", "b", "c"]);
        let cursor = cache
            .follow_after(ResourceVersion::new(5), Scope::All)
            .unwrap();
        let deleted = |name| WatchEvent::Deleted(object(name, 9, EventType::Deleted));
        store.apply(vec![deleted("a"), deleted("b")]);
        assert_eq!(cache.snapshot().state.len(), 1);
        let (segment, end, revision) = cache.read(&cursor).unwrap();
        assert_eq!(segment.from(cursor.position).count(), 2);
        assert_eq!((end - cursor.position, revision.get()), (2, 9));
    }

    #[test]
    fn w94_a_lost_revision_is_refused_until_the_store_has_passed_it() {
        let (cache, mut store) = filled(20, &["a"]);
        let at = |revision| cache.follow_after(ResourceVersion::new(revision), Scope::All);
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
        cache.wrote(&Bytes::new(), &object("a", 7, EventType::Modified));
        assert_eq!(
            (newest(), cache.get(&key).unwrap().revision().get()),
            (7, 1)
        );
        let theirs = object("a", 8, EventType::Modified);
        store.apply(vec![WatchEvent::Modified(theirs)]);
        assert_eq!(newest(), 8);
        cache.wrote(&Bytes::new(), &object("a", 7, EventType::Modified));
        assert_eq!(newest(), 8, "what comes late is not kept");
    }
}
