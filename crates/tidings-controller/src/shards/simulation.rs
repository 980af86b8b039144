//! Random histories of groups: members are killed, started and put to sleep for longer than a lease, requests and answers get lost, and
//! what members see is late. A seed is a history.
//!
//! Checked at every moment: no two members act on one key, by the leases' own rules. Checked where members only come and crash: no key
//! is without a member that may act on it for longer than a lease.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::machine::{
    GroupRecords, LEFT, MemberRecord, Ownership, ShardAnswer, ShardMachine, ShardStep, ShardTimes,
};

/// The keys of a history.
const KEYS: u64 = 24;
/// How far the time goes in one step.
const TICK: Duration = Duration::from_millis(50);
const TIMES: ShardTimes = ShardTimes {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    renew_every: Duration::from_secs(2),
};

/// What goes wrong in a history.
#[derive(Clone, Copy)]
struct Faults {
    replicas: usize,
    /// Members sleep, for up to three leases.
    sleeps: bool,
    /// Requests and answers get lost, and the server is away for a while.
    losses: bool,
    /// The table is deleted now and then.
    deleted_tables: bool,
}

/// The Leases of the group, and what they were before: views are late.
struct SimulatedServer {
    records: GroupRecords,
    revision: u64,
    history: VecDeque<(Instant, GroupRecords)>,
    away_until: Instant,
}

impl SimulatedServer {
    fn apply(&mut self, member: &str, step: &ShardStep, now: Instant) -> ShardAnswer {
        self.revision += 1;
        let version = self.revision.to_string();
        let answer = match step {
            ShardStep::Join if self.records.members.contains_key(member) => ShardAnswer::Conflict,
            ShardStep::Join => {
                let record = MemberRecord {
                    version: version.clone(),
                    lease: TIMES.lease,
                    ..MemberRecord::default()
                };
                self.records.members.insert(member.to_owned(), record);
                ShardAnswer::Done(version)
            }
            ShardStep::Renew {
                version: expected,
                acknowledged,
                leaving,
            } => match self.records.members.get_mut(member) {
                None => ShardAnswer::Gone,
                Some(record) if record.version != *expected => ShardAnswer::Conflict,
                Some(record) => {
                    assert!(
                        record.acknowledged <= *acknowledged,
                        "an acknowledgement is taken back"
                    );
                    record.version.clone_from(&version);
                    record.acknowledged = *acknowledged;
                    record.leaving = *leaving;
                    ShardAnswer::Done(version)
                }
            },
            ShardStep::Read => match self.records.members.get(member) {
                None => ShardAnswer::Gone,
                Some(record) => ShardAnswer::Done(record.version.clone()),
            },
            ShardStep::Advance {
                table,
                version: expected,
            } => {
                let known = self.records.table.as_ref().map(|(_, version)| version);
                if known != expected.as_ref() {
                    ShardAnswer::Conflict
                } else {
                    self.records.table = Some((table.clone(), version.clone()));
                    ShardAnswer::Done(version)
                }
            }
            ShardStep::Remove {
                member,
                version: expected,
            } => match self.records.members.get(member) {
                None => ShardAnswer::Gone,
                Some(record) if record.version != *expected => ShardAnswer::Conflict,
                Some(_) => {
                    self.records.members.remove(member);
                    ShardAnswer::Done(String::new())
                }
            },
            ShardStep::Wait(_) | ShardStep::End => unreachable!("not a request"),
        };
        self.history.push_back((now, self.records.clone()));
        answer
    }

    /// The Leases as they were at a time.
    fn at(&self, time: Instant) -> GroupRecords {
        let known = self.history.iter().rev().find(|(since, _)| *since <= time);
        known
            .map(|(_, records)| records.clone())
            .unwrap_or_default()
    }
}

/// A request on its way.
struct Request {
    step: ShardStep,
    started: Instant,
    /// When it reaches the server; `None` if it gets lost.
    applied: Option<Instant>,
    /// When its answer comes, or its timeout ends.
    answered: Instant,
    answer_lost: bool,
    answer: Option<ShardAnswer>,
}

