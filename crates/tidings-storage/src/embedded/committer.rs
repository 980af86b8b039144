//! The committing thread: takes all waiting writes, commits them with one sync, and maintains history between commits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::crowd::LastCommit;
use super::engine::{Engine, GROUP_WRITES_MAX, HistoryToKeep, WriteAnswer};
use crate::contract::{Error, Revision, Write};

/// The maximum size of a commit: larger groups gain nothing and delay their first write.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// The number of versions that one compaction step forgets, so that writers do not wait long.
const COMPACT_STEP: usize = 2000;

/// A task for the committing thread.
pub(super) enum CommitterTask {
    Write(Write, WriteAnswer),
    /// Compacts completely and answers with the oldest revision.
    Compact(oneshot::Sender<Result<Revision, Error>>),
}

/// The loop of the committing thread. Ends when the store is dropped.
pub(super) fn run(engine: &Arc<Engine>, tasks: &Receiver<CommitterTask>) {
    engine.maintain();
    let mut next_look = Instant::now() + engine.options.compact_every;
    let mut last = LastCommit::default();
    loop {
        let mut group = Vec::new();
        let mut compactions = Vec::new();
        let wait = next_look.saturating_duration_since(Instant::now());
        let asked = Instant::now();
        match tasks.recv_timeout(wait) {
            Ok(task) => {
                // Waits for more writers, unless this write took so long to arrive that no others are likely.
                if let Some((writers, longest)) = last.expects()
                    && asked.elapsed() < longest
                {
                    engine.crowd.wait_for(writers, longest);
                }
                collect(task, tasks, &mut group, &mut compactions);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                engine.note_time();
                return;
            }
        }
        engine.crowd.leave(group.len() as u64);
        last = engine.commit(group);
        for answer in compactions {
            let _ = answer.send(engine.compact_whole(HistoryToKeep::Young, false));
        }
        if Instant::now() >= next_look {
            next_look = Instant::now() + look_after(engine);
        }
    }
}

/// Takes all waiting tasks, up to the maximum size of a commit.
fn collect(
    first: CommitterTask,
    tasks: &Receiver<CommitterTask>,
    group: &mut Vec<(Write, WriteAnswer)>,
    compactions: &mut Vec<WriteAnswer>,
) {
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(task) = next {
        match task {
            CommitterTask::Write(write, answer) => {
                bytes += write.bytes();
                group.push((write, answer));
            }
            CommitterTask::Compact(answer) => compactions.push(answer),
        }
        let full = group.len() >= GROUP_WRITES_MAX || bytes >= GROUP_BYTES_MAX;
        next = if full { None } else { tasks.try_recv().ok() };
    }
}

/// Expires keys, compacts history, maintains the disk. Returns the time until the next call.
fn look_after(engine: &Engine) -> Duration {
    while engine.expire() {}
    let again = match engine.compact(HistoryToKeep::Young, COMPACT_STEP) {
        Ok(true) => engine.options.compact_every,
        Ok(false) => return Duration::ZERO,
        Err(error) => {
            tracing::error!(%error, "cannot compact history; will retry");
            10 * engine.options.compact_every
        }
    };
    engine.maintain();
    again
}
