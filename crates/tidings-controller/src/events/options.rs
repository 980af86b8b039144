//! How events are counted, limited and retried.

use std::time::Duration;

use crate::times::FAR;

/// How an [`EventRecorder`](crate::EventRecorder) counts, limits and retries. The defaults are client-go's.
///
/// ```
/// use tidings_controller::EventOptions;
///
/// let mut options = EventOptions::default();
/// options.burst = 100;
/// assert_eq!(options.writes_max, 1000);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EventOptions {
    /// Events that are remembered, so that repeats count instead of being written. Of more, the one that was recorded longest ago is forgotten.
    /// As many objects are remembered for the rate limit.
    pub entries_max: usize,
    /// Writes that wait for the server. Events that need one more are dropped.
    pub writes_max: usize,
    /// New Events for one object and type before the rate limit drops more of them. Repeats do not count.
    pub burst: u32,
    /// How long it takes until the rate limit lets one more Event through.
    pub refill: Duration,
    /// A series without a repeat for this long is finished: its last count is written, and the next repeat is a new Event.
    pub finish_after: Duration,
    /// How often the count of a series that goes on is written.
    pub refresh_every: Duration,
    /// Attempts to write one Event, if the server answers other requests. Attempts while it is away do not count.
    pub tries_max: u32,
    /// The wait between two attempts, and up to a quarter more at random.
    pub retry_after: Duration,
}

impl EventOptions {
    /// The same, without times that would overflow an `Instant`.
    pub(crate) fn capped(mut self) -> EventOptions {
        for time in [
            &mut self.finish_after,
            &mut self.refresh_every,
            &mut self.retry_after,
        ] {
            *time = FAR.min(*time);
        }
        self
    }
}

impl Default for EventOptions {
    fn default() -> EventOptions {
        EventOptions {
            entries_max: 4096,
            writes_max: 1000,
            burst: 25,
            refill: Duration::from_secs(300),
            finish_after: Duration::from_secs(360),
            refresh_every: Duration::from_secs(1800),
            tries_max: 12,
            retry_after: Duration::from_secs(10),
        }
    }
}
