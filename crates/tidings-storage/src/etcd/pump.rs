//! Follows the one etcd watch: opens it, resumes it, and moves it back for user watches that are behind.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{CallEffect, RawWatch};
use super::hub::HubSlot;
use super::proto::{
    IgnoredMessage, PutRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request,
};
use super::{EtcdShared, end_of, proto};
use crate::contract::{Change, Error, Event, Revision, WatchBatch};

/// The wait for more user watches to start, so that the etcd watch goes back once for all of them.
const GATHER: Duration = Duration::from_millis(20);
/// The first wait before a broken watch is opened again; it doubles each time.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// The longest wait before a broken watch is opened again.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// The wait before progress is requested again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// The wait before a mark is written to learn the progress of a watch: an event may come first.
const MARK_AFTER: Duration = Duration::from_millis(10);
/// The wait before the mark is written again.
const MARK_AGAIN: Duration = Duration::from_millis(250);
/// The maximum time between two turns of the pump.
const TURN: Duration = Duration::from_secs(1);
/// A turn that comes this late means that the process has slept. etcd before 3.4.31 and 3.5.13 could then leave out events if
/// history was compacted meanwhile, so the watch is opened again.
const LATE: Duration = Duration::from_secs(10);
/// The key of the mark that is written to learn the progress of a watch. No resource has this name.
const MARK: &[u8] = b".tidings/progress";

/// Keeps the etcd watch open while there are user watches.
pub(super) async fn run(shared: Arc<EtcdShared>) {
    let mut wait = RETRY_FIRST;
    loop {
        if shared.hub().start().is_none() {
            shared.pump.notified().await;
            sleep(GATHER).await;
            continue;
        }
        let opened = Instant::now();
        match follow(&shared).await {
            Ok(()) => wait = RETRY_FIRST,
            Err(error) => {
                if wait == RETRY_FIRST {
                    tracing::warn!(%error, "the etcd watch failed; opening it again");
                }
                shared.client.turn_away();
                if opened.elapsed() > RETRY_MAX {
                    wait = RETRY_FIRST;
                }
                sleep(wait).await;
                wait = (wait * 2).min(RETRY_MAX);
            }
        }
    }
}

/// Follows etcd from the earliest revision that a user watch needs, until a user watch needs an earlier one.
async fn follow(shared: &Arc<EtcdShared>) -> Result<(), Error> {
    // A watch from a revision that etcd has lost would deliver nothing; this read detects the loss.
    shared.revision().await?;
    let lost = || shared.went_back.load(Ordering::Relaxed);
    let lost_before = lost();
    let Some(start) = shared.hub().start() else {
        return Ok(());
    };
    let create = WatchCreateRequest {
        key: shared.prefix.clone(),
        range_end: end_of(&shared.prefix),
        start_revision: start.0 as i64 + 1,
        progress_notify: true,
        fragment: true,
    };
    let (mut watch, version) = shared
        .client
        .watch(request(watch_request::WatchOperation::Create(create)))
        .await?;
    shared.opened.fetch_add(1, Ordering::Relaxed);
    shared.hub().go_back(start);
    tracing::debug!(%start, version, "watching etcd");
    let mut progress = ProgressQueries::new(&version);
    let mut behind_since = None;
    let mut pieces = Vec::new();
    let mut turned = Instant::now();
    loop {
        let look_again = progress
            .next_look()
            .into_iter()
            .chain(behind_since.map(|since| since + GATHER))
            .min();
        let later = sleep_until(look_again.unwrap_or(turned + TURN).min(turned + TURN));
        tokio::select! {
            response = watch.responses.message() => {
                if lost() != lost_before || turned.elapsed() > LATE {
                    return Ok(());
                }
                let response = response
                    .map_err(|status| Error::Unavailable(status.message().to_owned()))?
                    .ok_or_else(|| Error::Unavailable("etcd has ended the watch".to_owned()))?;
                if take(shared, response, &mut pieces)? == PumpStep::Open {
                    return Ok(());
                }
            }
            () = shared.pump.notified() => {}
            () = later => {}
        }
        turned = Instant::now();
        let needs = shared.hub().needs();
        if needs.watches == 0 || lost() != lost_before {
            return Ok(());
        }
        if needs.going_back {
            let since = *behind_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= GATHER {
                return Ok(());
            }
        } else {
            behind_since = None;
        }
        progress.ask(needs.progress, shared, &watch);
    }
}

/// What to do after a message.
#[derive(Debug, PartialEq, Eq)]
enum PumpStep {
    GoOn,
    /// The watch has ended and must be opened again.
    Open,
}

