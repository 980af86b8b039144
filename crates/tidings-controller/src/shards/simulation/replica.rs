//! A process of a simulated group: what the shell around the machine does, and a controller that reconciles keys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::super::machine::{ShardAnswer, ShardMachine, ShardStep};
use super::super::permit_state::{ClockTime, NoPermit, OwnershipView, PermitState};
use super::server::{Request, SimulatedServer};
use super::{Faults, HAND_OVER, KEYS, TIMES, key};

/// A reconcile.
pub(super) struct Work {
    pub(super) permit: u64,
    /// `None` if it hangs.
    pub(super) ends: Option<Instant>,
}

/// What is known of the keys.
pub(super) struct KeyHistory {
    /// When each process last acted on a key.
    pub(super) acted: Vec<BTreeMap<usize, Instant>>,
    /// When a user last changed a key.
    pub(super) changed: Vec<Instant>,
    /// When a reconcile of a key last began.
    pub(super) begun: Vec<Instant>,
    pub(super) reconciles: u64,
}

/// One process.
pub(super) struct Replica {
    pub(super) process: usize,
    pub(super) name: String,
    pub(super) machine: ShardMachine,
    pub(super) permits: PermitState,
    pub(super) asleep_until: Instant,
    /// Its watch of the Leases is silent until then.
    pub(super) blind_until: Instant,
    /// By how much its monotonic clock is behind, because the machine was suspended.
    pub(super) suspended: Duration,
    start: Instant,
    /// When it sees the server's state of: never goes back.
    sees: Instant,
    /// The version of the Leases that the machine has observed.
    observed: u64,
    /// Nothing to do for the machine until then, by its clock, unless something happens.
    waits_until: Instant,
    pub(super) request: Option<Request>,
    /// By the wall clock, when the last renewal began that was answered.
    renewed_at: SystemTime,
    request_wall: SystemTime,
    pub(super) acting: BTreeMap<u64, Work>,
    queued: BTreeSet<u64>,
    /// Changes of keys that were not looked at.
    pub(super) events: BTreeSet<u64>,
    followed: OwnershipView,
    /// When it next looks at what it may act on: on a busy machine that takes a while.
    follows_at: Instant,
    /// Until when its reconciles are not polled, although the task of the group is.
    pub(super) starved_until: Instant,
    /// What the process could act on when its caches last had all that the server had, and when that was.
    confirmed: (OwnershipView, Instant),
    /// Keys that were queued because they came from another process.
    pub(super) handed_over: u64,
    pub(super) leaving: bool,
    pub(super) has_ended: bool,
}

impl Replica {
    pub(super) fn new(process: usize, name: String, start: Instant, now: Instant) -> Replica {
        Replica {
            process,
            machine: ShardMachine::new(TIMES, name.clone(), now),
            name,
            permits: PermitState::new(HAND_OVER),
            asleep_until: now,
            blind_until: now,
            suspended: Duration::ZERO,
            start,
            sees: now,
            observed: u64::MAX,
            waits_until: now,
            request: None,
            renewed_at: SystemTime::UNIX_EPOCH,
            request_wall: SystemTime::UNIX_EPOCH,
            acting: BTreeMap::new(),
            queued: BTreeSet::new(),
            events: (0..KEYS).collect(),
            followed: OwnershipView::default(),
            follows_at: now,
            starved_until: now,
            confirmed: (OwnershipView::default(), now),
            handed_over: 0,
            leaving: false,
            has_ended: false,
        }
    }

    /// What its clocks show.
    pub(super) fn clock(&self, now: Instant) -> ClockTime {
        ClockTime {
            monotonic: now - self.suspended,
            wall: SystemTime::UNIX_EPOCH + (now - self.start),
        }
    }

    /// True if the process could begin to act on a key.
    pub(super) fn is_able(&self, number: u64, now: Instant) -> bool {
        self.asleep_until <= now
            && self.permits.is_fresh(self.clock(now))
            && self.permits.view().ownership.may_act(key(number))
    }

    /// True if the process would go on with a key, were it polled now.
    pub(super) fn acts(&self, number: u64, now: Instant) -> bool {
        let work = self.acting.get(&number);
        self.asleep_until <= now
            && work.is_some_and(|work| {
                let must_end = self.permits.must_end(work.permit, self.clock(now));
                must_end.is_none()
            })
    }

    pub(super) fn leave(&mut self, now: Instant) {
        self.machine.leave(self.clock(now).monotonic);
        self.leaving = true;
        self.waits_until = self.clock(now).monotonic;
    }

    /// One turn of a process that is awake. Its tasks run in any order.
    pub(super) fn turn(
        &mut self,
        server: &SimulatedServer,
        keys: &mut KeyHistory,
        faults: Faults,
        names: &mut usize,
        rng: &mut fastrand::Rng,
        now: Instant,
    ) {
        if rng.bool() {
            self.poll_work(rng, now);
        }
        self.member_turn(server, faults, names, rng, now);
        if rng.bool() {
            self.poll_work(rng, now);
        }
        for number in std::mem::take(&mut self.events) {
            // As `ControllerShared::enqueue`: keys of others are passed over.
            if self.permits.view().ownership.may_act(key(number)) {
                self.queued.insert(number);
            }
        }
        if self.follows_at <= now {
            self.follow_ownership();
            let pause = [200, 20_000][usize::from(rng.u8(..4) == 0)];
            self.follows_at = now + Duration::from_millis(rng.u64(..pause));
        }
        self.begin_work(keys, faults, rng, now);
    }

