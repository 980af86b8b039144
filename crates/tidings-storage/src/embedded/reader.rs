//! The reading thread: reads of the disk wait here, so that no request waits behind them.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after another. Bound: one for each watch that catches up and each range that is read.
pub(super) struct Reader(Mutex<Option<Running>>);

struct Running {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Reader {
    /// Without a thread, every read answers that the store is closed.
    pub(super) fn start() -> Reader {
        let (jobs, waiting) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("tidings-read".into())
            .spawn(move || {
                for job in waiting {
                    job();
                }
            });
        Reader(Mutex::new(
            thread.ok().map(|thread| Running { jobs, thread }),
        ))
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job. The answer never comes if the store has been closed.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, done) = oneshot::channel();
        if let Some(running) = &*self.running() {
            // If the thread has ended, the job and with it the answer are dropped.
            let _ = running.jobs.send(Box::new(move || {
                let _ = answer.send(job());
            }));
        }
        done
    }

    pub(super) fn has_ended(&self) -> bool {
        let running = self.running();
        running
            .as_ref()
            .is_none_or(|running| running.thread.is_finished())
    }

    /// Ends the thread when it has done what waits.
    pub(super) fn close(&self) {
        let running = self.running().take();
        if let Some(Running { jobs, thread }) = running {
            drop(jobs);
            if thread.join().is_err() {
                tracing::error!("the reading thread panicked");
            }
        }
    }
}
