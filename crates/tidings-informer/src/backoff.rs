//! Exponential backoff with jitter.

use std::time::Duration;

use tokio::time::Instant;

/// How waits grow. Invalid values are replaced by the nearest valid ones: waits never shrink, and last at least a millisecond.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BackoffOptions {
    /// The first wait.
    pub first: Duration,
    /// Each wait is this many times as long as the one before.
    pub factor: f64,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// A wait `d` is drawn from `[d, d * (1 + jitter))`, so that many clients that fail together do not retry together.
    pub jitter: f64,
    /// Waits start over after this long without a failure. Time that passes in an outage does not count.
    pub reset_after: Duration,
}

/// The shortest wait: retries without a pause would be a busy loop.
const WAIT_LEAST: Duration = Duration::from_millis(1);

impl Default for BackoffOptions {
    fn default() -> BackoffOptions {
        BackoffOptions {
            first: Duration::from_millis(800),
            factor: 2.0,
            max: Duration::from_secs(30),
            jitter: 1.0,
            reset_after: Duration::from_secs(120),
        }
    }
}

impl BackoffOptions {
    /// Sets the first and the longest wait.
    #[must_use]
    pub fn between(mut self, first: Duration, max: Duration) -> BackoffOptions {
        self.first = first;
        self.max = max;
        self
    }

    /// Sets the jitter; zero for none.
    #[must_use]
    pub fn jitter(mut self, jitter: f64) -> BackoffOptions {
        self.jitter = jitter;
        self
    }
}

/// Counts failures and says how long to wait after each. Reads no clock: the caller passes the time.
#[derive(Debug)]
pub struct ExponentialBackoff {
    options: BackoffOptions,
    failures: u32,
    healthy_since: Option<Instant>,
    rng: fastrand::Rng,
}

impl ExponentialBackoff {
    /// A backoff without failures. Equal seeds draw equal waits.
    pub fn new(mut options: BackoffOptions, seed: u64) -> ExponentialBackoff {
        options.first = options.first.max(WAIT_LEAST);
        options.max = options.max.max(options.first);
        // `max` also replaces NaN.
        options.factor = options.factor.max(1.0);
        options.jitter = options.jitter.max(0.0);
        ExponentialBackoff {
            options,
            failures: 0,
            healthy_since: None,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Records that the operation works. After [`BackoffOptions::reset_after`] without a failure, earlier failures are forgotten.
    pub fn healthy(&mut self, now: Instant) {
        self.healthy_since.get_or_insert(now);
    }

    /// Records a failure and returns how long to wait.
    pub fn failed(&mut self, now: Instant) -> Duration {
        let healthy = self.healthy_since.take();
        if healthy.is_some_and(|since| now.duration_since(since) >= self.options.reset_after) {
            self.failures = 0;
        }
        let grown = self.options.first.as_secs_f64()
            * self.options.factor.powi(self.failures.min(1000) as i32);
        let base = grown.min(self.options.max.as_secs_f64());
        self.failures = self.failures.saturating_add(1);
        Duration::from_secs_f64(base * (1.0 + self.options.jitter * self.rng.f64()))
    }

    /// Forgets earlier failures: their cause is known to be gone.
    pub fn start_over(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}
