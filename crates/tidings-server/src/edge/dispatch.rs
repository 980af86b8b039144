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
use tidings_access::User;
use tidings_api::{Reason, Status, validate};
use tidings_go::{query_bool, quote};
use tidings_registry::{unhandled, unrecognized};
use tidings_schema::Type;

use super::api::{Api, Edge};
use super::health::HealthCheck;
use super::negotiate::{BodyFormat, PatchFormat, ResponseContent, UnreadableBody};
use super::request::{
    OpenApiDocument, Query, ResourceRequest, Route, Verb, custom_resource_names, route,
};
use super::request_info::RequestInfo;
use super::respond::view::ObjectView;
use super::respond::watch::error_event;
use super::respond::{self, Rendering, ResponseBody, warning};
use super::{authenticate, body, discovery, health, negotiate, openapi, openid, options};
use crate::core::{Call, Command, ServedSet, Target, WatchCommand, parse_version};

impl Api {
    /// Answers one request. The future may be dropped: a write is then either complete or not done.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        self.0.handle(request).await
    }
}

/// An authorised request for a resource, without its body.
#[derive(Clone, Copy)]
struct RequestContext<'a> {
    request: &'a ResourceRequest,
    user: &'a Arc<User>,
    query: &'a Query,
    headers: &'a HeaderMap,
}

impl RequestContext<'_> {
    fn call(&self) -> Call {
        let agent = self.headers.get(USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok());
        let manager = options::manager(self.query, agent.unwrap_or_default());
        Call::new(self.request.target.clone(), self.user.clone(), manager)
    }
}

impl Edge {
    async fn handle<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let started = Instant::now();
        tracing::trace!(target: "tidings::walk", "authenticates and authorises the request");
        let (parts, body) = request.into_parts();
        let mut body = pin!(body);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let access = self.core.access();
        let user = authenticate::user(&self.core, &parts.headers, &parts.extensions).await;
        // As in kube-apiserver, where everybody may do everything nobody is anonymous.
        let user = user.and_then(|user| match access.knows_everybody(&user) {
            true => Ok(user),
            false => Err(Status::unauthorized()),
        });
        let authenticated = user.is_ok();
        let admitted = user
            .map_err(|status| RefusedRequest::Unauthorized(Box::new(status)))
            .and_then(|user| self.admit(user, &parts, &query));
        let (route, served) = self.route(parts.uri.path(), admitted.is_ok()).await;
        let request = match &route {
            Route::Resource(request) => Some(request),
            _ => None,
        };
        let watch = query.get("watch").is_some_and(query_bool);
        let verb = request.map(|request| request.verb(&parts.method, watch));
        let known_verb = verb.as_ref().and_then(|verb| verb.as_ref().ok().copied());
        let answered = match admitted {
            Err(RefusedRequest::Unauthorized(status)) => Err(*status),
            Err(RefusedRequest::Forbidden(status)) => {
                let format = negotiate::status_format(&parts.headers, &query);
                Ok(respond::forbidden(&status, format))
            }
            Ok(user) => match (request, verb) {
                (Some(request), Some(Ok(verb))) => {
                    let context = RequestContext {
                        request,
                        user: &user,
                        query: &query,
                        headers: &parts.headers,
                    };
                    self.serve(verb, context, body.as_mut()).await
                }
                (Some(_), Some(Err(status))) => Err(status),
                _ => self.serve_other(&route, &served, &parts, &query).await,
            },
        };
        let mut response = answered.unwrap_or_else(|status| {
            let format = negotiate::status_format(&parts.headers, &query);
            respond::status(&status, format)
        });
        // The request may have been refused before its body was read; the client may still be sending it.
        body::drain(body).await;
        if parts.method == Method::HEAD {
            *response.body_mut() = ResponseBody::bytes(Bytes::new());
        }
        self.finish(&mut response, &parts.headers, authenticated);
        self.metrics.request(
            request.map(|request| &request.target),
            known_verb,
            response.status().as_u16(),
            started.elapsed(),
        );
        response
    }

    /// The user as whom a request is served, if that user may make it.
    fn admit(
        &self,
        user: Arc<User>,
        parts: &Parts,
        query: &Query,
    ) -> Result<Arc<User>, RefusedRequest> {
        let wanted = authenticate::impersonation(&parts.headers);
        let wanted = wanted.map_err(RefusedRequest::forbidden)?;
        if wanted.is_none() && user.is_master() {
            return Ok(user);
        }
        let (access, info) = (
            self.core.access(),
            RequestInfo::new(&parts.method, parts.uri.path(), query),
        );
        let user = match wanted {
            Some(wanted) => access.impersonate(&wanted, &info.attributes(&user)),
            None => Ok(user),
        };
        let checked = user.and_then(|user| {
            access.check(&info.attributes(&user))?;
            Ok(user)
        });
        checked.map_err(RefusedRequest::forbidden)
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
            && self
                .core
                .wait_until_served(&group, &version, &plurals)
                .await
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
                let checks = self.health_checks(served, health.endpoint);
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
        let text = self.metrics.encode(
            served.resources(),
            self.core.store_stats(),
            self.lost_log_lines.load(Ordering::Relaxed),
            self.in_flight.in_flight(),
            &self.controllers.garbage,
        );
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
        let Some(_permit) = self.in_flight.admit(verb.mutates()) else {
            self.metrics.reject();
            let mut response = respond::text(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests, please try again later.\n",
            );
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Ok(response);
        };
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
        let RequestContext { query, headers, .. } = context;
        let mut call = context.call();
        call.warnings.extend(kind_warning(&call.target));
        let sent = SentBody::read(verb, headers, body).await?;
        let answer = match command(verb, context, &sent) {
            Ok(command) => self.core.perform(&mut call, command).await,
            Err(status) => Err(status),
        };
        let rendered = match answer {
            Ok(answer) => rendering.render(answer).await,
            Err(status) => Err(status),
        };
        if call.warnings.is_empty() {
            return rendered;
        }
        // Failures carry warnings too (W10).
        let mut response = rendered.unwrap_or_else(|status| {
            respond::status(&status, negotiate::status_format(headers, query))
        });
        warning::warn(&mut response, &call.warnings);
        Ok(response)
    }

    /// Adds the headers of every response (W2, W3).
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

