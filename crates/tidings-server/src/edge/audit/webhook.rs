//! The audit log to a webhook: a task sends lists of events, and again if that fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tidings_audit::event_list;
use tidings_webhook::Webhook;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::queue::{AuditCounts, WaitingEvent};

/// How often a list is sent, as in kube-apiserver.
const ATTEMPTS: u32 = 5;
/// By how much the pause between attempts grows.
const BACKOFF_FACTOR: f64 = 1.5;
/// How much of a pause is random.
const BACKOFF_JITTER: f64 = 0.2;
/// How long the answer to one list may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Which webhook gets the audit log, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditWebhookOptions {
    /// The webhook.
    pub webhook: Webhook,
    /// How many events a list has at most.
    pub batch_max: usize,
    /// How long the first event of a list waits for more.
    pub batch_wait_max: Duration,
    /// How many lists are sent in a second on average; `None`: as many as there are.
    pub lists_per_second: Option<f64>,
    /// How many lists are sent at once after a quiet time.
    pub burst_max: u32,
    /// The pause before the second attempt.
    pub backoff: Duration,
}

impl AuditWebhookOptions {
    /// A webhook, with kube-apiserver's defaults.
    pub fn new(webhook: Webhook) -> AuditWebhookOptions {
        AuditWebhookOptions {
            webhook,
            batch_max: 400,
            batch_wait_max: Duration::from_secs(30),
            lists_per_second: Some(10.0),
            burst_max: 15,
            backoff: Duration::from_secs(10),
        }
    }
}

/// Starts the task that sends.
pub(super) fn start(
    options: AuditWebhookOptions,
    events: Receiver<WaitingEvent>,
    counts: Arc<AuditCounts>,
) -> JoinHandle<()> {
    tokio::spawn(run(options, events, counts))
}

async fn run(
    options: AuditWebhookOptions,
    mut events: Receiver<WaitingEvent>,
    counts: Arc<AuditCounts>,
) {
    let mut tokens = TokenBucket::new(&options);
    while let Some(first) = events.recv().await {
        let mut batch = vec![first];
        let until = Instant::now() + options.batch_wait_max;
        // Whoever waits for an event does not wait for others.
        while batch.len() < options.batch_max && !batch.iter().any(WaitingEvent::is_awaited) {
            match timeout_at(until, events.recv()).await {
                Ok(Some(event)) => batch.push(event),
                Ok(None) | Err(_) => break,
            }
        }
        tokens.take().await;
        let list = Bytes::from(event_list(batch.iter().map(|event| &*event.json)));
        let sent = send(&options, list).await;
        counts.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
        if !sent {
            counts.lost.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
        batch.into_iter().for_each(|event| event.settle(sent));
    }
}

/// Sends a list until the webhook has it, or the attempts are used up.
async fn send(options: &AuditWebhookOptions, list: Bytes) -> bool {
    let mut pause = options.backoff;
    for attempt in 1..=ATTEMPTS {
        let why = match options.webhook.post(list.clone(), ANSWER_TIMEOUT).await {
            Ok(answer) if (200..300).contains(&answer.code) => return true,
            Ok(answer) => format!("{:?} answers {}", options.webhook, answer.code),
            Err(error) => error.to_string(),
        };
        tracing::warn!(attempt, why, "audit events cannot be sent");
        if attempt < ATTEMPTS {
            let random = (Uuid::new_v4().as_u64_pair().0 >> 11) as f64 / (1_u64 << 53) as f64;
            sleep(pause.mul_f64(1.0 + random * BACKOFF_JITTER)).await;
            pause = pause.mul_f64(BACKOFF_FACTOR);
        }
    }
    false
}

/// How many lists may be sent now.
struct TokenBucket {
    per_second: Option<f64>,
    most: f64,
    left: f64,
    counted: Instant,
}

impl TokenBucket {
    fn new(options: &AuditWebhookOptions) -> TokenBucket {
        let most = f64::from(options.burst_max.max(1));
        TokenBucket {
            per_second: options.lists_per_second.filter(|rate| *rate > 0.0),
            most,
            left: most,
            counted: Instant::now(),
        }
    }

    /// Waits until a list may be sent.
    async fn take(&mut self) {
        let Some(per_second) = self.per_second else {
            return;
        };
        loop {
            let now = Instant::now();
            let grown = (now - self.counted).as_secs_f64() * per_second;
            self.left = (self.left + grown).min(self.most);
            self.counted = now;
            if self.left >= 1.0 {
                self.left -= 1.0;
                return;
            }
            sleep(Duration::from_secs_f64((1.0 - self.left) / per_second)).await;
        }
    }
}
