//! The controller: takes deltas from the queue, applies them to the store, and makes events of the changes.
//!
//! A [`Processor`] does that. A shared informer delivers its events to many handlers, a [`Controller`] to one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidings_api::ResourceVersion;
use tokio::sync::watch;

use crate::event::Event;
use crate::event_handler::ResourceEventHandler;
use crate::intake::Intake;
use crate::object::{Cached, Decode, Decoder};
use crate::queue::{Batch, Delta, DeltaFifo, QUEUE_BYTES_MAX};
use crate::reflector::{Observers, Problem, Reflector, ReflectorOptions};
use crate::source::ListerWatcher;
use crate::store::{AppliedWrite, HeldObject, Indexer, NotIndexed, Snapshot, Store, StoreWrite};
use crate::version::ServerVersion;

/// Applies deltas to a store and makes events of the changes.
pub(crate) struct Processor<K> {
    queue: DeltaFifo<K>,
    indexer: Arc<Indexer<K>>,
    observers: Arc<Observers>,
}

/// The changes of one batch.
#[derive(Debug)]
pub(crate) struct Changes<K> {
    pub(crate) events: Vec<Event<K>>,
    /// The batch was the initial state: its objects are in `after`, and have no events.
    pub(crate) initial: bool,
    pub(crate) after: Arc<Snapshot<K>>,
}

impl<K: Send + Sync + 'static> Processor<K> {
    pub(crate) fn new(
        queue: DeltaFifo<K>,
        indexer: Arc<Indexer<K>>,
        observers: Arc<Observers>,
    ) -> Processor<K> {
        Processor {
            queue,
            indexer,
            observers,
        }
    }

    /// Applies the next batch and returns its changes; `None` when the queue is closed and empty. Cancel-safe.
    pub(crate) async fn next(&self) -> Option<Changes<K>> {
        let batch = self.queue.pop_batch().await?;
        Some(self.process(batch))
    }

    /// Marks the changes as delivered.
    pub(crate) fn processed(&self) {
        self.queue.processed();
    }

    pub(crate) fn process(&self, batch: Batch<K>) -> Changes<K> {
        tracing::trace!(target: "tidings::walk", "turns changes into writes of the store and events");
        let mut events = Vec::new();
        let mut writes = Vec::new();
        let mut finals = std::collections::HashMap::new();
        let mut version: Option<ServerVersion> = None;
        let mut initial = false;
        let known = self.indexer.snapshot();
        for delta in batch.deltas {
            match delta {
                Delta::Added(object) | Delta::Updated(object) => {
                    if object.version() > 0 {
                        version = Some(ResourceVersion::new(object.version()).into());
                    }
                    if !is_stale(known.get_by_key(object.key().as_str()), &object) {
                        writes.push(StoreWrite::Put(object));
                    }
                }
                Delta::Deleted {
                    key,
                    last,
                    version: deleted,
                } => {
                    let stored = known.get_by_key(key.as_str());
                    let newer = stored.is_some_and(|stored| {
                        deleted
                            .number()
                            .is_some_and(|deleted| deleted < stored.version())
                    });
                    if deleted.number().is_some() {
                        version = Some(deleted);
                    }
                    if !newer {
                        if let Some(last) = last {
                            finals.insert(key.clone(), last);
                        }
                        writes.push(StoreWrite::Delete(key));
                    }
                }
                Delta::Replaced {
                    mut objects,
                    version,
                } => {
                    for (key, uid) in objects.left_out {
                        if let Some(stored) = known
                            .get_by_key(key.as_str())
                            .filter(|known| known.uid() == uid)
                        {
                            objects.by_key.insert(key, HeldObject(Arc::clone(stored)));
                        }
                    }
                    let (applied, not_indexed) =
                        self.indexer.replace_with(objects.by_key, &version);
                    self.report(not_indexed);
                    // No handler has seen any object before the initial state: the snapshot is enough, without an event for each.
                    initial = batch.initial && applied.iter().all(|change| change.old.is_none());
                    if !initial {
                        for change in applied {
                            push_events(&mut events, change, None, batch.initial);
                        }
                    }
                }
                Delta::Sync => {
                    events.extend(self.indexer.snapshot().iter().map(|object| Event::Resync {
                        object: Arc::clone(object),
                    }))
                }
                Delta::Bookmark(bookmark) => version = Some(bookmark),
            }
        }
        if let Some(from) = batch.incomplete_from
            && version.as_ref().and_then(ServerVersion::number) >= Some(from)
        {
            version = Some(ResourceVersion::new(from.saturating_sub(1)).into());
        }
        if !writes.is_empty() || version.is_some() {
            let (applied, not_indexed) = self.indexer.write(writes, version.as_ref());
            self.report(not_indexed);
            for change in applied {
                // The final state counts only if its uid is that of the stored object.
                let last = change.old.as_ref().and_then(|old| {
                    let last: Option<Arc<Cached<K>>> = finals.remove(old.key());
                    last.filter(|last| last.uid() == old.uid())
                });
                push_events(&mut events, change, last, batch.initial);
            }
        }
        Changes {
            events,
            initial,
            after: self.indexer.snapshot(),
        }
    }

    fn report(&self, not_indexed: Vec<NotIndexed>) {
        for NotIndexed { key, index, error } in not_indexed {
            self.observers.report(&Problem::NotIndexed {
                key: key.to_string(),
                index: index.to_string(),
                error,
            });
        }
    }
}

