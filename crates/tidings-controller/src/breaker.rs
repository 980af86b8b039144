//! The breaker: notices once that a server does not answer, and when it answers again. Pure: the caller gives the time.

use std::time::Duration;

use tokio::time::Instant;

/// The wait before the second probe; the first is sent at once.
const PROBE_FIRST: Duration = Duration::from_millis(50);
/// The longest wait between probes.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// How long a server that says that it is not ready is waited for. Some never say that they are: one failing check is enough.
const NOT_READY_MAX: Duration = Duration::from_secs(60);

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeAnswer {
    /// The server is ready, or does not tell whether it is.
    Ready,
    /// The server answers and says that it is not ready: it has just started and would refuse what it will serve soon.
    NotReady,
    /// No answer, or that of a proxy that has no server.
    None,
}

/// Open while a server does not answer or is not ready.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// The server was waited for in vain, and has not said since that it is ready: its answers count as those of a ready one.
    is_never_ready: bool,
    open: Option<OpenBreaker>,
}

/// A server that does not answer.
#[derive(Debug)]
struct OpenBreaker {
    since: Instant,
    next_probe: Instant,
    wait: Duration,
    /// Since when the server answers that it is not ready.
    not_ready_since: Option<Instant>,
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
            not_ready_since: None,
        });
        true
    }

    /// A probe has ended. Returns how long the breaker was open, if this closes it; otherwise the next probe comes later.
    pub(crate) fn probed(&mut self, answer: ProbeAnswer, now: Instant) -> Option<Duration> {
        let open = self.open.as_mut()?;
        let is_ready = match answer {
            ProbeAnswer::Ready => {
                self.is_never_ready = false;
                true
            }
            ProbeAnswer::NotReady => {
                let waited = now - *open.not_ready_since.get_or_insert(now);
                self.is_never_ready |= waited >= NOT_READY_MAX;
                self.is_never_ready
            }
            ProbeAnswer::None => {
                open.not_ready_since = None;
                false
            }
        };
        if is_ready {
            let since = open.since;
            self.open = None;
            return Some(now.saturating_duration_since(since));
        }
        open.next_probe = now + open.wait;
        open.wait = (open.wait * 2).min(PROBE_MAX);
        None
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
            assert_eq!(breaker.probed(ProbeAnswer::None, now), None);
        }
        assert_eq!(waits, [0, 50, 100, 200, 400, 800, 1000]);
        now += Duration::from_secs(1);
        let ready = ProbeAnswer::Ready;
        assert_eq!(breaker.probed(ready, now), Some(now - start));
        assert_eq!(breaker.next_probe(), None);
        assert_eq!(breaker.probed(ready, now), None);
        // The next outage begins with a probe at once.
        assert!(breaker.failed(now));
        assert_eq!(breaker.next_probe(), Some(now));
    }

    #[test]
    fn a_server_that_never_says_that_it_is_ready_is_waited_for_only_so_long() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        breaker.failed(start);
        let second = Duration::from_secs(1);
        assert_eq!(breaker.probed(ProbeAnswer::NotReady, start), None);
        let almost = start + NOT_READY_MAX - second;
        assert_eq!(breaker.probed(ProbeAnswer::NotReady, almost), None);
        assert_eq!(breaker.probed(ProbeAnswer::None, almost), None);
        let again = almost + second;
        assert_eq!(
            breaker.probed(ProbeAnswer::NotReady, again),
            None,
            "it was away in between"
        );
        let end = again + NOT_READY_MAX;
        assert_eq!(
            breaker.probed(ProbeAnswer::NotReady, end),
            Some(end - start)
        );
        // It is not waited for again, until it has been ready once.
        let zero = Some(Duration::ZERO);
        assert!(breaker.failed(end));
        assert_eq!(breaker.probed(ProbeAnswer::NotReady, end), zero);
        assert!(breaker.failed(end));
        assert_eq!(breaker.probed(ProbeAnswer::Ready, end), zero);
        assert!(breaker.failed(end));
        assert_eq!(breaker.probed(ProbeAnswer::NotReady, end), None);
    }
}
