//! The server without a socket: from requests to responses.
//!
//! [`start`](Api::start) is here; `state` is what all requests share, `dispatch` is what happens to one of them.

mod audit;
mod dispatch;
mod state;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use tidings_api::ResourceVersion;
use tidings_storage::{Error, Revision, Storage};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::auth::Authentication;
use crate::custom;
use crate::garbage;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::namespaces;
use crate::respond::ResponseBody;
use crate::served::{Opener, Resource, Served};
use audit::AuditIds;
pub(crate) use state::Inner;

/// How often caches hear of revisions of other resources and of the end of history.
const TICK: Duration = Duration::from_secs(1);

/// How a server is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApiOptions {
    /// Who may ask.
    pub authentication: Authentication,
    /// How long the state of a list can be continued.
    pub history: Duration,
    /// How much the event log of one resource may hold.
    pub log_bytes_max: usize,
    /// A watch that does not say when it ends does so after this, up to twice of it (W97).
    pub watch_timeout_min: Duration,
    /// How many log lines could not be written, for metrics: whoever writes them counts.
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
pub struct Api(Arc<Inner>);

impl Api {
    /// Starts a server over a store: fills the caches and makes the namespaces that are always there. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn start(store: Arc<dyn Storage>, options: ApiOptions) -> Result<Api, StartError> {
        let changed: Arc<Notify> = Arc::default();
        let opener = Opener {
            store: store.clone(),
            log_bytes_max: options.log_bytes_max,
            changed: changed.clone(),
        };
        // The caches are filled from the start of history; it does not end before they are.
        let _history = store.hold_history();
        let served = Served::open(&opener);
        let uuid_header = |name: &'static str| {
            let value = HeaderValue::from_str(&Uuid::new_v4().to_string())
                .unwrap_or(HeaderValue::from_static(""));
            (HeaderName::from_static(name), value)
        };
        let inner = Inner {
            store,
            opener,
            served_changed: Notify::new(),
            served: RwLock::new(Arc::new(served)),
            nowhere: Resource::nowhere(changed.clone()),
            metrics: Metrics::new(),
            limits: Limits::new(),
            options,
            stopping: watch::Sender::new(false),
            flow_headers: [
                uuid_header("x-kubernetes-pf-flowschema-uid"),
                uuid_header("x-kubernetes-pf-prioritylevel-uid"),
            ],
            audit_ids: AuditIds::new(),
            namespace_deleted: Arc::default(),
            tasks: std::sync::Mutex::default(),
        };
        let api = Api(Arc::new(inner));
        api.0.catch_up().await.map_err(StartError)?;
        let mut definitions = custom::Controller::default();
        definitions.follow(&api.0).await;
        namespaces::make_defaults(&api.0).await;
        let deleter = namespaces::run(Arc::downgrade(&api.0), api.0.namespace_deleted.clone());
        if let Ok(mut tasks) = api.0.tasks.lock() {
            tasks.spawn(tick(Arc::downgrade(&api.0)));
            tasks.spawn(deleter);
            tasks.spawn(definitions.run(Arc::downgrade(&api.0)));
            tasks.spawn(garbage::run(Arc::downgrade(&api.0), changed));
        }
        Ok(api)
    }

    /// Tells every watch to send a bookmark and end, and to refuse new ones.
    pub fn stop_watches(&self) {
        self.0.stopping.send_replace(true);
        for resource in self.0.served().resources() {
            resource.cache.wake_all();
        }
    }
}

/// Keeps quiet caches up to date, and forgets with the store.
async fn tick(api: Weak<Inner>) {
    let mut last = Revision(0);
    loop {
        tokio::time::sleep(TICK).await;
        let Some(api) = api.upgrade() else {
            return;
        };
        let served = api.served();
        if let Ok(revision) = api.store.revision().await
            && revision != last
        {
            last = revision;
            for resource in served.resources() {
                api.store.request_progress(&resource.prefix);
            }
        }
        if let Ok(oldest) = api.store.oldest().await {
            for resource in served.resources() {
                resource.cache.forget_before(ResourceVersion::new(oldest.0));
            }
        }
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
