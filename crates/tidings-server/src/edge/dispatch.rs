//! Handles one request: authenticates, routes and authorises it, negotiates the format, performs the command, and writes the response.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use tidings_access::{ANONYMOUS, ImpersonationRequest, User};
use tidings_api::{Reason, Status, validate};
use tidings_flow::Flow;
use tidings_go::{query_bool, quote};

use super::api::{Api, Edge, PeerAddress};
use super::audit::{AuditTrail, TrailHead};
use super::command::{SentBody, command};
use super::health::HealthCheck;
use super::metrics::CollectedFigures;
use super::negotiate::ResponseContent;
use super::request::{
    OpenApiDocument, Query, ResourceRequest, Route, Verb, custom_resource_names, route,
};
use super::request_info::RequestInfo;
use super::respond::view::ObjectView;
use super::respond::watch::error_event;
use super::respond::{self, Rendering, ResponseBody, warning};
use super::turns::Turn;
use super::{
    access_log, authenticate, body, discovery, health, negotiate, openapi, openid, options,
};
use crate::core::{Call, Command, Decider, FlowPermit, ServedSet, Target, WatchCommand};

/// The id of a request in its headers and in those of the response.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The uid of the flow schema of a request.
const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
/// The uid of its priority level.
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

impl Api {
    /// Answers one request. The future may be dropped: a write is then either complete or not done.
    pub fn handle<B>(&self, request: Request<B>) -> impl Future<Output = Response<ResponseBody>>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        // An async function would keep the request a second time.
        let (parts, body) = request.into_parts();
        self.0.handle(parts, body)
    }
}

/// An authorised request for a resource, without its body.
#[derive(Clone, Copy)]
struct RequestContext<'a> {
    request: &'a ResourceRequest,
    user: &'a Arc<User>,
    query: &'a Query,
    headers: &'a HeaderMap,
    trail: Option<&'a AuditTrail>,
}

impl RequestContext<'_> {
    fn call(&self) -> Call {
        let agent = self.headers.get(USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok());
        let manager = options::manager(self.query, agent.unwrap_or_default());
        let mut call = Call::new(self.request.target.clone(), self.user.clone(), manager);
        call.sent = options::sent(self.query);
        call
    }
}

