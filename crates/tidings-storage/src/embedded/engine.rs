//! The engine without threads: all work happens in the calling thread, so that a seed of the simulation repeats a failure.
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
use super::crowd::{LastCommit, WaitingWrites};
use super::index::Index;
use super::lifetime::Lifetimes;
use super::log::frame::PAYLOAD_BYTES_MAX;
use super::log::{FoundRecord, LogRecords, OpenError};
use super::memory::MemoryRecords;
use super::record::{AppendError, Record, RecordStore};
use super::watch_slots::{LiveChange, WatchSlots};
use crate::clock::RunningTime;
use crate::contract::{
    Error, Expected, HistoryHold, HistoryHolds, KeyValue, Range, RangeResult, Revision, Stats,
    Write,
};
use crate::history::{HistoryLimits, RevisionTimes};

/// The maximum number of writes of a commit: larger groups gain nothing and delay their first write.
pub(super) const GROUP_WRITES_MAX: usize = 512;
/// The time until a failed attempt to free disk space or to rewrite segments is repeated.
const AGAIN_MS: u64 = 10_000;

/// Receives the result of a write.
pub(super) type WriteAnswer = oneshot::Sender<Result<Revision, Error>>;

/// The index, the watches and the revision, which change together. Only the committing thread writes it.
pub(super) struct EngineState {
    pub(super) revision: Revision,
    pub(super) oldest: Revision,
    /// The start of history as it is stored in the log.
    noted_oldest: Revision,
    pub(super) index: Index,
    times: RevisionTimes,
    lifetimes: Lifetimes,
    pub(super) slots: WatchSlots,
    commits: u64,
    writes: u64,
}

impl EngineState {
    fn new(options: &EmbeddedOptions) -> EngineState {
        EngineState {
            revision: Revision(0),
            oldest: Revision(0),
            noted_oldest: Revision(0),
            index: Index::default(),
            times: RevisionTimes::default(),
            lifetimes: Lifetimes::new(&options.lifetimes),
            slots: WatchSlots::default(),
            commits: 0,
            writes: 0,
        }
    }

    /// Applies the next record. True if it creates its key.
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

    /// The revision to read at, if it can be read.
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

/// How much history a compaction keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryToKeep {
    /// History that is younger than the minimum age.
    Young,
    /// Only `history_revisions_min` revisions.
    Least,
    /// Nothing, because the disk is full.
    Nothing,
}

/// The last failures that no success has followed.
#[derive(Debug, Default)]
struct EngineHealth {
    /// The failure of the last commit.
    commit: Option<String>,
    /// The problem of the disk that the last maintenance found.
    disk: Option<String>,
}

/// The engine of an embedded store.
pub(super) struct Engine {
    state: RwLock<EngineState>,
    pub(super) records: Box<dyn RecordStore>,
    time: Mutex<RunningTime>,
    pub(super) options: EmbeddedOptions,
    holds: HistoryHolds,
    pub(super) crowd: WaitingWrites,
    health: Mutex<EngineHealth>,
    failed_commits: AtomicU64,
    failed_compactions: AtomicU64,
    /// After a failure, no space is reclaimed before this running time.
    reclaim_again_ms: AtomicU64,
    /// The running time at which dropping history last failed to free space for a write; 0 if it succeeded.
    rescue_failed_ms: AtomicU64,
}

/// A write whose key has the expected state.
struct AcceptedWrite {
    revision: Revision,
    record: Record,
    answer: WriteAnswer,
}

impl Engine {
    /// An engine whose records are in memory.
    pub(super) fn ephemeral(options: EmbeddedOptions) -> Engine {
        let state = EngineState::new(&options);
        Engine::new(Box::new(MemoryRecords::default()), state, 0, options)
    }

