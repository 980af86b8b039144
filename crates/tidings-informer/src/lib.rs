//! The client half of list and watch: informers.
//!
//! An event passes the modules in this order: `source` (a [`ListerWatcher`] lists and watches), `reflector` (a [`Reflector`]
//! decides when to list, watch, resume and wait), `intake` (compares and decodes objects), `queue` (a [`DeltaFifo`] keeps the
//! changes in order), `controller` (a [`Controller`] applies them), `store` (an [`Indexer`] publishes snapshots), `share` (a log
//! of events that the handlers of a [`SharedInformer`] read at their own pace), and then the program's handlers.
//!
//! Outside this pipeline: a [`WorkQueue`] and [`run_controller`] reconcile the keys that events name, a [`RetryWatcher`] is a
//! watch without a store, [`until`] waits for an event, [`synced`] waits for several caches or handlers to sync, and a
//! [`leader::LeaderElector`] lets one of several replicas do the work.

mod backoff;
mod controller;
mod intake;
pub mod leader;
mod lister;
pub mod metrics;
mod object;
mod queue;
mod reflector;
mod retry_watcher;
mod run;
mod share;
mod source;
mod store;
mod sync;
pub mod synced;
pub mod synctrack;
pub mod until;
pub mod workqueue;

pub use backoff::{BackoffOptions, ExponentialBackoff};
pub use controller::Controller;
pub use lister::{GenericLister, GenericNamespaceLister, NotFound};
pub use object::{Cached, Decode, DecodeError, Lazy, Uid};
pub use queue::{Batch, Delta, DeltaFifo, Objects, QUEUE_BYTES_MAX};
pub use reflector::{
    InitialState, OnRefusal, Problem, ProblemHandler, Reflector, ReflectorOptions, ReflectorState,
    ReflectorStats, ReflectorStore, RelistReason, Version,
};
pub use retry_watcher::{NotResumable, RetryWatcher};
pub use run::{Action, RunOptions, RunSummary, run_controller};
pub use share::{
    Closed, Event, FellBehind, FilteringResourceEventHandler, HandlerOptions, InformerBuilder,
    InformerKey, InformerStats, InformerWatch, Lag, Laggard, LogOptions, NotAllSynced, NotReached,
    NotSynced, Overflow, Pending, Registration, ResourceEventHandler, SharedIndexInformer,
    SharedInformer, SharedInformerFactory, Stopped, Subscription, WatchItem, WeakInformer,
};
pub use source::{
    BoxFuture, EventStream, List, ListFunc, ListPart, ListStream, ListWatch, Listed, Lister,
    ListerWatcher, PAGE_SIZE, Paged, Pager, SourceError, WatchFunc, Watcher,
};
pub use store::{
    ExpirationCache, Index, IndexConflict, IndexError, IndexValue, Indexer, Snapshot, Store,
    UndeltaStore, UnknownIndex, WriteOverlay,
};
pub use workqueue::WorkQueue;
