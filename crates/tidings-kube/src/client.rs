//! Sends requests, and sends them again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, request};
use kube::client::Body;
use tidings_informer::SourceError;
use tokio::time::{sleep, timeout};

use crate::failure::{TimedOut, Unanswered, after, is_lost_connection, is_overload};
use crate::limiter::RateLimiter;
use crate::resource::JSON;
use crate::response::{failure, retry_after};
use crate::warning::{Warning, WarningHandler, logs_once, warnings};

const RETRIES: u32 = 10;

/// What the server asks to wait longer is not waited for here: whoever asked gets the error, which says how long, and can show
/// it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Before a lost connection is tried again.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// A server ends a request that is no watch after a minute. If nothing has come after two, nobody is there.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);

/// How bodies travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// As they are. Within a data centre this is faster.
    #[default]
    None,
    /// Compressed, where the server likes to.
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
/// A request other than a watch is sent again, up to [`RestClient::retries`] times, if
/// * the server answers 429 or 5xx and says when to come again (`Retry-After`, up to a minute),
/// * it is a GET and the connection went away before an answer came.
///
/// A watch is sent once and waits for no limiter: the reflector resumes watches, and has to see what happens to them. For the
/// same reason the `kube::Client` must not retry by itself. [`RestClient::from_config`] sees to that; who makes the client sets
/// `Config::default_retry` to false, and `Config::disable_compression` to true if kube is built with its feature `gzip`, which
/// reads the first member of a body only.
#[derive(Clone)]
pub struct RestClient {
    client: kube::Client,
    options: Arc<Options>,
}

#[derive(Clone)]
struct Options {
    user_agent: HeaderValue,
    limiter: Option<RateLimiter>,
    on_warning: WarningHandler,
    compression: Compression,
    retries: u32,
    timeout: Option<Duration>,
}

impl RestClient {
    /// Sends through a client, which must not retry by itself.
    pub fn new(client: kube::Client) -> RestClient {
        let user_agent = concat!("tidings/", env!("CARGO_PKG_VERSION"));
        RestClient {
            client,
            options: Arc::new(Options {
                user_agent: HeaderValue::from_static(user_agent),
                limiter: None,
                on_warning: logs_once(),
                compression: Compression::default(),
                retries: RETRIES,
                timeout: None,
            }),
        }
    }

    /// Sends through a client of its own, without kube's retries and compression.
    ///
    /// # Errors
    /// If the configuration is of no use, or needs a feature of kube that the program was built without.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[allow(clippy::result_large_err)] // it is kube's
    pub fn from_config(mut config: kube::Config) -> Result<RestClient, kube::Error> {
        config.default_retry = false;
        config.disable_compression = true;
        kube::Client::try_from(config).map(RestClient::new)
    }

    /// Says who asks; `tidings/<version>` if unset. What cannot stand in a header becomes a question mark.
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

    /// Sends not faster than this. Watches are not counted and never wait.
    #[must_use]
    pub fn rate_limiter(self, limiter: RateLimiter) -> RestClient {
        self.with(|options| options.limiter = Some(limiter))
    }

    /// Is told every warning of the server, in place of logging each text once. It runs where the request does: it must not
    /// block.
    #[must_use]
    pub fn warning_handler(self, handler: impl Fn(&Warning) + Send + Sync + 'static) -> RestClient {
        self.with(|options| options.on_warning = Arc::new(handler))
    }

    /// How bodies travel; as they are if unset.
    #[must_use]
    pub fn compression(self, compression: Compression) -> RestClient {
        self.with(|options| options.compression = compression)
    }

    /// How often a request is sent again; ten times if unset.
    #[must_use]
    pub fn retries(self, retries: u32) -> RestClient {
        self.with(|options| options.retries = retries)
    }

    /// How long a request other than a watch may take until its answer starts, with all retries and with waiting for the
    /// limiter; unset, as long as these take.
    #[must_use]
    pub fn timeout(self, longest: Duration) -> RestClient {
        self.with(|options| options.timeout = Some(longest))
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> RestClient {
        change(Arc::make_mut(&mut self.options));
        self
    }

    /// The client below, for everything that is not list and watch.
    pub fn kube(&self) -> &kube::Client {
        &self.client
    }

    /// Sends a request and waits for the head of its answer. Accepts JSON unless the request says something else.
    ///
    /// Dropping the future ends it, whatever it is waiting for.
    ///
    /// # Errors
    /// If no answer comes, or one that is none of success.
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
                // Whatever it was waiting for: who set the limit wants to hear of the limit (B130).
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
                        "a request is sent again"
                    );
                    previous = Some(error);
                    sleep(wait).await;
                }
                _ => return Err(after(error, previous.as_ref())),
            }
        }
    }

    /// Sends once. An error comes with the wait after which it makes sense to send again.
    async fn attempt(
        &self,
        head: &request::Parts,
        body: &Bytes,
    ) -> Result<Response<Body>, (SourceError, Option<Duration>)> {
        let request = Request::from_parts(head.clone(), Body::from(body.clone()));
        let response = match self.client.send(request).await {
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
        // Asking again for a version that the server has not reached keeps the reflector from asking for another.
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
    SourceError::transport(Unanswered {
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
