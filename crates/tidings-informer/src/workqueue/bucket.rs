//! A token bucket: allows a burst at once, then a steady rate.

use std::time::Duration;

use tokio::time::Instant;

use super::FAR;
use crate::sync::{Mutex, lock};

/// Holds up to `burst` tokens and gains `rate` tokens a second.
#[derive(Debug)]
pub struct TokenBucket {
    rate: f64,
    burst: f64,
    state: Mutex<BucketState>,
}

/// The tokens under their lock.
#[derive(Debug)]
struct BucketState {
    /// Negative when future tokens are reserved.
    tokens: f64,
    /// When `tokens` was computed; `None` before the first use.
    last: Option<Instant>,
    /// When the last reserved token becomes available.
    promised: Option<Instant>,
}

/// Why [`TokenBucket::wait`] gave no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The next token would come after the deadline. Returned at once, without waiting.
    #[error("the next token comes after the deadline")]
    Deadline,
}

impl TokenBucket {
    /// A full bucket that gains `rate` tokens a second. With a rate that is not positive it gains none; a burst of zero counts as
    /// one.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> TokenBucket {
        let burst = f64::from(burst.max(1));
        TokenBucket {
            rate: if rate > 0.0 { rate } else { 0.0 },
            burst,
            state: Mutex::new(BucketState {
                tokens: burst,
                last: None,
                promised: None,
            }),
        }
    }

    /// Takes a token if one is available.
    pub fn try_accept(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        self.gain(&mut state, now);
        let there = state.tokens >= 1.0;
        if there {
            state.tokens -= 1.0;
        }
        there
    }

    /// Reserves the next token, and returns how long to wait for it.
    pub fn reserve(&self, now: Instant) -> Duration {
        let mut state = lock(&self.state);
        self.gain(&mut state, now);
        let wait = self.wait_for(state.tokens - 1.0);
        self.promise(&mut state, now + wait);
        wait
    }

    /// Waits for a token, in order of arrival.
    ///
    /// Fails at once if the token would come after `deadline`. Dropping the future gives the token back.
    ///
    /// # Errors
    /// [`WaitError::Deadline`] if the token would come too late.
    pub async fn wait(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let now = Instant::now();
        let ready = {
            let mut state = lock(&self.state);
            self.gain(&mut state, now);
            let ready = now + self.wait_for(state.tokens - 1.0);
            if deadline.is_some_and(|deadline| ready > deadline) {
                return Err(WaitError::Deadline);
            }
            self.promise(&mut state, ready);
            ready
        };
        if ready > now {
            let mut reservation = Reservation {
                bucket: self,
                ready,
                used: false,
            };
            tokio::time::sleep_until(ready).await;
            reservation.used = true;
        }
        Ok(())
    }

    fn promise(&self, state: &mut BucketState, ready: Instant) {
        state.tokens -= 1.0;
        state.promised = state.promised.max(Some(ready));
    }

    fn gain(&self, state: &mut BucketState, now: Instant) {
        let passed = state
            .last
            .map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        state.tokens = (state.tokens + passed.as_secs_f64() * self.rate).min(self.burst);
        state.last = state.last.max(Some(now));
    }

    /// How long until a negative balance of `tokens` is back at zero.
    fn wait_for(&self, tokens: f64) -> Duration {
        if tokens >= 0.0 {
            return Duration::ZERO;
        }
        // Fails for a rate of zero, where the quotient is infinite.
        Duration::try_from_secs_f64(-tokens / self.rate).map_or(FAR, |wait| wait.min(FAR))
    }
}

/// A reserved token. Dropping it unused returns it to the bucket.
struct Reservation<'a> {
    bucket: &'a TokenBucket,
    ready: Instant,
    used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.used {
            return;
        }
        let mut state = lock(&self.bucket.state);
        // Later reservations keep their times, so the tokens reserved after this one are not free: to return the full token would
        // let two through at once.
        let later = state.promised.map_or(Duration::ZERO, |last| {
            last.saturating_duration_since(self.ready)
        });
        let restored = 1.0 - later.as_secs_f64() * self.bucket.rate;
        if restored > 0.0 {
            state.tokens = (state.tokens + restored).min(self.bucket.burst);
        }
    }
}
