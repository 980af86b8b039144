//! How long to wait after failures.

use std::time::Duration;

use tokio::time::Instant;

/// How waits grow. What makes no sense is taken for the nearest that does: waits never shrink, and are never shorter than a
/// millisecond.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BackoffOptions {
    /// The first wait.
    pub first: Duration,
    /// By what the next wait is longer.
    pub factor: f64,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// A wait `d` is drawn from `[d, d × (1 + jitter))`, so that many who fail at once do not come back at once.
    pub jitter: f64,
    /// Waits start over after this long without a failure. Only health counts: an outage resets nothing.
    pub reset_after: Duration,
}

/// Trying again without a pause is a busy loop.
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
    /// Other bounds.
    #[must_use]
    pub fn between(mut self, first: Duration, max: Duration) -> BackoffOptions {
        self.first = first;
        self.max = max;
        self
    }

    /// Another jitter; zero for none.
    #[must_use]
    pub fn jitter(mut self, jitter: f64) -> BackoffOptions {
        self.jitter = jitter;
        self
    }
}

/// Counts failures and says how long to wait after each. Pure: it is told the time and given its chance.
#[derive(Debug)]
pub struct ExponentialBackoff {
    options: BackoffOptions,
    failures: u32,
    healthy_since: Option<Instant>,
    chance: fastrand::Rng,
}

impl ExponentialBackoff {
    /// No failures yet. The same seed draws the same waits.
    pub fn new(mut options: BackoffOptions, seed: u64) -> ExponentialBackoff {
        options.first = options.first.max(WAIT_LEAST);
        options.max = options.max.max(options.first);
        // `max` also takes the other for what is no number.
        options.factor = options.factor.max(1.0);
        options.jitter = options.jitter.max(0.0);
        ExponentialBackoff {
            options,
            failures: 0,
            healthy_since: None,
            chance: fastrand::Rng::with_seed(seed),
        }
    }

    /// Something works. Health that lasts for [`BackoffOptions::reset_after`] forgets the failures before it.
    pub fn healthy(&mut self, now: Instant) {
        self.healthy_since.get_or_insert(now);
    }

    /// Something failed; this long to wait.
    pub fn failed(&mut self, now: Instant) -> Duration {
        let healthy = self.healthy_since.take();
        if healthy.is_some_and(|since| now.duration_since(since) >= self.options.reset_after) {
            self.failures = 0;
        }
        let grown = self.options.first.as_secs_f64()
            * self.options.factor.powi(self.failures.min(1000) as i32);
        let base = grown.min(self.options.max.as_secs_f64());
        self.failures = self.failures.saturating_add(1);
        Duration::from_secs_f64(base * (1.0 + self.options.jitter * self.chance.f64()))
    }

    /// How many failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}