impl Edge {
    async fn handle<B>(&self, parts: Parts, body: B) -> Response<ResponseBody>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let started = Instant::now();
        tracing::trace!(target: "tidings::walk", "authenticates and authorises the request");
        let mut body = pin!(body);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let id = self.audit_id(&parts.headers);
        let user = authenticate::user(
            &self.core,
            &parts.headers,
            &parts.extensions,
            parts.uri.path(),
        )
        .await;
        // As in kube-apiserver, where everybody may do everything nobody is anonymous.
        let user = user.and_then(|user| match self.core.access().knows_everybody(&user) {
            true => Ok(user),
            false => Err(Status::unauthorized()),
        });
        // Boxed: every request reserves space for it.
        let user = user.map_err(Box::new);
        let authenticated = user.as_ref().ok().cloned();
        if let (Some(user), Some(turn)) = (&authenticated, parts.extensions.get::<Turn>()) {
            turn.take_as(user);
        }
        let is_limited = authenticated.as_ref().is_some_and(|user| !user.is_master());
        let info = (is_limited || self.wants_info())
            .then(|| Box::new(RequestInfo::new(&parts.method, parts.uri.path(), &query)));
        let trail = self.trail(info.as_deref(), &id, &parts, authenticated.as_deref());
        let stored = match &trail {
            Some(trail) if authenticated.is_some() => Box::pin(trail.received()).await,
            _ => Ok(()),
        };
        let user = user.and_then(|user| stored.map(|()| user).map_err(Box::new));
        let access = self.core.access();
        let admit = |decider: &Decider<'_>| {
            self.admit(
                decider,
                &user,
                info.as_deref(),
                &parts,
                &query,
                trail.as_deref(),
            )
        };
        let admitted = match access.asks_webhook() {
            false => admit(&access.with(None)),
            // Boxed: every request would reserve space for what few need.
            true => Box::pin(access.decide(admit)).await,
        };
        let mut limited = self.limited(admitted.as_ref().ok(), info.as_deref());
        let (route, served) = self.route(parts.uri.path(), admitted.is_ok()).await;
        let request = match &route {
            Route::Resource(request) => Some(request),
            _ => None,
        };
        let watch = query.get("watch").is_some_and(query_bool);
        let verb = request.map(|request| request.verb(&parts.method, watch));
        let known_verb = verb.as_ref().and_then(|verb| verb.as_ref().ok().copied());
        let is_refused = match self.admission(&mut limited, known_verb) {
            Some(admission) => admission.await.is_none(),
            None => false,
        };
        let answered = match admitted {
            Err(RefusedRequest::Unknown(status)) => Err(*status),
            Err(RefusedRequest::Undecided(error)) => {
                Ok(respond::internal_server_error(&parts.uri, &error.0))
            }
            Err(RefusedRequest::Forbidden(status)) => {
                let format = negotiate::status_format(&parts.headers, &query);
                note_status(trail.as_deref(), &status);
                Ok(respond::forbidden(&status, format))
            }
            Ok(_) if is_refused => Ok(self.too_many_requests()),
            Ok(user) => match (request, verb) {
                (Some(request), Some(Ok(verb))) => {
                    let context = RequestContext {
                        request,
                        user: &user,
                        query: &query,
                        headers: &parts.headers,
                        trail: trail.as_deref(),
                    };
                    let is_limited = limited.is_some();
                    self.serve(verb, context, is_limited, body.as_mut()).await
                }
                (Some(_), Some(Err(status))) => Err(status),
                _ => {
                    let is_anonymous = user.name == ANONYMOUS;
                    self.serve_other(&route, &served, &parts, &query, is_anonymous)
                        .await
                }
            },
        };
        let mut response = answered.unwrap_or_else(|status| {
            let format = negotiate::status_format(&parts.headers, &query);
            note_status(trail.as_deref(), &status);
            respond::status(&status, format)
        });
        // The request may have been refused before its body was read; the client may still be sending it.
        body::drain(body).await;
        if parts.method == Method::HEAD {
            *response.body_mut() = ResponseBody::bytes(Bytes::new());
        }
        let flow = limited.as_ref().map(|limited| &limited.flow);
        self.finish(&mut response, id, authenticated.is_some(), flow);
        let code = response.status().as_u16();
        let target = request.map(|request| &request.target);
        self.metrics
            .request(target, known_verb, code, started.elapsed());
        if let Some(info) = &info {
            access_log::write(
                info,
                &parts,
                authenticated.as_deref(),
                &response,
                started.elapsed(),
            );
        }
        if let Some(trail) = trail {
            let is_long = info.is_some_and(|info| info.verb == "watch");
            let ended = self.end_trail(trail, is_long, authenticated.is_some(), &mut response);
            Box::pin(ended).await;
        }
        response
    }

    /// The user as whom a request is served, if that user may make it.
    fn admit(
        &self,
        decider: &Decider<'_>,
        user: &Result<Arc<User>, Box<Status>>,
        info: Option<&RequestInfo<'_>>,
        parts: &Parts,
        query: &Query,
        trail: Option<&AuditTrail>,
    ) -> Result<Arc<User>, RefusedRequest> {
        let user = user.clone();
        let user = user.map_err(RefusedRequest::Unknown)?;
        let wanted = authenticate::impersonation(&parts.headers);
        let wanted = wanted.map_err(RefusedRequest::forbidden)?;
        if wanted.is_none() && trail.is_none() && user.is_master() {
            return Ok(user);
        }
        let made;
        let info = match info {
            Some(info) => info,
            None => {
                made = RequestInfo::new(&parts.method, parts.uri.path(), query);
                &made
            }
        };
        authorize(decider, user, wanted, info, trail)
    }

    /// True if somebody wants to know what each request asks for.
    fn wants_info(&self) -> bool {
        self.audit.is_some() || access_log::is_on()
    }

    /// The trail of a request, if the audit log wants to know of it.
    fn trail(
        &self,
        info: Option<&RequestInfo<'_>>,
        id: &HeaderValue,
        parts: &Parts,
        user: Option<&User>,
    ) -> Option<Box<AuditTrail>> {
        let (log, info) = (self.audit.as_ref()?, info?);
        let source = parts.extensions.get::<PeerAddress>();
        let head = TrailHead {
            id: id.to_str().unwrap_or_default(),
            uri: parts
                .uri
                .path_and_query()
                .map_or_else(String::new, ToString::to_string),
            api_version: &info.api_version,
            headers: &parts.headers,
            source: source.map(|address| address.0.to_string()),
            user,
        };
        let nobody = User::default();
        let asked = info.attributes(user.unwrap_or(&nobody));
        AuditTrail::begin(log, head, &asked).map(Box::new)
    }

    /// Writes the last stages of a trail, or leaves that to the end of a body that is sent for long.
    async fn end_trail(
        &self,
        trail: Box<AuditTrail>,
        is_long: bool,
        is_known: bool,
        response: &mut Response<ResponseBody>,
    ) {
        trail.code(response.status().as_u16());
        if !is_known {
            return trail.unauthorized().await;
        }
        if is_long {
            trail.started().await;
        }
        match response.body().is_complete() {
            true => trail.complete().await,
            false => response.body_mut().at_end(trail),
        }
    }

    /// Finds the route of a path, in the served set that the request uses from here on. A path that is not found may belong to a definition
    /// that is about to be served, for which a request that is admitted waits.
    async fn route(&self, path: &str, is_admitted: bool) -> (Route, Arc<ServedSet>) {
        let served = self.core.served();
        let found = route(path, &served);
        if !matches!(found, Route::NoSuchPath | Route::NoSuchResource) {
            return (found, served);
        }
        if is_admitted
            && let Some((group, version, plurals)) = custom_resource_names(path)
            && let plurals = plurals.iter().map(String::as_str).collect::<Vec<_>>()
            && Box::pin(self.core.wait_until_served(&group, &version, &plurals)).await
        {
            let served = self.core.served();
            return (route(path, &served), served);
        }
        (found, served)
    }

    /// Serves the routes that are not resources.
    async fn serve_other(
        &self,
        route: &Route,
        served: &Arc<ServedSet>,
        parts: &Parts,
        query: &Query,
        is_anonymous: bool,
    ) -> Result<Response<ResponseBody>, Status> {
        let reads = parts.method == Method::GET
            || matches!(
                route,
                Route::Health(_) | Route::Root | Route::OpenApi(OpenApiDocument::V2)
            );
        match route {
            Route::NoSuchPath | Route::Resource(_) => Ok(respond::page_not_found()),
            Route::NoSuchResource => Err(Status::no_such_resource()),
            Route::NoSuchSubresource(kind, name) => {
                Err(Status::not_found(kind.group_resource(), name))
            }
            _ if !reads => Err(Status::method_not_allowed()),
            Route::Health(health) => {
                let mut checks = self.health_checks(served, health.endpoint);
                if is_anonymous {
                    health::withhold(&mut checks);
                }
                Ok(health::answer(health, query, &checks))
            }
            Route::Version => Ok(health::version()),
            Route::Discovery(page) => {
                let documents = self.documents(served);
                discovery::answer(page, &served.catalog, &documents.discovery, parts, query)
            }
            Route::OpenApi(document) => {
                let pages = self.documents(served).openapi.clone();
                openapi::answer(document, served.clone(), pages, parts, query).await
            }
            Route::Root => Ok(health::root()),
            Route::OpenId(document) => openid::answer(*document, self.core.service_accounts()),
            Route::Backup => self.backup().await,
            Route::Metrics => Ok(self.encode_metrics(served)),
        }
    }

    fn encode_metrics(&self, served: &ServedSet) -> Response<ResponseBody> {
        let text = self.metrics.encode(&CollectedFigures {
            resources: served.resources(),
            store: self.core.store_stats(),
            lost_log_lines: self.lost_log_lines.load(Ordering::Relaxed),
            inflight: self.in_flight.in_flight(),
            garbage: &self.controllers.garbage,
            audit: self.audit.as_ref().map(|audit| audit.figures()),
            flows: self.core.flow_control().map(|control| control.figures()),
            refused_watches: self.core.watches().refused(),
            admission: self.core.admission().counts(),
            conversions: self.core.conversion_counts(),
        });
        let mut response = respond::text(StatusCode::OK, text);
        let value =
            HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, value);
        response
    }

    async fn backup(&self) -> Result<Response<ResponseBody>, Status> {
        if self.core.store_stats().remote.is_some() {
            let message = "the objects are kept in etcd: back it up with `etcdctl snapshot save FILE`, and restore it with \
                           `etcdutl snapshot restore`";
            return Err(Status::failure(501, Reason::MethodNotAllowed, message));
        }
        let mut response = Response::new(ResponseBody::backup(self.core.backup().await?));
        let value = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, value);
        Ok(response)
    }

    fn health_checks(&self, served: &ServedSet, endpoint: &str) -> Vec<HealthCheck> {
        let resources = served.resources();
        let mut checks = vec![("ping", None)];
        // The tasks of the controllers and caches end only if they panic.
        let dead = if self.controllers.is_dead() {
            Some("a controller has stopped: restart the server".to_owned())
        } else {
            let dead = resources.iter().any(|resource| resource.is_dead());
            dead.then(|| "a watch cache is no longer updated: restart the server".to_owned())
        };
        checks.push(("reflectors", dead));
        // kube-apiserver calls the check of its store `etcd`. /livez fails only if a restart would help.
        let trouble = self.core.store_trouble();
        let trouble = trouble.filter(|trouble| endpoint != "livez" || trouble.needs_restart);
        checks.push(("etcd", trouble.map(|trouble| trouble.what)));
        if endpoint == "readyz" {
            let mut caches = resources.iter().map(|resource| resource.cache());
            let empty = caches.any(|cache| cache.reached().is_none());
            let empty = empty.then(|| "a watch cache is not filled yet".to_owned());
            checks.push(("watch-cache", empty));
            let stopping = *self.core.stopping().borrow();
            let stopping = stopping.then(|| "the server is shutting down".to_owned());
            checks.push(("shutdown", stopping));
        }
        checks
    }

    /// Serves a request for a resource, within the limits of requests in flight and of time.
    async fn serve<B>(
        &self,
        verb: Verb,
        context: RequestContext<'_>,
        is_limited: bool,
        body: Pin<&mut B>,
    ) -> Result<Response<ResponseBody>, Status>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let RequestContext {
            request,
            query,
            headers,
            ..
        } = context;
        let target = &request.target;
        check_name(target)?;
        let offer = match verb {
            Verb::Watch => ResponseContent::Events,
            _ => ResponseContent::Objects,
        };
        let has_messages = target.kind.schema.is_some();
        let accepted = negotiate::accepted(headers, query, offer, has_messages)?;
        let view = ObjectView::new(target.kind.clone(), accepted, query)?;
        let rendering = Rendering {
            view,
            gzip: negotiate::takes_gzip(headers),
        };
        if verb == Verb::Watch {
            let mut response = self.watch(context, rendering).await?;
            warning::warn(&mut response, &kind_warning(target));
            return Ok(response);
        }
        let timeout = options::request_timeout(query)?;
        // Those that wait in fair queues have their seat already.
        let permit = (!is_limited).then(|| self.in_flight.admit(verb.mutates()));
        if let Some(None) = permit {
            return Ok(self.too_many_requests());
        }
        // Pinned here, because a future that is moved into the timeout takes its space twice.
        let done = pin!(self.perform(verb, context, rendering, body));
        tokio::time::timeout(timeout, done)
            .await
            .unwrap_or_else(|_| Err(Status::request_timeout()))
    }

    async fn watch(
        &self,
        context: RequestContext<'_>,
        rendering: Rendering,
    ) -> Result<Response<ResponseBody>, Status> {
        let list = options::list_command(context.request, context.query)?;
        let command = WatchCommand::new(list)?;
        let format = rendering.view.format;
        if command.is_over() {
            return Ok(respond::events(format, ResponseBody::bytes(Bytes::new())));
        }
        let permit = self.core.watches().open(context.user);
        let permit = permit.map_err(|why| Status::too_many_requests(why, 1))?;
        let command = command.permitted(permit);
        let mut call = context.call();
        match self.core.perform(&mut call, Command::Watch(command)).await {
            Ok(answer) => rendering.render(answer).await,
            // From here on failures are sent as ERROR events (W96).
            Err(status) => {
                let event = ResponseBody::bytes(error_event(&status, format));
                Ok(respond::events(format, event))
            }
        }
    }

    async fn perform<B>(
        &self,
        verb: Verb,
        context: RequestContext<'_>,
        rendering: Rendering,
        body: Pin<&mut B>,
    ) -> Result<Response<ResponseBody>, Status>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let RequestContext {
            request,
            query,
            headers,
            trail,
            ..
        } = context;
        let mut call = context.call();
        call.warnings.extend(kind_warning(&call.target));
        let sent = SentBody::read(verb, headers, body).await?;
        if let Some(trail) = trail {
            sent.note(trail, verb, request);
        }
        let answer = match command(verb, request, query, headers, &sent) {
            Ok(command) => self.core.perform(&mut call, command).await,
            Err(status) => Err(status),
        };
        if let Some(trail) = trail {
            call.notes
                .drain(..)
                .for_each(|(name, text)| trail.annotate(&name, &text));
        }
        let rendered = match (answer, trail) {
            (Ok(answer), None) => rendering.render(answer).await,
            (Ok(answer), Some(trail)) => Box::pin(rendering.render_noted(answer, trail)).await,
            (Err(status), _) => Err(status),
        };
        if call.warnings.is_empty() {
            return rendered;
        }
        // Failures carry warnings too (W10).
        let mut response = rendered.unwrap_or_else(|status| {
            note_status(trail, &status);
            respond::status(&status, negotiate::status_format(headers, query))
        });
        warning::warn(&mut response, &call.warnings);
        Ok(response)
    }

    /// The id of a request: the client's, or a new one.
    fn audit_id(&self, request: &HeaderMap) -> HeaderValue {
        let id = request.get(&AUDIT_ID).filter(|id| !id.is_empty()).cloned();
        let new = || HeaderValue::from_str(&self.audit_ids.next().to_string());
        id.or_else(|| new().ok())
            .unwrap_or(HeaderValue::from_static(""))
    }

    fn too_many_requests(&self) -> Response<ResponseBody> {
        self.metrics.reject();
        let mut response = respond::text(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests, please try again later.\n",
        );
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    /// The flow of a request of a user. `None` if it is not limited, as those of administrators.
    fn limited(
        &self,
        user: Option<&Arc<User>>,
        info: Option<&RequestInfo<'_>>,
    ) -> Option<Box<LimitedRequest>> {
        let (control, user) = (self.core.flow_control()?, user?);
        if user.is_master() {
            return None;
        }
        let flow = control.flow(&info?.attributes(user))?;
        Some(Box::new(LimitedRequest { flow, permit: None }))
    }

    /// Waits until a request of a flow may run. Watches do not wait. Boxed: every request reserves space for it.
    fn admission<'a>(
        &'a self,
        limited: &'a mut Option<Box<LimitedRequest>>,
        verb: Option<Verb>,
    ) -> Option<Pin<Box<dyn Future<Output = Option<()>> + Send + 'a>>> {
        let (control, limited) = (self.core.flow_control()?, limited.as_mut()?);
        let is_long = verb == Some(Verb::Watch);
        let admission = async move {
            limited.permit = Some(control.admit(&limited.flow).await?);
            Some(())
        };
        (!is_long).then(|| Box::pin(admission) as _)
    }

    /// Adds the headers of every response (W2, W3).
    fn finish(
        &self,
        response: &mut Response<ResponseBody>,
        id: HeaderValue,
        authenticated: bool,
        flow: Option<&Flow>,
    ) {
        respond::no_cache(response);
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, id);
        if authenticated {
            let ids = self.core.flow_control().map(|control| control.ids(flow));
            let ids = ids.as_ref().unwrap_or(&self.flow_ids);
            for (name, uid) in [(FLOW_SCHEMA, &ids.schema), (PRIORITY_LEVEL, &ids.level)] {
                if let Ok(uid) = HeaderValue::from_str(uid) {
                    headers.insert(name, uid);
                }
            }
        }
    }
}

