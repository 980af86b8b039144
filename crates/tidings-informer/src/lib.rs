#![doc = include_str!("../README.md")]

mod backoff;
mod controller;
mod event;
mod event_handler;
mod intake;
pub mod leader;
mod listed;
pub mod metrics;
mod object;
mod ordered_work;
mod predicate;
mod queue;
mod reflected_store;
mod reflector;
mod retry_watcher;
mod run;
mod share;
mod source;
mod stats;
mod store;
mod sync;
pub mod synced;
pub mod synctrack;
pub mod until;
mod version;
mod work_loop;
pub mod workqueue;

pub use backoff::{BackoffOptions, ExponentialBackoff};
pub use controller::Controller;
pub use event::Event;
pub use event_handler::{FilteringResourceEventHandler, ResourceEventHandler};
pub use object::{Cached, Decode, DecodeError, Lazy, Uid};
pub use predicate::Predicate;
pub use queue::{Batch, Delta, DeltaFifo, Objects, QUEUE_BYTES_MAX};
pub use reflected_store::ReflectedStore;
pub use reflector::{
    InitialState, ListPermits, OnRefusal, Problem, ProblemHandler, Reflector, ReflectorOptions,
    ReflectorState, ReflectorStats, ReflectorStore, RelistReason, RetrySignal,
};
pub use retry_watcher::{NotResumable, RetryWatcher};
pub use run::{Action, RunSummary, run_controller};
pub use share::{
    Closed, FellBehind, GenericLister, GenericNamespaceLister, HandlerOptions, InformerBuilder,
    InformerKey, InformerWatch, Laggard, LogOptions, NotAllSynced, NotFound, NotReached, NotSynced,
    Overflow, Pending, Registration, SharedIndexInformer, SharedInformer, SharedInformerFactory,
    Stopped, Subscription, WatchItem, WeakInformer,
};
pub use source::{
    BoxFuture, EventStream, List, ListFunc, ListPart, ListStream, ListWatch, Listed, Lister,
    ListerWatcher, PAGE_SIZE, Paged, Pager, SourceError, WatchFunc, Watcher, story,
};
pub use stats::{InformerStats, Lag};
pub use store::{
    ExpirationCache, Index, IndexConflict, IndexError, IndexValue, Indexer, MergedStore, Snapshot,
    Store, UndeltaStore, UnknownIndex, WriteOverlay,
};
pub use version::ServerVersion;
pub use work_loop::{KeyWork, RunOptions, WorkEnd, run_work};
pub use workqueue::WorkQueue;
