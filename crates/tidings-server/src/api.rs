//! The server without a socket: from requests to responses.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use tidings_api::{ObjectKey, Reason, ResourceVersion, Status, go};
use tidings_informer::Reflector;
use tidings_storage::{Error, Revision, Storage};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::auth::{self, Authentication};
use crate::cache::{Cache, CacheStore};
use crate::limits::{self, Limits};
use crate::metrics::Metrics;
use crate::registry::{self, KINDS, Kind};
use crate::request::{Query, Route, Target, Verb, route};
use crate::respond::{self, ResponseBody};
use crate::source::StoreListerWatcher;
use crate::{health, negotiate, verbs};

/// How long a read waits for the cache to reach a revision (W77).
const REACH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request may take that is not a watch (W188).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How often caches hear of revisions of other resources and of the end of history.
const TICK: Duration = Duration::from_secs(1);
/// A continue token lives at most this long: the conformance tests wait ten minutes for one to expire (W88).
const TOKEN_AGE_MAX: Duration = Duration::from_secs(9 * 60);
/// Present from the start (W174).
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

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
}

impl Default for ApiOptions {
    fn default() -> Self {
        ApiOptions {
            authentication: Authentication::Trusted,
            history: Duration::from_secs(600),
            log_bytes_max: 256 << 20,
            watch_timeout_min: Duration::from_secs(1800),
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

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Storage>,
    /// In the order of [`KINDS`].
    caches: Vec<Arc<Cache>>,
    prefixes: Vec<Bytes>,
    pub(crate) metrics: Metrics,
    limits: Limits,
    options: ApiOptions,
    stopping: watch::Sender<bool>,
    /// Stand for the flow schema and priority level that upstream names in every response (W3).
    flow_headers: [(HeaderName, HeaderValue); 2],
    audit_ids: AuditIds,
    /// Fill the caches; they end with the server.
    tasks: std::sync::Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// Starts a server over a store: fills the caches and makes the namespaces that are always there. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn start(store: Arc<dyn Storage>, options: ApiOptions) -> Result<Api, StartError> {
        let caches: Vec<Arc<Cache>> = KINDS
            .iter()
            .map(|_| Cache::new(options.log_bytes_max))
            .collect();
        let prefixes: Vec<Bytes> = KINDS.iter().map(|kind| kind.prefix().into()).collect();
        let mut tasks = JoinSet::new();
        for ((kind, cache), prefix) in KINDS.iter().zip(&caches).zip(&prefixes) {
            let source = Arc::new(StoreListerWatcher {
                store: store.clone(),
                prefix: prefix.clone(),
            });
            let reflector = Reflector::new(
                kind.group_resource().to_string(),
                source,
                CacheStore(cache.clone()),
            );
            tasks.spawn(async move { match reflector.run().await {} });
        }
        tasks.spawn(tick(store.clone(), caches.clone(), prefixes.clone()));
        let uuid_header = |name: &'static str| {
            let value = HeaderValue::from_str(&Uuid::new_v4().to_string())
                .unwrap_or(HeaderValue::from_static(""));
            (HeaderName::from_static(name), value)
        };
        let inner = Inner {
            store,
            caches,
            prefixes,
            metrics: Metrics::new(),
            limits: Limits::new(),
            options,
            stopping: watch::Sender::new(false),
            flow_headers: [
                uuid_header("x-kubernetes-pf-flowschema-uid"),
                uuid_header("x-kubernetes-pf-prioritylevel-uid"),
            ],
            audit_ids: AuditIds::new(),
            tasks: std::sync::Mutex::new(tasks),
        };
        let api = Api(Arc::new(inner));
        api.0.catch_up().await.map_err(StartError)?;
        api.make_namespaces().await;
        Ok(api)
    }

    /// Tells every watch to send a bookmark and end, and to refuse new ones.
    pub fn stop_watches(&self) {
        self.0.stopping.send_replace(true);
        for cache in &self.0.caches {
            cache.wake_all();
        }
    }

