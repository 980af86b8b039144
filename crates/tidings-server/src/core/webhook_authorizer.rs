//! A webhook that decides who may do what: asked over HTTP, its answers are remembered for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidings_access::{AccessQuestion, Attributes, Decision, ReviewVersion, Verdict, read_answer};
use tidings_webhook::{Webhook, WebhookAnswer};
use tokio::time::Instant;

/// How many answers are remembered.
const REMEMBERED_MAX: usize = 8192;
/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often a question is asked if the service fails.
const TRIES: u32 = 5;
/// The pause before it is asked again; each further one is half as long again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A service that decides who may do what.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuthorizationWebhook {
    /// The service.
    pub webhook: Webhook,
    /// The version of the reviews that it understands.
    pub version: ReviewVersion,
    /// How long it is remembered that something is allowed.
    pub allowed_for: Duration,
    /// How long it is remembered that something is not.
    pub refused_for: Duration,
}

impl AuthorizationWebhook {
    /// A service with the options that kube-apiserver has by default.
    pub fn new(webhook: Webhook) -> AuthorizationWebhook {
        AuthorizationWebhook {
            webhook,
            version: ReviewVersion::default(),
            allowed_for: Duration::from_secs(300),
            refused_for: Duration::from_secs(30),
        }
    }
}

/// Asks a service, and remembers its answers.
pub(super) struct WebhookAuthorizer {
    options: AuthorizationWebhook,
    remembered: Mutex<HashMap<AccessQuestion, (Verdict, Instant)>>,
}

impl WebhookAuthorizer {
    pub(super) fn new(options: AuthorizationWebhook) -> WebhookAuthorizer {
        WebhookAuthorizer {
            options,
            remembered: Mutex::default(),
        }
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<AccessQuestion, (Verdict, Instant)>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What the service says. One that does not answer has no opinion, and says why.
    pub(super) async fn ask(&self, question: &AccessQuestion) -> Verdict {
        let known = self.remembered().get(question).cloned();
        if let Some((verdict, until)) = known
            && Instant::now() < until
        {
            return verdict;
        }
        let review = Bytes::from(question.review(self.options.version));
        let verdict = match self.post(&review).await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::error!(%error, "the authorization webhook has not decided");
                return Verdict {
                    decision: Decision::NoOpinion,
                    reason: String::new(),
                    error,
                };
            }
        };
        let keep = match verdict.is_allowed() {
            true => self.options.allowed_for,
            false => self.options.refused_for,
        };
        if question.is_small() && !keep.is_zero() {
            let mut remembered = self.remembered();
            let now = Instant::now();
            if remembered.len() >= REMEMBERED_MAX {
                remembered.retain(|_, (_, until)| *until > now);
            }
            if remembered.len() >= REMEMBERED_MAX {
                remembered.clear();
            }
            remembered.insert(question.clone(), (verdict.clone(), now + keep));
        }
        verdict
    }

    async fn post(&self, review: &Bytes) -> Result<Verdict, String> {
        let mut pause = RETRY_AFTER;
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let answered = self.options.webhook.post(review.clone(), DEADLINE).await;
            let failed = match answered {
                Ok(WebhookAnswer {
                    code: 200 | 201,
                    body,
                    ..
                }) => return read_answer(&body),
                Ok(WebhookAnswer { code, .. }) => {
                    let why = format!("{:?} answered {code}", self.options.webhook);
                    if code != 429 && code < 500 {
                        return Err(why);
                    }
                    why
                }
                Err(error) => error.to_string(),
            };
            if tries == 0 {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(1.5);
        }
    }
}

/// What the webhook has answered to the questions of one request.
#[derive(Default)]
pub(crate) struct AccessAnswers {
    known: Mutex<HashMap<AccessQuestion, Verdict>>,
    /// The first question that has no answer yet.
    missing: Mutex<Option<AccessQuestion>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AccessAnswers {
    /// The answer to a question; if there is none, it is noted.
    pub(super) fn find(&self, asked: &Attributes<'_>) -> Option<Verdict> {
        let question = AccessQuestion::new(asked);
        let known = locked(&self.known).get(&question).cloned();
        if known.is_none() {
            locked(&self.missing).get_or_insert(question);
        }
        known
    }

    /// Gets the answer that is missing. False if none is.
    pub(super) async fn complete(&self, authorizer: &WebhookAuthorizer) -> bool {
        let missing = locked(&self.missing).take();
        let Some(question) = missing else {
            return false;
        };
        let verdict = authorizer.ask(&question).await;
        locked(&self.known).insert(question, verdict);
        true
    }
}
