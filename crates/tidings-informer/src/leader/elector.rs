//! Carries out what an election decides.

use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::election::{Election, Notice, Now, Outcome, Step};
use super::lock::{LeaseLock, LockError};
use super::{BadElection, ElectionOptions};
use crate::source::BoxFuture;

/// Work that was told to end has at least this long, also if the lease is over already.
const END_LEAST: Duration = Duration::from_secs(1);

/// What a candidate does with the lead.
pub trait LeaderCallbacks: Send {
    /// It leads. The future is the leader's work: it runs as a task of its own, and is dropped when the lead is over. If it
    /// ends by itself, the lead goes on.
    fn on_started_leading(&mut self) -> BoxFuture<'static, ()>;

    /// It does not lead, or not any more, and its work has ended. Called once, whatever happened before: also if it never led,
    /// and when the future of [`LeaderElector::run`] is dropped.
    fn on_stopped_leading(&mut self);

    /// Somebody leads who did not before; it may be this candidate, which is told before it starts.
    fn on_new_leader(&mut self, identity: &str) {
        let _ = identity;
    }
}

/// Why a candidate does not stand any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionEnd {
    /// It was asked to stop.
    Stopped,
    /// It led, and could not renew the lease in time, or found it with another.
    Lost,
}

/// A candidate for the lead.
pub struct LeaderElector<L: ?Sized> {
    lock: Arc<L>,
    election: Election,
}

impl<L: LeaseLock + ?Sized> LeaderElector<L> {
    /// A candidate that has not started.
    ///
    /// # Errors
    /// If the times do not go together, or the lock has no identity.
    pub fn new(lock: Arc<L>, options: ElectionOptions) -> Result<LeaderElector<L>, BadElection> {
        options.check(lock.identity())?;
        Ok(LeaderElector {
            election: Election::new(options, lock.identity()),
            lock,
        })
    }

    /// Stands for the lead, leads, and renews, until `stop` is ready or the lead is lost. Who wants to stand again makes a new
    /// candidate.
    ///
    /// At the end, in this order: the leader's work is dropped, the lease is given back if the options say so and the candidate
    /// was asked to stop, and [`LeaderCallbacks::on_stopped_leading`] is called. ≠ client-go, which gives the lease back before
    /// it tells the work to end. Work that does not let go of its thread is waited for until the lease runs out, and the lease
    /// is then not given back.
    ///
    /// Dropping the future stops the work, without waiting for it and without giving the lease back.
    ///
    /// # Panics
    /// If the work does, after the same steps: a leader that does nothing must not keep others from leading.
    pub async fn run(
        mut self,
        callbacks: impl LeaderCallbacks,
        stop: impl Future<Output = ()>,
    ) -> ElectionEnd {
        let mut candidate = Candidate {
            callbacks,
            work: None,
        };
        let mut stop = pin!(stop);
        let panic = loop {
            let step = self.election.step(now());
            let outcome = tokio::select! {
                biased;
                () = &mut stop => break None,
                panic = panicked(&mut candidate.work) => break Some(panic),
                outcome = self.carry_out(step) => outcome,
            };
            for notice in self.election.observe(outcome, Instant::now()) {
                match notice {
                    Notice::NewLeader(identity) => candidate.callbacks.on_new_leader(&identity),
                    Notice::StartedLeading => {
                        let work = candidate.callbacks.on_started_leading();
                        candidate.work = Some(tokio::spawn(work));
                    }
                    Notice::LostLead => {
                        tracing::warn!(identity = self.lock.identity(), "the lead is lost");
                        candidate.end_work(self.election.lease_end()).await;
                        return ElectionEnd::Lost;
                    }
                }
            }
        };
        if candidate.end_work(self.election.lease_end()).await {
            self.give_back().await;
        }
        drop(candidate);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
        ElectionEnd::Stopped
    }

    async fn give_back(&mut self) {
        self.election.stop(Instant::now());
        loop {
            let step = self.election.step(now());
            if step == Step::End {
                return;
            }
            let outcome = self.carry_out(step).await;
            if let Outcome::Written(Err(error)) = &outcome {
                tracing::warn!(identity = self.lock.identity(), %error, "the lease is not given back");
            }
            self.election.observe(outcome, Instant::now());
        }
    }

    async fn carry_out(&self, step: Step) -> Outcome {
        let deadline = self.election.deadline(Instant::now());
        let late = || LockError::failed("no answer in time");
        match step {
            Step::Get => {
                let got = timeout_at(deadline, self.lock.get()).await;
                Outcome::Got(got.unwrap_or_else(|_| Err(late())))
            }
            Step::Create(record) => {
                let created = timeout_at(deadline, self.lock.create(record)).await;
                Outcome::Written(created.unwrap_or_else(|_| Err(late())))
            }
            Step::Update(record, version) => {
                let updated = timeout_at(deadline, self.lock.update(record, version)).await;
                Outcome::Written(updated.unwrap_or_else(|_| Err(late())))
            }
            Step::Wait(until) => {
                sleep_until(until).await;
                Outcome::Waited
            }
            // A candidate that has come to its end has lost the lead, and left.
            Step::End => std::future::pending().await,
        }
    }
}

/// Microseconds: that is what a lease keeps, and what was written must be known again.
fn now() -> Now {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    Now {
        instant: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + Duration::from_micros(micros),
    }
}

/// Waits until the work panics, and takes the panic.
async fn panicked(work: &mut Option<JoinHandle<()>>) -> Box<dyn Any + Send> {
    if let Some(running) = work {
        let ended = running.await;
        *work = None;
        if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
            return panic;
        }
    }
    std::future::pending().await
}

/// Says that it is over, whatever ends it.
struct Candidate<C: LeaderCallbacks> {
    callbacks: C,
    work: Option<JoinHandle<()>>,
}

impl<C: LeaderCallbacks> Candidate<C> {
    /// Ends the leader's work. Returns false if it has not ended when the lease has.
    async fn end_work(&mut self, lease_end: Option<Instant>) -> bool {
        let Some(work) = &mut self.work else {
            return true;
        };
        work.abort();
        let least = Instant::now() + END_LEAST;
        let until = lease_end.map_or(least, |end| end.max(least));
        let ended = timeout_at(until, work).await;
        if ended.is_err() {
            tracing::error!("the leader's work does not end, and the lease has");
        }
        ended.is_ok()
    }
}

impl<C: LeaderCallbacks> Drop for Candidate<C> {
    fn drop(&mut self) {
        if let Some(work) = &self.work {
            work.abort();
        }
        self.callbacks.on_stopped_leading();
    }
}

impl<L: LeaseLock + ?Sized> std::fmt::Debug for LeaderElector<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderElector")
            .field("identity", &self.lock.identity())
            .finish_non_exhaustive()
    }
}
