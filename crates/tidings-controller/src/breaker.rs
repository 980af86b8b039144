//! The breaker: notices once that a server does not answer, and when it answers again. Pure: the caller gives the time.

use std::time::Duration;

use tokio::time::Instant;

/// The wait before the second probe; the first is sent at once.
const PROBE_FIRST: Duration = Duration::from_millis(50);
/// The longest wait between probes.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// Open while a server does not answer.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: Option<OpenBreaker>,
}

/// A server that does not answer.
#[derive(Debug)]
struct OpenBreaker {
    since: Instant,
    next_probe: Instant,
    wait: Duration,
}

impl Breaker {
    /// A request got no answer. True if that opens the breaker.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        if self.open.is_some() {
            return false;
        }
        // One lost connection is no dead server: the first probe follows at once.
        self.open = Some(OpenBreaker {
            since: now,
            next_probe: now,
            wait: PROBE_FIRST,
        });
        true
    }

    /// A probe was answered. Returns how long the breaker was open, if this closes it.
    pub(crate) fn succeeded(&mut self, now: Instant) -> Option<Duration> {
        let open = self.open.take()?;
        Some(now.saturating_duration_since(open.since))
    }

    /// A probe got no answer: the next one comes later.
    pub(crate) fn probe_failed(&mut self, now: Instant) {
        if let Some(open) = &mut self.open {
            open.next_probe = now + open.wait;
            open.wait = (open.wait * 2).min(PROBE_MAX);
        }
    }

    /// When the next probe is due; `None` if the breaker is closed.
    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.next_probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_server_is_noticed_once_and_asked_ever_more_seldom() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        assert!(breaker.failed(start));
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..7 {
            assert!(!breaker.failed(now), "it is open already");
            let due = breaker.next_probe().unwrap();
            waits.push((due - now).as_millis());
            now = due;
            breaker.probe_failed(now);
        }
        assert_eq!(waits, [0, 50, 100, 200, 400, 800, 1000]);
        now += Duration::from_secs(1);
        assert_eq!(breaker.succeeded(now), Some(now - start));
        assert_eq!(breaker.next_probe(), None);
        assert_eq!(breaker.succeeded(now), None);
        // The next outage begins with a probe at once.
        assert!(breaker.failed(now));
        assert_eq!(breaker.next_probe(), Some(now));
    }
}
