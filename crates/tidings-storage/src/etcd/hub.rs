//! Distributes the events of the one etcd watch to the watches of users. Pure.
//!
//! Each user watch has a queue, bounded in bytes, that is complete up to some revision. If a queue is full, or a watch starts at
//! an earlier revision, the hub continues without that watch, which is then behind. When a watch that is behind has emptied its
//! queue, the hub goes back to its revision, and all other watches drop events up to the revision that they have already.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::contract::{Change, Error, Event, Revision, WatchBatch};

/// The maximum size of the queue of a watch.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// The prefix and the queue of a user watch, shared by the hub and the stream.
#[derive(Debug)]
pub(super) struct HubSlot {
    /// The prefix of the keys in etcd, including the prefix of the store.
    prefix: Bytes,
    queue: Mutex<HubQueue>,
}

/// The events that a user watch has not taken yet.
#[derive(Debug)]
struct HubQueue {
    events: VecDeque<Event>,
    bytes: usize,
    /// Events up to this revision have been queued or taken.
    complete: Revision,
    /// Events up to this revision have been taken.
    taken: Revision,
    /// Progress up to this revision was requested.
    wanted: Revision,
    end: Option<Error>,
    waker: Option<Waker>,
}

impl HubSlot {
    fn lock(&self) -> MutexGuard<'_, HubQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the events after `from`, which are complete up to `to`.
    fn offer(&self, from: Revision, events: &[Event], to: Revision) {
        let mut queue = self.lock();
        if queue.complete < from || queue.end.is_some() {
            return; // the watch is behind
        }
        let seen = queue.complete;
        let (mut last, mut full) = (seen, false);
        for event in events {
            if event.revision <= seen || !event.key.starts_with(&self.prefix) {
                continue;
            }
            // The changes of one revision are not separated.
            if queue.bytes > QUEUE_BYTES_MAX && event.revision > last {
                full = true;
                break;
            }
            last = event.revision;
            queue.bytes += size(event);
            queue.events.push_back(event.clone());
        }
        queue.complete = if full { last } else { seen.max(to) };
        if !queue.events.is_empty() || queue.wanted > queue.taken {
            wake(queue.waker.take());
        }
    }

    /// Requests a batch when all events up to a revision have been received.
    pub(super) fn want(&self, revision: Revision) {
        let mut queue = self.lock();
        queue.wanted = queue.wanted.max(revision);
        wake(queue.waker.take());
    }

    /// The next batch, and true if the hub must go back for this watch.
    pub(super) fn poll(
        &self,
        waker: &Waker,
        reached: Revision,
    ) -> (Poll<Result<WatchBatch, Error>>, bool) {
        let mut queue = self.lock();
        let progress = queue.wanted > queue.taken && queue.complete > queue.taken;
        if !queue.events.is_empty() || progress {
            queue.bytes = 0;
            queue.taken = queue.complete;
            let batch = WatchBatch {
                events: std::mem::take(&mut queue.events).into(),
                revision: queue.complete,
            };
            return (Poll::Ready(Ok(batch)), false);
        }
        if let Some(error) = queue.end.clone() {
            return (Poll::Ready(Err(error)), false);
        }
        queue.waker = Some(waker.clone());
        (Poll::Pending, queue.complete < reached)
    }

    fn end(&self, error: Error) {
        let mut queue = self.lock();
        queue.end.get_or_insert(error);
        wake(queue.waker.take());
    }
}

