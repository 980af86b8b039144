//! What happens to one request: who asks, whether they may, what for, within which limits.

use std::pin::{Pin, pin};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use tidings_api::{ObjectKey, Status, go};

use super::{Api, Inner};
use crate::limits;
use crate::registry::KINDS;
use crate::request::{Query, Route, Target, Verb, route};
use crate::respond::{self, ResponseBody};
use crate::{auth, health, negotiate, verbs};

/// How long a request may take that is not a watch (W188).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

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

impl Inner {
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
