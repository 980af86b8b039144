//! Writes: one thread takes all that wait, commits them with one sync, then answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::crowd::Last;
use super::record::Record;
use super::watch::Live;
use super::{Shared, State};
use crate::contract::{Error, Expected, Revision, Write};

/// A commit takes at most this many writes and bytes: larger groups gain nothing and make the first of them wait.
const GROUP_WRITES_MAX: usize = 512;
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How often history is looked at, and how much of it is forgotten at once, so that writers do not wait for it.
const COMPACT_EVERY: Duration = Duration::from_secs(1);
const COMPACT_STEP: usize = 2000;

/// What the committing thread is asked to do.
pub(super) enum Task {
    Write(Write, oneshot::Sender<Result<Revision, Error>>),
    /// Compact now, whole, and say where history starts.
    Compact(oneshot::Sender<Result<Revision, Error>>),
}

struct Accepted {
    revision: Revision,
    record: Record,
    answer: oneshot::Sender<Result<Revision, Error>>,
}

/// The body of the committing thread. Ends when the store is dropped.
pub(super) fn run(shared: &Arc<Shared>, tasks: &Receiver<Task>) {
    let mut next_compaction = Instant::now() + COMPACT_EVERY;
    let mut last = Last::default();
    loop {
        let mut group = Vec::new();
        let mut compactions = Vec::new();
        let wait = next_compaction.saturating_duration_since(Instant::now());
        let asked = Instant::now();
        match tasks.recv_timeout(wait) {
            Ok(task) => {
                // Who has not come by then does not come.
                if let Some((writers, longest)) = last.expects()
                    && asked.elapsed() < longest
                {
                    shared.crowd.wait_for(writers, longest);
                }
                collect(task, tasks, &mut group, &mut compactions);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        last = commit(shared, group);
        for answer in compactions {
            let _ = answer.send(compact(shared, usize::MAX).map(|_| shared.state().oldest));
        }
        if Instant::now() >= next_compaction {
            while expire(shared) {}
            next_compaction = match compact(shared, COMPACT_STEP) {
                Ok(true) => Instant::now() + COMPACT_EVERY,
                Ok(false) => Instant::now(),
                Err(error) => {
                    tracing::error!(%error, "history cannot be compacted; it is tried again");
                    Instant::now() + 10 * COMPACT_EVERY
                }
            };
        }
    }
}

type Answer = oneshot::Sender<Result<Revision, Error>>;

/// Takes all that waits.
fn collect(
    first: Task,
    tasks: &Receiver<Task>,
    group: &mut Vec<(Write, Answer)>,
    compactions: &mut Vec<Answer>,
) {
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(task) = next {
        match task {
            Task::Write(write, answer) => {
                bytes += write.key.len() + write.value.as_ref().map_or(0, Bytes::len);
                group.push((write, answer));
            }
            Task::Compact(answer) => compactions.push(answer),
        }
        let full = group.len() >= GROUP_WRITES_MAX || bytes >= GROUP_BYTES_MAX;
        next = if full { None } else { tasks.try_recv().ok() };
    }
}

fn commit(shared: &Arc<Shared>, group: Vec<(Write, Answer)>) -> Last {
    shared.crowd.leave(group.len() as u64);
    let accepted = accept(shared, group);
    if accepted.is_empty() {
        return Last::default();
    }
    let records: Vec<(Revision, Record)> = accepted
        .iter()
        .map(|write| (write.revision, write.record.clone()))
        .collect();
    let started = Instant::now();
    let appended = shared.records.append(&records);
    // Before anybody is answered, so that nobody is counted twice.
    let last = Last {
        writes: accepted.len() as u64,
        meanwhile: shared.crowd.waiting(),
        took: started.elapsed(),
    };
    if let Err(error) = appended {
        tracing::error!(%error, writes = records.len(), "a commit failed; its writes are refused");
        for write in accepted {
            let _ = write.answer.send(Err(error.clone()));
        }
        return last;
    }
    let mut wakers = Vec::new();
    {
        let mut state = shared.state_mut();
        let slots: Vec<_> = state.slots.iter().collect();
        for (revision, record) in records {
            let previous = state.apply(revision, &record);
            let live = Arc::new(Live {
                revision,
                record,
                previous,
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
    last
}

/// Deletes keys whose lifetime is over. What cannot be deleted now is tried again. Returns true if there may be more.
fn expire(shared: &Arc<Shared>) -> bool {
    let due = {
        let mut state = shared.state_mut();
        let State {
            lifetimes, index, ..
        } = &mut *state;
        let current = |key: &Bytes| index.current(key);
        lifetimes.due((shared.now)(), GROUP_WRITES_MAX, current)
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
    shared.crowd.enter(count as u64);
    commit(shared, group);
    let mut failed = false;
    for (write, mut answer) in due.into_iter().zip(answers) {
        // A commit answers before it returns. Who was written since has a new life.
        if let Ok(Err(error)) = answer.try_recv()
            && !matches!(error, Error::Conflict { .. })
        {
            shared.state_mut().lifetimes.put_back(write);
            failed = true;
        }
    }
    count == GROUP_WRITES_MAX && !failed
}

/// Checks what the writes expect, each after those before it, and gives revisions to those that are right.
fn accept(shared: &Shared, group: Vec<(Write, Answer)>) -> Vec<Accepted> {
    let state = shared.state();
    let mut revision = state.revision;
    let mut in_group: HashMap<Bytes, Option<Revision>> = HashMap::new();
    let mut accepted = Vec::with_capacity(group.len());
    let written_ms = (shared.now)();
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

/// Forgets history that is too old or too large. Returns whether all of it is gone.
fn compact(shared: &Shared, step: usize) -> Result<bool, Error> {
    let (forgotten, oldest, done) = {
        let mut state = shared.state_mut();
        let current = state.revision;
        let by_age = state.times.oldest((shared.now)(), current, shared.keep);
        let newest_allowed = Revision(current.0.saturating_sub(shared.keep.revisions_min));
        let by_bytes = state
            .index
            .oldest_within(shared.history_bytes_max)
            .unwrap_or_default()
            .min(newest_allowed);
        state.oldest = state.oldest.max(by_age).max(by_bytes);
        let oldest = state.oldest;
        let (forgotten, done) = state.index.compact(oldest, step);
        (forgotten, oldest, done)
    };
    if !forgotten.is_empty() {
        shared.records.compact(&forgotten, oldest)?;
    }
    Ok(done)
}
