//! Group commit: counts the waiting writes, and decides whether the next commit waits for more of them.
//!
//! A sync costs as much for one write as for ten. Without this wait, many writers on a fast disk would each cause a sync of their
//! own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A commit that takes less than this is not worth a wait.
const COMMIT_MIN: Duration = Duration::from_micros(50);
/// The maximum wait for more writes, on any disk.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// The number of writes at which the commit stops waiting: with so many sharing a sync, more would gain less than the delay
/// costs.
const ENOUGH: u64 = 8;

/// The writes that wait for a commit.
#[derive(Default)]
pub(super) struct WaitingWrites {
    waiting: AtomicU64,
    /// The number of waiting writes that wakes the committer; 0 if it does not sleep.
    wanted: AtomicU64,
    committer: OnceLock<Thread>,
}

impl WaitingWrites {
    /// The number of waiting writes.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Counts writes before they are sent to the committer, so that they are never taken before they are counted. Returns the
    /// number of waiting writes.
    pub(super) fn enter(&self, count: u64) -> u64 {
        self.waiting.fetch_add(count, Ordering::SeqCst) + count
    }

    /// Tells the committer that the `count`-th waiting write has been sent; wakes it if it waits for that one.
    pub(super) fn entered(&self, count: u64) {
        if count == self.wanted.load(Ordering::SeqCst)
            && let Some(committer) = self.committer.get()
        {
            committer.unpark();
        }
    }

    /// Subtracts writes that the committer has taken or that could not be sent.
    pub(super) fn leave(&self, count: u64) {
        self.waiting.fetch_sub(count, Ordering::SeqCst);
    }

    /// Sleeps until `wanted` writes wait or `longest` has passed. Waking the committer for each write would cost more than the
    /// sync.
    pub(super) fn wait_for(&self, wanted: u64, longest: Duration) {
        self.committer.get_or_init(std::thread::current);
        let until = Instant::now() + longest;
        self.wanted.store(wanted, Ordering::SeqCst);
        while self.waiting() < wanted {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        self.wanted.store(0, Ordering::SeqCst);
    }
}

/// The last commit, from which the size of the next is estimated.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastCommit {
    /// The number of writes in the commit.
    pub(super) writes: u64,
    /// The number of writes that waited when the commit was durable, before its writers got their answers.
    pub(super) meanwhile: u64,
    /// The time until the commit was durable.
    pub(super) took: Duration,
}

impl LastCommit {
    /// The number of writers that the next commit waits for, and the maximum wait: the writers of the last commit, who may write
    /// again, and those that came meanwhile, up to [`ENOUGH`]. A single writer never waits, and no wait is longer than a commit.
    pub(super) fn expects(self) -> Option<(u64, Duration)> {
        let writers = self.writes + self.meanwhile;
        let worth = writers > 1 && self.took >= COMMIT_MIN;
        worth.then(|| (writers.min(ENOUGH), self.took.min(WAIT_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const COMMIT: Duration = Duration::from_micros(400);
    const LONG: Duration = Duration::from_secs(20);

    fn after(writes: u64, meanwhile: u64, took: Duration) -> Option<(u64, Duration)> {
        let last = LastCommit {
            writes,
            meanwhile,
            took,
        };
        last.expects()
    }

    #[test]
    fn a_lone_writer_waits_for_nobody() {
        assert_eq!(LastCommit::default().expects(), None);
        assert_eq!(after(1, 0, COMMIT), None);
        assert_eq!(after(0, 0, LONG), None);
    }

    #[test]
    fn who_wrote_last_and_who_came_meanwhile_are_waited_for() {
        assert_eq!(after(1, 1, COMMIT), Some((2, COMMIT)));
        assert_eq!(after(3, 0, COMMIT), Some((3, COMMIT)));
        assert_eq!(after(5, 3, LONG), Some((ENOUGH, WAIT_MAX)));
        assert_eq!(after(50, 14, COMMIT), Some((ENOUGH, COMMIT)));
        // A store in memory, or a very fast disk.
        assert_eq!(after(5, 3, COMMIT_MIN / 2), None);
    }

    #[test]
    fn the_last_of_those_waited_for_ends_the_wait() {
        let crowd = Arc::new(WaitingWrites::default());
        crowd.entered(crowd.enter(1));
        let waits = std::thread::spawn({
            let crowd = crowd.clone();
            move || crowd.wait_for(3, LONG)
        });
        while crowd.wanted.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let started = Instant::now();
        crowd.entered(crowd.enter(1));
        assert!(!waits.is_finished());
        crowd.entered(crowd.enter(1));
        waits.join().unwrap();
        assert!(started.elapsed() < LONG / 2, "it was not woken");
        assert_eq!(crowd.waiting(), 3);
        crowd.leave(3);
        // The wait ends also if no writer comes.
        crowd.wait_for(1, Duration::from_millis(1));
        assert_eq!(crowd.waiting(), 0);
    }
}
