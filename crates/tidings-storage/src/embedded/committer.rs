//! The committing thread: takes all writes that wait, commits them with one sync, and looks after history between.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::crowd::Last;
use super::engine::{Answer, Engine, GROUP_WRITES_MAX, Leave};
use crate::contract::{Error, Revision, Write};

/// A commit takes at most this many bytes: larger groups gain nothing and make the first of them wait.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How much is forgotten at once, so that writers do not wait for it.
const COMPACT_STEP: usize = 2000;

/// What the committing thread is asked to do.
pub(super) enum Task {
    Write(Write, Answer),
    /// Compact now, whole, and say where history starts.
    Compact(oneshot::Sender<Result<Revision, Error>>),
}

/// The body of the committing thread. Ends when the store is dropped.
pub(super) fn run(engine: &Arc<Engine>, tasks: &Receiver<Task>) {
    engine.maintain();
    let mut next_look = Instant::now() + engine.options.compact_every;
    let mut last = Last::default();
    loop {
        let mut group = Vec::new();
        let mut compactions = Vec::new();
        let wait = next_look.saturating_duration_since(Instant::now());
        let asked = Instant::now();
        match tasks.recv_timeout(wait) {
            Ok(task) => {
                // Who has not come by then does not come.
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
            let _ = answer.send(engine.compact_whole(Leave::Young, false));
        }
        if Instant::now() >= next_look {
            next_look = Instant::now() + look_after(engine);
        }
    }
}

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
                bytes += write.bytes();
                group.push((write, answer));
            }
            Task::Compact(answer) => compactions.push(answer),
        }
        let full = group.len() >= GROUP_WRITES_MAX || bytes >= GROUP_BYTES_MAX;
        next = if full { None } else { tasks.try_recv().ok() };
    }
}

/// Ends the lives of keys, forgets history, looks after the disk. Says when to do so again.
fn look_after(engine: &Engine) -> Duration {
    while engine.expire() {}
    let again = match engine.compact(Leave::Young, COMPACT_STEP) {
        Ok(true) => engine.options.compact_every,
        Ok(false) => return Duration::ZERO,
        Err(error) => {
            tracing::error!(%error, "history cannot be compacted; it is tried again");
            10 * engine.options.compact_every
        }
    };
    engine.maintain();
    again
}
