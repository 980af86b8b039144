//! Writers that come together: how many of them wait, and whether the next group waits for more of them.
//!
//! A sync costs as much for one write as for ten. Where it is fast and writers are many, each of them would have one of its own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What takes less than this is not worth the wait.
const COMMIT_MIN: Duration = Duration::from_micros(50);
/// Nobody waits longer for others, however slow the disk is.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// Of the cost of a sync that so many share, little is left for each: to wait for more gains less than it delays.
const ENOUGH: u64 = 8;

/// The writes that wait for a commit.
#[derive(Default)]
pub(super) struct Crowd {
    waiting: AtomicU64,
    /// The committer sleeps until so many wait; 0 if it does not.
    wanted: AtomicU64,
    committer: OnceLock<Thread>,
}

impl Crowd {
    /// How many writes wait.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Counts writes before they are handed over, so that they are counted when they are taken. Returns how many wait with them.
    pub(super) fn enter(&self, count: u64) -> u64 {
        self.waiting.fetch_add(count, Ordering::SeqCst) + count
    }

    /// The write that was so many-th is handed over now.
    pub(super) fn entered(&self, count: u64) {
        if count == self.wanted.load(Ordering::SeqCst)
            && let Some(committer) = self.committer.get()
        {
            committer.unpark();
        }
    }

    /// So many writes have been taken, or could not be handed over.
    pub(super) fn leave(&self, count: u64) {
        self.waiting.fetch_sub(count, Ordering::SeqCst);
    }

    /// The committer sleeps until so many wait, or for so long. To be woken for each of them would cost more than the sync.
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

/// What the last commit says of the next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    /// How many writes it had.
    pub(super) writes: u64,
    /// How many waited when it was durable and nobody was answered yet.
    pub(super) meanwhile: u64,
    /// How long it took to make it durable.
    pub(super) took: Duration,
}

impl Last {
    /// How many writers the next commit waits for, and how long at most: those of the last one, who may write again, and those who
    /// came meanwhile, unless they are enough. A lone writer waits for nobody, and nobody waits for longer than a commit takes.
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
        let last = Last {
            writes,
            meanwhile,
            took,
        };
        last.expects()
    }

    #[test]
    fn a_lone_writer_waits_for_nobody() {
        assert_eq!(Last::default().expects(), None);
        assert_eq!(after(1, 0, COMMIT), None);
        assert_eq!(after(0, 0, LONG), None);
    }

    #[test]
    fn who_wrote_last_and_who_came_meanwhile_are_waited_for() {
        assert_eq!(after(1, 1, COMMIT), Some((2, COMMIT)));
        assert_eq!(after(3, 0, COMMIT), Some((3, COMMIT)));
        assert_eq!(after(5, 3, LONG), Some((ENOUGH, WAIT_MAX)));
        assert_eq!(after(50, 14, COMMIT), Some((ENOUGH, COMMIT)));
        // A store in memory, or a disk that costs nothing.
        assert_eq!(after(5, 3, COMMIT_MIN / 2), None);
    }

    #[test]
    fn the_last_of_those_waited_for_ends_the_wait() {
        let crowd = Arc::new(Crowd::default());
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
        // Who does not come is not waited for without end.
        crowd.wait_for(1, Duration::from_millis(1));
        assert_eq!(crowd.waiting(), 0);
    }
}