/// The user as whom a request is served: the one who asks, or whom they act as.
fn authorize(
    decider: &Decider<'_>,
    user: Arc<User>,
    wanted: Option<ImpersonationRequest>,
    info: &RequestInfo<'_>,
    trail: Option<&AuditTrail>,
) -> Result<Arc<User>, RefusedRequest> {
    let user = match wanted {
        Some(wanted) => {
            let impersonated = decider.impersonate(&wanted, &info.attributes(&user));
            let impersonated = impersonated.map_err(RefusedRequest::forbidden)?;
            if let Some(trail) = trail {
                trail.impersonated(&impersonated.user, &impersonated.constraint);
            }
            Arc::new(impersonated.user)
        }
        None => user,
    };
    let asked = info.attributes(&user);
    if trail.is_none() && decider.allows(&asked) {
        return Ok(user);
    }
    let verdict = decider.authorize(&asked);
    if let Some(trail) = trail {
        trail.decided(&verdict);
    }
    match (verdict.is_allowed(), verdict.error.is_empty()) {
        (true, _) => Ok(user),
        (false, true) => Err(RefusedRequest::forbidden(asked.forbidden(&verdict.reason))),
        (false, false) => Err(RefusedRequest::Undecided(Box::new(AccessFailure(
            verdict.error,
        )))),
    }
}

