//! The reflector's side of the queue: compares received objects with the store, decodes new ones, and queues deltas.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::OrdMap;
use tidings_api::{Object, ObjectKey, WatchEvent};

use crate::object::{Cached, DecodeError, Decoder, Uid};
use crate::queue::{Delta, DeltaFifo, Objects};
use crate::reflector::{Observers, Problem, ReflectorStore};
use crate::store::{HeldObject, Store, WriteOverlay};
use crate::sync::{Mutex, lock};
use crate::version::ServerVersion;

/// Objects that cannot be decoded and are left out of the store, by key.
pub(crate) type Quarantine = Mutex<HashMap<ObjectKey, Quarantined>>;

/// The version of an object that could not be decoded, and the error.
#[derive(Debug)]
pub(crate) struct Quarantined {
    version: u64,
    pub(crate) error: DecodeError,
}

/// Turns the lists and events that a reflector receives into deltas.
pub(crate) struct Intake<K> {
    queue: DeltaFifo<K>,
    /// The store to compare received objects with.
    store: Store<K>,
    decoder: Decoder<K>,
    /// Own writes whose answers were decoded already.
    written: Option<Arc<WriteOverlay<K>>>,
    /// The objects of a list that has not ended.
    collected: OrdMap<ObjectKey, HeldObject<K>>,
    /// Objects of that list that cannot be decoded.
    left_out: HashMap<ObjectKey, Uid>,
    /// Estimated bytes of `collected` that the store does not share.
    new_bytes: usize,
    /// The server lost history: equal versions do not prove that objects are equal.
    distrusted: bool,
    quarantine: Arc<Quarantine>,
    observers: Arc<Observers>,
    decode_nanos: Arc<AtomicU64>,
}

impl<K: Send + Sync + 'static> Intake<K> {
    pub(crate) fn new(
        queue: DeltaFifo<K>,
        store: Store<K>,
        decoder: Decoder<K>,
        observers: Arc<Observers>,
        quarantine: Arc<Quarantine>,
        decode_nanos: Arc<AtomicU64>,
    ) -> Intake<K> {
        Intake {
            queue,
            store,
            decoder,
            written: None,
            collected: OrdMap::new(),
            left_out: HashMap::new(),
            new_bytes: 0,
            distrusted: false,
            quarantine,
            observers,
            decode_nanos,
        }
    }

    /// Takes the objects of own writes from their overlay instead of decoding them again.
    pub(crate) fn with_written(mut self, written: Arc<WriteOverlay<K>>) -> Intake<K> {
        self.written = Some(written);
        self
    }

    /// Decodes an object. One that cannot be decoded is quarantined, and reported once for each of its versions.
    fn decode(&mut self, object: Object, key: &ObjectKey) -> Option<Arc<Cached<K>>> {
        let version = object.revision().get();
        let written = self.written.as_ref();
        if let Some(written) =
            written.and_then(|written| written.received(key, version, &object.uid()))
        {
            lock(&self.quarantine).remove(key);
            return Some(written);
        }
        match self.decoder.decode(object, key.clone()) {
            Ok(decoded) => {
                lock(&self.quarantine).remove(key);
                Some(decoded)
            }
            Err(error) => {
                let quarantined = Quarantined {
                    version,
                    error: error.clone(),
                };
                let before = lock(&self.quarantine).insert(key.clone(), quarantined);
                if before.is_none_or(|before| version == 0 || before.version != version) {
                    let key = key.to_string();
                    self.observers.report(&Problem::Quarantined { key, error });
                }
                None
            }
        }
    }

    /// The cached object for a listed one: the stored one if its version and uid are equal, else a decoded one. An object that
    /// cannot be decoded is left out of the list, and the store keeps its last decoded state.
    fn take(&mut self, object: Object) -> Option<Arc<Cached<K>>> {
        let key = object.key();
        let known = self
            .collected
            .get(&key)
            .map(|held| Arc::clone(&held.0))
            .or_else(|| self.store.get_by_key(key.as_str()));
        let (version, uid) = (object.revision().get(), Uid::new(&object.uid()));
        if let Some(known) = &known
            && !self.distrusted
            && known.is_same(version, uid)
        {
            return Some(Arc::clone(known));
        }
        let quarantined = lock(&self.quarantine)
            .get(&key)
            .is_some_and(|quarantined| version > 0 && quarantined.version == version);
        let decoded = if quarantined && !self.distrusted {
            None
        } else {
            self.decode(object, &key)
        };
        match &decoded {
            Some(decoded) => {
                self.left_out.remove(&key);
                self.new_bytes += decoded.memory_bytes();
            }
            None => {
                self.collected.remove(&key);
                self.left_out.insert(key, uid);
            }
        }
        decoded
    }

    fn timed<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let start = std::time::Instant::now();
        let done = work(self);
        let nanos = start.elapsed().as_nanos() as u64;
        self.decode_nanos.fetch_add(nanos, Ordering::Relaxed);
        done
    }

    /// The delta of a changed object. An object that cannot be decoded becomes a bookmark: its version still counts as reached.
    fn changed(
        &mut self,
        object: Object,
        delta: fn(Arc<Cached<K>>) -> Delta<K>,
    ) -> Option<Delta<K>> {
        let (key, version) = (object.key(), object.revision());
        match self.decode(object, &key) {
            Some(decoded) => Some(delta(decoded)),
            None => (version.get() > 0).then(|| Delta::Bookmark(version.into())),
        }
    }

    fn delta(&mut self, event: WatchEvent) -> Option<Delta<K>> {
        match event {
            WatchEvent::Added(object) => self.changed(object, Delta::Added),
            WatchEvent::Modified(object) => self.changed(object, Delta::Updated),
            WatchEvent::Deleted(object) => {
                let key = object.key();
                lock(&self.quarantine).remove(&key);
                let version = ServerVersion::new(&object.resource_version());
                // A deletion counts even if the last state cannot be decoded.
                let last = self.decoder.decode(object, key.clone()).ok();
                Some(Delta::Deleted { key, last, version })
            }
            WatchEvent::Bookmark {
                resource_version, ..
            } => Some(Delta::Bookmark(ServerVersion::new(&resource_version))),
            WatchEvent::Error(_) => None,
        }
    }
}

