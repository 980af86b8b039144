//! The reflector's side of the queue: compares received objects with the store, decodes new ones, and queues deltas.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::OrdMap;
use tidings_api::{Object, ObjectKey, WatchEvent};

use crate::listed::{BATCH_BYTES, DecodingList, Listed};
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
    /// The objects of a list that are being decoded by several threads; `None` if this thread decodes alone.
    decoding: Option<DecodingList<K>>,
    /// See [`BATCH_BYTES`].
    batch_bytes: usize,
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
            decoding: None,
            batch_bytes: BATCH_BYTES,
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
        if let Some(written) = self.written(&object, key) {
            return Some(written);
        }
        let version = object.revision().get();
        let decoded = self.decoder.decode(object, key.clone());
        self.check(key, version, decoded)
    }

    /// The object as the answer to an own write had it.
    fn written(&self, object: &Object, key: &ObjectKey) -> Option<Arc<Cached<K>>> {
        let written = self.written.as_ref()?;
        let written = written.received(key, object.revision().get(), &object.uid())?;
        lock(&self.quarantine).remove(key);
        Some(written)
    }

    /// Quarantines and reports an object that could not be decoded.
    fn check(
        &mut self,
        key: &ObjectKey,
        version: u64,
        decoded: Result<Arc<Cached<K>>, DecodeError>,
    ) -> Option<Arc<Cached<K>>> {
        match decoded {
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

    /// What an event of a list means: the stored object if its version and uid are equal, else one to decode.
    fn listed(&mut self, event: WatchEvent) -> Option<Listed<K>> {
        let object = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
            WatchEvent::Deleted(object) => return Some(Listed::Deleted(object.key())),
            WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => return None,
        };
        let key = object.key();
        let known = self
            .collected
            .get(&key)
            .map(|held| Arc::clone(&held.0))
            .or_else(|| self.store.get_by_key(key.as_str()));
        let (version, uid) = (object.revision().get(), Uid::new(&object.uid()));
        if let Some(known) = known
            && !self.distrusted
            && known.is_same(version, uid)
        {
            return Some(Listed::Known(known));
        }
        let quarantined = lock(&self.quarantine)
            .get(&key)
            .is_some_and(|quarantined| version > 0 && quarantined.version == version);
        if quarantined && !self.distrusted {
            return Some(Listed::Unreadable { key, uid });
        }
        if let Some(written) = self.written(&object, &key) {
            return Some(Listed::New(written));
        }
        Some(Listed::Undecoded {
            object: Some(object),
            key,
            version,
            uid,
        })
    }

    /// Adds to the list. An object that cannot be decoded is left out of it, and the store keeps its last decoded state.
    fn collect_one(&mut self, mut listed: Listed<K>) {
        listed.decode(&self.decoder);
        let decoded = match listed {
            Listed::Known(known) => {
                let key = known.key().clone();
                self.collected.insert(key, HeldObject(known));
                return;
            }
            Listed::Deleted(key) => {
                self.collected.remove(&key);
                self.left_out.remove(&key);
                lock(&self.quarantine).remove(&key);
                return;
            }
            Listed::New(decoded) => Ok(decoded),
            Listed::Unreadable { key, uid } => Err((key, uid)),
            Listed::Decoded {
                key,
                version,
                uid,
                decoded,
            } => self.check(&key, version, decoded).ok_or((key, uid)),
            Listed::Undecoded { key, uid, .. } => Err((key, uid)),
        };
        match decoded {
            Ok(decoded) => {
                let key = decoded.key().clone();
                self.left_out.remove(&key);
                self.new_bytes += decoded.memory_bytes();
                self.collected.insert(key, HeldObject(decoded));
            }
            Err((key, uid)) => {
                self.collected.remove(&key);
                self.left_out.insert(key, uid);
            }
        }
    }

    /// Takes what other threads have decoded, in order; all of it if the list has ended.
    fn take_decoded(&mut self, ended: bool) {
        let Some(mut decoding) = self.decoding.take() else {
            return;
        };
        if ended {
            decoding.send();
        }
        while let Some(batch) = decoding.next(ended) {
            for listed in batch {
                self.collect_one(listed);
            }
        }
        self.decoding = Some(decoding);
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
            if intake.decoding.is_none() {
                intake.decoding = DecodingList::new(&intake.decoder, intake.batch_bytes);
            }
            for event in part {
                let Some(listed) = intake.listed(event) else {
                    continue;
                };
                match &mut intake.decoding {
                    Some(decoding) => decoding.push(listed),
                    None => intake.collect_one(listed),
                }
            }
            intake.take_decoded(false);
        });
    }

    fn discard(&mut self) {
        self.decoding = None;
        self.collected = OrdMap::new();
        self.left_out.clear();
        self.new_bytes = 0;
    }

    fn distrust(&mut self) {
        self.distrusted = true;
        self.discard();
    }

    fn replace(&mut self, version: &ServerVersion) {
        self.timed(|intake| intake.take_decoded(true));
        self.decoding = None;
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

// Not with shuttle's locks, which work only in its own threads.
#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Decode;

    #[derive(serde::Deserialize)]
    struct Numbered {
        #[allow(dead_code)]
        number: u32,
    }

    fn intake(batch_bytes: usize) -> Intake<Numbered> {
        let mut intake = Intake::new(
            DeltaFifo::new(1 << 20),
            Arc::<crate::store::Indexer<Numbered>>::default().store(),
            Decoder::new(Decode::json()),
            Arc::default(),
            Arc::default(),
            Arc::default(),
        );
        intake.batch_bytes = batch_bytes;
        intake
    }

    /// Additions, changes and deletions of twenty objects, some of which cannot be decoded, in parts of random sizes.
    fn parts(random: &mut fastrand::Rng) -> Vec<Vec<WatchEvent>> {
        let mut version = 0;
        let mut event = |random: &mut fastrand::Rng| {
            version += 1;
            let name = random.u8(..20);
            let number = if random.u8(..5) == 0 { "\"none\"" } else { "1" };
            let json = format!(
                r#"{{"metadata":{{"name":"o{name}","uid":"u","resourceVersion":"{version}"}},"number":{number}}}"#
            );
            let object = Object::parse(json).unwrap();
            match random.u8(..6) {
                0 => WatchEvent::Deleted(object),
                1 => WatchEvent::Modified(object),
                _ => WatchEvent::Added(object),
            }
        };
        let sizes: Vec<usize> = (0..random.usize(1..20))
            .map(|_| random.usize(..9))
            .collect();
        let part = |size| (0..size).map(|_| event(random)).collect();
        sizes.into_iter().map(part).collect()
    }

    fn collected(parts: &[Vec<WatchEvent>], batch_bytes: usize) -> (Vec<String>, Vec<String>) {
        let mut intake = intake(batch_bytes);
        for part in parts {
            intake.collect(part.clone());
        }
        intake.take_decoded(true);
        let objects = intake.collected.values();
        let objects = objects.map(|held| format!("{:?}", held.0)).collect();
        let mut left_out: Vec<String> = intake.left_out.keys().map(ToString::to_string).collect();
        left_out.sort();
        (objects, left_out)
    }

    #[test]
    fn several_threads_decode_what_one_would() {
        let several = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(3)
            .build()
            .unwrap();
        for seed in 0..200 {
            let parts = parts(&mut fastrand::Rng::with_seed(seed));
            let alone = collected(&parts, BATCH_BYTES);
            for batch_bytes in [1, 150, BATCH_BYTES] {
                let parts = parts.clone();
                let task = several.spawn(async move { collected(&parts, batch_bytes) });
                let together = several.block_on(task).unwrap();
                assert_eq!(together, alone, "seed {seed}, batches of {batch_bytes}");
            }
        }
    }
}
