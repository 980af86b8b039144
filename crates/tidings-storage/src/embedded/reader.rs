//! The reading thread: does all reads of the disk, so that they do not block the threads of the async runtime.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

type ReadJob = Box<dyn FnOnce() + Send>;

/// Runs jobs in order on a thread. Bound: one job for each watch that catches up and each range that is read.
pub(super) struct DiskReader(Mutex<Option<ReaderThread>>);

/// The thread and its queue.
struct ReaderThread {
    jobs: Sender<ReadJob>,
    thread: JoinHandle<()>,
}

impl DiskReader {
    /// Starts the thread. If it cannot be started, every read fails with `Error::Closed`.
    pub(super) fn start() -> DiskReader {
        let (jobs, waiting) = channel::<ReadJob>();
        let thread = std::thread::Builder::new()
            .name("tidings-read".into())
            .spawn(move || {
                for job in waiting {
                    job();
                }
            });
        DiskReader(Mutex::new(
            thread.ok().map(|thread| ReaderThread { jobs, thread }),
        ))
    }

    fn running(&self) -> MutexGuard<'_, Option<ReaderThread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job. The receiver fails if the store is closed.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, done) = oneshot::channel();
        if let Some(running) = &*self.running() {
            // If the thread has ended, the job and its answer are dropped.
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

    /// Ends the thread after the waiting jobs.
    pub(super) fn close(&self) {
        let running = self.running().take();
        if let Some(ReaderThread { jobs, thread }) = running {
            drop(jobs);
            if thread.join().is_err() {
                tracing::error!("the reading thread panicked");
            }
        }
    }
}