    async fn make_namespaces(&self) {
        let Some(kind) = registry::find("", "v1", "namespaces") else {
            return;
        };
        for name in NAMESPACES {
            if self.0.cache(kind).get(&ObjectKey::new("", name)).is_some() {
                continue;
            }
            let body = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
            let target = Target {
                kind,
                namespace: None,
                name: None,
                subresource: None,
                forced_watch: false,
            };
            if let Err(status) = verbs::create::create(
                &self.0,
                &target,
                &Query::default(),
                &body.into(),
                &mut Vec::new(),
            )
            .await
            {
                tracing::warn!(namespace = name, %status, "a namespace that should always be there cannot be made");
            }
        }
        if let Err(status) = self.0.refresh(kind).await {
            tracing::warn!(%status, "the namespaces are not in the cache yet");
        }
    }

    /// Answers one request. The future may be dropped: a write is then done whole or not at all.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let mut body = pin!(body);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let route = route(parts.uri.path());
        let target = match &route {
            Route::Resource(target) => Some(target),
            _ => None,
        };
        let watch = query.get("watch").is_some_and(go::query_bool);
        let verb = target.map(|target| target.verb(&parts.method, watch));
        let known_verb = verb.as_ref().and_then(|verb| verb.as_ref().ok().copied());
        let who = self.0.options.authentication.user(&parts.headers);
        let authenticated = who.is_ok();
        let mut response = match who {
            Err(status) => respond::status(&status),
            Ok(user) => {
                let described = auth::method_verb(&parts.method, known_verb);
                let allowed = auth::authorize(user, &route, &described, parts.uri.path());
                match (allowed, verb) {
                    (Err(status), _) => respond::forbidden(&status),
                    (Ok(()), Some(Err(status))) => respond::status(&status),
                    (Ok(()), None) => self.0.outside(&route, &parts.method, &query),
                    (Ok(()), Some(Ok(verb))) => match target {
                        Some(target) => {
                            self.0
                                .serve(verb, target, &query, &parts.headers, body.as_mut())
                                .await
                        }
                        None => respond::page_not_found(),
                    },
                }
            }
        };
        // A client that is refused before its body was read may still be writing it.
        limits::drain(body).await;
        if parts.method == Method::HEAD {
            *response.body_mut() = ResponseBody::bytes(Bytes::new());
        }
        self.0.finish(&mut response, &parts.headers, authenticated);
        self.0.metrics.request(
            target,
            known_verb,
            response.status().as_u16(),
            started.elapsed(),
        );
        response
    }
}

/// Keeps quiet caches up to date, and forgets with the store.
async fn tick(store: Arc<dyn Storage>, caches: Vec<Arc<Cache>>, prefixes: Vec<Bytes>) {
    let mut last = Revision(0);
    loop {
        tokio::time::sleep(TICK).await;
        if let Ok(revision) = store.revision().await
            && revision != last
        {
            last = revision;
            for prefix in &prefixes {
                store.request_progress(prefix);
            }
        }
        if let Ok(oldest) = store.oldest().await {
            for cache in &caches {
                cache.forget_before(ResourceVersion::new(oldest.0));
            }
        }
    }
}

impl Inner {
    pub(crate) fn cache(&self, kind: &Kind) -> &Arc<Cache> {
        &self.caches[registry::position(kind)]
    }

