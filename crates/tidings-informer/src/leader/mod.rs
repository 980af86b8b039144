//! Leader election: one of several replicas of a program does the work.
//!
//! The replicas share a Lease object on the server. Its holder renews it. Each other candidate reads it regularly, and takes it
//! when it has not changed for the lease duration. Clocks of different machines are never compared: the age of a lease counts
//! from when this candidate saw its last change. `election` makes the decisions, without I/O and without a clock; `elector`
//! carries them out.
//!
//! A controller that finishes its reconciles when it is asked to stop, before another program leads:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use tidings_informer::leader::{ElectionOptions, LeaderElector, LeaseLock, StopSignal};
//! use tidings_informer::{Action, RunOptions, WorkQueue, run_controller};
//!
//! # async fn run(
//! #     lock: Arc<dyn LeaseLock>,
//! #     stop: impl Future<Output = ()>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let elector = LeaderElector::new(lock, ElectionOptions::default())?;
//! // Called for each term. Each term needs its own queue: a controller shuts its queue down when it stops.
//! let work = |stop: StopSignal| async move {
//!     let queue: WorkQueue<String> = WorkQueue::new();
//!     let reconcile = async |_| Ok::<_, std::fmt::Error>(Action::AwaitChange);
//!     run_controller(queue, RunOptions::default(), reconcile, stop.wait()).await;
//! };
//! elector.run_until_stopped(work, stop).await;
//! # Ok(())
//! # }
//! ```

mod election;
mod elector;
mod lock;
mod signal;

use std::time::Duration;

pub use elector::{ElectionEnd, LeaderCallbacks, LeaderElector};
pub use lock::{LeaseLock, LeaseRecord, LeaseVersion, LockError};
pub use signal::{StopSignal, Stopper};

/// The wait `d` of a candidate that does not lead is drawn from `[d, d * (1 + JITTER))`, so that candidates do not all try at
/// once.
const JITTER: f64 = 1.2;

/// Options of an election.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElectionOptions {
    /// How long other candidates wait after the last renewal before they take the lease. In whole seconds, as the lease stores
    /// it.
    pub lease_duration: Duration,
    /// A leader that has not renewed for this long stops leading. Counts from the start of its last successful write, so that it
    /// stops before another candidate may begin, however slow that write was.
    pub renew_deadline: Duration,
    /// How often a leader renews the lease, and other candidates read it.
    pub retry_period: Duration,
    /// How long the leader's work may take to end when the candidate is asked to stop; the lease is renewed meanwhile. Make it
    /// longer than [`RunOptions::grace`](crate::RunOptions::grace), so that a controller can return its summary. Zero aborts the
    /// work at once.
    pub drain: Duration,
    /// Release the lease when asked to stop, so that other candidates need not wait until it expires. Set it to false if anything
    /// keeps running after the future of [`LeaderCallbacks::on_started_leading`] has ended.
    pub release: bool,
    /// The seed of the random waits, to repeat them.
    pub seed: Option<u64>,
}

impl Default for ElectionOptions {
    fn default() -> ElectionOptions {
        ElectionOptions {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            drain: Duration::from_secs(35),
            release: true,
            seed: None,
        }
    }
}

impl ElectionOptions {
    /// Sets the three durations of the lease.
    #[must_use]
    pub fn times(
        mut self,
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> ElectionOptions {
        self.lease_duration = lease_duration;
        self.renew_deadline = renew_deadline;
        self.retry_period = retry_period;
        self
    }

    /// Sets how long the leader's work may take to end when the candidate is asked to stop.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> ElectionOptions {
        self.drain = drain;
        self
    }

    /// Sets whether to release the lease when asked to stop.
    #[must_use]
    pub fn release(mut self, release: bool) -> ElectionOptions {
        self.release = release;
        self
    }

    /// Sets the seed: equal seeds draw equal waits.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> ElectionOptions {
        self.seed = Some(seed);
        self
    }

    fn check(&self, identity: &str) -> Result<(), BadElection> {
        if identity.is_empty() {
            return Err(BadElection::NoIdentity);
        }
        if self.retry_period.is_zero() {
            return Err(BadElection::RetryPeriodIsZero);
        }
        let whole = self.lease_duration.subsec_nanos() == 0;
        if !whole || !(1..=u64::from(u32::MAX)).contains(&self.lease_duration.as_secs()) {
            return Err(BadElection::LeaseDurationIsNotInSeconds(
                self.lease_duration,
            ));
        }
        if self.lease_duration <= self.renew_deadline {
            return Err(BadElection::LeaseDurationTooShort {
                lease_duration: self.lease_duration,
                renew_deadline: self.renew_deadline,
            });
        }
        if self.renew_deadline.as_secs_f64() <= self.retry_period.as_secs_f64() * JITTER {
            return Err(BadElection::RenewDeadlineTooShort {
                renew_deadline: self.renew_deadline,
                retry_period: self.retry_period,
            });
        }
        Ok(())
    }
}

/// Invalid options of an election.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadElection {
    /// There could be two leaders at once.
    #[error(
        "the lease duration ({lease_duration:?}) must be greater than the renew deadline ({renew_deadline:?})"
    )]
    LeaseDurationTooShort {
        /// The lease duration.
        lease_duration: Duration,
        /// The renew deadline, which it must exceed.
        renew_deadline: Duration,
    },
    /// A leader would stop before it tries to renew.
    #[error(
        "the renew deadline ({renew_deadline:?}) must be greater than 1.2 times the retry period ({retry_period:?})"
    )]
    RenewDeadlineTooShort {
        /// The renew deadline.
        renew_deadline: Duration,
        /// The retry period, which it must exceed by a factor of 1.2.
        retry_period: Duration,
    },
    /// A lease stores its duration in whole seconds.
    #[error("the lease duration ({0:?}) must be in whole seconds, and at least one")]
    LeaseDurationIsNotInSeconds(Duration),
    /// The server would get requests without a pause.
    #[error("the retry period must be greater than zero")]
    RetryPeriodIsZero,
    /// An empty holder means that the lease has no holder.
    #[error("the identity of the lock is empty")]
    NoIdentity,
}
