#![doc = include_str!("../README.md")]

mod body;
mod client;
mod connect;
mod discovery;
mod factory;
mod failure;
mod informer;
mod lease;
mod limiter;
mod list_watch;
mod object_metadata;
mod observe;
pub mod predicates;
mod protobuf;
mod resource;
mod response;
mod warning;
mod write;

pub use client::{Compression, RestClient};
pub use connect::{ConnectError, Connection, connect};
pub use discovery::{ResolveError, Resolved, resolve};
pub use factory::KubeInformerFactory;
pub use informer::{dynamic, informer, lazy, metadata, projected, wrote};
pub use lease::KubeLeaseLock;
pub use limiter::RequestLimiter;
pub use list_watch::{
    ListWatchExt, RestListWatch, filtered_list_watch_from_client, list_watch_from_client,
};
pub use object_metadata::{CachedMetadata, ObjectMetadata};
pub use observe::{ObservedWrite, RequestObserver};
pub use resource::{KubeObject, Scope, collection_path, is_cluster_scoped, resource_of};
pub use tidings_api::{ShardField, ShardSelector};
pub use tidings_informer::SourceError;
pub use warning::Warning;
pub use write::{ObjectPath, PatchKind};

/// kube's description of a resource: group, version, kind and plural.
pub use kube::core::ApiResource;
