//! A store that a reflector keeps up to date directly, without a queue between them and without events.

use std::sync::Arc;

use tidings_api::{ObjectKey, WatchEvent};

use crate::controller::Processor;
use crate::intake::Intake;
use crate::object::{Decode, Decoder};
use crate::queue::{DeltaFifo, QUEUE_BYTES_MAX};
use crate::reflector::{Observers, ReflectorStore};
use crate::store::{Indexer, Store};
use crate::version::ServerVersion;

/// The store for a [`Reflector`](crate::Reflector) that is used alone: decodes what the reflector receives, and publishes a snapshot
/// for each change. Readers get it from [`ReflectedStore::store`].
///
/// ```no_run
/// use std::sync::Arc;
/// use tidings_informer::{Decode, Indexer, ListerWatcher, ReflectedStore, Reflector, ReflectorOptions};
///
/// # async fn run(source: Arc<dyn ListerWatcher>) {
/// let reflected = ReflectedStore::new(Arc::new(Indexer::new()), Decode::bytes());
/// let store = reflected.store();
/// let reflector = Reflector::new("configmaps", source, reflected, ReflectorOptions::default())
///     .on_problem(|problem| eprintln!("{problem}"));
/// let states = reflector.watch_state();
/// tokio::spawn(reflector.run());
/// # drop((store, states));
/// # }
/// ```
pub struct ReflectedStore<K> {
    intake: Intake<K>,
    queue: DeltaFifo<K>,
    processor: Processor<K>,
    indexer: Arc<Indexer<K>>,
}

impl<K: Send + Sync + 'static> ReflectedStore<K> {
    /// Writes to an indexer, which may have indexes.
    pub fn new(indexer: Arc<Indexer<K>>, decode: Decode<K>) -> ReflectedStore<K> {
        let queue = DeltaFifo::new(QUEUE_BYTES_MAX);
        let observers: Arc<Observers> = Arc::default();
        ReflectedStore {
            intake: Intake::new(
                queue.clone(),
                indexer.store(),
                Decoder::new(decode),
                Arc::clone(&observers),
                Arc::default(),
                Arc::default(),
            ),
            processor: Processor::new(queue.clone(), Arc::clone(&indexer), observers),
            queue,
            indexer,
        }
    }

    /// The store, for readers.
    pub fn store(&self) -> Store<K> {
        self.indexer.store()
    }

    /// Applies what the intake has queued.
    fn settle(&self) {
        while let Some(batch) = self.queue.try_pop_batch() {
            self.processor.process(batch);
            self.processor.processed();
        }
    }
}

impl<K: Send + Sync + 'static> ReflectorStore for ReflectedStore<K> {
    fn collect(&mut self, part: Vec<WatchEvent>) {
        self.intake.collect(part);
    }

    fn discard(&mut self) {
        self.intake.discard();
    }

    fn distrust(&mut self) {
        self.intake.distrust();
    }

    fn replace(&mut self, version: &ServerVersion) {
        self.intake.replace(version);
        self.settle();
    }

    fn apply(&mut self, events: Vec<WatchEvent>) {
        self.intake.apply(events);
        self.settle();
    }

    fn latest(&self, key: &ObjectKey) -> Option<u64> {
        self.intake.latest(key)
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for ReflectedStore<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReflectedStore")
            .field(&self.indexer.store())
            .finish()
    }
}
