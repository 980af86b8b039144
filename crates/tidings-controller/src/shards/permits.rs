//! Permits: what controllers ask before they act on an object of a sharded group.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tidings_informer::Uid;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::ownership::Ownership;
use super::permit_state::{
    ClockTime, HandOverTimes, MustEnd, NoPermit, OwnershipView, PermitState,
};
use super::table::MemberId;

/// What one member of a group may act on, and what it acts on now.
#[derive(Debug)]
pub(crate) struct ShardPermits {
    state: Mutex<PermitState>,
    notes: Mutex<StatusNotes>,
    /// Told when the member may act on other objects, or for longer.
    changed: watch::Sender<()>,
    /// Told when something that was acted on ends.
    pub(crate) ended: Notify,
}

/// What only people need to know.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusNotes {
    pub(crate) waits_for: Vec<MemberId>,
    pub(crate) problem: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShardPermits {
    pub(crate) fn new(times: HandOverTimes) -> ShardPermits {
        ShardPermits {
            state: Mutex::new(PermitState::new(times)),
            notes: Mutex::default(),
            changed: watch::Sender::default(),
            ended: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        lock(&self.state)
    }

    /// Sets what the member may act on, and until when.
    pub(crate) fn set(&self, ownership: Ownership, valid_until: Option<ClockTime>) {
        let has_changed = self.lock().set(ownership, valid_until, Instant::now());
        if has_changed {
            self.changed.send_replace(());
        }
    }

    /// The membership is over: everything that began in it ends.
    pub(crate) fn end_membership(&self) {
        self.lock().end_membership(Instant::now());
        self.note(|notes| notes.waits_for.clear());
        self.changed.send_replace(());
    }

    /// Changes what people are told.
    pub(crate) fn note(&self, change: impl FnOnce(&mut StatusNotes)) {
        change(&mut lock(&self.notes));
    }

    /// What the member may act on now.
    pub(crate) fn view(&self) -> OwnershipView {
        self.lock().view().clone()
    }

    /// Waits until the member may act on other objects than at a time. Cancel-safe.
    pub(crate) async fn changed_since(&self, view: &OwnershipView) {
        self.until(|state| state.view().version != view.version)
            .await;
    }

    /// True if the member could act on an object at a time and ever since.
    pub(crate) fn is_kept(&self, uid: Uid, since: &OwnershipView) -> bool {
        self.lock().is_kept(uid.number(), since)
    }

    /// True if nothing is acted on that the member does not own.
    pub(crate) fn is_drained(&self) -> bool {
        self.lock().is_drained(Instant::now())
    }

    /// How many objects are acted on.
    pub(crate) fn acting(&self) -> usize {
        self.lock().acting()
    }

    /// True if an object is the member's by the table, whether it may act already or not.
    pub(crate) fn owns(&self, uid: Uid) -> bool {
        self.lock().view().ownership.owns(uid.number())
    }

    /// True if the member could act on an object, were its Lease fresh.
    pub(crate) fn may_act(&self, uid: Uid) -> bool {
        self.lock().view().ownership.may_act(uid.number())
    }

    /// Lets the caller act on an object until the permit is dropped.
    pub(crate) fn begin(self: &Arc<ShardPermits>, uid: Uid) -> Result<ActPermit, NoPermit> {
        let number = self.lock().begin(uid.number(), ClockTime::now())?;
        Ok(ActPermit {
            permits: Arc::clone(self),
            number,
            uid,
        })
    }

    /// Waits until the member may act on something. Cancel-safe.
    pub(crate) async fn fresh(&self) {
        self.until(|state| state.is_fresh(ClockTime::now())).await;
    }

    async fn until(&self, holds: impl Fn(&PermitState) -> bool) {
        let mut changed = self.changed.subscribe();
        // The sender lives as long as `self`.
        let _ = changed.wait_for(|()| holds(&self.lock())).await;
    }

    /// Who owns what, for people.
    pub(crate) fn status(&self) -> ShardStatus {
        let state = self.lock();
        let Ownership { me, table, .. } = &*state.view().ownership;
        let table = table.as_ref();
        let notes = lock(&self.notes);
        ShardStatus {
            member: me.clone(),
            epoch: table.map_or(0, |table| table.epoch),
            members: table.map_or(Vec::new(), |table| table.members.names().to_vec()),
            waits_for: notes.waits_for.clone(),
            is_fresh: state.is_fresh(ClockTime::now()),
            problem: notes.problem.clone(),
        }
    }

    /// The member that owns an object by the table.
    pub(crate) fn owner_of(&self, uid: &str) -> Option<String> {
        let view = self.view();
        let table = view.ownership.table.as_ref()?;
        table.members.owner(Uid::new(uid).number()).cloned()
    }
}

/// Who the members of a group are, as one of them sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStatus {
    /// The name of this member, which is that of its Lease; `None` before it has joined and after it has left.
    pub member: Option<String>,
    /// The epoch of the table. Zero if there is none.
    pub epoch: u64,
    /// All members.
    pub members: Vec<String>,
    /// Members that have not let go of what they lose in this epoch, this one perhaps among them. As long as there are some, members
    /// that come or crash change nothing.
    pub waits_for: Vec<String>,
    /// False if this member could not renew its Lease in time: it acts on nothing until it does.
    pub is_fresh: bool,
    /// What keeps this member from its Lease or the group from its table, and what to do about it.
    pub problem: Option<String>,
}

/// Lets its holder act on an object.
#[derive(Debug)]
pub(crate) struct ActPermit {
    permits: Arc<ShardPermits>,
    number: u64,
    uid: Uid,
}

