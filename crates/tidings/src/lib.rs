//! Informers for Kubernetes: list, watch, and a local cache with events, over the [`kube`](https://kube.rs) client you have.
//!
//! This crate collects what a program needs. What it collects lives in [`tidings_api`] (the vocabulary), [`tidings_informer`]
//! (reflectors, stores, shared informers, work queues) and [`tidings_kube`] (all of it over a `kube::Client`).
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use tidings::kube::{KubeInformerFactory, RestClient, Scope};
//! use tidings::HandlerOptions;
//!
//! # async fn run() -> anyhow::Result<()> {
//! let client = RestClient::from_config(kube::Config::infer().await?)?;
//! let factory = KubeInformerFactory::new(client);
//! let pods = factory.informer::<Pod>(&Scope::all());
//! let mut events = pods.subscribe(&HandlerOptions::default())?;
//! factory.start();
//! factory.wait_synced(Duration::from_secs(30)).await?;
//! while let Some(event) = events.next().await {
//!     println!("{event:?}");
//! }
//! # Ok(())
//! # }
//! ```

pub use tidings_informer::*;

/// The vocabulary of list and watch: objects, keys, selectors, options, errors.
pub mod api {
    pub use tidings_api::*;
}

/// Informers over a `kube::Client`.
pub mod kube {
    pub use tidings_kube::*;
}
