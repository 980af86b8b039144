//! The API server without a socket: starts over a store, and is a tower service from HTTP requests to responses.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use rustls::pki_types::CertificateDer;
use tidings_access::AuthorizationMode;
use tidings_identity::KeyError;
use tidings_plugins::PluginSet;
use tidings_storage::{Error, Storage};
use uuid::Uuid;

use super::audit::{AuditIds, AuditLog};
use super::discovery::AggregatedPages;
use super::in_flight::InFlightLimits;
use super::metrics::Metrics;
use super::openapi::OpenApiPages;
use super::respond::ResponseBody;
use crate::controllers::{ControllerSet, Controllers};
use crate::core::{
    Authentication, AuthorizationWebhook, Core, CoreOptions, FlowIds, ServedSet,
    ServiceAccountOptions, ServiceResolver, ShownCertificate, WatchLimits,
};
use crate::signer::ClientSigner;

/// The options of an API server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApiOptions {
    /// How requests are authenticated.
    pub authentication: Authentication,
    /// How it is decided who may do what: by these modes, one after the other. Without any, by roles and bindings if requests show credentials, and
    /// everything is allowed if they are trusted. A server with [`AuthorizationMode::Rbac`] creates the roles and bindings that every Kubernetes
    /// server has.
    pub authorization: Vec<AuthorizationMode>,
    /// The service that decides in [`AuthorizationMode::Webhook`]. Without one that mode has no opinion.
    pub authorization_webhook: Option<AuthorizationWebhook>,
    /// Signs approved requests for certificates of clients. Without it nobody here does.
    pub client_signer: Option<ClientSigner>,
    /// How tokens of service accounts are made and believed.
    pub service_accounts: ServiceAccountOptions,
    /// How long a list can be continued at its revision.
    pub history: Duration,
    /// How many bytes of objects the event log of one resource may hold.
    pub log_bytes_max: usize,
    /// A watch without a timeout ends after a random time between this and twice this (W97).
    pub watch_timeout_min: Duration,
    /// How many watches may be open.
    pub watch_limits: WatchLimits,
    /// How many log lines were lost. The log writer counts them, and a metric shows them.
    pub lost_log_lines: Arc<AtomicU64>,
    /// The audit log.
    pub audit: Option<Arc<AuditLog>>,
    /// Says where the Services of webhooks lead. Without it the objects in the store say it.
    pub services: Option<Arc<dyn ServiceResolver>>,
    /// The admission plugins that are enabled.
    pub plugins: PluginSet,
    /// The controllers that run in the server.
    pub controllers: ControllerSet,
}

impl Default for ApiOptions {
    fn default() -> Self {
        ApiOptions {
            authentication: Authentication::Trusted,
            authorization: Vec::new(),
            authorization_webhook: None,
            client_signer: None,
            service_accounts: ServiceAccountOptions::default(),
            history: Duration::from_secs(600),
            log_bytes_max: 256 << 20,
            watch_timeout_min: Duration::from_secs(1800),
            watch_limits: WatchLimits::default(),
            lost_log_lines: Arc::default(),
            audit: None,
            services: None,
            plugins: PluginSet::default(),
            controllers: ControllerSet::default(),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store cannot be read.
    #[error("cannot read the store")]
    Store(#[from] Error),
    /// No key for tokens of service accounts can be made.
    #[error("cannot make a key for tokens of service accounts")]
    Key(#[from] KeyError),
}

/// The API server, as a service from requests to responses. Clones share it; it stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Api(pub(super) Arc<Edge>);

/// The address of the client of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerAddress(pub(super) IpAddr);

/// The state that all requests share.
pub(super) struct Edge {
    pub(super) core: Arc<Core>,
    pub(super) controllers: Controllers,
    pub(super) metrics: Metrics,
    pub(super) in_flight: InFlightLimits,
    pub(super) lost_log_lines: Arc<AtomicU64>,
    /// What stands in the responses of a server without flow schemas (W3).
    pub(super) flow_ids: FlowIds,
    pub(super) audit_ids: AuditIds,
    pub(super) audit: Option<Arc<AuditLog>>,
    documents: RwLock<Arc<ApiDocuments>>,
}

/// The discovery and OpenAPI documents of one served set, each made at its first request.
#[derive(Debug, Default)]
pub(super) struct ApiDocuments {
    /// The number of the served set.
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
    /// The documents of a served set.
    pub(super) fn documents(&self, served: &ServedSet) -> Arc<ApiDocuments> {
        let known = self.documents.read();
        let known = known.unwrap_or_else(PoisonError::into_inner).clone();
        if known.number == served.number {
            return known;
        }
        let documents = Arc::new(ApiDocuments {
            number: served.number,
            openapi: Arc::new(known.openapi.with_other_customs()),
            discovery: AggregatedPages::default(),
        });
        let slot = self.documents.write();
        let mut slot = slot.unwrap_or_else(PoisonError::into_inner);
        if slot.number < served.number {
            *slot = documents.clone();
        }
        documents
    }
}

impl Api {
    /// Starts a server over a store: fills the caches and creates the default namespaces. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn start(store: Arc<dyn Storage>, options: ApiOptions) -> Result<Api, StartError> {
        Api::start_boxed(store, options).await
    }

    /// Boxed, so that it is compiled with this crate and not once more with every program that starts a server.
    fn start_boxed(
        store: Arc<dyn Storage>,
        options: ApiOptions,
    ) -> Pin<Box<dyn Future<Output = Result<Api, StartError>> + Send>> {
        Box::pin(Api::open(store, options))
    }

    async fn open(store: Arc<dyn Storage>, options: ApiOptions) -> Result<Api, StartError> {
        // The caches read the whole history, so it must not be compacted before they are filled.
        let _history = store.hold_history();
        let core_options = CoreOptions {
            authentication: options.authentication,
            authorization: options.authorization,
            authorization_webhook: options.authorization_webhook,
            service_accounts: options.service_accounts,
            history: options.history,
            log_bytes_max: options.log_bytes_max,
            watch_timeout_min: options.watch_timeout_min,
            services: options.services,
            watch_limits: options.watch_limits,
            plugins: options.plugins,
        };
        let core = Arc::new(Core::open(store, core_options)?);
        core.catch_up().await?;
        let new_id = || Uuid::new_v4().to_string().into();
        let edge = Edge {
            controllers: Controllers::start(&core, &options.controllers, options.client_signer)
                .await,
            core,
            metrics: Metrics::new(),
            in_flight: InFlightLimits::new(),
            lost_log_lines: options.lost_log_lines,
            flow_ids: FlowIds {
                schema: new_id(),
                level: new_id(),
            },
            audit_ids: AuditIds::new(),
            audit: options.audit,
            documents: RwLock::default(),
        };
        Ok(Api(Arc::new(edge)))
    }

    /// What the client of a connection has shown in the handshake.
    pub(super) fn shown(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<ShownCertificate> {
        let authentication = self.0.core.authentication();
        authentication.shown(chain.unwrap_or_default())
    }

    /// True if requests must say where they come from.
    pub(super) fn wants_peers(&self) -> bool {
        self.0.audit.is_some()
    }

    /// Notes how many connections are open.
    pub(super) fn note_connections(&self, open: usize) {
        self.0.metrics.note_connections(open);
    }

    /// Counts a connection that was closed at once, because so many are open.
    pub(super) fn refuse_connection(&self, most: usize) {
        if self.0.metrics.refuse_connection() {
            tracing::warn!(most, "connections are refused: as many as may be are open");
        }
    }

    /// Makes every watch, open or new, send a bookmark and end.
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
