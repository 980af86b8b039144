//! The engine without its threads: everything is done by whoever calls it, so that one seed repeats a failure.
//!
//! Only one thread commits, compacts and expires; any thread reads.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::EmbeddedOptions;
use super::crowd::{Crowd, Last};
use super::index::Index;
use super::lifetime::Lifetimes;
use super::log::frame::PAYLOAD_BYTES_MAX;
use super::log::{Found, LogRecords, OpenError};
use super::memory::MemoryRecords;
use super::record::{AppendError, Record, Records};
use super::watch::{Live, Slots};
use crate::clock::RunningTime;
use crate::contract::{
    Error, Expected, HistoryHold, HistoryHolds, KeyValue, Range, RangeResult, Revision, Stats,
    Write,
};
use crate::history::{Keep, Times};

/// A commit takes at most this many writes: larger groups gain nothing and make the first of them wait.
pub(super) const GROUP_WRITES_MAX: usize = 512;
/// When something is tried again that was of no use: to make room on a full disk, to rewrite files.
const AGAIN_MS: u64 = 10_000;

/// Who is told what became of a write.
pub(super) type Answer = oneshot::Sender<Result<Revision, Error>>;

/// What the index and the watches agree on. Written by the committing thread only.
pub(super) struct State {
    pub(super) revision: Revision,
    pub(super) oldest: Revision,
    /// The records say that history starts here.
    noted_oldest: Revision,
    pub(super) index: Index,
    times: Times,
    lifetimes: Lifetimes,
    pub(super) slots: Slots,
    commits: u64,
    writes: u64,
}

impl State {
    fn new(options: &EmbeddedOptions) -> State {
        State {
            revision: Revision(0),
            oldest: Revision(0),
            noted_oldest: Revision(0),
            index: Index::default(),
            times: Times::default(),
            lifetimes: Lifetimes::new(&options.lifetimes),
            slots: Slots::default(),
            commits: 0,
            writes: 0,
        }
    }

    /// Takes in the next record. True if its key did not exist before and does now.
    fn apply(&mut self, revision: Revision, record: &Record) -> bool {
        assert!(revision > self.revision, "revisions only grow");
        self.revision = revision;
        self.times.note(record.written_ms, revision);
        let deleted = record.value.is_none();
        if !deleted {
            self.lifetimes
                .note(&record.key, revision, record.written_ms);
        }
        let bytes = record.bytes();
        let existed = self.index.apply(&record.key, revision, deleted, bytes);
        !existed && !deleted
    }

    /// The revision to read at, if it can be.
    pub(super) fn readable(&self, at: Option<Revision>) -> Result<Revision, Error> {
        match at {
            None => Ok(self.revision),
            Some(requested) if requested > self.revision => Err(Error::Future {
                requested,
                current: self.revision,
            }),
            Some(requested) if requested < self.oldest => Err(Error::Compacted {
                requested,
                oldest: self.oldest,
            }),
            Some(requested) => Ok(requested),
        }
    }
}

/// How much history a compaction leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// What is younger than it must be.
    Young,
    /// Only the last revisions, which stay however old they are.
    Least,
    /// Nothing: there is no room even for those.
    Nothing,
}

/// What went wrong last, if nothing has gone right since.
#[derive(Debug, Default)]
struct Health {
    /// Of commits.
    commit: Option<String>,
    /// Of the disk.
    disk: Option<String>,
}

pub(super) struct Engine {
    state: RwLock<State>,
    pub(super) records: Box<dyn Records>,
    time: Mutex<RunningTime>,
    pub(super) options: EmbeddedOptions,
    holds: HistoryHolds,
    pub(super) crowd: Crowd,
    health: Mutex<Health>,
    failed_commits: AtomicU64,
    failed_compactions: AtomicU64,
    /// Room is not freed before this running time: it failed.
    reclaim_again_ms: AtomicU64,
    /// When history was last given up for room and that was of no use, in running time; 0 if it was.
    rescue_failed_ms: AtomicU64,
}

/// A write that is as it expects to be.
struct Accepted {
    revision: Revision,
    record: Record,
    answer: Answer,
}

impl Engine {
    /// One whose records are in memory.
    pub(super) fn ephemeral(options: EmbeddedOptions) -> Engine {
        let state = State::new(&options);
        Engine::new(Box::new(MemoryRecords::default()), state, 0, options)
    }

