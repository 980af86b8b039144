//! Informers over HTTP, through a client of [`kube`].
//!
//! `kube` reads kubeconfigs, authenticates, does TLS and writes objects. This crate takes one thing of it,
//! [`kube::Client::send`], and builds list and watch on that: requests, retries, warnings, gzip, and bodies that are cut into
//! objects while they arrive. What follows is the business of `tidings-informer`.
//!
//! A request walks through the modules in this order: `informer` and `factory` (what to follow) → `list_watch` (a
//! [`RestListWatch`] asks for it) → `client` (a [`RestClient`] sends, and sends again) → `response` (what kind of answer it is)
//! → `body` (bytes become objects).
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
//! Bounds: an object of at most 16 MiB at a time, of an error's body 64 KiB, ten retries, 256 remembered warnings.

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
