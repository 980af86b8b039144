//! Permits: what controllers ask before they act on a key of a sharded group.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tidings_informer::Uid;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::machine::Ownership;
use super::table::{ShardTable, owner};

/// How many epochs back it is known whose a key was.
const EPOCHS_MAX: usize = 32;

/// Why a member may not act on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// The key belongs to another member, or its last owner has not let go of it. It is queued when this changes.
    NotOwned,
    /// This member could not renew its Lease in time: it may act on nothing until it does.
    Lapsed,
}

/// What one member of a group may act on, and what it acts on now.
#[derive(Debug)]
pub(crate) struct ShardPermits {
    state: Mutex<PermitState>,
    ownership: watch::Sender<Arc<Ownership>>,
    valid_until: watch::Sender<Option<Instant>>,
    /// Told when something that was acted on ends.
    pub(crate) ended: Notify,
}

#[derive(Debug, Default)]
struct PermitState {
    ownership: Arc<Ownership>,
    valid_until: Option<Instant>,
    /// The keys that are acted on, and by how many. Bound: the concurrency of the controllers.
    acting: HashMap<u64, usize>,
    /// The members of the last epochs in which this one was a member, the newest at the end. Bound: [`EPOCHS_MAX`].
    epochs: VecDeque<ShardTable>,
}

impl ShardPermits {
    pub(crate) fn new() -> ShardPermits {
        ShardPermits {
            state: Mutex::default(),
            ownership: watch::Sender::default(),
            valid_until: watch::Sender::default(),
            ended: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the member may act on, and until when.
    pub(crate) fn set(&self, ownership: Ownership, valid_until: Option<Instant>) {
        let mut state = self.lock();
        state.valid_until = valid_until;
        if *state.ownership != ownership {
            state.note_epoch(&ownership);
            state.ownership = Arc::new(ownership);
            self.ownership.send_replace(Arc::clone(&state.ownership));
        }
        self.valid_until.send_if_modified(|known| {
            let changed = *known != valid_until;
            *known = valid_until;
            changed
        });
    }

    /// The epoch that the member goes by.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epochs.back().map_or(0, |table| table.epoch)
    }

    /// True if an object has been this member's since an epoch, without a break.
    pub(crate) fn is_kept_since(&self, uid: Uid, epoch: u64) -> bool {
        let state = self.lock();
        let mut since = state.epochs.iter().skip_while(|table| table.epoch < epoch);
        let me = state.ownership.me.as_ref();
        // Epochs that are not known any more may have been those of others.
        let is_known = state.epochs.iter().any(|table| table.epoch == epoch);
        is_known && since.all(|table| owner(&table.members, uid.number()) == me)
    }

    /// True if nothing is acted on that the member does not own.
    pub(crate) fn is_drained(&self) -> bool {
        let state = self.lock();
        state.acting.keys().all(|key| state.ownership.owns(*key))
    }

    /// True if the member could act on an object, were its Lease fresh.
    pub(crate) fn may_act(&self, uid: Uid) -> bool {
        self.lock().ownership.may_act(uid.number())
    }

    /// Lets the caller act on an object until the permit is dropped.
    pub(crate) fn begin(self: &Arc<ShardPermits>, uid: Uid) -> Result<ActPermit, NoPermit> {
        let key = uid.number();
        let mut state = self.lock();
        if state
            .valid_until
            .is_none_or(|until| until <= Instant::now())
        {
            return Err(NoPermit::Lapsed);
        }
        if !state.ownership.may_act(key) {
            return Err(NoPermit::NotOwned);
        }
        *state.acting.entry(key).or_default() += 1;
        Ok(ActPermit {
            permits: Arc::clone(self),
            uid,
        })
    }

    /// Follows what the member may act on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Ownership>> {
        self.ownership.subscribe()
    }

    fn has_lapsed(&self) -> bool {
        let until = self.lock().valid_until;
        until.is_none_or(|until| until <= Instant::now())
    }

    /// Waits until the member may act on something. Cancel-safe.
    pub(crate) async fn fresh(&self) {
        let mut valid = self.valid_until.subscribe();
        // The sender lives as long as `self`.
        let _ = valid
            .wait_for(|until| until.is_some_and(|until| until > Instant::now()))
            .await;
    }

    async fn lapsed(&self) {
        let mut valid = self.valid_until.subscribe();
        loop {
            let until = *valid.borrow_and_update();
            match until {
                Some(until) if until > Instant::now() => {
                    tokio::select! {
                        () = sleep_until(until) => {}
                        _ = valid.changed() => {}
                    }
                }
                _ => return,
            }
        }
    }

    /// Who owns what, for people.
    pub(crate) fn status(&self) -> ShardStatus {
        let state = self.lock();
        let Ownership {
            me,
            table,
            unsettled,
        } = &*state.ownership;
        let lapsed = state
            .valid_until
            .is_none_or(|until| until <= Instant::now());
        ShardStatus {
            member: me.clone(),
            epoch: table.as_ref().map_or(0, |table| table.epoch),
            members: table
                .as_ref()
                .map(|table| table.members.clone())
                .unwrap_or_default(),
            waits_for: unsettled.iter().cloned().collect(),
            is_fresh: !lapsed,
        }
    }

    /// The member that owns an object by the table.
    pub(crate) fn owner_of(&self, uid: &str) -> Option<String> {
        let state = self.lock();
        let table = state.ownership.table.as_ref()?;
        owner(&table.members, Uid::new(uid).number()).cloned()
    }
}

