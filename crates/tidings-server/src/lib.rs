//! An API server that lists and watches.
//!
//! [`Api`] is the whole server without a socket: a `tower` service from HTTP requests to HTTP responses over any
//! [`Storage`](tidings_storage::Storage). [`Listener`] puts it behind TLS. [`Pki`] makes the certificates and the token.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use tidings_server::{Api, ApiOptions};
//! use tidings_storage::{Embedded, EmbeddedOptions};
//!
//! let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
//! let api = Api::start(store, ApiOptions::default()).await?;
//! let request = http::Request::get("/api/v1/namespaces/default").body(String::new()).unwrap();
//! let response = api.handle(request).await;
//! assert_eq!(response.status(), 200);
//! # Ok::<(), tidings_server::StartError>(())
//! # }).unwrap();
//! ```

mod controllers;
mod core;
mod edge;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod pki;

pub use crate::core::Authentication;
pub use edge::{Api, ApiOptions, Listener, ResponseBody, StartError};
pub use pki::{Pki, PkiError, ServerNames};