/// Notes the failure that a request is answered with.
fn note_status(trail: Option<&AuditTrail>, status: &Status) {
    let Some(trail) = trail else { return };
    trail.status(status, status.code);
    if trail.wants_response() {
        trail.answered(&status.to_json());
    }
}

/// What went wrong while it was decided whether a request is allowed.
struct AccessFailure(String);

/// A request of a flow, and its permit to run when it has got one.
struct LimitedRequest {
    flow: Flow,
    permit: Option<FlowPermit>,
}

/// Why a request is not served. Boxed: every request reserves space for it.
enum RefusedRequest {
    /// Nobody knows who asks, or the audit log cannot tell it.
    Unknown(Box<Status>),
    /// Who asks may not.
    Forbidden(Box<Status>),
    /// It was not decided whether they may.
    Undecided(Box<AccessFailure>),
}

impl RefusedRequest {
    fn forbidden(status: Status) -> RefusedRequest {
        RefusedRequest::Forbidden(Box::new(status))
    }
}

fn kind_warning(target: &Target) -> Vec<String> {
    let warning = Some(&*target.kind.warning).filter(|text| !text.is_empty());
    warning.map(ToOwned::to_owned).into_iter().collect()
}

/// Refuses a name in the path that no object can have (W169).
fn check_name(target: &Target) -> Result<(), Status> {
    let name = target.name().unwrap_or_default();
    match validate::path_segment(name).first() {
        Some(why) => Err(Status::bad_request(format!(
            "Name parameter invalid: {}: {why}",
            quote(name)
        ))),
        None => Ok(()),
    }
}
