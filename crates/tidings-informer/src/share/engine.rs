//! What an informer runs on: its parts, its two tasks, and how they end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::handler::Registration;
use super::informer::InformerStats;
use super::log::{Lag, Log};
use crate::controller::Processor;
use crate::intake::{Intake, Quarantine};
use crate::metrics::Observed;
use crate::object::Decode;
use crate::queue::DeltaFifo;
use crate::reflector::{
    Observers, Problem, Reflector, ReflectorOptions, ReflectorState, ReflectorStats, Version,
};
use crate::source::ListerWatcher;
use crate::store::{Indexer, WriteOverlay};
use crate::sync::{Mutex, lock};

/// What an informer and its tasks share.
pub(super) struct Inner<K> {
    pub(super) name: Arc<str>,
    pub(super) indexer: Arc<Indexer<K>>,
    pub(super) queue: DeltaFifo<K>,
    pub(super) log: Log<K>,
    pub(super) overlay: WriteOverlay<K>,
    pub(super) observers: Arc<Observers>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) decode_nanos: Arc<AtomicU64>,
    pub(super) decode: Decode<K>,
    pub(super) life: Mutex<Life<K>>,
    /// Tasks that are ending and that nobody has waited for; who does takes a turn.
    pub(super) ending: Mutex<Vec<JoinHandle<()>>>,
    pub(super) turn: tokio::sync::Mutex<()>,
    pub(super) handlers: Mutex<Vec<(Registration<K>, JoinHandle<()>)>>,
}

/// Stops the informer when the last handle goes.
pub(super) struct Alive<K: Send + Sync + 'static>(pub(super) std::sync::Weak<Inner<K>>);

impl<K: Send + Sync + 'static> Drop for Alive<K> {
    fn drop(&mut self) {
        let Some(inner) = self.0.upgrade() else {
            return;
        };
        let handlers = lock(&inner.handlers).len();
        if handlers > 0 && matches!(&*lock(&inner.life), Life::New(_)) {
            let informer = &*inner.name;
            tracing::warn!(
                informer,
                handlers,
                "an informer with handlers was dropped before it was started: its handlers get nothing; keep the informer"
            );
        }
        inner.abort();
    }
}

/// Ends the informer when one of its tasks panics: in a source, or in the order of an index's values.
struct EndOnPanic<K: Send + Sync + 'static>(Arc<Inner<K>>);

impl<K: Send + Sync + 'static> Drop for EndOnPanic<K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stopped(Some(Problem::Panicked));
            self.0.end();
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub(super) version: Version,
    pub(super) synced: bool,
    pub(super) stopped: bool,
}

pub(super) struct Parts<K> {
    pub(super) source: Arc<dyn ListerWatcher>,
    pub(super) decode: Decode<K>,
    pub(super) options: ReflectorOptions,
}

pub(super) enum Life<K> {
    New(Box<Parts<K>>),
    Running(Vec<JoinHandle<()>>),
    Stopped,
}

impl<K: Send + Sync + 'static> Inner<K> {
    pub(super) fn spawn(self: &Arc<Self>, parts: Parts<K>) -> Vec<JoinHandle<()>> {
        let intake = Intake::new(
            self.queue.clone(),
            self.indexer.store(),
            parts.decode,
            Arc::clone(&self.observers),
            Arc::clone(&self.quarantine),
            Arc::clone(&self.decode_nanos),
        );
        let reflector = Reflector::new(Arc::clone(&self.name), parts.source, intake, parts.options)
            .observed_by(Arc::clone(&self.observers));
        let reflecting = {
            let guard = EndOnPanic(Arc::clone(self));
            tokio::spawn(async move {
                // The server refused for good.
                reflector.run().await;
                guard.0.end();
            })
        };
        let processor = Processor::new(
            self.queue.clone(),
            Arc::clone(&self.indexer),
            Arc::clone(&self.observers),
        );
        let guard = EndOnPanic(Arc::clone(self));
        let controlling = tokio::spawn(async move { guard.0.control(&processor).await });
        vec![reflecting, controlling]
    }

    /// Applies what is queued to the store and tells the log.
    async fn control(&self, processor: &Processor<K>) {
        loop {
            // Only handlers that block make this wait.
            poll_fn(|context| self.log.poll_room(context)).await;
            let Some(changes) = processor.next().await else {
                return;
            };
            let version = changes.after.version().clone();
            self.log
                .append(changes.events, changes.initial, changes.after);
            processor.processed();
            let synced = self.queue.has_synced();
            self.overlay.caught_up();
            self.progress.send_modify(|progress| {
                progress.version = version;
                progress.synced = synced;
            });
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Ends everything. The tasks are in `ending`, for who wants to wait for them.
    pub(super) fn abort(&self) {
        let life = std::mem::replace(&mut *lock(&self.life), Life::Stopped);
        if let Life::Running(tasks) = life {
            for task in &tasks {
                task.abort();
            }
            lock(&self.ending).extend(tasks);
        }
        self.stopped(None);
        self.end();
    }

    /// Says that it has stopped, unless that was said before.
    fn stopped(&self, problem: Option<Problem>) {
        self.observers.state.send_if_modified(|state| {
            let running = !matches!(state, ReflectorState::Stopped { .. });
            if running {
                *state = ReflectorState::Stopped { problem };
            }
            running
        });
    }

    fn end(&self) {
        self.progress
            .send_modify(|progress| progress.stopped = true);
        self.queue.close();
        let handlers = std::mem::take(&mut *lock(&self.handlers));
        for (registration, _) in &handlers {
            registration.remove();
        }
        self.log.close();
        lock(&self.ending).extend(handlers.into_iter().map(|(_, task)| task));
    }

    pub(super) fn stats(&self) -> InformerStats {
        let snapshot = self.indexer.snapshot();
        let (logged, logged_bytes) = self.log.size();
        InformerStats {
            objects: snapshot.len(),
            object_bytes: snapshot.memory_bytes(),
            queued: self.queue.len(),
            queued_bytes: self.queue.bytes(),
            coalesced: self.queue.coalesced(),
            logged,
            logged_bytes,
            handlers: self.log.subscribers(),
            quarantined: lock(&self.quarantine).len(),
            decoding: Duration::from_nanos(self.decode_nanos.load(Ordering::Relaxed)),
            version: snapshot.version().clone(),
        }
    }
}

impl<K: Send + Sync + 'static> Observed for Inner<K> {
    fn is_stopped(&self) -> bool {
        self.progress.borrow().stopped
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn stats(&self) -> InformerStats {
        Inner::stats(self)
    }

    fn reflector(&self) -> &ReflectorStats {
        &self.observers.stats
    }

    fn lags(&self) -> Vec<(Arc<str>, Lag)> {
        let handlers = lock(&self.handlers);
        let alive = handlers.iter().filter(|(_, task)| !task.is_finished());
        alive
            .map(|(registration, _)| (Arc::clone(&registration.name), registration.lag()))
            .collect()
    }
}