impl ActPermit {
    /// The object that may be acted on.
    pub(crate) fn uid(&self) -> Uid {
        self.uid
    }

    /// Runs a future as long as the member's Lease is fresh and the object its own, or not much longer. `None` if that ended before: the
    /// future is dropped and never goes on, however long the process was asleep.
    pub(crate) async fn within<F: Future>(&self, run: F) -> Option<F::Output> {
        let (mut run, mut ended) = (pin!(run), pin!(self.ended()));
        poll_fn(|context| {
            // By the clock: after a long sleep of the process its timers may not have fired yet.
            let must_end = match self.must_end() {
                Some(must_end) => Poll::Ready(must_end),
                None => ended.as_mut().poll(context),
            };
            match must_end {
                Poll::Pending => run.as_mut().poll(context).map(Some),
                Poll::Ready(MustEnd::Lapsed) => Poll::Ready(None),
                Poll::Ready(MustEnd::HandedOver) => {
                    tracing::warn!(
                        "the object belongs to another replica, and its reconcile did not end within the hand-over grace: drops it"
                    );
                    Poll::Ready(None)
                }
            }
        })
        .await
    }

    fn must_end(&self) -> Option<MustEnd> {
        self.permits.lock().must_end(self.number, ClockTime::now())
    }

    async fn ended(&self) -> MustEnd {
        let mut changed = self.permits.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(must_end) = self.must_end() {
                return must_end;
            }
            let ends_at = self.permits.lock().ends_at(self.number);
            tokio::select! {
                () = sleep_until(ends_at.unwrap_or_else(Instant::now)) => {}
                _ = changed.changed() => {}
            }
        }
    }
}

impl Drop for ActPermit {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        state.ended(self.number, ClockTime::now());
        drop(state);
        self.permits.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::table::ShardTable;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn alone() -> Ownership {
        let me: MemberId = "a".into();
        Ownership {
            me: Some(me.clone()),
            table: Some(ShardTable {
                epoch: 1,
                members: vec![me].into(),
                before: None,
            }),
            ..Ownership::default()
        }
    }

    fn within(seconds: u32) -> Option<ClockTime> {
        let mut until = ClockTime::now();
        until.monotonic += SECOND * seconds;
        until.wall += SECOND * seconds;
        Some(until)
    }

    fn permits() -> Arc<ShardPermits> {
        let (grace, linger) = (SECOND * 30, SECOND * 5);
        Arc::new(ShardPermits::new(HandOverTimes { grace, linger }))
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_is_dropped_when_the_lease_lapses_and_never_goes_on() {
        let permits = permits();
        let uid = Uid::new("u1");
        assert_eq!(permits.begin(uid).err(), Some(NoPermit::Lapsed));
        permits.set(alone(), within(10));
        let permit = permits.begin(uid).unwrap();
        assert_eq!(permit.within(async { 7 }).await, Some(7));

        // A process that sleeps longer than its lease: the work is ready at the same moment as the end of the lease is noticed.
        let work = tokio::time::sleep(SECOND * 10);
        let asleep = async {
            tokio::time::advance(SECOND * 60).await;
        };
        let (worked, ()) = tokio::join!(permit.within(work), asleep);
        assert_eq!(worked, None);
        drop(permit);
        assert_eq!(permits.begin(uid).err(), Some(NoPermit::Lapsed));

        // A renewal makes the lease longer for what runs.
        permits.set(alone(), within(10));
        let permit = permits.begin(uid).unwrap();
        let renewals = async {
            for _ in 0..3 {
                tokio::time::sleep(SECOND * 8).await;
                permits.set(alone(), within(10));
            }
        };
        let work = tokio::time::sleep(SECOND * 24);
        let (worked, ()) = tokio::join!(permit.within(work), renewals);
        assert_eq!(worked, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_hangs_is_dropped_when_the_grace_to_hand_over_has_passed() {
        let permits = permits();
        permits.set(alone(), within(600));
        let permit = permits.begin(Uid::new("u1")).unwrap();
        let start = Instant::now();
        let lost = async {
            tokio::time::sleep(SECOND * 7).await;
            permits.set(Ownership::default(), within(600));
        };
        let (worked, ()) = tokio::join!(permit.within(std::future::pending::<()>()), lost);
        assert_eq!((worked, start.elapsed()), (None, SECOND * 37));
        drop(permit);
        assert!(!permits.is_drained(), "its last request may be on its way");
        tokio::time::advance(SECOND * 5).await;
        assert!(permits.is_drained());

        // What ends by itself lets go at once.
        permits.set(alone(), within(600));
        let permit = permits.begin(Uid::new("u1")).unwrap();
        permits.set(Ownership::default(), within(600));
        assert_eq!(
            permit.within(tokio::time::sleep(SECOND * 29)).await,
            Some(())
        );
        assert!(!permits.is_drained());
        drop(permit);
        assert!(permits.is_drained());
    }

    #[tokio::test]
    async fn it_is_drained_when_nothing_runs_that_belongs_to_others() {
        let permits = permits();
        permits.set(alone(), within(10));
        let permit = permits.begin(Uid::new("u1")).unwrap();
        assert!(permits.is_drained());
        permits.set(Ownership::default(), within(10));
        assert!(!permits.is_drained());
        assert_eq!(
            permits.begin(Uid::new("u2")).err(),
            Some(NoPermit::NotOwned)
        );
        drop(permit);
        permits.ended.notified().await;
        assert!(permits.is_drained());
    }
}
