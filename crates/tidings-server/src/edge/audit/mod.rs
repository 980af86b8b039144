//! The audit log: who did what, as the policy wants it, to a file and to a webhook.
//!
//! A request with a trail gathers its event on the way through the edge. Its stages go to the destinations, each with a queue of its own.

mod file;
mod ids;
mod queue;
mod trail;
mod webhook;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidings_audit::{AuditEvent, AuditPolicy, Level, Stage};

use file::AuditFile;
pub use file::AuditFileOptions;
pub(super) use ids::AuditIds;
pub(crate) use queue::AuditCounts;
pub use queue::AuditMode;
use queue::EventQueue;
pub(super) use trail::{AuditTrail, TrailHead};
pub use webhook::AuditWebhookOptions;

/// How many events may wait for a destination if nobody sets another number: kube-apiserver's default.
const WAITING_MAX: usize = 10_000;

/// How events go to one destination.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditDelivery {
    /// How requests and the writing of their events go together.
    pub mode: AuditMode,
    /// How many events may wait.
    pub waiting_max: usize,
    /// Leave the bodies out of events of more bytes than this.
    pub event_bytes_max: Option<usize>,
}

impl AuditDelivery {
    /// Delivery in a mode, without a bound on the size of an event.
    pub fn new(mode: AuditMode) -> AuditDelivery {
        AuditDelivery {
            mode,
            waiting_max: WAITING_MAX,
            event_bytes_max: None,
        }
    }
}

/// A destination of audit events.
#[derive(Debug)]
struct AuditSink {
    /// Its name in metrics, as in kube-apiserver.
    name: &'static str,
    queue: EventQueue,
    event_bytes_max: Option<usize>,
}

/// The audit log: a policy and the destinations of events. Events that wait are written when it is closed.
#[derive(Debug)]
pub struct AuditLog {
    policy: AuditPolicy,
    sinks: Vec<AuditSink>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    senders: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    events: AtomicU64,
    levels: [AtomicU64; 4],
    refused: AtomicU64,
}

/// Figures of the audit log.
pub(crate) struct AuditFigures {
    pub(crate) events: u64,
    pub(crate) levels: [(Level, u64); 4],
    /// Requests that were refused because their event could not be written.
    pub(crate) refused: u64,
    pub(crate) sinks: Vec<(&'static str, Arc<AuditCounts>)>,
}

const LEVELS: [Level; 4] = [
    Level::None,
    Level::Metadata,
    Level::Request,
    Level::RequestResponse,
];

impl AuditLog {
    /// An audit log with a policy, which goes nowhere yet.
    pub fn new(policy: AuditPolicy) -> AuditLog {
        AuditLog {
            policy,
            sinks: Vec::new(),
            writers: Mutex::default(),
            senders: Mutex::default(),
            events: AtomicU64::new(0),
            levels: Default::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Writes events to a file too.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn to_file(
        mut self,
        options: AuditFileOptions,
        delivery: &AuditDelivery,
    ) -> io::Result<AuditLog> {
        let file = AuditFile::open(options)?;
        let (queue, events) = EventQueue::new(delivery.mode, delivery.waiting_max);
        let writer = file::start(file, events, queue.counts())?;
        self.writers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(writer);
        self.sinks.push(AuditSink {
            name: "log",
            queue,
            event_bytes_max: delivery.event_bytes_max,
        });
        Ok(self)
    }

    /// Sends events to a webhook too. Must be called within a tokio runtime.
    #[must_use]
    pub fn to_webhook(
        mut self,
        options: AuditWebhookOptions,
        delivery: &AuditDelivery,
    ) -> AuditLog {
        let (queue, events) = EventQueue::new(delivery.mode, delivery.waiting_max);
        let sender = webhook::start(options, events, queue.counts());
        self.senders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
        self.sinks.push(AuditSink {
            name: "webhook",
            queue,
            event_bytes_max: delivery.event_bytes_max,
        });
        self
    }

    /// Writes the events that wait, and ends. Returns when they are written, at the latest after `patience`.
    pub async fn close(self, patience: Duration) {
        let AuditLog {
            sinks,
            writers,
            senders,
            ..
        } = self;
        // The writers end when nobody can send any more.
        drop(sinks);
        let writers = writers.into_inner().unwrap_or_else(PoisonError::into_inner);
        let senders = senders.into_inner().unwrap_or_else(PoisonError::into_inner);
        let all = async {
            let joined = tokio::task::spawn_blocking(|| {
                for writer in writers {
                    let _ = writer.join();
                }
            });
            let _ = joined.await;
            for sender in senders {
                let _ = sender.await;
            }
        };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("audit events that waited are lost: they could not be written in time");
        }
    }

    fn count_level(&self, level: Level) {
        self.levels[level as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The forms of an event for the destinations.
    fn forms<'l>(
        &'l self,
        event: &'l AuditEvent,
        stage: Stage,
        at: Timestamp,
    ) -> impl Iterator<Item = (&'l AuditSink, Bytes)> {
        self.events.fetch_add(1, Ordering::Relaxed);
        let whole = Bytes::from(event.to_json(stage, at));
        self.sinks.iter().map(move |sink| {
            let is_large = sink.event_bytes_max.is_some_and(|most| whole.len() > most);
            let form = match is_large && event.level() >= Level::Request {
                true => {
                    let mut short = event.clone();
                    short.truncate();
                    short.to_json(stage, at).into()
                }
                false => whole.clone(),
            };
            (sink, form)
        })
    }

    /// Writes an event, and waits if requests wait. False if the request must be refused.
    async fn write(&self, event: &AuditEvent, stage: Stage, at: Timestamp) -> bool {
        let mut goes_on = true;
        for (sink, json) in self.forms(event, stage, at) {
            let written = sink.queue.deliver(json).await;
            goes_on &= written || sink.queue.mode() != AuditMode::BlockingStrict;
        }
        goes_on
    }

    /// Writes an event without waiting.
    fn offer(&self, event: &AuditEvent, stage: Stage, at: Timestamp) {
        for (sink, json) in self.forms(event, stage, at) {
            sink.queue.offer(json);
        }
    }

    pub(super) fn figures(&self) -> AuditFigures {
        let count = |level: Level| (level, self.levels[level as usize].load(Ordering::Relaxed));
        AuditFigures {
            events: self.events.load(Ordering::Relaxed),
            levels: LEVELS.map(count),
            refused: self.refused.load(Ordering::Relaxed),
            sinks: self
                .sinks
                .iter()
                .map(|sink| (sink.name, sink.queue.counts()))
                .collect(),
        }
    }
}
