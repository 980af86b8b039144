//! Informers over HTTP, through a [`kube::Client`].
//!
//! `kube` reads kubeconfigs, authenticates, does TLS and writes objects. This crate builds list and watch on
//! [`kube::Client::send`]: requests, retries, warnings, gzip, and bodies that are split into objects while they arrive. The
//! reflectors and stores are in `tidings-informer`.
//!
//! A request passes the modules in this order: `informer` and `factory` (choose the resource), `list_watch` (a [`RestListWatch`]
//! makes the request), `client` (a [`RestClient`] sends and retries it), `response` (checks the response), `body` (splits it into
//! objects).
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use tidings_kube::{KubeInformerFactory, RestClient, Scope};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = RestClient::from_config(kube::Config::infer().await?)?;
//! let factory = KubeInformerFactory::new(client);
//! let pods = factory.informer::<Pod>(&Scope::namespace("default"));
//! factory.start();
//! factory.wait_synced(Duration::from_secs(30)).await?;
//! println!("{} pods", pods.store().snapshot().len());
//! # Ok(())
//! # }
//! ```
//!
//! Bounds: objects of at most 16 MiB, error bodies of at most 64 KiB, ten retries, 256 remembered warnings.

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
mod resource;
mod response;
mod warning;

pub use client::{Compression, RestClient};
pub use connect::{ConnectError, Connection, connect};
pub use discovery::{ResolveError, Resolved, resolve};
pub use factory::KubeInformerFactory;
pub use informer::{ObjectMetadata, dynamic, informer, lazy, metadata, projected, wrote};
pub use lease::KubeLeaseLock;
pub use limiter::RateLimiter;
pub use list_watch::{
    ListWatchExt, RestListWatch, filtered_list_watch_from_client, list_watch_from_client,
};
pub use resource::{Scope, collection_path};
pub use warning::Warning;
