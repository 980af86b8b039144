//! Runs a candidate: carries out the steps of an election, and starts and stops the leader's work.

use std::any::Any;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::election::{Election, ElectionNotice, ElectionOutcome, ElectionStep, ElectionTime};
use super::lock::{LeaseLock, LockError};
use super::signal::{StopSignal, Stopper};
use super::{BadElection, ElectionOptions};
use crate::source::BoxFuture;
use crate::workqueue::FAR;

/// How long aborted work has to end at least, even if the lease has expired.
const END_LEAST: Duration = Duration::from_secs(1);

/// What a candidate does while it leads. A function from [`StopSignal`] to a future implements this; it is called for each term.
pub trait LeaderCallbacks: Send {
    /// The candidate became the leader. The future is the leader's work and runs as a task. When the lead is over, `stop` is
    /// raised, and the work has some time to end by itself before it is aborted; [`LeaderElector::run`] says how long. If the
    /// work ends earlier, the candidate stays the leader.
    fn on_started_leading(&mut self, stop: StopSignal) -> BoxFuture<'static, ()>;

    /// The term is over and the work has ended. Called once for each term, even if the candidate never led, and when the future
    /// of [`LeaderElector::run`] is dropped.
    fn on_stopped_leading(&mut self);

    /// The leader changed. If this candidate is the new leader, this is called before `on_started_leading`.
    fn on_new_leader(&mut self, identity: &str) {
        let _ = identity;
    }
}

impl<F, W> LeaderCallbacks for F
where
    F: FnMut(StopSignal) -> W + Send,
    W: Future<Output = ()> + Send + 'static,
{
    fn on_started_leading(&mut self, stop: StopSignal) -> BoxFuture<'static, ()> {
        Box::pin(self(stop))
    }

    fn on_stopped_leading(&mut self) {}
}

/// Why a term ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionEnd {
    /// The program asked the candidate to stop.
    Stopped,
    /// The candidate led, and could not renew the lease in time or found that another holds it.
    Lost,
}

/// A candidate in a leader election.
pub struct LeaderElector<L: ?Sized> {
    lock: Arc<L>,
    election: Election,
}

type PanicPayload = Box<dyn Any + Send>;

/// Why the loop of a term ended.
enum TermEnd {
    Asked,
    Lost,
    Panicked(PanicPayload),
}

impl<L: LeaseLock + ?Sized> LeaderElector<L> {
    /// A candidate that has not started.
    ///
    /// # Errors
    /// If the durations are inconsistent, or the identity of the lock is empty.
    pub fn new(lock: Arc<L>, options: ElectionOptions) -> Result<LeaderElector<L>, BadElection> {
        options.check(lock.identity())?;
        Ok(LeaderElector {
            election: Election::new(options, lock.identity()),
            lock,
        })
    }

    /// Runs one term: waits for the lease, leads and renews it, until `stop` is ready or the lead is lost.
    /// [`LeaderElector::run_until_stopped`] runs further terms.
    ///
    /// When `stop` is ready, the work's signal is raised, and the lease is renewed until the work has ended, for at most
    /// [`ElectionOptions::drain`]. When the lead is lost, the signal is raised too, and the work has the rest of the lease to
    /// end, less up to a second for aborting it: with the default durations four seconds if the server does not answer, and no
    /// time if another candidate holds the lease already.
    ///
    /// At the end, in this order: the leader's work has ended or is aborted, the lease is released if the options say so and the
    /// candidate was asked to stop, and [`LeaderCallbacks::on_stopped_leading`] is called. client-go differs: it releases the
    /// lease before it tells the work to end. Work that never yields cannot be aborted: the elector waits for it until the lease
    /// expires, and does not release the lease then.
    ///
    /// Dropping the future aborts the work without waiting for it, and does not release the lease.
    ///
    /// # Panics
    /// If the work panics, after the same steps: a leader without work must not keep the lease.
    pub async fn run(
        mut self,
        mut callbacks: impl LeaderCallbacks,
        stop: impl Future<Output = ()>,
    ) -> ElectionEnd {
        let stop = pin!(stop);
        self.term(&mut callbacks, stop).await.0
    }

