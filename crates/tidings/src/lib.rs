#![doc = include_str!("../README.md")]

pub use tidings_informer::{
    Action, Event, HandlerOptions, ResourceEventHandler, RunOptions, SharedInformer, Subscription,
    WorkQueue, run_controller,
};
pub use tidings_kube::{KubeInformerFactory, RestClient, Scope};

/// Controllers: reconcile objects whenever they, or what belongs to them, change.
///
/// A [`Controller`](controller::Controller) is built over a [`Cluster`](controller::Cluster); a [`Manager`](controller::Manager) runs several
/// under one leader election.
pub mod controller {
    pub use tidings_controller::{
        Action, AppliedChildren, BadShards, Cached, Cause, CauseKind, Children, Cluster,
        ClusterKey, Context, Controller, ControllerHandle, ControllerMetrics, ControllerStats,
        ErrorPolicy, EventOptions, EventRecorder, EventStats, Finalizing, Fleet, FleetError,
        InstallError, Manager, ManagerError, ManifestError, NewCondition, NewEvent, NotYet,
        ObjectReference, OwnerKind, Permissions, Predicate, RunSummary, ShardGroup, ShardOptions,
        ShardStatus, Trigger, Watches, has_condition, install_definitions, lean_metadata, manifest,
        set_condition,
    };
    pub use tidings_kube::predicates;
}

/// Talking to an API server: the client, informers over it, and what they can be asked for.
///
/// Everything here is over a `kube::Client`: kubeconfigs, authentication and TLS are kube's.
pub mod client {
    pub use tidings_kube::{
        ApiResource, CachedMetadata, Compression, ConnectError, Connection, KubeInformerFactory,
        KubeLeaseLock, KubeObject, ListWatchExt, ObjectMetadata, ObjectPath, ObservedWrite,
        PatchKind, RequestLimiter, RequestObserver, ResolveError, Resolved, RestClient,
        RestListWatch, Scope, SourceError, Warning, collection_path, connect, dynamic,
        filtered_list_watch_from_client, informer, lazy, list_watch_from_client, metadata,
        projected, resolve, resource_of, wrote,
    };
}

/// Shared informers: one reflector, any number of handlers, and what they tell.
pub mod informer {
    pub use tidings_informer::{
        Closed, Event, FellBehind, FilteringResourceEventHandler, HandlerOptions, InformerBuilder,
        InformerKey, InformerStats, InformerWatch, Lag, Laggard, LogOptions, NotAllSynced,
        NotReached, NotSynced, Overflow, Pending, Predicate, Problem, ProblemHandler, Registration,
        ResourceEventHandler, ServerVersion, SharedIndexInformer, SharedInformer,
        SharedInformerFactory, Stopped, Subscription, WatchItem, WeakInformer, synced, synctrack,
        until,
    };
}

/// What informers keep: snapshots, indexes, listers, and writes that the watch has not brought yet.
pub mod store {
    pub use tidings_informer::{
        Cached, Decode, DecodeError, ExpirationCache, GenericLister, GenericNamespaceLister, Index,
        IndexConflict, IndexError, IndexValue, Indexer, Lazy, MergedStore, NotFound, Snapshot,
        Store, Uid, UndeltaStore, UnknownIndex, WriteOverlay,
    };
}

/// Work queues, and running a reconciler over one.
pub mod queue {
    pub use tidings_informer::workqueue::{
        AddOptions, Backoff, ItemExponential, ItemFastSlow, Lease, MaxOf, Priority, QueueKey,
        QueueOptions, RateLimiter, TokenBucket, WaitError, WithJitter, WithMaxWait, WorkQueue,
        default_limiter,
    };
    pub use tidings_informer::{Action, RunOptions, RunSummary, run_controller};
}

/// Sources of one's own: everything below a shared informer, for lists and watches that do not come from an API server.
pub mod source {
    pub use tidings_informer::{
        BackoffOptions, Batch, BoxFuture, Controller, Delta, DeltaFifo, EventStream,
        ExponentialBackoff, InitialState, List, ListFunc, ListPart, ListPermits, ListStream,
        ListWatch, Listed, Lister, ListerWatcher, NotResumable, Objects, OnRefusal, PAGE_SIZE,
        Paged, Pager, QUEUE_BYTES_MAX, ReflectedStore, Reflector, ReflectorOptions, ReflectorState,
        ReflectorStats, ReflectorStore, RelistReason, RetrySignal, RetryWatcher, SourceError,
        WatchFunc, Watcher,
    };
}

/// Leader election: one of several replicas does the work.
pub mod leader {
    pub use tidings_informer::leader::{
        BadElection, ElectionEnd, ElectionOptions, LeaderCallbacks, LeaderElector, LeaseLock,
        LeaseRecord, LeaseVersion, LockError, StopSignal, Stopper,
    };
    pub use tidings_kube::KubeLeaseLock;
}

/// Metrics of informers and queues, for `prometheus-client`.
pub mod metrics {
    pub use tidings_informer::metrics::InformerMetrics;
    pub use tidings_informer::workqueue::metrics::{Histogram, HistogramSnapshot, QueueMetrics};
}

/// The vocabulary of list and watch: objects, keys, versions, selectors, options, failures.
pub mod api {
    pub use tidings_api::{
        EventType, FieldSelector, GroupResource, GroupVersion, GroupVersionKind, KeyError,
        LabelSelector, Labels, ListMetadata, ListOptions, Object, ObjectKey, Reason,
        ResourceVersion, ResourceVersionMatch, ScanError, SelectorError, ShardField, ShardSelector,
        Status, StatusDetails, WatchEvent,
    };
}