    pub(crate) fn store_key(&self, kind: &Kind, key: &ObjectKey) -> Bytes {
        [
            &self.prefixes[registry::position(kind)][..],
            key.as_str().as_bytes(),
        ]
        .concat()
        .into()
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Milliseconds since 1970, for continue tokens.
    pub(crate) fn now_ms(&self) -> u64 {
        jiff::Timestamp::now()
            .as_millisecond()
            .try_into()
            .unwrap_or(0)
    }

    /// True if a token of that time can no longer be continued (W88).
    pub(crate) fn token_expired(&self, issued_ms: u64) -> bool {
        let age = Duration::from_millis(self.now_ms().saturating_sub(issued_ms));
        age > self.options.history.min(TOKEN_AGE_MAX)
    }

    /// W97: between once and twice the minimum, so that watches do not end together.
    pub(crate) fn default_watch_timeout(&self) -> Duration {
        let (fraction, _) = Uuid::new_v4().as_u64_pair();
        self.options
            .watch_timeout_min
            .mul_f64(1.0 + (fraction >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// What the store said, as the client hears it.
    pub(crate) fn store_failed(&self, error: Error) -> Status {
        match error {
            Error::Overloaded => {
                Status::too_many_requests("too many writes are waiting, please try again later", 1)
            }
            Error::Closed => Status::failure(
                503,
                Reason::ServiceUnavailable,
                "the store is closed: the server is shutting down, or must be started again",
            ),
            error => Status::internal(error),
        }
    }

    /// Waits until every cache has what the store has now.
    async fn catch_up(&self) -> Result<(), Error> {
        let revision = ResourceVersion::new(self.store.revision().await?.0);
        for (cache, prefix) in self.caches.iter().zip(&self.prefixes) {
            cache.reach(ResourceVersion::default()).await; // the first list
            self.store.request_progress(prefix);
            cache.reach(revision).await;
        }
        Ok(())
    }

    /// Waits until the cache has every write that was acknowledged before now (W72).
    pub(crate) async fn refresh(&self, kind: &'static Kind) -> Result<(), Status> {
        let revision = self
            .store
            .revision()
            .await
            .map_err(|error| self.store_failed(error))?;
        self.reach(kind, ResourceVersion::new(revision.0)).await
    }

    /// Waits until the cache has reached a revision, but not for long (W77).
    pub(crate) async fn reach(
        &self,
        kind: &'static Kind,
        revision: ResourceVersion,
    ) -> Result<(), Status> {
        let cache = self.cache(kind);
        let Some(reached) = cache.reached() else {
            return Err(Status::too_many_requests("storage is (re)initializing", 1));
        };
        if reached >= revision {
            return Ok(());
        }
        self.store
            .request_progress(&self.prefixes[registry::position(kind)]);
        match tokio::time::timeout(REACH_TIMEOUT, cache.reach(revision)).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let current = cache.reached().unwrap_or_default();
                Err(Status::too_large_resource_version(
                    revision.get(),
                    current.get(),
                ))
            }
        }
    }

    /// An object as the cache has it; if the cache has none, as it is now.
    pub(crate) async fn current(
        &self,
        kind: &'static Kind,
        key: &ObjectKey,
    ) -> Result<Option<tidings_api::Object>, Status> {
        if let Some(object) = self.cache(kind).get(key) {
            return Ok(Some(object));
        }
        self.refresh(kind).await?;
        Ok(self.cache(kind).get(key))
    }

    /// Everything that is not a resource.
    fn outside(&self, route: &Route, method: &Method, query: &Query) -> Response<ResponseBody> {
        let reads = method == Method::GET || matches!(route, Route::Health(_) | Route::Root);
        match route {
            Route::NoSuchPath | Route::Resource(_) => respond::page_not_found(),
            Route::NoSuchResource => respond::status(&Status::no_such_resource()),
            _ if !reads => respond::status(&Status::method_not_allowed()),
            Route::Health(health) => health::answer(health, query, &self.checks(health.endpoint)),
            Route::Version => health::version(),
            Route::Root => health::root(),
            Route::Metrics => {
                let stats: Vec<_> = self.caches.iter().map(|cache| cache.stats()).collect();
                let text = self
                    .metrics
                    .encode(&stats, self.store.stats(), self.limits.in_flight());
                let mut response = respond::text(StatusCode::OK, text);
                let value = HeaderValue::from_static(
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                );
                response.headers_mut().insert(CONTENT_TYPE, value);
                response
            }
        }
    }

    fn checks(&self, endpoint: &str) -> Vec<health::Check> {
        let empty = self.caches.iter().any(|cache| cache.reached().is_none());
        let mut checks = vec![("ping", None), ("reflectors", self.dead_task())];
        if endpoint == "readyz" {
            checks.push((
                "watch-cache",
                empty.then(|| "a cache is not filled yet".to_owned()),
            ));
            checks.push((
                "shutdown",
                self.stopping
                    .borrow()
                    .then(|| "the server is shutting down".to_owned()),
            ));
        }
        checks
    }

    /// What fills the caches never ends by itself: if a task has, the server must be started again.
    fn dead_task(&self) -> Option<String> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        (tasks.len() < KINDS.len() + 1).then(|| "a cache is no longer filled".to_owned())
    }

    /// One request of a resource: admitted, timed, and done.
    async fn serve<B>(
        &self,
        verb: Verb,
        target: &Target,
        query: &Query,
        headers: &HeaderMap,
        body: Pin<&mut B>,
    ) -> Response<ResponseBody>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        if let Err(status) = negotiate::acceptable(headers) {
            return respond::status(&status);
        }
        if verb == Verb::Watch {
            return verbs::watch::watch(self, target, query)
                .await
                .unwrap_or_else(|status| respond::status(&status));
        }
        let timeout = match query
            .get("timeout")
            .filter(|text| !text.is_empty())
            .map(go::parse_duration)
            .transpose()
        {
            Ok(timeout) => timeout
                .filter(|timeout| !timeout.is_zero())
                .unwrap_or(REQUEST_TIMEOUT)
                .min(REQUEST_TIMEOUT),
            Err(why) => {
                let message = format!("invalid timeout specified in the request URL - {why}");
                return respond::status(&Status::bad_request(message));
            }
        };
        let Some(_permit) = self.limits.admit(verb.mutates()) else {
            self.metrics.reject();
            let mut response = respond::text(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests, please try again later.\n",
            );
            response
                .headers_mut()
                .insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
            return response;
        };
        let done = self.perform(verb, target, query, headers, body);
        match tokio::time::timeout(timeout, done).await {
            Ok(Ok(response)) => response,
            Ok(Err(status)) => respond::status(&status),
            Err(_) => respond::status(&Status::request_timeout()),
        }
    }

