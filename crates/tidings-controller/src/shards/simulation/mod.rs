//! Random histories of groups: members are killed, started, suspended and put to sleep for longer than a lease, requests and answers get
//! lost, what members see is late or stands still, reconciles hang, tables are deleted. A seed is a history.
//!
//! Checked at every moment: no two members act on one key, and who begins has seen what those before it wrote. Checked at the end: each
//! change of a key was followed by a reconcile. Checked where members only come, crash and hang: no key is without a member that may act
//! on it for longer than a lease and the time to hand over.

mod replica;
mod server;
mod steps;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::machine::{ShardAnswer, ShardTimes};
use super::permit_state::HandOverTimes;
use super::table::Acknowledged;
use replica::{KeyHistory, Replica};
use server::SimulatedServer;

/// The keys of a history.
const KEYS: u64 = 24;
/// How far the time goes in one step.
const TICK: Duration = Duration::from_millis(50);
const TIMES: ShardTimes = ShardTimes {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    renew_every: Duration::from_secs(2),
};
const HAND_OVER: HandOverTimes = HandOverTimes {
    grace: Duration::from_secs(6),
    linger: Duration::from_secs(5),
};

/// What goes wrong in a history.
#[derive(Clone, Copy)]
struct Faults {
    replicas: usize,
    /// Members sleep or are suspended, for up to three leases.
    sleeps: bool,
    /// Requests and answers get lost, and the server is away for a while.
    losses: bool,
    /// The table is deleted, on average once in so many ticks.
    deleted_tables: Option<u32>,
    /// Some reconciles never end.
    hangs: bool,
    /// Members do not see the Leases for a while, but can write them.
    blindness: bool,
}

struct Simulation {
    seed: u64,
    faults: Faults,
    rng: fastrand::Rng,
    start: Instant,
    now: Instant,
    server: SimulatedServer,
    replicas: Vec<Replica>,
    names: usize,
    processes: usize,
    /// When members crashed or left.
    departures: Vec<Instant>,
    last_able: Vec<Instant>,
    keys: KeyHistory,
    moved: u64,
}

fn key(number: u64) -> u64 {
    static UIDS: LazyLock<Vec<u64>> = LazyLock::new(|| {
        let uid = |number| tidings_informer::Uid::new(&format!("key-{number}"));
        (0..KEYS).map(|number| uid(number).number()).collect()
    });
    UIDS[number as usize]
}