    /// One whose records are in a directory.
    pub(super) fn open(directory: &Path, options: EmbeddedOptions) -> Result<Engine, OpenError> {
        let mut state = State::new(&options);
        let opened = LogRecords::open(
            &options.disk,
            directory,
            options.beside,
            options.segment_bytes_max,
            &mut |found| match found {
                Found::Record(revision, record) => {
                    state.apply(revision, record);
                }
                Found::Copy(record) if record.value.is_some() => state.index.bury(&record.key),
                Found::Copy(_) => {}
            },
        )?;
        // Records that were forgotten before may still stand in their segments.
        let oldest = opened.oldest;
        let (forgotten, _) = state.index.compact(oldest, usize::MAX);
        opened.log.forget(&forgotten);
        state.revision = state.revision.max(oldest);
        state.oldest = oldest;
        state.noted_oldest = oldest;
        state.times.start_at(oldest);
        tracing::debug!(revision = %state.revision, %oldest, forgotten = forgotten.len(), "opened the store");
        Ok(Engine::new(
            Box::new(opened.log),
            state,
            opened.time_ms,
            options,
        ))
    }

    fn new(
        records: Box<dyn Records>,
        state: State,
        time_ms: u64,
        options: EmbeddedOptions,
    ) -> Engine {
        let engine = Engine {
            state: RwLock::new(state),
            records,
            time: Mutex::new(RunningTime::from(time_ms, options.clock_step_max)),
            options,
            holds: HistoryHolds::default(),
            crowd: Crowd::default(),
            health: Mutex::default(),
            failed_commits: AtomicU64::new(0),
            failed_compactions: AtomicU64::new(0),
            reclaim_again_ms: AtomicU64::new(0),
            rescue_failed_ms: AtomicU64::new(0),
        };
        engine.now_ms(); // time counts from here
        engine
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's running time.
    fn now_ms(&self) -> u64 {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        time.at((self.options.now)())
    }

    pub(super) fn hold_history(&self) -> HistoryHold {
        self.holds.hold()
    }

    /// What keeps writes from being done, if anything does.
    pub(super) fn trouble(&self) -> Option<String> {
        let health = self.health();
        health.commit.clone().or_else(|| health.disk.clone())
    }

    /// Notes how late it is, for when the store is opened again.
    pub(super) fn note_time(&self) {
        self.records.note_time(self.now_ms());
    }

    /// Refuses what could not be read back, or is larger than it may be. What was larger before may become smaller.
    pub(super) fn check_size(&self, write: &Write) -> Result<(), Error> {
        let most = self.options.value_bytes_max.min(PAYLOAD_BYTES_MAX);
        let checked = write.check_size(most);
        if checked.is_err() {
            let known = self.state().index.current_bytes(&write.key);
            if known.is_some_and(|known| write.bytes() <= known.min(PAYLOAD_BYTES_MAX)) {
                return Ok(());
            }
        }
        checked
    }

    /// Does all writes that are as they expect, durably and together, and answers all of them.
    pub(super) fn commit(&self, group: Vec<(Write, Answer)>) -> Last {
        let accepted = self.accept(group);
        if accepted.is_empty() {
            return Last::default();
        }
        let records: Vec<(Revision, Record)> = accepted
            .iter()
            .map(|write| (write.revision, write.record.clone()))
            .collect();
        let started = Instant::now();
        let appended = self.append(&records);
        // Before anybody is answered, so that nobody is counted twice.
        let last = Last {
            writes: accepted.len() as u64,
            meanwhile: self.crowd.waiting(),
            took: started.elapsed(),
        };
        if let Err(error) = appended {
            self.refuse(accepted, &error);
            return last;
        }
        let mut wakers = Vec::new();
        {
            let mut state = self.state_mut();
            let slots: Vec<_> = state.slots.iter().collect();
            for (revision, record) in records {
                let created = state.apply(revision, &record);
                let live = Arc::new(Live {
                    revision,
                    record,
                    created,
                });
                wakers.extend(slots.iter().filter_map(|slot| slot.offer(&live)));
            }
            state.commits += 1;
            state.writes += accepted.len() as u64;
        }
        for waker in wakers {
            waker.wake();
        }
        for write in accepted {
            let _ = write.answer.send(Ok(write.revision));
        }
        self.health().commit = None;
        last
    }

    /// Keeps records durably. On a full disk, history is given up for them.
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), AppendError> {
        let mut appended = self.records.append(records);
        if !appended.as_ref().is_err_and(AppendError::is_full) {
            return appended;
        }
        let now_ms = self.now_ms();
        let failed_ms = self.rescue_failed_ms.load(Ordering::Relaxed);
        let may_rescue = failed_ms == 0 || now_ms >= failed_ms + AGAIN_MS;
        for leave in [Leave::Young, Leave::Least, Leave::Nothing] {
            if !may_rescue || !appended.as_ref().is_err_and(AppendError::is_full) {
                break;
            }
            let compacted = self.compact_whole(leave, true);
            tracing::warn!(
                ?leave,
                ?compacted,
                "the disk is full: history is given up for room"
            );
            appended = self.records.append(records);
            let helped = !appended.as_ref().is_err_and(AppendError::is_full);
            let failed_ms = if helped { 0 } else { now_ms.max(1) };
            self.rescue_failed_ms.store(failed_ms, Ordering::Relaxed);
        }
        appended
    }

