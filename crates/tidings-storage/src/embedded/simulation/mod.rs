//! Random traffic over a disk that fails on purpose, compared with a model that keeps every state.
//!
//! One seed is one story: writes in groups, compaction at any moment, closing, opening, kills, power losses, errors, short
//! writes, a full disk, a clock that jumps. Segments have a few hundred bytes, so that they are often closed, joined and
//! rewritten meanwhile. After every opening, and at the end, lists at every retained revision and watches from every retained
//! revision must equal the model.
//!
//! `TIDINGS_SEEDS=100000 cargo test --release -p tidings-storage --lib simulation` runs more seeds; `TIDINGS_SEED=17` one.

mod directed;
mod model;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::EmbeddedOptions;
use super::disk::{Fault, SimulatedDisk};
use super::engine::{Engine, HistoryToKeep};
use super::log::OpenError;
use super::watch::Backlog;
use crate::contract::{Change, Error, Range, Revision, Write};
use model::{PlannedWrite, StoreModel};

const DIRECTORY: &str = "/data";
const SEEDS: u64 = 3000;
const STEPS: usize = 80;

/// A random story: the store, its simulated disk and clock, and the model.
struct RandomStory {
    random: fastrand::Rng,
    disk: SimulatedDisk,
    options: EmbeddedOptions,
    clock_ms: Arc<AtomicU64>,
    engine: Option<Engine>,
    model: StoreModel,
    figures: StoryFigures,
}

/// Counts of events, to check that the stories cover all of them.
#[derive(Debug, Default, Clone, Copy)]
struct StoryFigures {
    commits: u64,
    refused: u64,
    uncertain: u64,
    crashes: u64,
    failed_openings: u64,
    recovered: u64,
    rewritten: u64,
    tombstones: u64,
    checked: u64,
}

impl StoryFigures {
    fn with(self, other: StoryFigures) -> StoryFigures {
        StoryFigures {
            commits: self.commits + other.commits,
            refused: self.refused + other.refused,
            uncertain: self.uncertain + other.uncertain,
            crashes: self.crashes + other.crashes,
            failed_openings: self.failed_openings + other.failed_openings,
            recovered: self.recovered + other.recovered,
            rewritten: self.rewritten + other.rewritten,
            tombstones: self.tombstones.max(other.tombstones),
            checked: self.checked + other.checked,
        }
    }

    fn is_complete(&self) -> bool {
        let all = [
            self.commits,
            self.refused,
            self.uncertain,
            self.crashes,
            self.failed_openings,
            self.recovered,
            self.rewritten,
            self.tombstones,
            self.checked,
        ];
        all.iter().all(|figure| *figure > 0)
    }
}