    /// As `GroupMember::follow` and `run`.
    fn member_turn(
        &mut self,
        server: &SimulatedServer,
        faults: Faults,
        names: &mut usize,
        rng: &mut fastrand::Rng,
        now: Instant,
    ) {
        let clock = self.clock(now);
        let local = clock.monotonic;
        let answered = self.request.take_if(|request| request.answered <= now);
        if let Some(request) = answered {
            let answer = request.answer.filter(|_| !request.answer_lost);
            let answer = answer.unwrap_or(ShardAnswer::Failed);
            let valid_until = self.machine.valid_until();
            self.machine
                .answered(&request.step, answer, request.started, local);
            if self.machine.valid_until() != valid_until {
                self.renewed_at = self.request_wall;
            }
            self.waits_until = local;
        }
        if self.blind_until <= now {
            let lag = Duration::from_millis(rng.u64(0..400));
            self.sees = self.sees.max(now - lag);
        }
        let (records, revision) = server.at(self.sees);
        if self.observed == revision && self.waits_until > local {
            return;
        }
        if self.machine.is_removed() {
            self.permits.end_membership(local);
            let version = self.machine.version().and_then(|text| text.parse().ok());
            let sees_own = version.is_none_or(|version: u64| revision >= version);
            if !self.acting.is_empty() || !sees_own {
                return;
            }
            self.waits_until = local;
            *names += 1;
            self.name = format!("m{:02}-{names}", *names % 100);
            self.machine = ShardMachine::new(TIMES, self.name.clone(), local);
        }
        if self.observed != revision {
            self.machine.others_changed();
            self.observed = revision;
        }
        self.machine.observed(&records, local);
        let valid_until = self.machine.valid_until().map(|monotonic| ClockTime {
            monotonic,
            wall: self.renewed_at + TIMES.renew_deadline,
        });
        self.permits
            .set(self.machine.ownership(), valid_until, local);
        if self.permits.is_drained(local) {
            self.machine.drained();
        }
        self.machine.hurry(local);
        if self.request.is_some() {
            return;
        }
        let losses = faults.losses;
        let lost = losses && rng.u8(..20) == 0;
        let answer_lost = losses && rng.u8(..20) == 0;
        let [out, back] = [(); 2].map(|()| Duration::from_millis(rng.u64(0..200)));
        match self.machine.step(local) {
            ShardStep::Wait(until) => self.waits_until = until,
            ShardStep::End => self.has_ended = !self.machine.is_removed(),
            step => {
                let took = match lost || answer_lost {
                    true => TIMES.renew_every,
                    false => out + back,
                };
                self.request_wall = clock.wall;
                self.request = Some(Request {
                    step,
                    started: local,
                    applied: (!lost).then_some(now + out),
                    answered: now + took,
                    answer_lost,
                    answer: None,
                });
            }
        }
    }

    /// Some reconciles are polled: they go on, end, or are dropped.
    fn poll_work(&mut self, rng: &mut fastrand::Rng, now: Instant) {
        if self.starved_until > now {
            return;
        }
        let clock = self.clock(now);
        let (permits, queued) = (&mut self.permits, &mut self.queued);
        let waits_until = &mut self.waits_until;
        self.acting.retain(|number, work| {
            if rng.bool() {
                return true;
            }
            let must_end = permits.must_end(work.permit, clock).is_some();
            let has_ended = work.ends.is_some_and(|ends| ends <= now);
            if must_end {
                queued.insert(*number); // given back
            }
            if must_end || has_ended {
                permits.ended(work.permit, clock);
                *waits_until = clock.monotonic;
            }
            !must_end && !has_ended
        });
    }

    /// As `ControllerShared::follow_shards`.
    fn follow_ownership(&mut self) {
        let view = self.permits.view().clone();
        for number in 0..KEYS {
            let is_kept = self.permits.is_kept(key(number), &self.followed);
            if view.ownership.may_act(key(number)) && !is_kept {
                self.queued.insert(number);
                self.handed_over += 1;
            }
        }
        self.followed = view;
    }

    /// As the runner: asks for a permit, and for what the process before wrote.
    fn begin_work(
        &mut self,
        keys: &mut KeyHistory,
        faults: Faults,
        rng: &mut fastrand::Rng,
        now: Instant,
    ) {
        for number in self.queued.clone() {
            if self.acting.contains_key(&number) || rng.u8(..4) != 0 {
                continue;
            }
            let permit = match self.permits.begin(key(number), self.clock(now)) {
                Ok(permit) => permit,
                Err(NoPermit::Lapsed) => continue,
                Err(NoPermit::NotOwned) => {
                    self.queued.remove(&number);
                    continue;
                }
            };
            self.queued.remove(&number);
            if !self.permits.is_kept(key(number), &self.confirmed.0) {
                self.confirmed = (self.permits.view().clone(), now);
            }
            for (process, acted) in &keys.acted[number as usize] {
                assert!(
                    *process == self.process || *acted <= self.confirmed.1,
                    "{} has not seen what process {process} wrote to key {number}",
                    self.name
                );
            }
            let hangs = faults.hangs && rng.u8(..60) == 0;
            let takes = Duration::from_millis(rng.u64(50..4_000));
            let ends = (!hangs).then_some(now + takes);
            self.acting.insert(number, Work { permit, ends });
            keys.begun[number as usize] = now;
            keys.reconciles += 1;
        }
    }
}
