//! The server without a socket: started over a store, and a service from requests to responses.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use tidings_storage::{Error, Storage};
use uuid::Uuid;

use super::audit::AuditIds;
use super::discovery::AggregatedPages;
use super::in_flight::InFlightLimits;
use super::metrics::Metrics;
use super::openapi::OpenApiPages;
use super::respond::ResponseBody;
use crate::controllers::Controllers;
use crate::core::{Authentication, Core, CoreOptions, ServedSet};

/// How a server is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApiOptions {
    /// Who may ask.
    pub authentication: Authentication,
    /// How long the state of a list can be continued.
    pub history: Duration,
    /// Bytes of objects that the event log of one resource may hold.
    pub log_bytes_max: usize,
    /// A watch without a timeout ends after this, up to twice of it (W97).
    pub watch_timeout_min: Duration,
    /// How many log lines could not be written, for metrics: the writer of the log counts.
    pub lost_log_lines: Arc<AtomicU64>,
}

impl Default for ApiOptions {
    fn default() -> Self {
        ApiOptions {
            authentication: Authentication::Trusted,
            history: Duration::from_secs(600),
            log_bytes_max: 256 << 20,
            watch_timeout_min: Duration::from_secs(1800),
            lost_log_lines: Arc::default(),
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[error("the store cannot be read")]
pub struct StartError(#[source] Error);

/// The whole server, as a service from requests to responses. Cloning shares it; it stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Api(pub(super) Arc<Edge>);

/// What all requests share.
pub(super) struct Edge {
    pub(super) core: Arc<Core>,
    pub(super) controllers: Controllers,
    pub(super) metrics: Metrics,
    pub(super) in_flight: InFlightLimits,
    pub(super) lost_log_lines: Arc<AtomicU64>,
    /// Stand for the flow schema and priority level that upstream names in every response (W3).
    pub(super) flow_headers: [(HeaderName, HeaderValue); 2],
    pub(super) audit_ids: AuditIds,
    described: RwLock<Arc<ApiDocuments>>,
}

/// The documents that describe one set of kinds, made when they are asked for.
#[derive(Debug, Default)]
pub(super) struct ApiDocuments {
    /// The number of the set.
    number: u64,
    pub(super) openapi: Arc<OpenApiPages>,
    pub(super) discovery: AggregatedPages,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

impl Edge {
    /// The documents that describe a set of kinds.
    pub(super) fn described(&self, served: &ServedSet) -> Arc<ApiDocuments> {
        let known = self.described.read();
        let known = known.unwrap_or_else(PoisonError::into_inner).clone();
        if known.number == served.number {
            return known;
        }
        let described = Arc::new(ApiDocuments {
            number: served.number,
            openapi: Arc::new(known.openapi.with_other_customs()),
            discovery: AggregatedPages::default(),
        });
        let slot = self.described.write();
        let mut slot = slot.unwrap_or_else(PoisonError::into_inner);
        if slot.number < served.number {
            *slot = described.clone();
        }
        described
    }
}

impl Api {
    /// Starts a server over a store: fills the caches and makes the namespaces that are always there. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn start(store: Arc<dyn Storage>, options: ApiOptions) -> Result<Api, StartError> {
        // The caches are filled from the start of history; it is not compacted before they are.
        let _history = store.hold_history();
        let core_options = CoreOptions {
            authentication: options.authentication,
            history: options.history,
            log_bytes_max: options.log_bytes_max,
            watch_timeout_min: options.watch_timeout_min,
        };
        let core = Arc::new(Core::open(store, core_options));
        core.catch_up().await.map_err(StartError)?;
        let uuid_header = |name: &'static str| {
            let value = HeaderValue::from_str(&Uuid::new_v4().to_string())
                .unwrap_or(HeaderValue::from_static(""));
            (HeaderName::from_static(name), value)
        };
        let edge = Edge {
            controllers: Controllers::start(&core).await,
            core,
            metrics: Metrics::new(),
            in_flight: InFlightLimits::new(),
            lost_log_lines: options.lost_log_lines,
            flow_headers: [
                uuid_header("x-kubernetes-pf-flowschema-uid"),
                uuid_header("x-kubernetes-pf-prioritylevel-uid"),
            ],
            audit_ids: AuditIds::new(),
            described: RwLock::default(),
        };
        Ok(Api(Arc::new(edge)))
    }

    /// Tells every watch to send a bookmark and end, and refuses new ones.
    pub fn stop_watches(&self) {
        self.0.core.stop_watches();
    }
}

impl<B> tower_service::Service<Request<B>> for Api
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.handle(request).await) })
    }
}