impl RandomStory {
    fn new(seed: u64) -> RandomStory {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = SimulatedDisk::new(seed);
        let clock_ms = Arc::new(AtomicU64::new(random.u64(..1_000_000)));
        let options = EmbeddedOptions {
            history_age: Duration::from_secs(30),
            history_revisions_min: random.u64(..8),
            history_bytes_max: random.u64(200..4000),
            segment_bytes_max: random.u64(100..1200),
            value_bytes_max: 300,
            disk: Arc::new(disk.clone()),
            now: Arc::new({
                let clock_ms = clock_ms.clone();
                move || Duration::from_millis(clock_ms.load(Ordering::Relaxed))
            }),
            ..EmbeddedOptions::default()
        };
        RandomStory {
            random,
            disk,
            options,
            clock_ms,
            engine: None,
            model: StoreModel::default(),
            figures: StoryFigures::default(),
        }
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn tell(&mut self) {
        self.open();
        for _ in 0..STEPS {
            self.step();
            if self.disk.has_crashed() {
                self.figures.crashes += 1;
                self.open();
            }
        }
        self.disk.set_capacity(None);
        self.disk.heal();
        self.close();
        self.open();
        // Writes that failed because of the disk succeed now.
        let before = self.engine().state().revision;
        for _ in 0..20 {
            self.write(1);
        }
        assert!(
            self.engine().state().revision > before,
            "the store has recovered"
        );
        assert_eq!(self.engine().trouble(), None);
        self.check();
    }

    fn step(&mut self) {
        match self.random.u32(..100) {
            0..50 => {
                let writes = self.random.usize(1..6);
                self.write(writes);
            }
            50..68 => self.compact(),
            68..76 => self.engine().maintain(),
            76..81 => {
                self.close();
                self.open();
            }
            81..85 => self.disk.crash(Fault::Kill),
            85..89 => self.disk.crash(Fault::PowerLoss),
            89..97 => {
                let faults = [
                    Fault::PowerLoss,
                    Fault::PowerLoss,
                    Fault::Kill,
                    Fault::Error,
                    Fault::Error,
                    Fault::Short,
                ];
                for _ in 0..self.random.usize(1..4) {
                    let fault = self.random.choice(faults).unwrap();
                    self.disk.fail_after(self.random.u64(..40), fault);
                }
                // A failing device mostly fails several times.
                let (start, count) = (self.random.u64(..40), self.random.u64(..8));
                for call in start..start + count {
                    self.disk.fail_after(call, Fault::Error);
                }
            }
            _ => {
                let room = self.random.u64(..3000);
                let used = self.disk.used();
                let full = self.random.bool();
                self.disk.set_capacity(full.then_some(used + room));
            }
        }
        self.tick();
    }

    /// Advances the clock. Sometimes it jumps forwards or back.
    fn tick(&mut self) {
        let now = self.clock_ms.load(Ordering::Relaxed);
        let then = match self.random.u32(..40) {
            0 => now + self.random.u64(..10_000_000_000),
            1 => self.random.u64(..=now),
            _ => now + self.random.u64(..4000),
        };
        self.clock_ms.store(then, Ordering::Relaxed);
    }

    fn close(&mut self) {
        self.engine = None;
    }

    /// Opens the store, repeatedly if the disk fails, and finds out which uncertain writes were done.
    fn open(&mut self) {
        self.engine = None;
        if self.random.u32(..3) == 0 {
            let faults = [Fault::Error, Fault::Error, Fault::PowerLoss, Fault::Kill];
            let fault = self.random.choice(faults).unwrap();
            self.disk = self.disk.next_process();
            self.disk.fail_after(self.random.u64(..30), fault);
        }
        loop {
            self.disk = self.disk.next_process();
            self.options.disk = Arc::new(self.disk.clone());
            let may_fail = self.disk.may_fail();
            match Engine::open(Path::new(DIRECTORY), self.options.clone()) {
                Ok(engine) if !self.disk.has_crashed() => {
                    self.engine = Some(engine);
                    break;
                }
                Ok(_) => {}
                // An existing store must open on a full disk.
                Err(OpenError::Io { .. }) if may_fail => self.figures.failed_openings += 1,
                Err(OpenError::Io { .. }) if self.model.is_empty() => self.disk.set_capacity(None),
                Err(error) => panic!("the store does not open: {error}"),
            }
        }
        self.disk.heal();
        let revision = self.engine().state().revision;
        let state = self.list(revision).into_iter().collect();
        self.figures.recovered += self.model.settle(revision.0, &state);
        self.check();
    }

    fn write(&mut self, count: usize) {
        let planned = self.model.plan(&mut self.random, count);
        let mut answers = Vec::new();
        let group = planned.iter().map(|planned| {
            let (answer, done) = oneshot::channel();
            answers.push(done);
            (planned.write.clone(), answer)
        });
        let group: Vec<_> = group.collect();
        self.engine().commit(group);
        let mut outcome = None;
        for (planned, mut done) in planned.iter().zip(answers) {
            let answer = done.try_recv().expect("a commit answers everybody");
            match (&answer, planned.revision) {
                (Err(Error::Conflict { .. }), None) => continue,
                (Ok(revision), Some(expected)) => assert_eq!(revision.0, expected),
                (Err(Error::Failed(_) | Error::Uncertain(_)), Some(_)) => {}
                _ => panic!("{planned:?} was answered with {answer:?}"),
            }
            // A group is atomic.
            let done = answer.map(|_| ());
            let same = |before: &Result<(), Error>| before.is_ok() == done.is_ok();
            assert!(outcome.as_ref().is_none_or(same));
            outcome = Some(done);
        }
        let accepted: Vec<PlannedWrite> = planned
            .into_iter()
            .filter(|planned| planned.revision.is_some())
            .collect();
        // On a full disk, a write may drop history.
        let oldest = self.engine().state().oldest;
        self.model.forget_before(oldest);
        // A process that has ended has sent no answers.
        let crashed = self.disk.has_crashed();
        match outcome {
            None => {}
            Some(Ok(())) => {
                self.figures.commits += 1;
                self.model.commit(&accepted);
            }
            Some(Err(Error::Failed(_))) if !crashed => self.figures.refused += 1,
            Some(Err(_)) => {
                self.figures.uncertain += 1;
                self.model.doubt(accepted);
            }
        }
    }

    fn compact(&mut self) {
        let leave = match self.random.u32(..6) {
            0 => HistoryToKeep::Least,
            _ => HistoryToKeep::Young,
        };
        let step = self.random.usize(1..20);
        for _ in 0..self.random.usize(1..6) {
            let segments = || self.engine().records.stats().segments;
            let before = segments();
            let compacted = self.engine().compact(leave, step);
            self.figures.rewritten += u64::from(segments() < before);
            if compacted.is_err() {
                break;
            }
        }
        let stats = self.engine().stats(true);
        self.figures.tombstones = self.figures.tombstones.max(stats.tombstones);
        assert!(
            stats.oldest.0 + self.options.history_revisions_min <= self.model.revision()
                || stats.oldest <= self.model.oldest(),
            "the last revisions stay"
        );
        self.model.forget_before(stats.oldest);
        if self.random.u32(..4) == 0 && !self.disk.has_crashed() {
            self.check();
        }
    }

    fn list(&self, at: Revision) -> Vec<(String, (u64, String))> {
        let range = Range {
            at: Some(at),
            ..Range::default()
        };
        let listed = self.engine().read(&range).unwrap();
        let entries = listed.entries.iter();
        let entry = entries.map(|entry| (text(&entry.key), (entry.revision.0, text(&entry.value))));
        entry.collect()
    }

    /// Compares everything that can be read with the model. The disk does not fail during this.
    fn check(&mut self) {
        self.disk.heal();
        let engine = self.engine.as_ref().unwrap();
        let (oldest, revision) = {
            let state = engine.state();
            (state.oldest.0, state.revision.0)
        };
        assert_eq!(revision, self.model.revision());
        let stats = engine.stats(false);
        assert_eq!(stats.keys as usize, self.model.at(revision).len());
        for at in oldest..=revision {
            let listed = self.list(Revision(at));
            let expected: Vec<_> = self.model.at(at).clone().into_iter().collect();
            assert_eq!(
                listed, expected,
                "the list at {at} of {oldest}..={revision}"
            );
            let mut backlog = Backlog::collect(&engine.state(), b"", Revision(at)).unwrap();
            let mut told = Vec::new();
            loop {
                let batch = backlog.read(engine).unwrap();
                told.extend(batch.events.into_iter().map(|event| {
                    let value = match event.change {
                        Change::Put(value) => Some(text(&value)),
                        Change::Delete => None,
                    };
                    (event.revision.0, text(&event.key), value, event.created)
                }));
                if batch.revision.0 >= revision {
                    break;
                }
            }
            let expected: Vec<_> = (at + 1..=revision).map(|at| self.model.event(at)).collect();
            assert_eq!(told, expected, "a watch from {at} of {oldest}..={revision}");
            self.figures.checked += 1;
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs the story of a seed. On a failure, prints how to repeat that seed alone.
fn tell(seed: u64) -> StoryFigures {
    let told = std::panic::catch_unwind(|| {
        let mut story = RandomStory::new(seed);
        story.tell();
        story.figures
    });
    told.unwrap_or_else(|_| panic!("seed {seed} failed: repeat it with TIDINGS_SEED={seed}"))
}

#[test]
fn a_store_on_a_failing_disk_equals_its_model() {
    if let Some(seed) = setting("TIDINGS_SEED") {
        tell(seed);
        return;
    }
    let seeds = setting("TIDINGS_SEEDS").unwrap_or(SEEDS);
    let told = |first: u64| {
        let stories = (first..seeds).step_by(2).map(tell);
        stories.fold(StoryFigures::default(), StoryFigures::with)
    };
    let all = std::thread::scope(|scope| {
        let even = scope.spawn(|| told(0));
        let odd = told(1);
        even.join().expect("a seed failed").with(odd)
    });
    println!("{all:?}");
    assert!(
        seeds < SEEDS || all.is_complete(),
        "every kind of event has happened"
    );
}

#[test]
fn a_value_that_is_too_large_never_reaches_the_log() {
    let story = {
        let mut story = RandomStory::new(0);
        story.open();
        story
    };
    let write = Write::create("k", "x".repeat(300));
    let refused = story.engine().check_size(&write).unwrap_err();
    assert!(matches!(
        refused,
        Error::TooLarge {
            bytes: 301,
            bytes_max: Some(300)
        }
    ));
    assert!(
        story
            .engine()
            .check_size(&Write::create("k", "x".repeat(299)))
            .is_ok()
    );
}