fn size(event: &Event) -> usize {
    let value = match &event.change {
        Change::Put(value) => value.len(),
        Change::Delete => 0,
    };
    event.key.len() + value + size_of::<Event>()
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// All user watches.
#[derive(Debug, Default)]
pub(super) struct WatchHub {
    /// Events up to this revision have been handed out.
    reached: Revision,
    slots: Vec<Weak<HubSlot>>,
}

/// What the user watches need from the etcd watch.
#[derive(Debug, Default)]
pub(super) struct HubNeeds {
    /// The number of user watches.
    pub(super) watches: usize,
    /// The highest revision of requested progress that the hub has not reached.
    pub(super) progress: Option<Revision>,
    /// True if a watch is behind and its queue is empty.
    pub(super) going_back: bool,
}

impl WatchHub {
    pub(super) fn reached(&self) -> Revision {
        self.reached
    }

    pub(super) fn add(&mut self, prefix: Bytes, after: Revision) -> Arc<HubSlot> {
        let slot = Arc::new(HubSlot {
            prefix,
            queue: Mutex::new(HubQueue {
                events: VecDeque::new(),
                bytes: 0,
                complete: after,
                taken: after,
                wanted: Revision(0),
                end: None,
                waker: None,
            }),
        });
        self.slots.retain(|other| other.strong_count() > 0);
        self.slots.push(Arc::downgrade(&slot));
        slot
    }

    fn live(&self) -> impl Iterator<Item = Arc<HubSlot>> {
        let slots = self.slots.iter().filter_map(Weak::upgrade);
        slots.filter(|slot| slot.lock().end.is_none())
    }

    /// The revision after which etcd must be watched; `None` if there are no watches.
    pub(super) fn start(&self) -> Option<Revision> {
        self.live().map(|slot| slot.lock().complete).min()
    }

    /// Notes that the etcd watch starts again after this revision.
    pub(super) fn go_back(&mut self, to: Revision) {
        self.reached = to;
    }

    /// Hands out events, which are complete up to `to`.
    pub(super) fn hand_out(&mut self, events: &[Event], to: Revision) {
        let from = self.reached;
        self.reached = from.max(to);
        for slot in self.live() {
            slot.offer(from, events, self.reached);
        }
    }

    /// Computes the needs of all watches. Called after every batch, so it is one pass.
    pub(super) fn needs(&self) -> HubNeeds {
        let mut needs = HubNeeds::default();
        for slot in self.slots.iter().filter_map(Weak::upgrade) {
            let queue = slot.lock();
            if queue.end.is_some() {
                continue;
            }
            needs.watches += 1;
            needs.progress = needs.progress.max(Some(queue.wanted));
            needs.going_back |= queue.complete < self.reached && queue.events.is_empty();
        }
        needs.progress = needs.progress.filter(|wanted| *wanted > self.reached);
        needs
    }

    /// The watches of a prefix.
    pub(super) fn of(&self, prefix: &[u8]) -> impl Iterator<Item = Arc<HubSlot>> {
        self.live().filter(move |slot| *slot.prefix == *prefix)
    }

    /// Ends the watches that need history before `oldest`.
    pub(super) fn compacted(&mut self, oldest: Revision) {
        for slot in self.live() {
            let at = slot.lock().complete;
            if at < oldest {
                slot.end(Error::Compacted {
                    requested: at,
                    oldest,
                });
            }
        }
    }

    /// Ends every watch.
    pub(super) fn end(&mut self, error: &Error) {
        for slot in self.live() {
            slot.end(error.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64, key: &str, size: usize) -> Event {
        Event {
            revision: Revision(revision),
            key: Bytes::copy_from_slice(key.as_bytes()),
            change: Change::Put(vec![0; size].into()),
            created: false,
        }
    }

    fn take(hub: &WatchHub, slot: &HubSlot) -> (Option<(Vec<u64>, u64)>, bool) {
        let (poll, behind) = slot.poll(Waker::noop(), hub.reached());
        let batch = match poll {
            Poll::Ready(batch) => {
                let batch = batch.unwrap();
                let revisions = batch.events.iter().map(|event| event.revision.0);
                Some((revisions.collect(), batch.revision.0))
            }
            Poll::Pending => None,
        };
        (batch, behind)
    }

    #[test]
    fn each_watch_gets_its_prefix_once_whoever_comes_late() {
        let mut hub = WatchHub::default();
        hub.go_back(Revision(10));
        let early = hub.add("a/".into(), Revision(10));
        hub.hand_out(&[event(11, "a/x", 1), event(12, "b/y", 1)], Revision(12));
        assert_eq!(take(&hub, &early), (Some((vec![11], 12)), false));
        let late = hub.add("b/".into(), Revision(10));
        assert_eq!(take(&hub, &late), (None, true), "it starts before the hub");
        hub.hand_out(&[event(13, "b/z", 1)], Revision(13));
        assert_eq!(take(&hub, &late), (None, true), "nothing is skipped");
        assert!(hub.needs().going_back);
        let start = hub.start().unwrap();
        assert_eq!(start, Revision(10));
        hub.go_back(start);
        let again = [
            event(11, "a/x", 1),
            event(12, "b/y", 1),
            event(13, "b/z", 1),
        ];
        hub.hand_out(&again, Revision(13));
        assert_eq!(take(&hub, &late), (Some((vec![12, 13], 13)), false));
        assert_eq!(take(&hub, &early), (None, false), "it has had it all");
        hub.hand_out(&[event(14, "a/x", 1)], Revision(14));
        assert_eq!(take(&hub, &early), (Some((vec![14], 14)), false));
    }

    #[test]
    fn a_full_queue_loses_nothing_and_holds_up_nobody() {
        let mut hub = WatchHub::default();
        hub.go_back(Revision(0));
        let slow = hub.add("".into(), Revision(0));
        let quick = hub.add("".into(), Revision(0));
        for revision in 1..=10 {
            hub.hand_out(&[event(revision, "k", 1 << 20)], Revision(revision));
            assert_eq!(take(&hub, &quick).0, Some((vec![revision], revision)));
        }
        let (Some((first, complete)), _) = take(&hub, &slow) else {
            panic!("it has a queue")
        };
        assert_eq!(first, (1..=complete).collect::<Vec<_>>());
        assert!(complete < 10, "the queue is bounded: {complete}");
        assert_eq!(take(&hub, &slow), (None, true));
        hub.go_back(hub.start().unwrap());
        for revision in complete + 1..=10 {
            hub.hand_out(&[event(revision, "k", 1)], Revision(revision));
        }
        let rest = (complete + 1..=10).collect::<Vec<_>>();
        assert_eq!(take(&hub, &slow), (Some((rest, 10)), false));
    }

    #[test]
    fn progress_is_told_up_to_what_was_asked_for() {
        let mut hub = WatchHub::default();
        hub.go_back(Revision(0));
        let slot = hub.add("a/".into(), Revision(0));
        hub.hand_out(&[event(5, "b/x", 1)], Revision(5));
        assert_eq!(take(&hub, &slot), (None, false), "nobody asked");
        slot.want(Revision(7));
        assert_eq!(take(&hub, &slot), (Some((vec![], 5)), false));
        assert_eq!(hub.needs().progress, Some(Revision(7)));
        hub.hand_out(&[], Revision(8));
        assert_eq!(take(&hub, &slot), (Some((vec![], 8)), false));
        assert_eq!(hub.needs().progress, None);
        hub.hand_out(&[], Revision(9));
        assert_eq!(take(&hub, &slot), (None, false));
    }

    #[test]
    fn compaction_ends_the_watches_that_need_what_is_gone() {
        let mut hub = WatchHub::default();
        let behind = hub.add("".into(), Revision(3));
        let fine = hub.add("".into(), Revision(8));
        hub.compacted(Revision(8));
        let (poll, _) = behind.poll(Waker::noop(), hub.reached());
        assert!(matches!(poll, Poll::Ready(Err(Error::Compacted { .. }))));
        assert_eq!(take(&hub, &fine), (None, false));
        assert_eq!(hub.start(), Some(Revision(8)));
    }
}
