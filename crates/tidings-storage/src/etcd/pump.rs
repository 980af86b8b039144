//! The one watch of etcd: opened, resumed, and taken back for those who are behind.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{Effect, RawWatch};
use super::hub::Slot;
use super::proto::{
    Ignored, PutRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request,
};
use super::{Shared, end_of, proto};
use crate::contract::{Change, Error, Event, Revision, WatchBatch};

/// Watches that begin together are gathered, so that the watch of etcd goes back once for all of them.
const GATHER: Duration = Duration::from_millis(20);
/// Before a broken watch is opened again: this, and twice as long each time.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Progress that was asked for and has not come is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Where a write is needed to know how far a watch is, an event may well come by itself.
const MARK_AFTER: Duration = Duration::from_millis(10);
const MARK_AGAIN: Duration = Duration::from_millis(250);
/// The pump looks around this often. If it comes much later, this process has slept: etcd before 3.4.31 and 3.5.13 could leave
/// out events then, when history ended meanwhile. So the watch is opened again, from what is known.
const TURN: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(10);
/// Written to know how far a watch is. No resource has this name.
const MARK: &[u8] = b".tidings/progress";

pub(super) async fn run(shared: Arc<Shared>) {
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
                    tracing::warn!(%error, "the watch of etcd is opened again");
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

/// Follows etcd from where the furthest behind is, until somebody is behind that.
async fn follow(shared: &Arc<Shared>) -> Result<(), Error> {
    // A watch from a revision that etcd has lost would be silent: this read notices.
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
        .watch(request(watch_request::Request::Create(create)))
        .await?;
    shared.opened.fetch_add(1, Ordering::Relaxed);
    shared.hub().go_back(start);
    tracing::debug!(%start, version, "watching etcd");
    let mut progress = Progress::new(&version);
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
                if take(shared, response, &mut pieces)? == Next::Open {
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

#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    /// The watch is over and another has to be opened.
    Open,
}

fn take(
    shared: &Shared,
    response: WatchResponse,
    pieces: &mut Vec<proto::Event>,
) -> Result<Next, Error> {
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
        return Ok(Next::Open);
    }
    if response.created {
        return Ok(Next::GoOn);
    }
    if response.events.is_empty() && pieces.is_empty() {
        let revision = Revision(response.header.unwrap_or_default().revision as u64);
        shared.note(revision);
        shared.hub().hand_out(&[], revision);
        return Ok(Next::GoOn);
    }
    pieces.extend(response.events);
    if response.fragment {
        return Ok(Next::GoOn); // the rest of these follows
    }
    let events = std::mem::take(pieces).into_iter();
    let events = events.filter_map(converted).collect::<Vec<_>>();
    if let Some(last) = events.last().map(|event| event.revision) {
        shared.note(last);
        shared.hub().hand_out(&events, last);
    }
    Ok(Next::GoOn)
}

const DELETE: i32 = 1;

fn converted(event: proto::Event) -> Option<Event> {
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

fn request(request: watch_request::Request) -> WatchRequest {
    WatchRequest {
        request: Some(request),
    }
}

/// How it is learnt that nothing else has happened up to a revision.
struct Progress {
    /// etcd can be asked, and answers in order.
    can_ask: bool,
    wanted_since: Option<Instant>,
    asked: Option<Instant>,
}

impl Progress {
    fn new(version: &str) -> Progress {
        Progress {
            can_ask: answers_in_order(version),
            wanted_since: None,
            asked: None,
        }
    }

    /// When there is something to do if nothing comes.
    fn next_look(&self) -> Option<Instant> {
        let since = self.wanted_since?;
        Some(match (self.can_ask, self.asked) {
            (true, asked) => asked.map_or(since, |asked| asked + ASK_AGAIN),
            (false, None) => since + MARK_AFTER,
            (false, Some(asked)) => asked + MARK_AGAIN,
        })
    }

    fn ask(&mut self, wanted: Option<Revision>, shared: &Arc<Shared>, watch: &RawWatch) {
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
            // A full channel has questions already.
            let question = watch_request::Request::Progress(Ignored {});
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
            // Writing the same again changes nothing but the revision.
            let marked = shared
                .client
                .call::<_, Ignored>(path, mark, Effect::None)
                .await;
            if let Err(error) = marked {
                tracing::debug!(%error, "the mark of progress was not written");
            }
        });
    }
}

/// Before 3.4.25 and 3.5.8 etcd could answer that a watch is up to date before it had sent the events.
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

/// The watch of a user.
pub(super) struct Watch {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    failed: bool,
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Watch {
        Watch {
            shared,
            slot,
            failed: false,
        }
    }
}

impl Stream for Watch {
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

impl Shared {
    /// With keys as the caller knows them.
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