/// Why a request is not served. Boxed: every request reserves space for it.
enum RefusedRequest {
    /// Nobody knows who asks.
    Unauthorized(Box<Status>),
    /// Who asks may not.
    Forbidden(Box<Status>),
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

/// The body of a request, and its format.
struct SentBody {
    bytes: Bytes,
    format: BodyFormat,
}

impl SentBody {
    async fn read<B>(verb: Verb, headers: &HeaderMap, body: Pin<&mut B>) -> Result<SentBody, Status>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let mut sent = SentBody {
            bytes: Bytes::new(),
            format: BodyFormat::default(),
        };
        if !verb.mutates() {
            return Ok(sent);
        }
        if matches!(verb, Verb::Create | Verb::Update) {
            sent.format = BodyFormat::of(headers)?;
        }
        sent.bytes = body::read_body(body).await?;
        let deletes = matches!(verb, Verb::Delete | Verb::DeleteCollection);
        if deletes && !sent.bytes.is_empty() {
            sent.format = BodyFormat::of(headers)?;
        }
        Ok(sent)
    }

    /// The body as the JSON of an object.
    fn object(&self, target: &Target) -> Result<Bytes, Status> {
        let expected = &target.kind.kind;
        let json = self.format.to_json(&self.bytes, target.kind.schema);
        json.map_err(|unreadable| match unreadable {
            UnreadableBody::Unrecognized(why) => unrecognized(expected, why),
            UnreadableBody::Unhandled { kind, version, why } => {
                unhandled(&kind, &version, expected, why)
            }
        })
    }

    /// The body as the JSON of `DeleteOptions`; `None` if it is empty.
    fn delete_options(&self) -> Result<Option<Bytes>, Status> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let expected: Option<&'static Type> = tidings_schema::find("", "v1", "DeleteOptions");
        match self.format.to_json(&self.bytes, expected) {
            Ok(json) => Ok(Some(json)),
            Err(UnreadableBody::Unrecognized(why) | UnreadableBody::Unhandled { why, .. }) => {
                Err(Status::bad_request(why))
            }
        }
    }
}

/// The command for a request. Options are checked before bodies, as in kube-apiserver.
fn command(verb: Verb, context: RequestContext<'_>, sent: &SentBody) -> Result<Command, Status> {
    let RequestContext {
        request,
        query,
        headers,
        ..
    } = context;
    let target = &request.target;
    match verb {
        Verb::Get => {
            if query.get("export").is_some_and(query_bool) {
                let gone = "the export parameter, deprecated since v1.14, is no longer supported";
                return Err(Status::bad_request(gone));
            }
            let version = query.get("resourceVersion").filter(|text| !text.is_empty());
            Ok(Command::Get(version.map(parse_version).transpose()?))
        }
        Verb::List => Ok(Command::List(options::list_command(request, query)?)),
        Verb::Create => {
            let options = options::write_options(query, "CreateOptions")?;
            let body = sent.object(target)?;
            Ok(match target.kind.review {
                Some(review) => Command::Review {
                    review,
                    options,
                    body,
                },
                None => Command::Create { options, body },
            })
        }
        Verb::Update => Ok(Command::Update {
            options: options::write_options(query, "UpdateOptions")?,
            body: sent.object(target)?,
        }),
        Verb::Patch => {
            let body = sent.bytes.clone();
            Ok(match negotiate::patch_format(headers, &target.kind)? {
                PatchFormat::Apply => {
                    let (options, force) = options::apply_options(query)?;
                    Command::Apply {
                        options,
                        force,
                        body,
                    }
                }
                PatchFormat::Patch(patch_type) => Command::Patch {
                    patch_type,
                    options: options::patch_options(query)?,
                    body,
                },
            })
        }
        Verb::Delete => {
            let body = sent.delete_options()?;
            let options = options::delete_options(query, body.as_ref())?;
            Ok(Command::Delete(options))
        }
        Verb::DeleteCollection => {
            let body = sent.delete_options()?;
            let options = options::delete_options(query, body.as_ref())?;
            let list = options::list_command(request, query)?;
            Ok(Command::DeleteCollection(options, list))
        }
        Verb::Watch => Err(Status::method_not_allowed()),
    }
}
