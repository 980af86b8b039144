//! What one member may act on and what it acts on now. Does no I/O and reads no clock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::ownership::Ownership;

/// How many tables back it is known whose a key was.
const TABLES_KEPT: usize = 32;

/// A moment by both clocks of a machine.
///
/// The monotonic clock stands still while the machine is suspended, and the wall clock does not; the wall clock can be set back, and
/// the monotonic one cannot. What must end ends when either says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockTime {
    pub(crate) monotonic: Instant,
    pub(crate) wall: SystemTime,
}

impl ClockTime {
    pub(crate) fn now() -> ClockTime {
        ClockTime {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    fn is_past(&self, now: ClockTime) -> bool {
        self.monotonic <= now.monotonic || self.wall <= now.wall
    }
}

/// How long a member has to hand over a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandOverTimes {
    /// What acts on a key that belongs to another member is dropped after this time.
    pub(crate) grace: Duration,
    /// After something was dropped nothing is handed over for this long: its last request may be on its way to the server.
    pub(crate) linger: Duration,
}

/// Why a member may not act on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// The object belongs to another member, or its last owner has not let go of it, or it is gone. It is queued when this changes.
    NotOwned,
    /// This member could not renew its Lease in time: it may act on nothing until it does.
    Lapsed,
}

/// Why something that acts on a key must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MustEnd {
    /// The membership that it began in has lapsed or is over.
    Lapsed,
    /// The key belongs to another member, and the grace to hand it over has passed.
    HandedOver,
}

/// An ownership that somebody has looked at: what has been kept since is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnershipView {
    pub(crate) ownership: Arc<Ownership>,
    pub(crate) version: u64,
}

/// Something that acts on a key.
#[derive(Debug)]
struct Acting {
    key: u64,
    generation: u64,
    /// Since when the key belongs to another member.
    lost_at: Option<Instant>,
}

/// What one member may act on, and what it acts on now.
#[derive(Debug)]
pub(crate) struct PermitState {
    times: HandOverTimes,
    now_owned: OwnershipView,
    /// The first ownership by each of the last tables. By one table keys only come. Bound: [`TABLES_KEPT`].
    first_owned: VecDeque<OwnershipView>,
    /// The newest of those that are not known any more.
    forgotten: u64,
    valid_until: Option<ClockTime>,
    /// Grows with each membership that ends: what began in one never goes on in another.
    generation: u64,
    /// By the numbers of permits. Bound: the concurrency of the controllers.
    acting: HashMap<u64, Acting>,
    permits: u64,
    lingers_until: Option<Instant>,
}

impl PermitState {
    pub(crate) fn new(times: HandOverTimes) -> PermitState {
        PermitState {
            times,
            now_owned: OwnershipView::default(),
            first_owned: VecDeque::new(),
            forgotten: 0,
            valid_until: None,
            generation: 0,
            acting: HashMap::new(),
            permits: 0,
            lingers_until: None,
        }
    }

    /// Sets what the member may act on, and until when. False if nothing has changed.
    pub(crate) fn set(
        &mut self,
        ownership: Ownership,
        valid_until: Option<ClockTime>,
        now: Instant,
    ) -> bool {
        let is_longer = self.valid_until != valid_until;
        self.valid_until = valid_until;
        let before = &self.now_owned;
        if *before.ownership == ownership {
            return is_longer;
        }
        let only_gains = ownership.only_gains(&before.ownership);
        self.now_owned = OwnershipView {
            version: before.version + 1,
            ownership: Arc::new(ownership),
        };
        if !only_gains {
            self.first_owned.push_back(self.now_owned.clone());
        }
        if self.first_owned.len() > TABLES_KEPT {
            let forgotten = self.first_owned.pop_front();
            self.forgotten = forgotten.map_or(0, |forgotten| forgotten.version);
        }
        for acting in self.acting.values_mut() {
            acting.lost_at = match self.now_owned.ownership.owns(acting.key) {
                true => None,
                false => acting.lost_at.or(Some(now)),
            };
        }
        true
    }

