//! Sends requests, with retries, a rate limit and timeouts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, request};
use kube::client::Body;
use tidings_informer::SourceError;
use tokio::time::{sleep, timeout};

use crate::failure::{TimedOut, UnansweredRequest, after, is_lost_connection, is_overload};
use crate::limiter::RequestLimiter;
use crate::observe::{ObservedClient, RequestObserver};
use crate::resource::JSON;
use crate::response::{failure, retry_after};
use crate::warning::{Warning, WarningHandler, logs_once, warnings};

/// The default number of retries.
const RETRIES: u32 = 10;

/// The longest `Retry-After` that is waited for here. For a longer one the caller gets the error, which has the time.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The wait before a request is retried after its connection was lost.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// How long a request other than a watch may be without a response. Servers end such requests after a minute.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);

/// The compression of response bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// No compression. Within a data center this is faster.
    #[default]
    None,
    /// Gzip, if the server supports it.
    Gzip,
}

impl Compression {
    fn accept_encoding(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Compression::None => "identity",
            Compression::Gzip => "gzip",
        })
    }
}

/// Sends requests to an API server: client-go's RESTClient over a [`kube::Client`]. Clones are cheap and share the connections.
///
/// A request other than a watch is retried up to [`RestClient::retries`] times, if
/// * the server answers 429 or 5xx with `Retry-After` of up to a minute,
/// * it is a GET and the connection was lost before an answer came.
///
/// A watch is sent once and does not wait for the rate limiter: the reflector resumes watches, and must see their errors. For
/// this reason the `kube::Client` must not retry by itself. [`RestClient::from_config`] configures it so. If you make the client,
/// set `Config::default_retry` to false, and `Config::disable_compression` to true if kube is built with its feature `gzip`,
/// which reads only the first gzip member of a body.
#[derive(Clone)]
pub struct RestClient {
    client: kube::Client,
    /// What the requests of this client are sent through, if they are observed. `client` is the same for `kube::Api`: a `kube::Client` passes
    /// each request through a queue to a task of its own, and one of those is enough.
    observed: Option<ObservedClient>,
    options: Arc<ClientOptions>,
}

/// The options of a [`RestClient`].
#[derive(Clone)]
struct ClientOptions {
    user_agent: HeaderValue,
    limiter: Option<RequestLimiter>,
    on_warning: WarningHandler,
    compression: Compression,
    retries: u32,
    timeout: Option<Duration>,
}

impl RestClient {
    /// A client over a `kube::Client`, which must not retry by itself.
    pub fn new(client: kube::Client) -> RestClient {
        let user_agent = concat!("tidings/", env!("CARGO_PKG_VERSION"));
        RestClient {
            client,
            observed: None,
            options: Arc::new(ClientOptions {
                user_agent: HeaderValue::from_static(user_agent),
                limiter: None,
                on_warning: logs_once(),
                compression: Compression::default(),
                retries: RETRIES,
                timeout: None,
            }),
        }
    }

    /// A client from a configuration, without kube's retries and compression.
    ///
    /// # Errors
    /// If the configuration is invalid, or needs a feature of kube that the program was built without.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[allow(clippy::result_large_err)] // kube's error type
    pub fn from_config(mut config: kube::Config) -> Result<RestClient, kube::Error> {
        config.default_retry = false;
        config.disable_compression = true;
        kube::Client::try_from(config).map(RestClient::new)
    }

    /// Sets the user agent; the default is `tidings/<version>`. Characters that a header cannot have become question marks.
    #[must_use]
    pub fn user_agent(self, agent: &str) -> RestClient {
        let sendable = |character| match character {
            ' '..='~' => character,
            _ => '?',
        };
        let agent: String = agent.chars().map(sendable).collect();
        self.with(|options| {
            if let Ok(agent) = HeaderValue::from_str(&agent) {
                options.user_agent = agent;
            }
        })
    }

    /// Sets a rate limiter. Watches do not count and never wait.
    #[must_use]
    pub fn rate_limiter(self, limiter: RequestLimiter) -> RestClient {
        self.with(|options| options.limiter = Some(limiter))
    }

    /// Sets a function that is called with every warning of the server, instead of logging each text once. It runs in the task of
    /// the request and must not block.
    #[must_use]
    pub fn warning_handler(self, handler: impl Fn(&Warning) + Send + Sync + 'static) -> RestClient {
        self.with(|options| options.on_warning = Arc::new(handler))
    }

    /// Sets the compression of response bodies; the default is none.
    #[must_use]
    pub fn compression(self, compression: Compression) -> RestClient {
        self.with(|options| options.compression = compression)
    }

    /// Sets how often a request is retried; the default is ten times.
    #[must_use]
    pub fn retries(self, retries: u32) -> RestClient {
        self.with(|options| options.retries = retries)
    }

