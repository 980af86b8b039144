#![doc = include_str!("../README.md")]

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