    /// The membership is over: everything that began in it must end.
    pub(crate) fn end_membership(&mut self, now: Instant) {
        self.set(Ownership::default(), None, now);
        self.generation += 1;
    }

    /// What the member may act on.
    pub(crate) fn view(&self) -> &OwnershipView {
        &self.now_owned
    }

    /// True if the member could act on a key at a time and ever since.
    pub(crate) fn is_kept(&self, key: u64, since: &OwnershipView) -> bool {
        let mut later = self.first_owned.iter();
        // By tables that are not known any more the key may have been another member's.
        self.forgotten <= since.version
            && since.ownership.may_act(key)
            && later.all(|view| view.version <= since.version || view.ownership.may_act(key))
    }

    /// True if the member's Lease is fresh.
    pub(crate) fn is_fresh(&self, now: ClockTime) -> bool {
        self.valid_until.is_some_and(|until| !until.is_past(now))
    }

    /// True if nothing acts on what the member does not own.
    pub(crate) fn is_drained(&self, now: Instant) -> bool {
        let ownership = &self.now_owned.ownership;
        let is_own =
            |acting: &Acting| acting.generation == self.generation && ownership.owns(acting.key);
        self.lingers_until.is_none_or(|until| until <= now) && self.acting.values().all(is_own)
    }

    /// How many act on something.
    pub(crate) fn acting(&self) -> usize {
        self.acting.len()
    }

    /// Lets somebody act on a key until [`PermitState::ended`]. Returns the number of the permit.
    pub(crate) fn begin(&mut self, key: u64, now: ClockTime) -> Result<u64, NoPermit> {
        if !self.is_fresh(now) {
            return Err(NoPermit::Lapsed);
        }
        if !self.now_owned.ownership.may_act(key) {
            return Err(NoPermit::NotOwned);
        }
        self.permits += 1;
        let acting = Acting {
            key,
            generation: self.generation,
            lost_at: None,
        };
        self.acting.insert(self.permits, acting);
        Ok(self.permits)
    }

    /// Why what has a permit must not go on.
    pub(crate) fn must_end(&self, permit: u64, now: ClockTime) -> Option<MustEnd> {
        let acting = self.acting.get(&permit);
        let Some(acting) = acting.filter(|acting| acting.generation == self.generation) else {
            return Some(MustEnd::Lapsed);
        };
        if !self.is_fresh(now) {
            return Some(MustEnd::Lapsed);
        }
        let lost_at = acting.lost_at;
        let is_over = lost_at.is_some_and(|at| at + self.times.grace <= now.monotonic);
        is_over.then_some(MustEnd::HandedOver)
    }

    /// When what has a permit must end, unless something changes before.
    pub(crate) fn ends_at(&self, permit: u64) -> Option<Instant> {
        let until = self.valid_until?.monotonic;
        let lost_at = self.acting.get(&permit)?.lost_at;
        Some(lost_at.map_or(until, |at| until.min(at + self.times.grace)))
    }

