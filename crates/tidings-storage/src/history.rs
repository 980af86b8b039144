//! Decides which history is old enough to be compacted. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::contract::Revision;

/// The distance between two marks: 10 minutes of history have 600 marks.
const MARK_SPACING_MS: u64 = 1000;

/// How much history must be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HistoryLimits {
    pub(crate) age: Duration,
    pub(crate) revisions_min: u64,
}

/// The times at which revisions were written, with a mark per second.
#[derive(Debug, Default)]
pub(crate) struct RevisionTimes(VecDeque<(u64, Revision)>);

impl RevisionTimes {
    /// Notes that `revision` was written at `written_ms`. A clock that goes back counts as standing still.
    pub(crate) fn note(&mut self, written_ms: u64, revision: Revision) {
        match self.0.back_mut() {
            Some((last_ms, last)) if written_ms < *last_ms + MARK_SPACING_MS => {
                *last = revision.max(*last);
            }
            _ => self.0.push_back((written_ms, revision)),
        }
    }

    /// Drops the marks before the start of history.
    pub(crate) fn start_at(&mut self, oldest: Revision) {
        while self
            .0
            .front()
            .is_some_and(|(_, revision)| *revision <= oldest)
        {
            self.0.pop_front();
        }
    }

    /// The time of the first mark.
    pub(crate) fn first_ms(&self) -> Option<u64> {
        self.0.front().map(|(ms, _)| *ms)
    }

    /// The revision at which history may start: the last one that is older than the minimum age, but at least `revisions_min`
    /// revisions before the current one. The caller compacts and then calls [`RevisionTimes::start_at`].
    pub(crate) fn oldest(&self, now_ms: u64, current: Revision, keep: HistoryLimits) -> Revision {
        let horizon_ms = now_ms.saturating_sub(keep.age.as_millis() as u64);
        let by_count = Revision(current.0.saturating_sub(keep.revisions_min));
        // A mark covers one second, so all of it is old only when that whole second is before the horizon.
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

    const KEEP: HistoryLimits = HistoryLimits {
        age: Duration::from_secs(600),
        revisions_min: 10,
    };

    fn times() -> RevisionTimes {
        let mut times = RevisionTimes::default();
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
        let all = HistoryLimits {
            revisions_min: 5000,
            ..KEEP
        };
        assert_eq!(times().oldest(9_000_000, Revision(2000), all), Revision(0));
    }

    #[test]
    fn a_clock_that_goes_back_forgets_nothing_early() {
        let mut times = RevisionTimes::default();
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