    /// Runs terms as [`LeaderElector::run`] does until `stop` is ready. The callbacks are called for each term. No term begins
    /// before the work of the one before has ended.
    ///
    /// # Panics
    /// If the work panics, as [`LeaderElector::run`].
    pub async fn run_until_stopped(
        mut self,
        mut callbacks: impl LeaderCallbacks,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop);
        loop {
            let (end, left) = self.term(&mut callbacks, stop.as_mut()).await;
            if end == ElectionEnd::Stopped {
                return;
            }
            if let Some(left) = left {
                tokio::select! {
                    () = &mut stop => return,
                    ended = left => if let Some(panic) = panic_of(ended) {
                        std::panic::resume_unwind(panic);
                    },
                }
            }
            self.election = self.election.again();
        }
    }

    /// Runs one term. Also returns the task of the work if it could not be ended.
    async fn term<C: LeaderCallbacks, S: Future<Output = ()>>(
        &mut self,
        callbacks: &mut C,
        mut stop: Pin<&mut S>,
    ) -> (ElectionEnd, Option<JoinHandle<()>>) {
        let mut candidate = Candidate::new(callbacks);
        let end = loop {
            let step = self.election.step(now());
            let outcome = match self.turn(step, &mut candidate, stop.as_mut()).await {
                Ok(outcome) => outcome,
                Err(end) => break end,
            };
            let notices = self.election.observe(outcome, Instant::now());
            if candidate.tell(notices) {
                tracing::warn!(
                    identity = self.lock.identity(),
                    "leadership is lost: another replica holds the lease, or it could not be renewed"
                );
                break TermEnd::Lost;
            }
        };
        let mut panic = None;
        let end = match end {
            TermEnd::Lost => {
                candidate.raise();
                let until = self.election.work_end(Instant::now(), END_LEAST);
                panic = candidate.ended_by(until).await;
                ElectionEnd::Lost
            }
            TermEnd::Panicked(of_work) => {
                panic = Some(of_work);
                ElectionEnd::Stopped
            }
            TermEnd::Asked => ElectionEnd::Stopped,
        };
        let panic = panic.or(candidate.drop_work(self.election.lease_end()).await);
        // If the lead was lost, the election has nothing to release.
        if candidate.work.is_none() {
            self.release_lease().await;
        }
        let asked = candidate.drain_until.is_some();
        let left = candidate.work.take().map(|work| work.task);
        drop(candidate);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
        // A candidate that was asked to stop, and lost the lead before it could, must not run another term.
        let end = if asked { ElectionEnd::Stopped } else { end };
        (end, left)
    }

    /// Carries out one step, unless the term ends before. A step continues when the candidate is asked to stop: it is often the
    /// renewal that keeps the lease while the work ends.
    async fn turn<C: LeaderCallbacks, S: Future<Output = ()>>(
        &self,
        step: ElectionStep,
        candidate: &mut Candidate<'_, C>,
        mut stop: Pin<&mut S>,
    ) -> Result<ElectionOutcome, TermEnd> {
        let mut carried_out = pin!(self.carry_out(step));
        loop {
            let drain_until = candidate.drain_until;
            if drain_until.is_some() && candidate.work.is_none() {
                return Err(TermEnd::Asked);
            }
            tokio::select! {
                biased;
                () = &mut stop, if drain_until.is_none() => {
                    candidate.raise();
                    candidate.drain_until = Some(Instant::now() + self.election.drain().min(FAR));
                }
                panic = candidate.work_ended() => if let Some(panic) = panic {
                    return Err(TermEnd::Panicked(panic));
                },
                () = at(drain_until) => {
                    tracing::warn!(
                        identity = self.lock.identity(),
                        "the leader's work did not end in time, it is aborted"
                    );
                    return Err(TermEnd::Asked);
                }
                outcome = &mut carried_out => return Ok(outcome),
            }
        }
    }

    async fn release_lease(&mut self) {
        self.election.stop(Instant::now());
        loop {
            let step = self.election.step(now());
            if step == ElectionStep::End {
                return;
            }
            let outcome = self.carry_out(step).await;
            if let ElectionOutcome::Written(Err(error)) = &outcome {
                tracing::warn!(identity = self.lock.identity(), %error, "the lease was not released; others can take it when it expires");
            }
            self.election.observe(outcome, Instant::now());
        }
    }

    async fn carry_out(&self, step: ElectionStep) -> ElectionOutcome {
        let deadline = self.election.deadline(Instant::now());
        let late = || LockError::failed("no answer in time");
        match step {
            ElectionStep::Get => {
                let got = timeout_at(deadline, self.lock.get()).await;
                ElectionOutcome::Got(got.unwrap_or_else(|_| Err(late())))
            }
            ElectionStep::Create(record) => {
                let created = timeout_at(deadline, self.lock.create(record)).await;
                ElectionOutcome::Written(created.unwrap_or_else(|_| Err(late())))
            }
            ElectionStep::Update(record, version) => {
                let updated = timeout_at(deadline, self.lock.update(record, version)).await;
                ElectionOutcome::Written(updated.unwrap_or_else(|_| Err(late())))
            }
            ElectionStep::Wait(until) => {
                sleep_until(until).await;
                ElectionOutcome::Waited
            }
            // The term's loop ends when the lead is lost, before it would carry out this step.
            ElectionStep::End => std::future::pending().await,
        }
    }
}