    async fn perform<B>(
        &self,
        verb: Verb,
        target: &Target,
        query: &Query,
        headers: &HeaderMap,
        body: Pin<&mut B>,
    ) -> Result<Response<ResponseBody>, Status>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let key = ObjectKey::new(namespace, target.name.as_deref().unwrap_or_default());
        let body = if verb.mutates() {
            let body = limits::read_body(body).await?;
            if !body.is_empty() || verb != Verb::Delete {
                negotiate::check_content_type(headers)?;
            }
            body
        } else {
            Bytes::new()
        };
        let mut warnings = Vec::new();
        let mut response = match verb {
            Verb::Get => verbs::get::get(self, target, &key, query).await,
            Verb::List => verbs::list::list(self, target, query).await,
            Verb::Create => verbs::create::create(self, target, query, &body, &mut warnings).await,
            Verb::Update => {
                verbs::update::update(self, target, &key, query, &body, &mut warnings).await
            }
            Verb::Delete => verbs::delete::delete(self, target, &key, query, &body).await,
            Verb::Watch => Err(Status::method_not_allowed()),
        }
        .unwrap_or_else(|status| respond::status(&status));
        respond::warn(&mut response, &warnings); // W10: on failures too
        Ok(response)
    }

    /// W2, W3: the headers of every response.
    fn finish(
        &self,
        response: &mut Response<ResponseBody>,
        request: &HeaderMap,
        authenticated: bool,
    ) {
        respond::no_cache(response);
        const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
        let id = request.get(&AUDIT_ID).filter(|id| !id.is_empty()).cloned();
        let id = id.or_else(|| HeaderValue::from_str(&self.audit_ids.next().to_string()).ok());
        let headers = response.headers_mut();
        if let Some(id) = id {
            headers.insert(AUDIT_ID, id);
        }
        if authenticated {
            for (name, value) in &self.flow_headers {
                headers.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Ids that look random and are unique, without asking the system for random bytes at every request.
struct AuditIds {
    start: (u64, u64),
    count: AtomicU64,
}

impl AuditIds {
    fn new() -> AuditIds {
        AuditIds {
            start: Uuid::new_v4().as_u64_pair(),
            count: AtomicU64::new(0),
        }
    }

    fn next(&self) -> Uuid {
        // An odd factor maps different counts to different numbers, far from each other.
        let count = self
            .count
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (high, low) = (
            self.start.0 ^ count.rotate_left(32),
            self.start.1.wrapping_add(count),
        );
        uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
            .into_uuid()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut tasks) = self.tasks.lock() {
            tasks.abort_all();
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
