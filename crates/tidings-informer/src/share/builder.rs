//! The builder of shared informers.

use std::sync::Arc;

use tidings_api::Object;
use tokio::sync::watch;

use super::engine::{InformerCore, InformerProgress, Lifecycle, ReflectorSetup, StopOnLastHandle};
use super::informer::SharedInformer;
use super::log::{EventLog, LogOptions};
use crate::object::{Decode, DecodeError, Decoder};
use crate::queue::{DeltaFifo, QUEUE_BYTES_MAX};
use crate::reflector::{Observers, Problem, ProblemHandler, ReflectorOptions};
use crate::source::ListerWatcher;
use crate::store::{Indexer, WriteOverlay};
use crate::sync::Mutex;

impl<K: Send + Sync + 'static> SharedInformer<K> {
    /// A builder for an informer over a source.
    pub fn builder(source: Arc<dyn ListerWatcher>, decode: Decode<K>) -> InformerBuilder<K> {
        InformerBuilder::new(source, decode)
    }
}

/// Configures and builds a [`SharedInformer`].
pub struct InformerBuilder<K> {
    source: Arc<dyn ListerWatcher>,
    decode: Decode<K>,
    name: Arc<str>,
    reflector: ReflectorOptions,
    log: LogOptions,
    queue_bytes_max: usize,
    on_problem: Option<ProblemHandler>,
    label_index: bool,
}

impl<K: Send + Sync + 'static> InformerBuilder<K> {
    fn new(source: Arc<dyn ListerWatcher>, decode: Decode<K>) -> InformerBuilder<K> {
        InformerBuilder {
            source,
            decode,
            name: Arc::from("informer"),
            reflector: ReflectorOptions::default(),
            log: LogOptions::default(),
            queue_bytes_max: QUEUE_BYTES_MAX,
            on_problem: None,
            label_index: false,
        }
    }

    /// Sets the name for logs, metrics and errors.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Transforms every object once, before it is stored.
    #[must_use]
    pub fn transform(
        mut self,
        transform: impl Fn(K) -> Result<K, DecodeError> + Send + Sync + 'static,
    ) -> Self {
        self.decode = self.decode.transform(transform);
        self
    }

    /// Takes a number from every object as it was received: [`Decode::marked`].
    #[must_use]
    pub fn mark(mut self, mark: fn(&Object) -> u64) -> Self {
        self.decode = self.decode.marked(mark);
        self
    }

    /// Sets how the informer lists and watches.
    #[must_use]
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.reflector = options;
        self
    }

    /// Sets how many events the informer keeps for its slowest handler.
    #[must_use]
    pub fn log(mut self, options: LogOptions) -> Self {
        self.log = options;
        self
    }

    /// Sets how many bytes of deltas may wait for the store before the queue coalesces them by key.
    #[must_use]
    pub fn queue_bytes_max(mut self, bytes_max: usize) -> Self {
        self.queue_bytes_max = bytes_max;
        self
    }

    /// Sets a function that is called with every problem, including errors inside a watch.
    #[must_use]
    pub fn on_problem(mut self, handler: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        self.on_problem = Some(Arc::new(handler));
        self
    }

    /// Keeps an index over all labels, which serves label selectors.
    #[must_use]
    pub fn label_index(mut self) -> Self {
        self.label_index = true;
        self
    }

    /// Builds the informer without starting it.
    pub fn build(self) -> SharedInformer<K> {
        let indexer = Arc::new(Indexer::new());
        if self.label_index {
            // The store is empty and has no other index, so this cannot fail.
            let _ = indexer.add_label_index();
        }
        let observers = Arc::new(Observers::new(Arc::clone(&self.name), self.on_problem));
        let core = Arc::new(InformerCore {
            log: EventLog::new(self.log, indexer.snapshot()),
            queue: DeltaFifo::new(self.queue_bytes_max),
            overlay: Arc::new(WriteOverlay::new(indexer.store())),
            indexer,
            observers,
            name: self.name,
            progress: watch::Sender::new(InformerProgress::default()),
            quarantine: Arc::default(),
            decode_nanos: Arc::default(),
            decoder: Decoder::new(self.decode),
            ending: Mutex::default(),
            stop_turn: tokio::sync::Mutex::default(),
            lifecycle: Mutex::new(Lifecycle::New(Box::new(ReflectorSetup {
                source: self.source,
                options: self.reflector,
            }))),
            handlers: Mutex::default(),
        });
        let alive = Arc::new(StopOnLastHandle(Arc::downgrade(&core)));
        SharedInformer::new(core, alive)
    }

    /// Builds and starts the informer.
    pub fn start(self) -> SharedInformer<K> {
        let informer = self.build();
        informer.start();
        informer
    }
}

impl<K> std::fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InformerBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
