//! When history ends: a pure rule over times and revisions.

use std::collections::VecDeque;
use std::time::Duration;

use crate::contract::Revision;

/// Marks are this far apart: 10 minutes of history are 600 of them.
const MARK_SPACING_MS: u64 = 1000;

/// How much history is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) age: Duration,
    pub(crate) revisions_min: u64,
}

/// Remembers when which revision was reached, at most once a second.
#[derive(Debug, Default)]
pub(crate) struct Times(VecDeque<(u64, Revision)>);

impl Times {
    /// Notes that `revision` was written at `written_ms`. A clock that goes back is taken as standing still.
    pub(crate) fn note(&mut self, written_ms: u64, revision: Revision) {
        match self.0.back_mut() {
            Some((last_ms, last)) if written_ms < *last_ms + MARK_SPACING_MS => {
                *last = revision.max(*last);
            }
            _ => self.0.push_back((written_ms, revision)),
        }
    }

    /// History starts at a revision: what is before it needs no marks.
    pub(crate) fn start_at(&mut self, oldest: Revision) {
        while self
            .0
            .front()
            .is_some_and(|(_, revision)| *revision <= oldest)
        {
            self.0.pop_front();
        }
    }

    /// When the first revision that is marked was written.
    pub(crate) fn first_ms(&self) -> Option<u64> {
        self.0.front().map(|(ms, _)| *ms)
    }

    /// The revision at which history should start: the last one that is older than the age to keep, but at least
    /// `revisions_min` revisions before the current one. See [`Times::start_at`] for when it does.
    pub(crate) fn oldest(&self, now_ms: u64, current: Revision, keep: Keep) -> Revision {
        let horizon_ms = now_ms.saturating_sub(keep.age.as_millis() as u64);
        let by_count = Revision(current.0.saturating_sub(keep.revisions_min));
        // A mark covers a second: everything in it is older than the horizon once that second has passed.
        let old = self
            .0
            .iter()
            .take_while(|(ms, _)| ms + MARK_SPACING_MS <= horizon_ms);
        let newest = old.map(|(_, revision)| *revision).last();
        newest.unwrap_or_default().min(by_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Keep = Keep {
        age: Duration::from_secs(600),
        revisions_min: 10,
    };

    fn times() -> Times {
        let mut times = Times::default();
        for second in 0..1000 {
            times.note(second * 1000, Revision(second * 2 + 1));
            times.note(second * 1000 + 500, Revision(second * 2 + 2));
        }
        times
    }

    #[test]
    fn history_ends_by_age() {
        assert_eq!(times().oldest(700_000, Revision(2000), KEEP), Revision(200));
        assert_eq!(
            times().oldest(599_000, Revision(2000), KEEP),
            Revision(0),
            "nothing is that old yet"
        );
    }

    #[test]
    fn the_last_revisions_stay_however_old() {
        assert_eq!(
            times().oldest(9_000_000, Revision(2000), KEEP),
            Revision(1990)
        );
        let all = Keep {
            revisions_min: 5000,
            ..KEEP
        };
        assert_eq!(times().oldest(9_000_000, Revision(2000), all), Revision(0));
    }

    #[test]
    fn a_clock_that_goes_back_forgets_nothing_early() {
        let mut times = Times::default();
        times.note(100_000, Revision(1));
        times.note(50_000, Revision(2));
        assert_eq!(
            times.oldest(101_000 + 599_999, Revision(100), KEEP),
            Revision(0)
        );
        assert_eq!(
            times.oldest(101_000 + 600_000, Revision(100), KEEP),
            Revision(2)
        );
    }
}