/// Handles a message of the etcd watch.
fn take(
    shared: &EtcdShared,
    response: WatchResponse,
    pieces: &mut Vec<proto::ProtoEvent>,
) -> Result<PumpStep, Error> {
    if response.canceled {
        if response.compact_revision == 0 {
            return Err(Error::Unavailable(format!(
                "etcd has cancelled the watch: {}",
                response.cancel_reason
            )));
        }
        let oldest = Revision(response.compact_revision as u64);
        shared.starts_at_least(oldest);
        shared.hub().compacted(oldest);
        return Ok(PumpStep::Open);
    }
    if response.created {
        return Ok(PumpStep::GoOn);
    }
    if response.events.is_empty() && pieces.is_empty() {
        let revision = Revision(response.header.unwrap_or_default().revision as u64);
        shared.note(revision);
        shared.hub().hand_out(&[], revision);
        return Ok(PumpStep::GoOn);
    }
    pieces.extend(response.events);
    if response.fragment {
        return Ok(PumpStep::GoOn); // more fragments follow
    }
    let events = std::mem::take(pieces).into_iter();
    let events = events.filter_map(converted).collect::<Vec<_>>();
    if let Some(last) = events.last().map(|event| event.revision) {
        shared.note(last);
        shared.hub().hand_out(&events, last);
    }
    Ok(PumpStep::GoOn)
}

const DELETE: i32 = 1;

fn converted(event: proto::ProtoEvent) -> Option<Event> {
    let entry = event.kv?;
    let revision = Revision(entry.mod_revision as u64);
    let created = entry.create_revision == entry.mod_revision;
    let key = entry.key;
    let change = if event.kind == DELETE {
        Change::Delete
    } else {
        Change::Put(entry.value)
    };
    Some(Event {
        revision,
        key,
        created: created && change != Change::Delete,
        change,
    })
}

fn request(request: watch_request::WatchOperation) -> WatchRequest {
    WatchRequest {
        request: Some(request),
    }
}

/// Requests progress: the knowledge that all events up to a revision have been received.
struct ProgressQueries {
    /// True if etcd answers progress requests in order; otherwise a mark is written.
    can_ask: bool,
    wanted_since: Option<Instant>,
    asked: Option<Instant>,
}

impl ProgressQueries {
    fn new(version: &str) -> ProgressQueries {
        ProgressQueries {
            can_ask: answers_in_order(version),
            wanted_since: None,
            asked: None,
        }
    }

    /// The time of the next request, if no event comes before.
    fn next_look(&self) -> Option<Instant> {
        let since = self.wanted_since?;
        Some(match (self.can_ask, self.asked) {
            (true, asked) => asked.map_or(since, |asked| asked + ASK_AGAIN),
            (false, None) => since + MARK_AFTER,
            (false, Some(asked)) => asked + MARK_AGAIN,
        })
    }

    fn ask(&mut self, wanted: Option<Revision>, shared: &Arc<EtcdShared>, watch: &RawWatch) {
        if wanted.is_none() {
            (self.wanted_since, self.asked) = (None, None);
            return;
        }
        let now = Instant::now();
        self.wanted_since.get_or_insert(now);
        if self.next_look().is_some_and(|at| at > now) {
            return;
        }
        self.asked = Some(now);
        if self.can_ask {
            // A full channel already contains requests.
            let question = watch_request::WatchOperation::Progress(IgnoredMessage {});
            let _ = watch.requests.try_send(request(question));
            return;
        }
        let shared = shared.clone();
        tokio::spawn(async move {
            let mark = PutRequest {
                key: shared.key(MARK),
                value: Bytes::new(),
                lease: 0,
            };
            let path = "/etcdserverpb.KV/Put";
            // Writing the mark again is harmless: only its revision changes.
            let marked = shared
                .client
                .call::<_, IgnoredMessage>(path, mark, CallEffect::None)
                .await;
            if let Err(error) = marked {
                tracing::debug!(%error, "cannot write the progress mark");
            }
        });
    }
}

/// False for etcd before 3.4.25 and 3.5.8, which could report progress before it had sent the events.
fn answers_in_order(version: &str) -> bool {
    let mut numbers = version
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0_u32));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 25,
        (3, 5, patch) => patch >= 8,
        (major, minor, _) => (major, minor) >= (3, 6),
    }
}

/// The stream of a user watch.
pub(super) struct EtcdWatch {
    shared: Arc<EtcdShared>,
    slot: Arc<HubSlot>,
    failed: bool,
}

impl EtcdWatch {
    pub(super) fn new(shared: Arc<EtcdShared>, slot: Arc<HubSlot>) -> EtcdWatch {
        EtcdWatch {
            shared,
            slot,
            failed: false,
        }
    }
}

impl Stream for EtcdWatch {
    type Item = Result<WatchBatch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.failed {
            return Poll::Ready(None);
        }
        let reached = self.shared.hub().reached();
        let (polled, behind) = self.slot.poll(context.waker(), reached);
        if behind {
            self.shared.pump.notify_one();
        }
        polled.map(|batch| {
            self.failed = batch.is_err();
            Some(batch.map(|batch| self.shared.own(batch)))
        })
    }
}

impl EtcdShared {
    /// Removes the prefix of the store from all keys.
    fn own(&self, mut batch: WatchBatch) -> WatchBatch {
        for event in &mut batch.events {
            event.key = self.own_key(&event.key);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_that_answer_too_early_are_known() {
        for version in ["3.4.23", "3.4.24", "3.5.0", "3.5.7", "3.3.25", "", "x"] {
            assert!(!answers_in_order(version), "{version}");
        }
        for version in ["3.4.25", "3.5.8", "3.5.21", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(answers_in_order(version), "{version}");
        }
    }
}