    /// Sets how long a request other than a watch may take until its response starts, including retries and the wait for the rate
    /// limiter. There is no limit by default.
    #[must_use]
    pub fn timeout(self, longest: Duration) -> RestClient {
        self.with(|options| options.timeout = Some(longest))
    }

    /// A client whose requests an observer sees, those through [`RestClient::kube`] too.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn RequestObserver>) -> RestClient {
        let client = self.client;
        let observed = ObservedClient { client, observer };
        self.client = observed.clone().into_kube();
        self.observed = Some(observed);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut ClientOptions)) -> RestClient {
        change(Arc::make_mut(&mut self.options));
        self
    }

    /// The underlying client, for requests other than list and watch.
    pub fn kube(&self) -> &kube::Client {
        &self.client
    }

    /// Sends a request and waits for the head of its response. The default `Accept` is JSON.
    ///
    /// Dropping the future cancels the request.
    ///
    /// # Errors
    /// If there is no response, or it is not a success.
    pub async fn request(&self, request: Request<Bytes>) -> Result<Response<Body>, SourceError> {
        let (mut head, body) = request.into_parts();
        let headers = &mut head.headers;
        let mut default = |name, value: &dyn Fn() -> HeaderValue| {
            headers.entry(name).or_insert_with(value);
        };
        default(ACCEPT, &|| JSON);
        default(ACCEPT_ENCODING, &|| {
            self.options.compression.accept_encoding()
        });
        default(USER_AGENT, &|| self.options.user_agent.clone());
        if !body.is_empty() {
            default(CONTENT_TYPE, &|| JSON);
        }
        if is_watch(&head) {
            let (error, _) = match self.attempt(&head, &body).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            return Err(error);
        }
        let attempts = self.attempts(&head, &body);
        match self.options.timeout {
            None => attempts.await,
            Some(longest) => match timeout(longest, attempts).await {
                Ok(outcome) => outcome,
                // The error names the timeout, whatever the request was waiting for (B130).
                Err(_) => Err(unanswered(&head, TimedOut(longest))),
            },
        }
    }

    async fn attempts(
        &self,
        head: &request::Parts,
        body: &Bytes,
    ) -> Result<Response<Body>, SourceError> {
        let mut left = self.options.retries;
        let mut previous = None;
        loop {
            if let Some(limiter) = &self.options.limiter {
                limiter.acquire().await;
            }
            let attempt = self.attempt(head, body);
            let attempt = timeout(SILENCE_MAX, attempt).await;
            let attempt =
                attempt.unwrap_or_else(|_| Err((unanswered(head, TimedOut(SILENCE_MAX)), None)));
            let (error, wait) = match attempt {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            match wait {
                Some(wait) if left > 0 && wait <= RETRY_AFTER_MAX => {
                    left -= 1;
                    tracing::debug!(
                        request = attempted(head),
                        error = error.story(),
                        ?wait,
                        "a request failed and is retried"
                    );
                    previous = Some(error);
                    sleep(wait).await;
                }
                _ => return Err(after(error, previous.as_ref())),
            }
        }
    }

    /// Sends once. An error comes with the wait before a retry, if a retry makes sense.
    async fn attempt(
        &self,
        head: &request::Parts,
        body: &Bytes,
    ) -> Result<Response<Body>, (SourceError, Option<Duration>)> {
        let request = Request::from_parts(head.clone(), Body::from(body.clone()));
        let sent = match &self.observed {
            Some(observed) => observed.send(request).await,
            None => self.client.send(request).await,
        };
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                let again = head.method == Method::GET && is_lost_connection(&error);
                return Err((unanswered(head, error), again.then_some(RECONNECT_AFTER)));
            }
        };
        for warning in warnings(response.headers()) {
            (self.options.on_warning)(&warning);
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let again = is_overload(response.status());
        let wait = retry_after(response.headers()).filter(|_| again);
        let status = failure(response, &attempted(head)).await;
        // No retries for a version that the server has not reached: the reflector must list at another version.
        let wait = wait.filter(|_| !status.is_too_large_resource_version());
        Err((status.into(), wait))
    }
}

fn attempted(head: &request::Parts) -> String {
    format!("{} {}", head.method, head.uri.path())
}

fn unanswered(
    head: &request::Parts,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> SourceError {
    SourceError::transport(UnansweredRequest {
        method: head.method.clone(),
        path: head.uri.path().to_owned(),
        cause: cause.into(),
    })
}

fn is_watch(head: &request::Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    head.method == Method::GET
        && form_urlencoded::parse(query.as_bytes())
            .any(|(name, value)| name == "watch" && matches!(&*value, "true" | "1"))
}

impl fmt::Debug for RestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestClient")
            .field("user_agent", &self.options.user_agent)
            .field("limiter", &self.options.limiter)
            .field("compression", &self.options.compression)
            .field("retries", &self.options.retries)
            .field("timeout", &self.options.timeout)
            .finish_non_exhaustive()
    }
}
