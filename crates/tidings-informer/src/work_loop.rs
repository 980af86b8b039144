//! The loop around a work queue: works on a bounded number of keys at a time, each in a task of its own, so that a panic affects only its
//! key. The task holds the lease: nobody else gets the key until the task has ended, even if it was aborted.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::source::BoxFuture;
use crate::workqueue::{FAR, Lease, Priority, QueueKey};

/// How long the loop waits for aborted work to end: what never yields cannot be aborted.
const ABORT_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a loop does with keys. [`run_work`] is the loop; [`run_controller`](crate::run_controller) is one for functions.
pub trait KeyWork<T: QueueKey, O: Send + 'static> {
    /// The next key; `None` if the queue is shut down and drained. Must be cancel-safe.
    fn next(&self) -> BoxFuture<'_, Option<Lease<T>>>;

    /// The work on a key, with its outcome. It runs as a task, which should hold the lease until its end.
    fn begin(&mut self, lease: Lease<T>) -> BoxFuture<'static, O>;

    /// The work on a key has ended, and nobody aborted it.
    fn ended(&mut self, key: T, priority: Priority, ended: WorkEnd<O>);

    /// How many keys are worked on has changed.
    fn running(&mut self, count: usize) {
        let _ = count;
    }

    /// When [`KeyWork::on_time`] is to be called next.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// The time is due.
    fn on_time(&mut self) {}

    /// Nothing starts any more.
    fn stopping(&mut self);
}

/// How the work on a key ended.
#[derive(Debug)]
pub enum WorkEnd<O> {
    /// By itself.
    Returned(O),
    /// By a panic.
    Panicked,
}

/// Options of a loop around a work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOptions {
    /// How many reconciles run at once; zero counts as one.
    pub concurrency: usize,
    /// How long running reconciles have to end after the stop.
    pub grace: Duration,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            concurrency: 8,
            grace: Duration::from_secs(30),
        }
    }
}

/// Works on keys until `stop` is ready or the queue is shut down and drained. Returns how many tasks did not end within the grace and were
/// aborted. Dropping the future aborts all tasks at once.
pub async fn run_work<T: QueueKey, O: Send + 'static>(
    work: &mut impl KeyWork<T, O>,
    options: RunOptions,
    stop: impl Future<Output = ()>,
) -> u64 {
    let mut tasks = WorkTasks::<T, O> {
        tasks: JoinSet::new(),
        keys: HashMap::new(),
    };
    let mut stop = pin!(stop);
    let mut drained = false;
    loop {
        if drained && tasks.tasks.is_empty() {
            return 0;
        }
        let has_room = tasks.tasks.len() < options.concurrency.max(1);
        let due = work.due();
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = tasks.tasks.join_next_with_id() => tasks.settle(work, ended),
            lease = work.next(), if has_room && !drained => match lease {
                Some(lease) => tasks.start(work, lease),
                None => drained = true,
            },
            () = until(due) => work.on_time(),
        }
    }
    work.stopping();
    tasks.drain(work, options.grace).await
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The tasks of a loop.
struct WorkTasks<T, O> {
    tasks: JoinSet<O>,
    /// The key and priority of each task, needed for one that panicked.
    keys: HashMap<Id, (T, Priority)>,
}

impl<T: QueueKey, O: Send + 'static> WorkTasks<T, O> {
    fn start(&mut self, work: &mut impl KeyWork<T, O>, lease: Lease<T>) {
        let named = (T::clone(&lease), lease.priority());
        let task = self.tasks.spawn(work.begin(lease));
        self.keys.insert(task.id(), named);
        work.running(self.tasks.len());
    }

    fn settle(&mut self, work: &mut impl KeyWork<T, O>, ended: Result<(Id, O), JoinError>) {
        work.running(self.tasks.len());
        let (id, ended) = match ended {
            Ok((id, outcome)) => (id, WorkEnd::Returned(outcome)),
            Err(error) => (error.id(), WorkEnd::Panicked),
        };
        if let Some((key, priority)) = self.keys.remove(&id) {
            work.ended(key, priority, ended);
        }
    }

    /// Waits until the tasks have ended, and aborts those that do not. Returns how many.
    async fn drain(&mut self, work: &mut impl KeyWork<T, O>, grace: Duration) -> u64 {
        let deadline = Instant::now() + grace.min(FAR);
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            self.settle(work, ended);
        }
        let running = self.tasks.len();
        if running == 0 {
            return 0;
        }
        tracing::warn!(
            running,
            "reconciles did not end within the grace, aborting them"
        );
        self.tasks.abort_all();
        let mut aborted = 0;
        let deadline = Instant::now() + ABORT_WAIT_MAX;
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            match ended {
                Err(error) if error.is_cancelled() => aborted += 1,
                ended => self.settle(work, ended),
            }
        }
        aborted + self.tasks.len() as u64
    }
}