impl PermitState {
    fn note_epoch(&mut self, ownership: &Ownership) {
        let Some(table) = &ownership.table else {
            self.epochs.clear(); // the member has left, or joins again under another name
            return;
        };
        if self
            .epochs
            .back()
            .is_none_or(|last| last.epoch < table.epoch)
        {
            self.epochs.push_back(table.clone());
            if self.epochs.len() > EPOCHS_MAX {
                self.epochs.pop_front();
            }
        }
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
    /// Members that have not let go of what they lose in this epoch.
    pub waits_for: Vec<String>,
    /// False if this member could not renew its Lease in time: it acts on nothing until it does.
    pub is_fresh: bool,
}

/// Lets its holder act on a key.
#[derive(Debug)]
pub(crate) struct ActPermit {
    permits: Arc<ShardPermits>,
    uid: Uid,
}

impl ActPermit {
    /// The object that may be acted on.
    pub(crate) fn uid(&self) -> Uid {
        self.uid
    }

    /// Runs a future as long as the member's Lease is fresh. `None` if it lapsed: the future is dropped and never goes on, however long
    /// the process was asleep.
    pub(crate) async fn within<F: Future>(&self, run: F) -> Option<F::Output> {
        let (mut run, mut lapsed) = (pin!(run), pin!(self.permits.lapsed()));
        poll_fn(|context| {
            // By the clock: after a long sleep of the process its timers may not have fired yet.
            if self.permits.has_lapsed() || lapsed.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            run.as_mut().poll(context).map(Some)
        })
        .await
    }
}

impl Drop for ActPermit {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        let key = self.uid.number();
        if let Some(count) = state.acting.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                state.acting.remove(&key);
            }
        }
        drop(state);
        self.permits.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::table::MemberId;
    use super::*;

    fn alone() -> Ownership {
        let me: MemberId = "a".into();
        Ownership {
            me: Some(me.clone()),
            table: Some(ShardTable {
                epoch: 1,
                members: vec![me],
                before: None,
            }),
            ..Ownership::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_is_dropped_when_the_lease_lapses_and_never_goes_on() {
        let permits = Arc::new(ShardPermits::new());
        let uid = Uid::new("u1");
        assert_eq!(permits.begin(uid).err(), Some(NoPermit::Lapsed));
        let until = Instant::now() + Duration::from_secs(10);
        permits.set(alone(), Some(until));
        let permit = permits.begin(uid).unwrap();
        assert_eq!(permit.within(async { 7 }).await, Some(7));

        // A process that sleeps longer than its lease: the work is ready at the same moment as the end of the lease is noticed.
        let work = tokio::time::sleep(Duration::from_secs(10));
        let asleep = async {
            tokio::time::advance(Duration::from_secs(60)).await;
        };
        let (worked, ()) = tokio::join!(permit.within(work), asleep);
        assert_eq!(worked, None);
        drop(permit);
        assert_eq!(permits.begin(uid).err(), Some(NoPermit::Lapsed));

        // A renewal makes the lease longer for what runs.
        permits.set(alone(), Some(Instant::now() + Duration::from_secs(10)));
        let permit = permits.begin(uid).unwrap();
        let renewals = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                permits.set(alone(), Some(Instant::now() + Duration::from_secs(10)));
            }
        };
        let work = tokio::time::sleep(Duration::from_secs(24));
        let (worked, ()) = tokio::join!(permit.within(work), renewals);
        assert_eq!(worked, Some(()));
    }

    #[test]
    fn a_key_that_was_away_for_an_epoch_was_not_kept() {
        let permits = ShardPermits::new();
        let owned = |epoch: u64, members: &[&str]| {
            let mut ownership = alone();
            let table = ownership.table.as_mut().unwrap();
            table.epoch = epoch;
            table.members = members.iter().map(|name| (*name).to_owned()).collect();
            permits.set(ownership, None);
        };
        owned(1, &["a"]);
        owned(2, &["a", "b"]);
        owned(3, &["a"]);
        let uids: Vec<Uid> = (0..20)
            .map(|number| Uid::new(&format!("u{number}")))
            .collect();
        let kept = |epoch| {
            uids.iter()
                .filter(|uid| permits.is_kept_since(**uid, epoch))
                .count()
        };
        assert_eq!((permits.epoch(), kept(0), kept(3)), (3, 0, 20));
        assert!((1..20).contains(&kept(1)), "{}", kept(1));
        assert_eq!(kept(1), kept(2), "what b had in the second epoch");
        for epoch in 4..4 + EPOCHS_MAX as u64 {
            owned(epoch, &["a"]);
        }
        assert_eq!(
            (kept(3), kept(4)),
            (0, 20),
            "nobody knows about the third any more"
        );
        permits.set(Ownership::default(), None);
        assert_eq!((permits.epoch(), kept(4)), (0, 0));
    }

    #[tokio::test]
    async fn it_is_drained_when_nothing_runs_that_belongs_to_others() {
        let permits = Arc::new(ShardPermits::new());
        let until = Some(Instant::now() + Duration::from_secs(10));
        permits.set(alone(), until);
        let permit = permits.begin(Uid::new("u1")).unwrap();
        assert!(permits.is_drained());
        permits.set(Ownership::default(), until);
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