/// The current time. The wall clock is cut to microseconds, which is what a lease stores: a record that is read back must equal
/// the one that was written.
fn now() -> ElectionTime {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    ElectionTime {
        instant: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + Duration::from_micros(micros),
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The payload of the panic that ended a task, if one did.
fn panic_of(ended: Result<(), JoinError>) -> Option<PanicPayload> {
    ended.map_err(JoinError::try_into_panic).err()?.ok()
}

/// The task of the leader's work, and its stop signal.
struct LeaderWork {
    task: JoinHandle<()>,
    stopper: Stopper,
}

/// A candidate during one term. Aborts the work and calls `on_stopped_leading` when it is dropped.
struct Candidate<'a, C: LeaderCallbacks> {
    callbacks: &'a mut C,
    /// `None` before the candidate leads, and after the work has ended.
    work: Option<LeaderWork>,
    /// Set when the candidate was asked to stop: when its work is aborted.
    drain_until: Option<Instant>,
}

impl<C: LeaderCallbacks> Candidate<'_, C> {
    fn new(callbacks: &mut C) -> Candidate<'_, C> {
        Candidate {
            callbacks,
            work: None,
            drain_until: None,
        }
    }

    /// Calls the callbacks and starts the work. Returns true if the lead is lost.
    fn tell(&mut self, notices: Vec<ElectionNotice>) -> bool {
        for notice in notices {
            match notice {
                ElectionNotice::NewLeader(identity) => self.callbacks.on_new_leader(&identity),
                ElectionNotice::StartedLeading => {
                    let (stopper, signal) = StopSignal::new();
                    let work = self.callbacks.on_started_leading(signal);
                    let task = tokio::spawn(work);
                    self.work = Some(LeaderWork { task, stopper });
                }
                ElectionNotice::LostLead => return true,
            }
        }
        false
    }

    fn raise(&self) {
        if let Some(work) = &self.work {
            work.stopper.raise();
        }
    }

    /// Waits until the work has ended, and returns its panic. Waits forever if there is no work.
    async fn work_ended(&mut self) -> Option<PanicPayload> {
        let Some(work) = &mut self.work else {
            return std::future::pending().await;
        };
        let ended = (&mut work.task).await;
        self.work = None;
        panic_of(ended)
    }

    /// Waits until the work has ended, at most until `until`.
    async fn ended_by(&mut self, until: Instant) -> Option<PanicPayload> {
        self.work.as_ref()?;
        timeout_at(until, self.work_ended()).await.unwrap_or(None)
    }

    /// Aborts the work and waits for its end, at most until the lease expires. `self.work` stays set if it has not ended.
    async fn drop_work(&mut self, lease_end: Option<Instant>) -> Option<PanicPayload> {
        self.work.as_ref()?.task.abort();
        let least = Instant::now() + END_LEAST;
        let until = lease_end.map_or(least, |end| end.max(least));
        let panic = self.ended_by(until).await;
        if self.work.is_some() {
            tracing::error!(
                "the leader's work has not ended, and the lease has expired: two leaders may work at once"
            );
        }
        panic
    }
}

impl<C: LeaderCallbacks> Drop for Candidate<'_, C> {
    fn drop(&mut self) {
        if let Some(work) = &self.work {
            work.task.abort();
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