    fn refuse(&self, accepted: Vec<Accepted>, error: &AppendError) {
        let writes = accepted.len();
        tracing::error!(%error, writes, "a commit failed; its writes are refused");
        self.failed_commits.fetch_add(1, Ordering::Relaxed);
        self.health().commit = Some(format!("the last write failed: {error}"));
        let error = match error {
            AppendError::Refused { why, .. } => {
                Error::Failed(format!("the store cannot write: {why}"))
            }
            AppendError::Unknown(why) => Error::Uncertain(format!("the disk failed: {why}")),
        };
        for write in accepted {
            let _ = write.answer.send(Err(error.clone()));
        }
    }

    /// Checks what the writes expect, each after those before it, and gives revisions to those that are right.
    fn accept(&self, group: Vec<(Write, Answer)>) -> Vec<Accepted> {
        let written_ms = self.now_ms();
        let state = self.state();
        let mut revision = state.revision;
        let mut in_group: HashMap<Bytes, Option<Revision>> = HashMap::new();
        let mut accepted = Vec::with_capacity(group.len());
        for (write, answer) in group {
            let current = in_group
                .get(&write.key)
                .copied()
                .unwrap_or_else(|| state.index.current(&write.key));
            let right = match write.expected {
                Expected::Absent => current.is_none(),
                Expected::At(at) => current == Some(at),
            };
            if !right {
                let _ = answer.send(Err(Error::Conflict { current }));
                continue;
            }
            if answer.is_closed() {
                continue; // the writer has gone: the write is absent
            }
            revision = Revision(revision.0 + 1);
            in_group.insert(write.key.clone(), write.value.is_some().then_some(revision));
            accepted.push(Accepted {
                revision,
                record: Record {
                    written_ms,
                    key: write.key,
                    value: write.value,
                },
                answer,
            });
        }
        accepted
    }

    /// Deletes keys whose lifetime is over. What cannot be deleted now is tried again. Returns true if there may be more.
    pub(super) fn expire(&self) -> bool {
        let now_ms = self.now_ms();
        let due = {
            let mut state = self.state_mut();
            let State {
                lifetimes, index, ..
            } = &mut *state;
            let current = |key: &Bytes| index.current(key);
            lifetimes.due(now_ms, GROUP_WRITES_MAX, current)
        };
        let (answers, group): (Vec<_>, Vec<_>) = due
            .iter()
            .map(|write| {
                let (answer, done) = oneshot::channel();
                (
                    done,
                    (Write::delete(write.key.clone(), write.revision), answer),
                )
            })
            .unzip();
        let count = group.len();
        self.commit(group);
        let mut failed = false;
        for (write, mut answer) in due.into_iter().zip(answers) {
            // A commit answers before it returns. Who was written since has a new life.
            if let Ok(Err(error)) = answer.try_recv()
                && !matches!(error, Error::Conflict { .. })
            {
                self.state_mut().lifetimes.put_back(write);
                failed = true;
            }
        }
        count == GROUP_WRITES_MAX && !failed
    }

    /// Forgets up to `step` versions that are too old or too much, and frees some of their room. Returns whether all is done.
    pub(super) fn compact(&self, leave: Leave, step: usize) -> Result<bool, Error> {
        let urgent = self.health().disk.is_some();
        self.compact_step(leave, step, urgent)
    }

    fn compact_step(&self, leave: Leave, step: usize, urgent: bool) -> Result<bool, Error> {
        let compacted = self.try_compact(leave, step, urgent);
        if compacted.is_err() {
            self.failed_compactions.fetch_add(1, Ordering::Relaxed);
        }
        compacted
    }

    /// Compacts until nothing is left to do. It is `urgent` if the disk is full.
    pub(super) fn compact_whole(&self, leave: Leave, urgent: bool) -> Result<Revision, Error> {
        while !self.compact_step(leave, usize::MAX, urgent)? {}
        Ok(self.state().oldest)
    }

    fn try_compact(&self, leave: Leave, step: usize, urgent: bool) -> Result<bool, Error> {
        let now_ms = self.now_ms();
        let held = self.holds.any();
        let oldest = self.due(leave, now_ms, held);
        let (is_noted, has_forgettable) = {
            let state = self.state();
            (
                state.noted_oldest >= oldest,
                state.index.has_forgettable(oldest),
            )
        };
        if has_forgettable && !is_noted {
            self.records.note_oldest(oldest, now_ms)?;
        }
        let (forgotten, done) = {
            let mut state = self.state_mut();
            // Whoever has begun to read history since then has asked where it starts, and relies on that.
            if leave == Leave::Young && !held && self.holds.any() {
                return Ok(true);
            }
            state.oldest = oldest;
            state.times.start_at(oldest);
            if has_forgettable {
                state.noted_oldest = state.noted_oldest.max(oldest);
            }
            state.index.compact(oldest, step)
        };
        self.records.forget(&forgotten);
        Ok(self.reclaim(now_ms, urgent) && done)
    }

