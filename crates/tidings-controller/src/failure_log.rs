//! Sums up failures for the log: the first ones are logged one by one, then only how many there were. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The failures that are logged one by one in a window.
const SINGLE_MAX: u64 = 10;
/// How long failures are counted before their number is logged.
const WINDOW: Duration = Duration::from_secs(10);

/// Decides how failures are logged.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    window: Option<FailureWindow>,
}

#[derive(Debug)]
struct FailureWindow {
    start: Instant,
    failures: u64,
}

/// What to log of a failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailureNotice {
    /// Failures of the window before that were not logged.
    pub(crate) unlogged: u64,
    /// Log this failure itself.
    pub(crate) single: bool,
}

impl FailureLog {
    /// Counts a failure.
    pub(crate) fn failed(&mut self, now: Instant) -> FailureNotice {
        let unlogged = self.ended(now);
        let window = self.window.get_or_insert(FailureWindow {
            start: now,
            failures: 0,
        });
        window.failures += 1;
        FailureNotice {
            unlogged,
            single: window.failures <= SINGLE_MAX,
        }
    }

    /// Ends a window that is over, and returns how many of its failures were not logged.
    pub(crate) fn ended(&mut self, now: Instant) -> u64 {
        match &self.window {
            Some(window) if now.saturating_duration_since(window.start) >= WINDOW => {
                let unlogged = window.failures.saturating_sub(SINGLE_MAX);
                self.window = None;
                unlogged
            }
            _ => 0,
        }
    }

    /// When the current window ends.
    pub(crate) fn window_end(&self) -> Option<Instant> {
        self.window.as_ref().map(|window| window.start + WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_are_few_lines() {
        let start = Instant::now();
        let mut log = FailureLog::default();
        let mut lines = 0;
        for number in 0..30_000_u32 {
            // 3 000 failures a second, for ten seconds.
            let notice = log.failed(start + Duration::from_micros(333) * number);
            lines += u64::from(notice.single) + u64::from(notice.unlogged > 0);
        }
        assert_eq!(lines, SINGLE_MAX);
        assert_eq!(log.window_end(), Some(start + WINDOW));
        assert_eq!(log.ended(start + WINDOW), 30_000 - SINGLE_MAX);
        assert_eq!((log.ended(start + WINDOW), log.window_end()), (0, None));
        let notice = log.failed(start + WINDOW * 2);
        assert_eq!(
            notice,
            FailureNotice {
                unlogged: 0,
                single: true
            }
        );
    }
}
