//! The controller: it takes deltas from the queue, applies them to the store, and says what changed.

use std::sync::Arc;

use tidings_api::ResourceVersion;

use crate::object::Cached;
use crate::queue::{Batch, Delta, DeltaFifo};
use crate::reflector::{Observers, Problem};
use crate::share::Event;
use crate::store::{Applied, Indexer, NotIndexed, Snapshot, Write};

/// Applies deltas to a store.
pub struct Controller<K> {
    queue: DeltaFifo<K>,
    indexer: Arc<Indexer<K>>,
    observers: Arc<Observers>,
}

/// What a batch changed.
#[derive(Debug)]
pub(crate) struct Changes<K> {
    pub(crate) events: Vec<Event<K>>,
    /// The batch was the initial state: there is no event for each object of it.
    pub(crate) initial: bool,
    pub(crate) after: Arc<Snapshot<K>>,
}

impl<K: Send + Sync + 'static> Controller<K> {
    pub(crate) fn new(
        queue: DeltaFifo<K>,
        indexer: Arc<Indexer<K>>,
        observers: Arc<Observers>,
    ) -> Controller<K> {
        Controller {
            queue,
            indexer,
            observers,
        }
    }

    /// The next changes, after they are in the store; `None` when the queue is closed and empty. Cancel-safe.
    pub(crate) async fn next(&self) -> Option<Changes<K>> {
        let batch = self.queue.pop_batch().await?;
        Some(self.process(batch))
    }

    /// The changes have been delivered.
    pub(crate) fn processed(&self) {
        self.queue.processed();
    }

    pub(crate) fn process(&self, batch: Batch<K>) -> Changes<K> {
        let mut events = Vec::new();
        let mut writes = Vec::new();
        let mut finals = std::collections::HashMap::new();
        let mut version = None;
        let mut initial = false;
        let known = self.indexer.snapshot();
        for delta in batch.deltas {
            match delta {
                Delta::Added(object) | Delta::Updated(object) => {
                    if object.version() > 0 {
                        version = Some(ResourceVersion::new(object.version()).into());
                    }
                    if !is_stale(known.get(object.key().as_str()), &object) {
                        writes.push(Write::Put(object));
                    }
                }
                Delta::Deleted {
                    key,
                    last,
                    version: deleted,
                } => {
                    let stored = known.get(key.as_str());
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
                        writes.push(Write::Delete(key));
                    }
                }
                Delta::Replaced { objects, version } => {
                    let (applied, not_indexed) = self.indexer.replace_with(objects.0, &version);
                    self.report(not_indexed);
                    // Of the initial state nobody has seen anything: it need not be spelled out.
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
        if !writes.is_empty() || version.is_some() {
            let (applied, not_indexed) = self.indexer.write(writes, version.as_ref());
            self.report(not_indexed);
            for change in applied {
                let last = change.old.as_ref().and_then(|old| finals.remove(old.key()));
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

/// What came is what the store has, or older. Versions that are no numbers are always news.
fn is_stale<K>(stored: Option<&Arc<Cached<K>>>, object: &Cached<K>) -> bool {
    stored.is_some_and(|stored| {
        object.version() > 0
            && (object.version() < stored.version()
                || stored.is_same(object.version(), object.uid()))
    })
}

/// `last` is the state in which the object was deleted.
fn push_events<K>(
    events: &mut Vec<Event<K>>,
    change: Applied<K>,
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

impl<K> std::fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