/// One process.
struct Replica {
    name: String,
    machine: ShardMachine,
    asleep_until: Instant,
    /// When it sees the server's state of: never goes back.
    sees: Instant,
    request: Option<Request>,
    /// Keys that are acted on, and when that ends.
    acting: BTreeMap<u64, Instant>,
    /// What the permits were last told.
    valid_until: Option<Instant>,
    ownership: Ownership,
    leaving: bool,
}

struct Simulation {
    seed: u64,
    faults: Faults,
    rng: fastrand::Rng,
    start: Instant,
    now: Instant,
    server: SimulatedServer,
    replicas: Vec<Replica>,
    started: usize,
    /// When members crashed or left.
    departures: Vec<Instant>,
    last_able: Vec<Instant>,
    begun: u64,
    moved: u64,
}

fn key(number: u64) -> u64 {
    tidings_informer::Uid::new(&format!("key-{number}")).number()
}

impl Simulation {
    fn new(seed: u64, faults: Faults) -> Simulation {
        let now = Instant::now();
        Simulation {
            seed,
            faults,
            rng: fastrand::Rng::with_seed(seed),
            start: now,
            now,
            server: SimulatedServer {
                records: GroupRecords::default(),
                revision: 0,
                history: VecDeque::new(),
                away_until: now,
            },
            replicas: Vec::new(),
            started: 0,
            departures: Vec::new(),
            last_able: vec![now; KEYS as usize],
            begun: 0,
            moved: 0,
        }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range))
    }

    fn start_replica(&mut self) {
        self.started += 1;
        let name = format!("m{:02}-{}", self.rng.u8(..100), self.started);
        let replica = Replica {
            machine: ShardMachine::new(TIMES, name.clone(), self.now),
            name,
            asleep_until: self.now,
            sees: self.now,
            request: None,
            acting: BTreeMap::new(),
            valid_until: None,
            ownership: Ownership::default(),
            leaving: false,
        };
        self.replicas.push(replica);
    }

    fn at(&self) -> Duration {
        self.now - self.start
    }

    /// Runs for some time with faults, then without, and checks that the group comes to rest.
    fn run(mut self) -> (u64, u64) {
        for _ in 0..self.faults.replicas {
            self.start_replica();
        }
        while self.at() < Duration::from_secs(240) {
            self.disturb();
            self.tick(true);
        }
        self.server.away_until = self.now;
        self.faults.losses = false;
        while self.replicas.len() < self.faults.replicas {
            self.start_replica();
        }
        for replica in &mut self.replicas {
            replica.asleep_until = replica.asleep_until.min(self.now + TIMES.lease);
        }
        let calm = self.now;
        while self.now - calm < TIMES.lease * 4 {
            self.tick(false);
            if self.replicas.is_empty() {
                self.start_replica(); // all were leaving
            }
        }
        let alive: Vec<String> = self
            .replicas
            .iter()
            .map(|replica| replica.name.clone())
            .collect();
        for number in 0..KEYS {
            let able = self.able(number);
            assert_eq!(
                able, 1,
                "seed {}: key {number} at rest, of {alive:?}",
                self.seed
            );
        }
        let members: Vec<_> = self.server.records.members.keys().cloned().collect();
        assert_eq!(
            members.len(),
            alive.len(),
            "seed {}: {members:?}",
            self.seed
        );
        (self.begun, self.moved)
    }

    fn disturb(&mut self) {
        let one_in = |rng: &mut fastrand::Rng, odds: u32| rng.u32(..odds) == 0;
        // About every ten seconds.
        if one_in(&mut self.rng, 200) && !self.replicas.is_empty() {
            let which = self.rng.usize(..self.replicas.len());
            match self.rng.u8(..4) {
                0 | 1 if self.replicas.len() > 1 || self.faults.losses => {
                    self.replicas.swap_remove(which);
                    self.departures.push(self.now);
                }
                2 => {
                    let now = self.now;
                    self.replicas[which].machine.leave(now);
                    self.replicas[which].leaving = true;
                    self.departures.push(self.now);
                }
                _ if self.faults.sleeps => {
                    let asleep = self.millis(1_000..45_000);
                    self.replicas[which].asleep_until = self.now + asleep;
                }
                _ => {}
            }
        }
        if self.replicas.len() < self.faults.replicas && one_in(&mut self.rng, 60) {
            self.start_replica();
        }
        if self.faults.losses && one_in(&mut self.rng, 600) {
            self.server.away_until = self.now + self.millis(500..25_000);
        }
        if self.faults.deleted_tables && one_in(&mut self.rng, 600) {
            self.server.records.table = None;
            self.server
                .history
                .push_back((self.now, self.server.records.clone()));
        }
    }

    fn tick(&mut self, checks_gaps: bool) {
        self.now += TICK;
        let mut order: Vec<usize> = (0..self.replicas.len()).collect();
        self.rng.shuffle(&mut order);
        // Requests reach the server although their senders sleep.
        for which in &order {
            self.deliver(*which);
        }
        for which in order {
            if self.replicas[which].asleep_until <= self.now {
                self.wake(which);
            }
        }
        self.replicas.retain_mut(|replica| {
            replica.machine.step(self.now) != ShardStep::End || !replica.acting.is_empty()
        });
        self.check(checks_gaps);
        while self.server.history.len() > 400 {
            self.server.history.pop_front();
        }
    }

    fn deliver(&mut self, which: usize) {
        let (now, is_away) = (self.now, self.server.away_until > self.now);
        let replica = &mut self.replicas[which];
        if let Some(request) = &mut replica.request
            && request.answer.is_none()
            && request.applied.is_some_and(|applied| applied <= now)
        {
            request.answer = Some(match is_away {
                true => ShardAnswer::Failed,
                false => self.server.apply(&replica.name, &request.step, now),
            });
        }
    }

    /// One turn of a process that is awake, as the shell does it.
    fn wake(&mut self, which: usize) {
        let now = self.now;
        let lag = self.millis(0..400);
        let (lost, answer_lost) = (self.rng.u8(..20) == 0, self.rng.u8(..20) == 0);
        let (out, back) = (self.millis(0..200), self.millis(0..200));
        let losses = self.faults.losses;
        let replica = &mut self.replicas[which];
        // What ran is dropped when the lease has lapsed, before it can go on.
        if replica.valid_until.is_none_or(|until| until <= now) {
            replica.acting.clear();
        }
        replica.acting.retain(|_, end| *end > now);
        let answered = replica.request.take_if(|request| request.answered <= now);
        if let Some(request) = answered {
            let answer = request.answer.filter(|_| !request.answer_lost);
            let answer = answer.unwrap_or(ShardAnswer::Failed);
            let machine = &mut replica.machine;
            machine.answered(&request.step, answer, request.started, now);
        }
        replica.sees = replica.sees.max(now - lag);
        let records = self.server.at(replica.sees);
        replica.machine.others_changed();
        replica.machine.observed(&records, now);
        if replica.machine.is_removed() {
            // It joins again under another name.
            self.started += 1;
            replica.name = format!("m{:02}-{}", self.started % 100, self.started);
            replica.machine = ShardMachine::new(TIMES, replica.name.clone(), now);
            replica.machine.observed(&records, now);
            replica.acting.clear();
        }
        replica.ownership = replica.machine.ownership();
        let ownership = &replica.ownership;
        replica.valid_until = replica.machine.valid_until();
        if replica
            .acting
            .keys()
            .all(|number| ownership.owns(key(*number)))
        {
            replica.machine.drained();
        }
        replica.machine.hurry(now);
        if replica.request.is_none() {
            match replica.machine.step(now) {
                ShardStep::Wait(_) | ShardStep::End => {}
                step => {
                    let (lost, answer_lost) = (lost && losses, answer_lost && losses);
                    let silent = lost || answer_lost;
                    let answered = now
                        + if silent {
                            TIMES.renew_every
                        } else {
                            out + back
                        };
                    replica.request = Some(Request {
                        step,
                        started: now,
                        applied: (!lost).then_some(now + out),
                        answered,
                        answer_lost,
                        answer: None,
                    });
                }
            }
        }
        let is_valid = replica.valid_until.is_some_and(|until| until > now);
        for number in 0..KEYS {
            let may_act = is_valid && ownership.may_act(key(number));
            if may_act && !replica.acting.contains_key(&number) && self.rng.u8(..8) == 0 {
                let work = Duration::from_millis(self.rng.u64(50..4_000));
                replica.acting.insert(number, now + work);
                self.begun += 1;
            }
        }
    }

    /// How many replicas may act on a key.
    fn able(&self, number: u64) -> usize {
        let able = self.replicas.iter().filter(|replica| {
            replica.asleep_until <= self.now
                && replica.valid_until.is_some_and(|until| until > self.now)
                && replica.ownership.may_act(key(number))
        });
        able.count()
    }

    fn check(&mut self, checks_gaps: bool) {
        let awake = |replica: &&Replica| replica.asleep_until <= self.now;
        for number in 0..KEYS {
            let acting = self.replicas.iter().filter(awake).filter(|replica| {
                let is_valid = replica.valid_until.is_some_and(|until| until > self.now);
                is_valid && replica.acting.contains_key(&number)
            });
            let acting: Vec<&str> = acting.map(|replica| &*replica.name).collect();
            assert!(
                acting.len() <= 1,
                "seed {}: {acting:?} act on key {number} at {:?}",
                self.seed,
                self.at()
            );
        }
        for number in 0..KEYS {
            let before = self.last_able[number as usize];
            let nobody_stays = self.replicas.iter().all(|replica| replica.leaving);
            if self.able(number) > 0 || nobody_stays {
                self.moved += u64::from(self.now - before > TICK);
                self.last_able[number as usize] = self.now;
                continue;
            }
            let only_crashes =
                !self.faults.sleeps && !self.faults.losses && !self.faults.deleted_tables;
            if !checks_gaps || !only_crashes {
                continue;
            }
            // A key that comes to a member which crashes before it could begin waits for another lease, and so does one whose owner
            // has crashed if the only member that saw it leaves. What is running is waited for: at most four seconds.
            let gap = self.now - before;
            let times = self.departures.iter();
            let departed = times.filter(|time| **time + TIMES.lease >= before);
            let leases = u32::try_from(departed.count().max(1)).unwrap_or(u32::MAX);
            assert!(
                gap <= TIMES.lease * leases + Duration::from_secs(5),
                "seed {}: key {number} has no owner for {gap:?} at {:?}",
                self.seed,
                self.at()
            );
        }
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let wanted = std::env::var("TIDINGS_SEEDS").ok();
    0..wanted
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(default)
}