    /// What had a permit has ended.
    pub(crate) fn ended(&mut self, permit: u64, now: ClockTime) {
        if self.must_end(permit, now).is_some() {
            self.lingers_until = Some(now.monotonic + self.times.linger);
        }
        self.acting.remove(&permit);
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{MemberId, ShardTable};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMES: HandOverTimes = HandOverTimes {
        grace: SECOND,
        linger: SECOND,
    };

    fn members(names: &[&str]) -> Vec<MemberId> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn owned(epoch: u64, before: &[&str], now: &[&str], unsettled: &[&str]) -> Ownership {
        Ownership {
            me: Some("a".into()),
            table: Some(ShardTable {
                epoch,
                members: members(now).into(),
                before: Some(members(before).into()),
            }),
            unsettled: members(unsettled).into_iter().collect(),
        }
    }

    #[test]
    fn keys_that_were_away_or_came_later_were_not_kept() {
        let (mut state, now) = (PermitState::new(TIMES), Instant::now());
        let set = |state: &mut PermitState, ownership| {
            state.set(ownership, None, now);
            state.view().clone()
        };
        let kept = |state: &PermitState, since: &OwnershipView| {
            (0..40).filter(|key| state.is_kept(*key, since)).count()
        };
        let nothing = state.view().clone();
        let first = set(&mut state, owned(1, &[], &["a"], &[]));
        assert_eq!((kept(&state, &nothing), kept(&state, &first)), (0, 40));

        // Half of the keys go to b and come back when b has let go of them.
        let second = set(&mut state, owned(2, &["a"], &["a", "b"], &[]));
        let half = kept(&state, &first);
        assert!((1..40).contains(&half), "{half}");
        assert_eq!(half, kept(&state, &second));
        let third = set(&mut state, owned(3, &["a", "b"], &["a"], &["b"]));
        assert_eq!(kept(&state, &third), half, "b has the others");
        let settled = set(&mut state, owned(3, &["a", "b"], &["a"], &[]));
        assert_eq!(
            [&first, &second, &third, &settled].map(|since| kept(&state, since)),
            [half, half, half, 40],
            "what b had came after the view of the same epoch"
        );
        // The middle state was seen by nobody.
        state.set(owned(4, &["a"], &["a", "b"], &[]), None, now);
        state.set(owned(5, &["a", "b"], &["a"], &[]), None, now);
        assert_eq!(kept(&state, &settled), half);

        let last = state.view().clone();
        for epoch in 6..6 + TABLES_KEPT as u64 {
            state.set(owned(epoch, &["a"], &["a"], &[]), None, now);
        }
        assert_eq!(kept(&state, &last), 40);
        state.set(owned(99, &["a"], &["a"], &[]), None, now);
        let newest = state.view().clone();
        assert_eq!((kept(&state, &last), kept(&state, &newest)), (0, 40));
        state.end_membership(now);
        assert_eq!(kept(&state, &newest), 0);
    }

    #[test]
    fn a_membership_lapses_by_the_clock_that_is_ahead() {
        let mut state = PermitState::new(TIMES);
        let start = ClockTime::now();
        let later = |monotonic: u32, wall: u32| ClockTime {
            monotonic: start.monotonic + SECOND * monotonic,
            wall: start.wall + SECOND * wall,
        };
        let ownership = owned(1, &[], &["a"], &[]);
        state.set(ownership.clone(), Some(later(10, 10)), start.monotonic);
        let permit = state.begin(7, later(0, 0)).unwrap();
        assert_eq!(state.must_end(permit, later(9, 9)), None);
        let lapsed = Some(MustEnd::Lapsed);
        assert_eq!(state.must_end(permit, later(10, 9)), lapsed);
        // The machine was suspended: its monotonic clock stood still.
        assert_eq!(state.must_end(permit, later(1, 60)), lapsed);
        assert_eq!(state.begin(8, later(1, 60)), Err(NoPermit::Lapsed));
        // The next renewal counts from the clocks as they are then.
        state.set(ownership, Some(later(11, 70)), start.monotonic);
        assert!(state.begin(8, later(1, 60)).is_ok());
    }

    #[test]
    fn what_began_in_a_membership_never_goes_on_in_the_next_one() {
        let mut state = PermitState::new(TIMES);
        let now = ClockTime::now();
        let until = ClockTime {
            monotonic: now.monotonic + SECOND,
            wall: now.wall + SECOND,
        };
        let ownership = owned(1, &[], &["a"], &[]);
        state.set(ownership.clone(), Some(until), now.monotonic);
        let old = state.begin(7, now).unwrap();
        state.end_membership(now.monotonic);
        state.set(ownership, Some(until), now.monotonic);
        assert_eq!(state.must_end(old, now), Some(MustEnd::Lapsed));
        assert!(!state.is_drained(now.monotonic));
        let new = state.begin(7, now).unwrap();
        assert_eq!(state.must_end(new, now), None);
    }
}
