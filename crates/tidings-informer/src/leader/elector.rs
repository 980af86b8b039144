//! Carries out what an election decides.

use std::any::Any;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::election::{Election, Notice, Now, Outcome, Step};
use super::lock::{LeaseLock, LockError};
use super::signal::{StopSignal, Stopper};
use super::{BadElection, ElectionOptions};
use crate::source::BoxFuture;
use crate::workqueue::FAR;

/// What was dropped has at least this long to go away, also if the lease is over already.
const END_LEAST: Duration = Duration::from_secs(1);

/// What a candidate does with the lead. A function from [`StopSignal`] to a future is one, too: it is called for each term.
pub trait LeaderCallbacks: Send {
    /// It leads. The future is the leader's work: it runs as a task of its own. When the lead is over, `stop` is raised, and the
    /// work has some time to end by itself before it is dropped; [`LeaderElector::run`] says how long. If it ends earlier, the
    /// lead goes on.
    fn on_started_leading(&mut self, stop: StopSignal) -> BoxFuture<'static, ()>;

    /// It does not lead, or not any more, and its work has ended. Called once a term, whatever happened before: also if it never
    /// led, and when the future of [`LeaderElector::run`] is dropped.
    fn on_stopped_leading(&mut self);

    /// Somebody leads who did not before; it may be this candidate, which is told before it starts.
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

type Panic = Box<dyn Any + Send>;

/// Why a term is over.
enum TermEnd {
    Asked,
    Lost,
    Panicked(Panic),
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

    /// Stands for the lead, leads, and renews, for one term: until `stop` is ready or the lead is lost.
    /// [`LeaderElector::run_until_stopped`] stands again.
    ///
    /// When `stop` is ready, the signal of the work is raised, and the lease is renewed until the work has ended, for at most
    /// [`ElectionOptions::drain`]. When the lead is lost, the signal is raised too, and the work has what is left of the lease,
    /// less up to a second in which it is dropped: with the default times four seconds if the server does not answer, and
    /// nothing if another has the lease already.
    ///
    /// At the end, in this order: the leader's work has ended or is dropped, the lease is given back if the options say so and
    /// the candidate was asked to stop, and [`LeaderCallbacks::on_stopped_leading`] is called. ≠ client-go, which gives the
    /// lease back before it tells the work to end. Work that does not let go of its thread is waited for until the lease runs
    /// out, and the lease is then not given back.
    ///
    /// Dropping the future stops the work, without waiting for it and without giving the lease back.
    ///
    /// # Panics
    /// If the work does, after the same steps: a leader that does nothing must not keep others from leading.
    pub async fn run(
        mut self,
        mut callbacks: impl LeaderCallbacks,
        stop: impl Future<Output = ()>,
    ) -> ElectionEnd {
        let stop = pin!(stop);
        self.term(&mut callbacks, stop).await.0
    }

    /// Stands for the lead as [`LeaderElector::run`] does, and again whenever it is lost, until `stop` is ready. The callbacks
    /// are told of each term. No term begins before the work of the one before has ended.
    ///
    /// # Panics
    /// If the work does, as [`LeaderElector::run`].
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

    /// One term. Returns the work, too, if it could not be ended.
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
                tracing::warn!(identity = self.lock.identity(), "the lead is lost");
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
        // Nothing is given back if the lead is lost.
        if candidate.work.is_none() {
            self.give_back().await;
        }
        let asked = candidate.drain_until.is_some();
        let left = candidate.work.take().map(|work| work.task);
        drop(candidate);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
        // Who was asked to stop and lost the lead meanwhile does not stand again.
        let end = if asked { ElectionEnd::Stopped } else { end };
        (end, left)
    }

    /// Carries out one step, unless something ends the term before. What is under way goes on when the candidate is asked to
    /// stop: it is likely to be the renewal that keeps the lease while the work ends.
    async fn turn<C: LeaderCallbacks, S: Future<Output = ()>>(
        &self,
        step: Step,
        candidate: &mut Candidate<'_, C>,
        mut stop: Pin<&mut S>,
    ) -> Result<Outcome, TermEnd> {
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
                        "the leader's work did not end in time, it is dropped"
                    );
                    return Err(TermEnd::Asked);
                }
                outcome = &mut carried_out => return Ok(outcome),
            }
        }
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

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The panic that a task ended by.
fn panic_of(ended: Result<(), JoinError>) -> Option<Panic> {
    ended.map_err(JoinError::try_into_panic).err()?.ok()
}

/// The leader's work, and how to tell it to end.
struct Work {
    task: JoinHandle<()>,
    stopper: Stopper,
}

/// Says that it is over, whatever ends it.
struct Candidate<'a, C: LeaderCallbacks> {
    callbacks: &'a mut C,
    /// None before it leads, and when it has ended.
    work: Option<Work>,
    /// Set when the candidate was asked to stop: how long its work may go on.
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

    /// Tells the program, and starts its work. Returns true if the lead is lost.
    fn tell(&mut self, notices: Vec<Notice>) -> bool {
        for notice in notices {
            match notice {
                Notice::NewLeader(identity) => self.callbacks.on_new_leader(&identity),
                Notice::StartedLeading => {
                    let (stopper, signal) = Stopper::new();
                    let work = self.callbacks.on_started_leading(signal);
                    let task = tokio::spawn(work);
                    self.work = Some(Work { task, stopper });
                }
                Notice::LostLead => return true,
            }
        }
        false
    }

    fn raise(&self) {
        if let Some(work) = &self.work {
            work.stopper.raise();
        }
    }

    /// Waits until the work has ended, and takes its panic. Waits for ever if there is none.
    async fn work_ended(&mut self) -> Option<Panic> {
        let Some(work) = &mut self.work else {
            return std::future::pending().await;
        };
        let ended = (&mut work.task).await;
        self.work = None;
        panic_of(ended)
    }

    /// Waits until the work has ended, not longer than this.
    async fn ended_by(&mut self, until: Instant) -> Option<Panic> {
        self.work.as_ref()?;
        timeout_at(until, self.work_ended()).await.unwrap_or(None)
    }

    /// Drops the leader's work. It is still there if it has not gone when the lease has.
    async fn drop_work(&mut self, lease_end: Option<Instant>) -> Option<Panic> {
        self.work.as_ref()?.task.abort();
        let least = Instant::now() + END_LEAST;
        let until = lease_end.map_or(least, |end| end.max(least));
        let panic = self.ended_by(until).await;
        if self.work.is_some() {
            tracing::error!("the leader's work does not end, and the lease has");
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