fn run(faults: Faults, default_seeds: u64) {
    let (mut begun, mut moved) = (0, 0);
    for replicas in [2, 3, 5] {
        for seed in seeds(default_seeds) {
            let faults = Faults { replicas, ..faults };
            let counted = Simulation::new(seed, faults).run();
            begun += counted.0;
            moved += counted.1;
        }
    }
    assert!(
        begun > 0 && moved > 0,
        "a history without work checks nothing"
    );
}

const CALM: Faults = Faults {
    replicas: 2,
    sleeps: false,
    losses: false,
    deleted_tables: false,
};

#[test]
fn members_that_crash_and_come_leave_no_key_without_an_owner_for_longer_than_a_lease() {
    run(CALM, 4);
}

#[test]
fn no_two_members_act_on_a_key_when_members_sleep_and_requests_get_lost() {
    run(
        Faults {
            sleeps: true,
            losses: true,
            ..CALM
        },
        4,
    );
}

#[test]
fn no_two_members_act_on_a_key_when_the_table_is_deleted() {
    run(
        Faults {
            sleeps: true,
            losses: true,
            deleted_tables: true,
            ..CALM
        },
        4,
    );
}

#[test]
fn a_member_that_leaves_lets_go_at_once() {
    let mut simulation = Simulation::new(1, CALM);
    simulation.start_replica();
    simulation.start_replica();
    let settle = |simulation: &mut Simulation, seconds: u64| {
        let end = simulation.now + Duration::from_secs(seconds);
        while simulation.now < end {
            simulation.tick(false);
        }
    };
    settle(&mut simulation, 10);
    let now = simulation.now;
    simulation.replicas[0].machine.leave(now);
    settle(&mut simulation, 7);
    assert_eq!(simulation.replicas.len(), 1, "it has ended");
    assert!((0..KEYS).all(|number| simulation.able(number) == 1));
    let left = simulation.server.records.members.values();
    assert!(left.clone().any(|record| record.acknowledged == LEFT));
    settle(&mut simulation, 16);
    assert_eq!(
        simulation.server.records.members.len(),
        1,
        "its Lease is removed"
    );
}
