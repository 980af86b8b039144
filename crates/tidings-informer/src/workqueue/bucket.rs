//! A token bucket: a burst at once, then a steady rate.

use std::time::Duration;

use tokio::time::Instant;

use super::FAR;
use super::limit::RateLimiter;
use crate::sync::{Mutex, lock};

/// Holds up to `burst` tokens and gains `rate` a second. Shared by reference.
#[derive(Debug)]
pub struct TokenBucket {
    rate: f64,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Below zero when tokens of the future are promised.
    tokens: f64,
    /// When `tokens` was right; `None` before the first use.
    last: Option<Instant>,
    /// When the last promised token comes.
    promised: Option<Instant>,
}

/// Why [`TokenBucket::wait`] gave no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The next token comes after the deadline. This is known, and said, before any wait.
    #[error("the next token comes after the deadline")]
    Deadline,
}

impl TokenBucket {
    /// `rate` tokens a second; a bucket that is full at first. A rate that is not positive never gains a token; a burst of none
    /// counts as one.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> TokenBucket {
        let burst = f64::from(burst.max(1));
        TokenBucket {
            rate: if rate > 0.0 { rate } else { 0.0 },
            burst,
            state: Mutex::new(State {
                tokens: burst,
                last: None,
                promised: None,
            }),
        }
    }

    /// Takes a token if there is one.
    pub fn try_accept(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        self.gain(&mut state, now);
        let there = state.tokens >= 1.0;
        if there {
            state.tokens -= 1.0;
        }
        there
    }

    /// Takes a token, perhaps one of the future, and says how long to wait for it.
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

    fn promise(&self, state: &mut State, ready: Instant) {
        state.tokens -= 1.0;
        state.promised = state.promised.max(Some(ready));
    }

    fn gain(&self, state: &mut State, now: Instant) {
        let passed = state
            .last
            .map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        state.tokens = (state.tokens + passed.as_secs_f64() * self.rate).min(self.burst);
        state.last = state.last.max(Some(now));
    }

    /// How long until a balance of `tokens` is made good.
    fn wait_for(&self, tokens: f64) -> Duration {
        if tokens >= 0.0 {
            return Duration::ZERO;
        }
        // Fails for a rate of nought, where the quotient is infinite.
        Duration::try_from_secs_f64(-tokens / self.rate).map_or(FAR, |wait| wait.min(FAR))
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&mut self, _: &T, now: Instant) -> Duration {
        self.reserve(now)
    }

    fn forget(&mut self, _: &T, _: Instant) {}

    fn num_requeues(&self, _: &T, _: Instant) -> u32 {
        0
    }
}

/// A promised token that goes back if nobody stays to use it.
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
        // Those who came later keep their times, so the tokens promised after this one are not free: giving them out again would
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