impl Simulation {
    fn new(seed: u64, faults: Faults) -> Simulation {
        // In the past of nobody: members subtract the time that they were suspended.
        let now = Instant::now() + Duration::from_secs(3_600);
        let times = vec![now; KEYS as usize];
        Simulation {
            seed,
            faults,
            rng: fastrand::Rng::with_seed(seed),
            start: now,
            now,
            server: SimulatedServer::new(now),
            replicas: Vec::new(),
            names: 0,
            processes: 0,
            departures: Vec::new(),
            last_able: times.clone(),
            keys: KeyHistory {
                acted: vec![BTreeMap::new(); KEYS as usize],
                changed: times.clone(),
                begun: times,
                reconciles: 0,
            },
            moved: 0,
        }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range))
    }

    fn start_replica(&mut self) {
        self.names += 1;
        self.processes += 1;
        let name = format!("m{:02}-{}", self.rng.u8(..100), self.names);
        let replica = Replica::new(self.processes, name, self.start, self.now);
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
        self.faults.losses = false;
        self.faults.hangs = false;
        self.server.away_until = self.now;
        while self.replicas.len() < self.faults.replicas {
            self.start_replica();
        }
        for replica in &mut self.replicas {
            replica.asleep_until = replica.asleep_until.min(self.now + TIMES.lease);
            replica.blind_until = self.now;
            for work in replica.acting.values_mut() {
                work.ends = Some(self.now); // nothing hangs any more
            }
        }
        let calm = self.now;
        while self.now - calm < TIMES.lease * 5 {
            self.tick(false);
            if self.replicas.is_empty() {
                self.start_replica(); // all were leaving
            }
        }
        self.check_rest();
        (self.keys.reconciles, self.moved)
    }

    fn check_rest(&self) {
        let seed = self.seed;
        let alive: Vec<&str> = self.replicas.iter().map(|replica| &*replica.name).collect();
        for number in 0..KEYS {
            let able = self.able(number);
            assert_eq!(able, 1, "seed {seed}: key {number} at rest, of {alive:?}");
            let at = number as usize;
            assert!(
                self.keys.begun[at] >= self.keys.changed[at],
                "seed {seed}: the last change of key {number} was not reconciled"
            );
        }
        let members: Vec<_> = self.server.records.members.keys().collect();
        assert_eq!(members.len(), alive.len(), "seed {seed}: {members:?}");
    }

    fn disturb(&mut self) {
        let one_in = |rng: &mut fastrand::Rng, odds: u32| rng.u32(..odds) == 0;
        // About every ten seconds.
        if one_in(&mut self.rng, 200) && !self.replicas.is_empty() {
            let which = self.rng.usize(..self.replicas.len());
            match self.rng.u8(..5) {
                0 | 1 if self.replicas.len() > 1 || self.faults.losses => {
                    self.replicas.swap_remove(which);
                    self.departures.push(self.now);
                }
                2 => {
                    let now = self.now;
                    self.replicas[which].leave(now);
                    self.departures.push(self.now);
                }
                3 if self.faults.blindness => {
                    let blind = self.millis(1_000..60_000);
                    self.replicas[which].blind_until = self.now + blind;
                }
                _ if self.faults.sleeps => {
                    let (asleep, starved) = (self.millis(1_000..45_000), self.millis(0..4_000));
                    let replica = &mut self.replicas[which];
                    if replica.asleep_until <= self.now {
                        replica.asleep_until = self.now + asleep;
                        replica.starved_until = self.now + asleep + starved;
                        if self.rng.bool() {
                            replica.suspended += asleep;
                        }
                    }
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
        if let Some(odds) = self.faults.deleted_tables
            && one_in(&mut self.rng, odds)
        {
            self.server.delete_table(self.now);
        }
        // A user changes something.
        if one_in(&mut self.rng, 2) {
            let number = self.rng.u64(..KEYS);
            self.keys.changed[number as usize] = self.now;
            for replica in &mut self.replicas {
                replica.events.insert(number);
            }
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
            let replica = &mut self.replicas[which];
            if replica.asleep_until <= self.now {
                replica.turn(
                    &self.server,
                    &mut self.keys,
                    self.faults,
                    &mut self.names,
                    &mut self.rng,
                    self.now,
                );
            }
        }
        self.replicas.retain(|replica| !replica.has_ended);
        self.check(checks_gaps);
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

    /// How many replicas may act on a key.
    fn able(&self, number: u64) -> usize {
        let able = self
            .replicas
            .iter()
            .filter(|replica| replica.is_able(number, self.now));
        able.count()
    }

    fn check(&mut self, checks_gaps: bool) {
        for number in 0..KEYS {
            let acting = self
                .replicas
                .iter()
                .filter(|replica| replica.acts(number, self.now));
            let acting: Vec<&Replica> = acting.collect();
            for replica in &acting {
                self.keys.acted[number as usize].insert(replica.process, self.now);
            }
            let names: Vec<&str> = acting.iter().map(|replica| &*replica.name).collect();
            assert!(
                names.len() <= 1,
                "seed {}: {names:?} act on key {number} at {:?}",
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
            let Faults {
                sleeps,
                losses,
                deleted_tables,
                blindness,
                ..
            } = self.faults;
            if !checks_gaps || sleeps || losses || blindness || deleted_tables.is_some() {
                continue;
            }
            // A key that comes to a member which crashes before it could begin waits for another lease, and so does one whose owner
            // has crashed if the only member that saw it leaves. What is running is waited for, at most four seconds
            // or the grace, and so are some requests.
            let gap = self.now - before;
            let times = self.departures.iter();
            let departed = times.filter(|time| **time + TIMES.lease >= before);
            let leases = u32::try_from(departed.count().max(1)).unwrap_or(u32::MAX);
            let hand_over = match self.faults.hangs {
                true => HAND_OVER.grace + HAND_OVER.linger + TIMES.renew_every * 2,
                false => Duration::ZERO,
            };
            assert!(
                gap <= (TIMES.lease + hand_over) * leases + Duration::from_secs(7),
                "seed {}: key {number} has no owner for {gap:?} at {:?}",
                self.seed,
                self.at()
            );
        }
    }

    fn settle(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.tick(false);
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
    let (mut reconciles, mut moved) = (0, 0);
    for replicas in [2, 3, 5] {
        for seed in seeds(default_seeds) {
            let faults = Faults { replicas, ..faults };
            let counted = Simulation::new(seed, faults).run();
            reconciles += counted.0;
            moved += counted.1;
        }
    }
    assert!(
        reconciles > 0 && moved > 0,
        "a history without work checks nothing"
    );
}

const CALM: Faults = Faults {
    replicas: 2,
    sleeps: false,
    losses: false,
    deleted_tables: None,
    hangs: false,
    blindness: false,
};

#[test]
fn members_that_crash_and_come_leave_no_key_without_an_owner_for_longer_than_a_lease() {
    run(CALM, 4);
}

#[test]
fn reconciles_that_hang_keep_nobody_from_taking_over_for_longer_than_the_grace() {
    let hangs = true;
    run(Faults { hangs, ..CALM }, 4);
}

const TROUBLE: Faults = Faults {
    sleeps: true,
    losses: true,
    ..CALM
};

#[test]
fn no_two_members_act_on_a_key_when_members_sleep_and_requests_get_lost() {
    run(TROUBLE, 4);
}

#[test]
fn no_two_members_act_on_a_key_when_reconciles_hang_and_watches_are_silent() {
    let (hangs, blindness) = (true, true);
    run(
        Faults {
            hangs,
            blindness,
            ..TROUBLE
        },
        4,
    );
}

#[test]
fn no_two_members_act_on_a_key_when_the_table_is_deleted() {
    for odds in [600, 20] {
        let deleted_tables = Some(odds);
        run(
            Faults {
                deleted_tables,
                ..TROUBLE
            },
            4,
        );
    }
}

#[test]
fn a_member_that_leaves_lets_go_at_once() {
    let mut simulation = Simulation::new(1, CALM);
    simulation.start_replica();
    simulation.start_replica();
    simulation.settle(10);
    let now = simulation.now;
    simulation.replicas[0].leave(now);
    simulation.settle(7);
    assert_eq!(simulation.replicas.len(), 1, "it has ended");
    assert!((0..KEYS).all(|number| simulation.able(number) == 1));
    let left = simulation.server.records.members.values();
    assert!(
        left.clone()
            .any(|record| record.acknowledged == Acknowledged::Left)
    );
    simulation.settle(16);
    assert_eq!(
        simulation.server.records.members.len(),
        1,
        "its Lease is removed"
    );
}

#[test]
fn a_member_that_leaves_while_the_server_is_away_ends_when_its_lease_has() {
    let mut simulation = Simulation::new(1, CALM);
    simulation.start_replica();
    simulation.settle(10);
    let now = simulation.now;
    simulation.server.away_until = now + Duration::from_secs(3_600);
    simulation.replicas[0].leave(now);
    simulation.settle(TIMES.lease.as_secs() - 4);
    assert_eq!(simulation.replicas.len(), 1, "its Lease has not expired");
    simulation.settle(5);
    assert_eq!(simulation.replicas.len(), 0);
}

#[test]
fn a_member_that_comes_pauses_no_key_that_stays_where_it_is() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed, CALM);
        for members in 1..4 {
            simulation.start_replica();
            let mut able: Vec<(usize, u64, bool)> = Vec::new();
            for replica in &simulation.replicas[..members - 1] {
                able.extend((0..KEYS).map(|number| {
                    let is_able = replica.is_able(number, simulation.now);
                    (replica.process, number, is_able)
                }));
            }
            let handed_over = |simulation: &Simulation| -> u64 {
                let before = &simulation.replicas[..members - 1];
                before.iter().map(|replica| replica.handed_over).sum()
            };
            let handed_before = handed_over(&simulation);
            let end = simulation.now + Duration::from_secs(30);
            while simulation.now < end {
                simulation.tick(false);
                for (process, number, was_always) in &mut able {
                    let mut replicas = simulation.replicas.iter();
                    let replica = replicas.find(|replica| replica.process == *process);
                    *was_always &= replica.is_some_and(|it| it.is_able(*number, simulation.now));
                }
            }
            let came = &simulation.replicas[members - 1];
            let mine = (0..KEYS).filter(|number| came.is_able(*number, simulation.now));
            let stayed = able.iter().filter(|(_, _, was_always)| *was_always).count();
            assert_eq!(stayed + mine.count(), KEYS as usize, "seed {seed}");
            assert_eq!(
                handed_over(&simulation),
                handed_before,
                "seed {seed}: a member of {members} reconciles again what it had"
            );
        }
    }
}

#[test]
fn a_member_that_does_not_see_the_group_does_not_hold_it_up_for_ever() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed, CALM);
        simulation.start_replica();
        simulation.start_replica();
        simulation.settle(10);
        simulation.replicas[0].blind_until = simulation.now + Duration::from_secs(3_600);
        simulation.start_replica();
        simulation.settle(TIMES.renew_deadline.as_secs() + TIMES.lease.as_secs() + 10);
        for number in 0..KEYS {
            assert_eq!(simulation.able(number), 1, "seed {seed}: key {number}");
        }
        let members = &simulation.server.records.members;
        assert_eq!(members.len(), 2, "seed {seed}: {members:?}");
        // It joins again when it sees the group.
        simulation.replicas[0].blind_until = simulation.now;
        simulation.settle(20);
        assert_eq!(simulation.server.records.members.len(), 3, "seed {seed}");
        assert!((0..KEYS).all(|number| simulation.able(number) == 1));
    }
}
