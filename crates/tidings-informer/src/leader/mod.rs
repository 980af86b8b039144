//! Leader election: of several programs that could do a work, one does it.
//!
//! They share a lease, an object of the server. Who holds it renews it; who does not watches whether it is renewed, and takes it
//! when it has not been for as long as it says. Nobody compares clocks: how old a lease is counts from when its last change was
//! seen here. The decisions are in `election`, which knows no clock and does no I/O; `elector` carries them out.
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
//! // Called for each term. A queue is of one term, as a controller that stops shuts it down.
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
pub use signal::StopSignal;

/// A wait `d` of who does not lead is drawn from `[d, d × (1 + JITTER))`, so that many do not try at once.
const JITTER: f64 = 1.2;

/// How an election goes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElectionOptions {
    /// How long others wait after the last renewal before they take the lease. In whole seconds, as it is written there.
    pub lease_duration: Duration,
    /// A leader that has not renewed for so long stops leading. Counts from before the last write that succeeded, so that it is
    /// over before anybody else may begin, however slow that write was.
    pub renew_deadline: Duration,
    /// How often a leader renews and others look.
    pub retry_period: Duration,
    /// How long the leader's work may take to end when the candidate is asked to stop; the lease is renewed meanwhile. Longer
    /// than [`RunOptions::grace`](crate::RunOptions::grace), so that a controller can say what it left. Zero drops the work at
    /// once.
    pub drain: Duration,
    /// Give the lease back when asked to stop, so that others need not wait for its end. Who leaves anything running behind the
    /// future of [`LeaderCallbacks::on_started_leading`] must not.
    pub release: bool,
    /// Makes waits repeatable.
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
    /// Other times.
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

    /// How long the leader's work may take to end when the candidate is asked to stop.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> ElectionOptions {
        self.drain = drain;
        self
    }

    /// Whether to give the lease back when asked to stop.
    #[must_use]
    pub fn release(mut self, release: bool) -> ElectionOptions {
        self.release = release;
        self
    }

    /// The same seed draws the same waits.
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

/// An election that could not go well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadElection {
    /// Two leaders could lead at once.
    #[error(
        "the lease duration ({lease_duration:?}) must be greater than the renew deadline ({renew_deadline:?})"
    )]
    LeaseDurationTooShort {
        /// What it is.
        lease_duration: Duration,
        /// What it must exceed.
        renew_deadline: Duration,
    },
    /// A leader would stop before it has tried to renew.
    #[error(
        "the renew deadline ({renew_deadline:?}) must be greater than 1.2 times the retry period ({retry_period:?})"
    )]
    RenewDeadlineTooShort {
        /// What it is.
        renew_deadline: Duration,
        /// What it must exceed by a factor of 1.2.
        retry_period: Duration,
    },
    /// The lease duration is written in whole seconds.
    #[error("the lease duration ({0:?}) must be in whole seconds, and at least one")]
    LeaseDurationIsNotInSeconds(Duration),
    /// The server would be asked without pause.
    #[error("the retry period must be greater than zero")]
    RetryPeriodIsZero,
    /// An empty holder means that nobody holds the lease.
    #[error("the identity of the lock is empty")]
    NoIdentity,
}