    /// Frees some of the room of what is forgotten. False if there may be more. If it fails, it is tried again after a while:
    /// forgetting goes on meanwhile.
    fn reclaim(&self, now_ms: u64, urgent: bool) -> bool {
        let again_ms = self.reclaim_again_ms.load(Ordering::Relaxed);
        if now_ms < again_ms && !urgent {
            return true;
        }
        match self.records.reclaim(urgent) {
            Ok(None) => true,
            Ok(Some(dropped)) => {
                let forgotten = self.state_mut().index.unbury(&dropped);
                self.records.forget(&forgotten);
                false
            }
            Err(error) => {
                tracing::error!(%error, "no room can be freed now; it is tried again");
                self.failed_compactions.fetch_add(1, Ordering::Relaxed);
                self.reclaim_again_ms
                    .store(now_ms + AGAIN_MS, Ordering::Relaxed);
                true
            }
        }
    }

    /// Where history should start. If it is `held`, it does not end by age.
    fn due(&self, leave: Leave, now_ms: u64, held: bool) -> Revision {
        let keep = Keep {
            age: self.options.history_age,
            revisions_min: self.options.history_revisions_min,
        };
        let state = self.state();
        let current = state.revision;
        let newest_allowed = Revision(current.0.saturating_sub(keep.revisions_min));
        let by_age = match leave {
            Leave::Least => newest_allowed,
            Leave::Nothing => current,
            Leave::Young if held => Revision(0),
            Leave::Young => state.times.oldest(now_ms, current, keep),
        };
        let by_bytes = state.index.oldest_within(self.options.history_bytes_max);
        let by_bytes = by_bytes.unwrap_or_default().min(newest_allowed);
        state.oldest.max(by_age).max(by_bytes)
    }

    /// Looks after the disk: settles what failed before and notes what is wrong.
    pub(super) fn maintain(&self) {
        let trouble = self.records.maintain();
        let had = std::mem::replace(&mut self.health().disk, trouble.clone());
        if let Some(trouble) = &trouble {
            if had.is_none() {
                tracing::error!(trouble, "the store is in trouble");
            }
            return;
        }
        // Nobody may write as long as the store is said not to be ready.
        let has_failed = self.health().commit.is_some();
        if has_failed {
            let probed = self.records.probe();
            self.health().commit = match probed {
                Ok(()) => {
                    tracing::info!("the store can write again");
                    None
                }
                Err(error) => Some(format!("the store cannot write: {error}")),
            };
        }
    }

    /// Reads a range.
    pub(super) fn read(&self, range: &Range) -> Result<RangeResult, Error> {
        let (revision, found, more) = {
            let state = self.state();
            let revision = state.readable(range.at)?;
            let limit = if range.limit == 0 {
                usize::MAX
            } else {
                range.limit
            };
            let mut keys = state
                .index
                .range(&range.prefix, range.start.as_deref(), revision);
            let found: Vec<Revision> = keys.by_ref().take(limit).map(|(_, at)| at).collect();
            (revision, found, keys.next().is_some())
        };
        let records = self.records.read(&found)?;
        let entry = |(at, record): (Revision, Option<Record>)| match record {
            Some(Record {
                key,
                value: Some(value),
                ..
            }) => Ok(KeyValue {
                key,
                value,
                revision: at,
            }),
            // Compaction has passed the read between its look at the index and this one.
            _ => Err(Error::Compacted {
                requested: revision,
                oldest: self.state().oldest,
            }),
        };
        let entries = found.into_iter().zip(records).map(entry);
        Ok(RangeResult {
            entries: entries.collect::<Result<_, _>>()?,
            revision,
            more,
        })
    }

    pub(super) fn stats(&self, durable: bool) -> Stats {
        let now_ms = self.now_ms();
        let disk = durable.then(|| self.records.stats());
        let state = self.state();
        let since_ms = state.times.first_ms().unwrap_or(now_ms);
        Stats {
            revision: state.revision,
            oldest: state.oldest,
            keys: state.index.live(),
            history_entries: state.index.history_len(),
            history_bytes: state.index.history_bytes(),
            commits: state.commits,
            writes: state.writes,
            queued: self.crowd.waiting(),
            oldest_age: Duration::from_millis(now_ms.saturating_sub(since_ms)),
            failed_commits: self.failed_commits.load(Ordering::Relaxed),
            failed_compactions: self.failed_compactions.load(Ordering::Relaxed),
            tombstones: state.index.tombstones(),
            disk,
            remote: None,
        }
    }
}
