//! The shared core of an informer: its parts, its two tasks, and how they stop.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::handler::Registration;
use super::log::EventLog;
use crate::controller::Processor;
use crate::intake::{Intake, Quarantine};
use crate::object::Decoder;
use crate::queue::DeltaFifo;
use crate::reflector::{
    Observers, Problem, Reflector, ReflectorOptions, ReflectorState, ReflectorStats,
};
use crate::source::ListerWatcher;
use crate::stats::Lag;
use crate::stats::{InformerStats, ObservedInformer};
use crate::store::{Indexer, WriteOverlay};
use crate::sync::{Mutex, lock};
use crate::version::ServerVersion;

/// The state that the handles of an informer and its tasks share.
pub(super) struct InformerCore<K> {
    pub(super) name: Arc<str>,
    pub(super) indexer: Arc<Indexer<K>>,
    pub(super) queue: DeltaFifo<K>,
    pub(super) log: EventLog<K>,
    pub(super) overlay: Arc<WriteOverlay<K>>,
    pub(super) observers: Arc<Observers>,
    pub(super) progress: watch::Sender<InformerProgress>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) decode_nanos: Arc<AtomicU64>,
    pub(super) decoder: Decoder<K>,
    pub(super) lifecycle: Mutex<Lifecycle>,
    /// Tasks that were told to end and that no call of `stop` has waited for.
    pub(super) ending: Mutex<Vec<JoinHandle<()>>>,
    /// Held by the call of `stop` that waits for the tasks in `ending`.
    pub(super) stop_turn: tokio::sync::Mutex<()>,
    pub(super) handlers: Mutex<Vec<(Registration<K>, JoinHandle<()>)>>,
}

/// Stops the informer when the last handle is dropped.
pub(super) struct StopOnLastHandle<K: Send + Sync + 'static>(
    pub(super) std::sync::Weak<InformerCore<K>>,
);

impl<K: Send + Sync + 'static> Drop for StopOnLastHandle<K> {
    fn drop(&mut self) {
        let Some(core) = self.0.upgrade() else {
            return;
        };
        let handlers = lock(&core.handlers).len();
        if handlers > 0 && matches!(&*lock(&core.lifecycle), Lifecycle::New(_)) {
            let informer = &*core.name;
            tracing::warn!(
                informer,
                handlers,
                "an informer with handlers was dropped before it was started: its handlers get no events; keep the informer"
            );
        }
        core.abort();
    }
}

/// Stops the informer when one of its tasks panics: in the source, or in the `Ord` of an index's values.
struct EndOnPanic<K: Send + Sync + 'static>(Arc<InformerCore<K>>);

impl<K: Send + Sync + 'static> Drop for EndOnPanic<K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stopped(Some(Problem::Panicked));
            self.0.end();
        }
    }
}

/// What tasks can wait for: the version of the store, and whether it has synced or the informer has stopped.
#[derive(Debug, Clone, Default)]
pub(super) struct InformerProgress {
    pub(super) version: ServerVersion,
    pub(super) synced: bool,
    pub(super) stopped: bool,
}

/// What the reflector is made from when the informer starts.
pub(super) struct ReflectorSetup {
    pub(super) source: Arc<dyn ListerWatcher>,
    pub(super) options: ReflectorOptions,
}

/// Whether an informer has started or stopped.
pub(super) enum Lifecycle {
    New(Box<ReflectorSetup>),
    Running(Vec<JoinHandle<()>>),
    Stopped,
}

impl<K: Send + Sync + 'static> InformerCore<K> {
    /// Spawns the task that reflects and the task that applies deltas.
    pub(super) fn spawn(self: &Arc<Self>, parts: ReflectorSetup) -> Vec<JoinHandle<()>> {
        let intake = Intake::new(
            self.queue.clone(),
            self.indexer.store(),
            self.decoder.clone(),
            Arc::clone(&self.observers),
            Arc::clone(&self.quarantine),
            Arc::clone(&self.decode_nanos),
        )
        .with_written(Arc::clone(&self.overlay));
        let reflector = Reflector::new(Arc::clone(&self.name), parts.source, intake, parts.options)
            .observed_by(Arc::clone(&self.observers));
        let reflecting = {
            let guard = EndOnPanic(Arc::clone(self));
            tokio::spawn(async move {
                // Returns only if the server refuses and the options say to stop.
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

    /// Applies queued deltas to the store and appends their events to the log.
    async fn control(&self, processor: &Processor<K>) {
        loop {
            // Waits only for handlers with `Overflow::Block`.
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

    /// Stops all tasks and moves them to `ending`.
    pub(super) fn abort(&self) {
        let lifecycle = std::mem::replace(&mut *lock(&self.lifecycle), Lifecycle::Stopped);
        if let Lifecycle::Running(tasks) = lifecycle {
            for task in &tasks {
                task.abort();
            }
            lock(&self.ending).extend(tasks);
        }
        self.stopped(None);
        self.end();
    }

    /// Sets the state to stopped, unless it is already.
    fn stopped(&self, problem: Option<Problem>) {
        self.observers.state.send_if_modified(|state| {
            let running = !matches!(state, ReflectorState::Stopped { .. });
            if running {
                *state = ReflectorState::Stopped { problem };
            }
            running
        });
    }

    /// Closes the queue and the log, and removes the handlers.
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

impl<K: Send + Sync + 'static> ObservedInformer for InformerCore<K> {
    fn is_stopped(&self) -> bool {
        self.progress.borrow().stopped
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn stats(&self) -> InformerStats {
        InformerCore::stats(self)
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