impl<K: Send + Sync + 'static> ReflectorStore for Intake<K> {
    fn collect(&mut self, part: Vec<WatchEvent>) {
        self.timed(|intake| {
            for event in part {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        if let Some(taken) = intake.take(object) {
                            intake
                                .collected
                                .insert(taken.key().clone(), HeldObject(taken));
                        }
                    }
                    WatchEvent::Deleted(object) => {
                        intake.collected.remove(&object.key());
                        intake.left_out.remove(&object.key());
                        lock(&intake.quarantine).remove(&object.key());
                    }
                    WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => {}
                }
            }
        });
    }

    fn discard(&mut self) {
        self.collected = OrdMap::new();
        self.left_out.clear();
        self.new_bytes = 0;
    }

    fn distrust(&mut self) {
        self.distrusted = true;
        self.discard();
    }

    fn replace(&mut self, version: &ServerVersion) {
        self.distrusted = false;
        lock(&self.quarantine).retain(|key, _| self.left_out.contains_key(key));
        let objects = Objects {
            by_key: std::mem::take(&mut self.collected),
            left_out: std::mem::take(&mut self.left_out).into_iter().collect(),
            new_bytes: std::mem::take(&mut self.new_bytes),
        };
        self.queue.push(Delta::Replaced {
            objects,
            version: version.clone(),
        });
    }

    fn apply(&mut self, events: Vec<WatchEvent>) {
        tracing::trace!(target: "tidings::walk", "decodes objects that have changed");
        let deltas: Vec<Delta<K>> = self.timed(|intake| {
            let deltas = events.into_iter().filter_map(|event| intake.delta(event));
            deltas.collect()
        });
        self.queue.extend(deltas);
    }

    fn latest(&self, key: &ObjectKey) -> Option<u64> {
        self.store
            .get_by_key(key.as_str())
            .map(|object| object.version())
    }
}