    /// An engine whose records are in a data directory.
    pub(super) fn open(directory: &Path, options: EmbeddedOptions) -> Result<Engine, OpenError> {
        let mut state = EngineState::new(&options);
        let opened = LogRecords::open(
            &options.disk,
            directory,
            options.beside,
            options.segment_bytes_max,
            &mut |found| match found {
                FoundRecord::Record(revision, record) => {
                    state.apply(revision, record);
                }
                FoundRecord::Copy(record) if record.value.is_some() => {
                    state.index.bury(&record.key)
                }
                FoundRecord::Copy(_) => {}
            },
        )?;
        // Segments may still contain records that were forgotten before.
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
        records: Box<dyn RecordStore>,
        state: EngineState,
        time_ms: u64,
        options: EmbeddedOptions,
    ) -> Engine {
        let engine = Engine {
            state: RwLock::new(state),
            records,
            time: Mutex::new(RunningTime::from(time_ms, options.clock_step_max)),
            options,
            holds: HistoryHolds::default(),
            crowd: WaitingWrites::default(),
            health: Mutex::default(),
            failed_commits: AtomicU64::new(0),
            failed_compactions: AtomicU64::new(0),
            reclaim_again_ms: AtomicU64::new(0),
            rescue_failed_ms: AtomicU64::new(0),
        };
        engine.now_ms(); // the first reading starts the clock
        engine
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, EngineState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, EngineState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, EngineHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The running time of the store.
    fn now_ms(&self) -> u64 {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        time.at((self.options.now)())
    }

    pub(super) fn hold_history(&self) -> HistoryHold {
        self.holds.hold()
    }

    /// Why writes fail; `None` if they do not.
    pub(super) fn trouble(&self) -> Option<String> {
        let health = self.health();
        health.commit.clone().or_else(|| health.disk.clone())
    }

    /// Stores the running time for the next start.
    pub(super) fn note_time(&self) {
        self.records.note_time(self.now_ms());
    }

    /// Refuses a write that is too large. A stored value above the limit may be replaced by one that is not larger.
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

    /// Commits all writes whose keys have the expected state, durably and together, and answers all writes.
    pub(super) fn commit(&self, group: Vec<(Write, WriteAnswer)>) -> LastCommit {
        tracing::trace!(target: "tidings::walk", "appends a group of writes to the log and syncs it");
        let accepted = self.accept(group);
        if accepted.is_empty() {
            return LastCommit::default();
        }
        let records: Vec<(Revision, Record)> = accepted
            .iter()
            .map(|write| (write.revision, write.record.clone()))
            .collect();
        let started = Instant::now();
        let appended = self.append(&records);
        // Counted before the answers are sent: a writer that writes again must not count twice.
        let last = LastCommit {
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
                let live = Arc::new(LiveChange {
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

    /// Appends records durably. On a full disk, drops history to make space for them.
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), AppendError> {
        let mut appended = self.records.append(records);
        if !appended.as_ref().is_err_and(AppendError::is_full) {
            return appended;
        }
        let now_ms = self.now_ms();
        let failed_ms = self.rescue_failed_ms.load(Ordering::Relaxed);
        let may_rescue = failed_ms == 0 || now_ms >= failed_ms + AGAIN_MS;
        for leave in [
            HistoryToKeep::Young,
            HistoryToKeep::Least,
            HistoryToKeep::Nothing,
        ] {
            if !may_rescue || !appended.as_ref().is_err_and(AppendError::is_full) {
                break;
            }
            let compacted = self.compact_whole(leave, true);
            tracing::warn!(
                ?leave,
                ?compacted,
                "the disk is full: dropping history to free space"
            );
            appended = self.records.append(records);
            let helped = !appended.as_ref().is_err_and(AppendError::is_full);
            let failed_ms = if helped { 0 } else { now_ms.max(1) };
            self.rescue_failed_ms.store(failed_ms, Ordering::Relaxed);
        }
        appended
    }

    fn refuse(&self, accepted: Vec<AcceptedWrite>, error: &AppendError) {
        let writes = accepted.len();
        tracing::error!(%error, writes, "a commit failed; its writes were refused");
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

    /// Checks the expected state of each write, in order, and assigns revisions to the writes that pass.
    fn accept(&self, group: Vec<(Write, WriteAnswer)>) -> Vec<AcceptedWrite> {
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
                continue; // the caller has cancelled the write
            }
            revision = Revision(revision.0 + 1);
            in_group.insert(write.key.clone(), write.value.is_some().then_some(revision));
            accepted.push(AcceptedWrite {
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

    /// Deletes keys whose lifetime is over. Keys that cannot be deleted are retried later. Returns true if there may be more.
    pub(super) fn expire(&self) -> bool {
        let now_ms = self.now_ms();
        let due = {
            let mut state = self.state_mut();
            let EngineState {
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
            // `commit` answers before it returns. On a conflict the key was written again, which renews its lifetime.
            if let Ok(Err(error)) = answer.try_recv()
                && !matches!(error, Error::Conflict { .. })
            {
                self.state_mut().lifetimes.put_back(write);
                failed = true;
            }
        }
        count == GROUP_WRITES_MAX && !failed
    }

    /// Forgets up to `step` versions beyond the limits of history, and reclaims some of their space. Returns true if all is done.
    pub(super) fn compact(&self, leave: HistoryToKeep, step: usize) -> Result<bool, Error> {
        let urgent = self.health().disk.is_some();
        self.compact_step(leave, step, urgent)
    }

    fn compact_step(&self, leave: HistoryToKeep, step: usize, urgent: bool) -> Result<bool, Error> {
        let compacted = self.try_compact(leave, step, urgent);
        if compacted.is_err() {
            self.failed_compactions.fetch_add(1, Ordering::Relaxed);
        }
        compacted
    }

    /// Compacts until nothing is left to do. `urgent` if the disk is full.
    pub(super) fn compact_whole(
        &self,
        leave: HistoryToKeep,
        urgent: bool,
    ) -> Result<Revision, Error> {
        while !self.compact_step(leave, usize::MAX, urgent)? {}
        Ok(self.state().oldest)
    }

    fn try_compact(&self, leave: HistoryToKeep, step: usize, urgent: bool) -> Result<bool, Error> {
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
            // A reader has taken a hold meanwhile and relies on the oldest revision that it has read.
            if leave == HistoryToKeep::Young && !held && self.holds.any() {
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

    /// Reclaims some of the space of forgotten records. False if there may be more. After a failure it pauses, while forgetting
    /// continues.
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
                tracing::error!(%error, "cannot reclaim disk space; will retry");
                self.failed_compactions.fetch_add(1, Ordering::Relaxed);
                self.reclaim_again_ms
                    .store(now_ms + AGAIN_MS, Ordering::Relaxed);
                true
            }
        }
    }

    /// The revision at which history should start. While it is `held`, age does not count.
    fn due(&self, leave: HistoryToKeep, now_ms: u64, held: bool) -> Revision {
        let keep = HistoryLimits {
            age: self.options.history_age,
            revisions_min: self.options.history_revisions_min,
        };
        let state = self.state();
        let current = state.revision;
        let newest_allowed = Revision(current.0.saturating_sub(keep.revisions_min));
        let by_age = match leave {
            HistoryToKeep::Least => newest_allowed,
            HistoryToKeep::Nothing => current,
            HistoryToKeep::Young if held => Revision(0),
            HistoryToKeep::Young => state.times.oldest(now_ms, current, keep),
        };
        let by_bytes = state.index.oldest_within(self.options.history_bytes_max);
        let by_bytes = by_bytes.unwrap_or_default().min(newest_allowed);
        state.oldest.max(by_age).max(by_bytes)
    }

    /// Maintains the disk: repairs what failed before and notes current problems.
    pub(super) fn maintain(&self) {
        let trouble = self.records.maintain();
        let had = std::mem::replace(&mut self.health().disk, trouble.clone());
        if let Some(trouble) = &trouble {
            if had.is_none() {
                tracing::error!(trouble, "the store has a problem");
            }
            return;
        }
        // While the store is not ready there are no writes that could show that it recovered, so it is probed.
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
            // Compaction has removed the record after the index was read.
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
            encryption: None,
        }
    }
}
