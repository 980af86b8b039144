//! What happens to one request: who asks, whether they may, what for, within which limits.

use std::pin::{Pin, pin};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use tidings_api::{Reason, Status, go, validate};

use super::{Api, Inner};
use crate::limits;
use crate::negotiate::{Input, Offer};
use crate::openapi::Document;
use crate::registry::Special;
use crate::request::{Query, Route, Target, Verb, route};
use crate::respond::backup::BackupBody;
use crate::respond::view::View;
use crate::respond::{self, Answer, Rendering, ResponseBody, warning};
use crate::verbs::Ask;
use crate::{auth, custom, discovery, health, negotiate, openapi, request, verbs};

/// How long a request may take that is not a watch (W188).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// What keeps caches up to date, empties namespaces, serves custom resources and collects garbage.
const TASKS: usize = 4;

impl Api {
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
        let path = parts.uri.path();
        let who = self.0.options.authentication.user(&parts.headers);
        let mut route = route(path, &self.0.served().kinds);
        let missing = matches!(route, Route::NoSuchPath | Route::NoSuchResource);
        if let (Ok(user), true) = (&who, missing) {
            let described = auth::method_verb(&parts.method, None);
            let may = auth::authorize(*user, &route, &described, path).is_ok();
            if may && self.0.comes_to_be_served(path).await {
                route = request::route(path, &self.0.served().kinds);
            }
        }
        let target = match &route {
            Route::Resource(target) => Some(target),
            _ => None,
        };
        let watch = query.get("watch").is_some_and(go::query_bool);
        let verb = target.map(|target| target.verb(&parts.method, watch));
        let known_verb = verb.as_ref().and_then(|verb| verb.as_ref().ok().copied());
        let authenticated = who.is_ok();
        let answered = match who {
            Err(status) => Err(status),
            Ok(user) => {
                let described = auth::method_verb(&parts.method, known_verb);
                match auth::authorize(user, &route, &described, parts.uri.path()) {
                    Err(status) => {
                        let format = negotiate::status_format(&parts.headers, &query);
                        Ok(respond::forbidden(&status, format))
                    }
                    Ok(()) => match (target, verb) {
                        (Some(target), Some(verb)) => match verb {
                            Ok(verb) => {
                                let asked = Asked {
                                    target,
                                    query: &query,
                                    headers: &parts.headers,
                                };
                                self.0.serve(verb, asked, body.as_mut()).await
                            }
                            Err(status) => Err(status),
                        },
                        _ => self.0.outside(&route, &parts, &query).await,
                    },
                }
            }
        };
        let mut response = answered.unwrap_or_else(|status| {
            let format = negotiate::status_format(&parts.headers, &query);
            respond::status(&status, format)
        });
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

/// A request of a resource, before its body is read.
#[derive(Clone, Copy)]
struct Asked<'a> {
    target: &'a Target,
    query: &'a Query,
    headers: &'a HeaderMap,
}

impl Inner {
    /// Everything that is not a resource.
    async fn outside(
        &self,
        route: &Route,
        parts: &Parts,
        query: &Query,
    ) -> Result<Response<ResponseBody>, Status> {
        let reads = parts.method == Method::GET
            || matches!(
                route,
                Route::Health(_) | Route::Root | Route::OpenApi(Document::V2)
            );
        match route {
            Route::NoSuchPath | Route::Resource(_) => Ok(respond::page_not_found()),
            Route::NoSuchResource => Err(Status::no_such_resource()),
            Route::NoSuchPart(resource, name) => Err(Status::not_found(*resource, name)),
            _ if !reads => Err(Status::method_not_allowed()),
            Route::Health(health) => {
                Ok(health::answer(health, query, &self.checks(health.endpoint)))
            }
            Route::Version => Ok(health::version()),
            Route::Discovery(page) => discovery::answer(page, &self.served(), parts, query),
            Route::OpenApi(document) => {
                openapi::answer(document, self.served(), parts, query).await
            }
            Route::Root => Ok(health::root()),
            Route::Backup => self.backup().await,
            Route::Metrics => {
                let served = self.served();
                let text = self.metrics.encode(
                    served.resources(),
                    self.store.stats(),
                    self.options.lost_log_lines.load(Ordering::Relaxed),
                    self.limits.in_flight(),
                );
                let mut response = respond::text(StatusCode::OK, text);
                let value = HeaderValue::from_static(
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                );
                response.headers_mut().insert(CONTENT_TYPE, value);
                Ok(response)
            }
        }
    }