/// True if the store has this version of the object or a newer one. False for versions that are not numbers.
fn is_stale<K>(stored: Option<&Arc<Cached<K>>>, object: &Cached<K>) -> bool {
    stored.is_some_and(|stored| {
        object.version() > 0
            && (object.version() < stored.version()
                || stored.is_same(object.version(), object.uid()))
    })
}

/// Makes the events of one change. `last` is the state in which the object was deleted.
fn push_events<K>(
    events: &mut Vec<Event<K>>,
    change: AppliedWrite<K>,
    last: Option<Arc<Cached<K>>>,
    initial: bool,
) {
    match (change.old, change.new) {
        (Some(old), Some(new)) if old.uid() == new.uid() => {
            events.push(Event::Updated { old, new });
        }
        (old, new) => {
            events.extend(old.map(|old| Event::Deleted {
                final_state_known: last.is_some(),
                last: last.unwrap_or(old),
            }));
            events.extend(new.map(|object| Event::Added { object, initial }));
        }
    }
}

/// An informer with one handler, as from client-go's `NewIndexerInformer`. The handler is called in the task that polls
/// [`Controller::run`], and its panics reach that task.
pub struct Controller<K: Send + Sync + 'static> {
    processor: Processor<K>,
    queue: DeltaFifo<K>,
    reflector: Reflector<dyn ListerWatcher, Intake<K>>,
    handler: Box<dyn ResourceEventHandler<K>>,
    resync: Option<Duration>,
    indexer: Arc<Indexer<K>>,
    synced: watch::Sender<bool>,
}

impl<K: Send + Sync + 'static> Controller<K> {
    /// A controller that has not started, and its store.
    pub fn new(
        name: impl Into<Arc<str>>,
        source: Arc<dyn ListerWatcher>,
        decode: Decode<K>,
        handler: impl ResourceEventHandler<K>,
        options: ReflectorOptions,
    ) -> (Store<K>, Controller<K>) {
        let name = name.into();
        let queue = DeltaFifo::new(QUEUE_BYTES_MAX);
        let indexer: Arc<Indexer<K>> = Arc::default();
        let observers = Arc::new(Observers::new(Arc::clone(&name), None));
        let intake = Intake::new(
            queue.clone(),
            indexer.store(),
            Decoder::new(decode),
            Arc::clone(&observers),
            Arc::default(),
            Arc::default(),
        );
        let reflector =
            Reflector::new(name, source, intake, options).observed_by(Arc::clone(&observers));
        let controller = Controller {
            processor: Processor::new(queue.clone(), Arc::clone(&indexer), observers),
            queue,
            reflector,
            handler: Box::new(handler),
            resync: None,
            indexer: Arc::clone(&indexer),
            synced: watch::Sender::new(false),
        };
        (indexer.store(), controller)
    }

    /// Delivers every object again this often, as [`Event::Resync`]; never if zero.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> Controller<K> {
        self.resync = Some(every).filter(|every| !every.is_zero());
        self
    }

    /// The writing side of the store, to add indexes.
    pub fn indexer(&self) -> Arc<Indexer<K>> {
        Arc::clone(&self.indexer)
    }

    /// Becomes true when the handler has received the initial state.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Runs until the future is dropped, or until the server refuses and the options say to stop then.
    pub async fn run(self) -> Problem {
        let Controller {
            processor,
            queue,
            reflector,
            mut handler,
            resync,
            indexer: _,
            synced,
        } = self;
        let mut reflecting = pin!(reflector.run());
        let mut resyncs = resync.map(tokio::time::interval);
        if let Some(resyncs) = &mut resyncs {
            resyncs.tick().await; // the first tick is immediate
        }
        loop {
            let resync = async {
                match &mut resyncs {
                    Some(resyncs) => drop(resyncs.tick().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changes = processor.next() => {
                    let Some(changes) = changes else { continue };
                    if changes.initial {
                        for object in changes.after.iter() {
                            let object = Arc::clone(object);
                            let initial = true;
                            handler.handle(&Event::Added { object, initial });
                        }
                        handler.handle(&Event::Synced);
                    }
                    for event in &changes.events {
                        handler.handle(event);
                    }
                    processor.processed();
                    synced.send_if_modified(|synced| !std::mem::replace(synced, queue.has_synced()));
                }
                problem = &mut reflecting => return problem,
                () = resync, if *synced.borrow() => queue.push(Delta::Sync),
            }
        }
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