    async fn backup(&self) -> Result<Response<ResponseBody>, Status> {
        if self.store.stats().remote.is_some() {
            let message = "the objects are kept in etcd: back it up with `etcdctl snapshot save FILE`, and restore it with \
                           `etcdutl snapshot restore`";
            return Err(Status::failure(501, Reason::MethodNotAllowed, message));
        }
        let body = BackupBody::start(self.store.clone(), self.now_ms()).await;
        let body = body.map_err(|error| self.store_failed(error))?;
        let mut response = Response::new(ResponseBody::backup(body));
        let value = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, value);
        Ok(response)
    }

    fn checks(&self, endpoint: &str) -> Vec<health::Check> {
        let served = self.served();
        let mut caches = served.resources().iter().map(|resource| &resource.cache);
        let empty = caches.any(|cache| cache.reached().is_none());
        let mut checks = vec![("ping", None), ("reflectors", self.dead_task())];
        // Upstream's name for the store. Only what a restart mends makes a server one that is not alive.
        let trouble = self.store.trouble();
        let trouble = trouble.filter(|trouble| endpoint != "livez" || trouble.needs_restart);
        checks.push(("etcd", trouble.map(|trouble| trouble.what)));
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
        if tasks.len() < TASKS {
            return Some("a task of the server has ended".to_owned());
        }
        let served = self.served();
        let dead = served.resources().iter().any(|resource| resource.is_dead());
        dead.then(|| "a cache is no longer filled".to_owned())
    }

    /// One request of a resource: admitted, timed, and done.
    async fn serve<B>(
        &self,
        verb: Verb,
        asked: Asked<'_>,
        body: Pin<&mut B>,
    ) -> Result<Response<ResponseBody>, Status>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let Asked {
            target,
            query,
            headers,
        } = asked;
        check_name(target)?;
        let offer = match verb {
            Verb::Watch => Offer::Events,
            _ => Offer::Objects,
        };
        let accepted = negotiate::accepted(headers, query, offer, target.kind.custom.is_none())?;
        let view = View::new(target.kind, accepted, query)?;
        if verb == Verb::Watch {
            let mut response = verbs::watch::watch(self, target, query, view).await?;
            warning::warn(&mut response, &target.kind.warning());
            return Ok(response);
        }
        let timeout = request_timeout(query)?;
        let Some(_permit) = self.limits.admit(verb.mutates()) else {
            self.metrics.reject();
            let mut response = respond::text(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests, please try again later.\n",
            );
            response
                .headers_mut()
                .insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
            return Ok(response);
        };
        let rendering = Rendering {
            view,
            gzip: negotiate::takes_gzip(headers),
        };
        let done = self.perform(verb, asked, rendering, body);
        tokio::time::timeout(timeout, done)
            .await
            .unwrap_or_else(|_| Err(Status::request_timeout()))
    }

    async fn perform<B>(
        &self,
        verb: Verb,
        asked: Asked<'_>,
        rendering: Rendering,
        body: Pin<&mut B>,
    ) -> Result<Response<ResponseBody>, Status>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let Asked {
            target,
            query,
            headers,
        } = asked;
        let mut ask = Ask::new(target, query, headers);
        ask.warnings.extend(target.kind.warning());
        if verb.mutates() {
            if matches!(verb, Verb::Create | Verb::Update) {
                ask.input = Input::of(headers)?;
            }
            ask.body = limits::read_body(body).await?;
            if matches!(verb, Verb::Delete | Verb::DeleteCollection) && !ask.body.is_empty() {
                ask.input = Input::of(headers)?;
            }
        }
        let answer = match verb {
            Verb::Get => verbs::get::get(self, &ask).await,
            Verb::List => verbs::list::list(self, &ask).await,
            Verb::Create => match target.kind.review {
                Some(review) => verbs::review::review(self, &mut ask, review),
                None => verbs::create::create(self, &mut ask).await,
            },
            Verb::Update => verbs::update::update(self, &mut ask).await,
            Verb::Delete => verbs::delete::delete(self, &mut ask).await,
            Verb::DeleteCollection => verbs::delete::delete_collection(self, &ask).await,
            Verb::Patch => verbs::patch::patch(self, &mut ask).await,
            Verb::Watch => Err(Status::method_not_allowed()),
        };
        if let Ok(Answer::Object(StatusCode::CREATED, object)) = &answer
            && target.kind.special == Special::Definition
        {
            ask.warnings.extend(custom::warnings(object));
        }
        let rendered = match answer {
            Ok(answer) => rendering.render(answer).await,
            Err(status) => Err(status),
        };
        if ask.warnings.is_empty() {
            return rendered;
        }
        // W10: on failures too.
        let mut response = rendered.unwrap_or_else(|status| {
            respond::status(&status, negotiate::status_format(headers, query))
        });
        warning::warn(&mut response, &ask.warnings);
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

/// W169: what can be no name.
fn check_name(target: &Target) -> Result<(), Status> {
    let name = target.name.as_deref().unwrap_or_default();
    match validate::path_segment(name).first() {
        Some(why) => Err(Status::bad_request(format!(
            "Name parameter invalid: {}: {why}",
            go::quote(name)
        ))),
        None => Ok(()),
    }
}

/// W23, W188: how long a request may take that is not a watch.
fn request_timeout(query: &Query) -> Result<Duration, Status> {
    let asked = query
        .get("timeout")
        .filter(|text| !text.is_empty())
        .map(go::parse_duration)
        .transpose()
        .map_err(|why| {
            Status::bad_request(format!(
                "invalid timeout specified in the request URL - {why}"
            ))
        })?;
    let asked = asked.filter(|timeout| !timeout.is_zero());
    Ok(asked.unwrap_or(REQUEST_TIMEOUT).min(REQUEST_TIMEOUT))
}
