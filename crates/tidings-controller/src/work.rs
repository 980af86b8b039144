//! The controllers and tasks that a manager starts and stops together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_informer::BoxFuture;
use tidings_informer::leader::{StopSignal, Stopper};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::handle::ControllerHandle;

/// How long a task of the program has to end after the stop, as long as a controller has by default.
const TASK_GRACE: Duration = Duration::from_secs(30);

/// Starts a controller, for each term of a leader.
type StartController = Box<dyn Fn() -> ControllerHandle + Send + Sync>;

/// Starts a task, for each term of a leader.
type StartTask = Box<dyn Fn(StopSignal) -> BoxFuture<'static, ()> + Send + Sync>;

/// Controllers and tasks that start and stop together.
#[derive(Default)]
pub(crate) struct WorkSet {
    controllers: Vec<StartController>,
    tasks: Vec<(Arc<str>, StartTask)>,
    running: Mutex<RunningWork>,
}

/// What runs now. Dropping it ends everything at once.
#[derive(Default)]
struct RunningWork {
    controllers: Vec<ControllerHandle>,
    tasks: Vec<RunningTask>,
}

impl WorkSet {
    pub(crate) fn add_controller(
        &mut self,
        start: impl Fn() -> ControllerHandle + Send + Sync + 'static,
    ) {
        self.controllers.push(Box::new(start));
    }

    pub(crate) fn add_task<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: Arc<str>,
        start: impl Fn(StopSignal) -> F + Send + Sync + 'static,
    ) {
        let start: StartTask = Box::new(move |stop| Box::pin(start(stop)));
        self.tasks.push((name, start));
    }

    pub(crate) fn len(&self) -> usize {
        self.controllers.len() + self.tasks.len()
    }

    fn running(&self) -> MutexGuard<'_, RunningWork> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts everything, and drains it when `stop` is ready. Dropping the future ends everything at once.
    pub(crate) async fn run(&self, stop: impl Future<Output = ()>) {
        let _end = EndOnDrop(self);
        // Without the lock: the functions are the program's, and the port reads what runs.
        let started = RunningWork {
            controllers: self.controllers.iter().map(|start| start()).collect(),
            tasks: self.tasks.iter().map(RunningTask::start).collect(),
        };
        *self.running() = started;
        stop.await;
        let work = std::mem::take(&mut *self.running());
        let mut stopping = JoinSet::new();
        for controller in work.controllers {
            stopping.spawn(async move {
                controller.stop().await;
            });
        }
        for task in work.tasks {
            stopping.spawn(task.stop());
        }
        while stopping.join_next().await.is_some() {}
    }

    pub(crate) fn for_each_controller(&self, see: impl FnMut(&ControllerHandle)) {
        self.running().controllers.iter().for_each(see);
    }

    /// The names of tasks that have ended although nobody stopped them.
    pub(crate) fn ended_tasks(&self) -> Vec<Arc<str>> {
        let running = self.running();
        let ended = running.tasks.iter().filter(|task| task.task.is_finished());
        ended.map(|task| Arc::clone(&task.name)).collect()
    }
}

/// Ends what runs when it is dropped: the work of a leader that is lost is aborted, and must not outlive it.
struct EndOnDrop<'a>(&'a WorkSet);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let work = std::mem::take(&mut *self.0.running());
        drop(work);
    }
}

/// A task of the program. Dropping it ends the task at once.
struct RunningTask {
    name: Arc<str>,
    stopper: Stopper,
    task: JoinHandle<()>,
}

impl RunningTask {
    fn start((name, start): &(Arc<str>, StartTask)) -> RunningTask {
        let (stopper, signal) = StopSignal::new();
        let (work, task_name) = (start(signal.clone()), Arc::clone(name));
        let task = tokio::spawn(async move {
            work.await;
            if !signal.is_raised() {
                tracing::error!(task = &*task_name, "a task ended before it was stopped");
            }
        });
        RunningTask {
            name: Arc::clone(name),
            stopper,
            task,
        }
    }

    /// Stops the task and waits until it has ended, or its grace is over.
    async fn stop(mut self) {
        self.stopper.raise();
        if timeout(TASK_GRACE, &mut self.task).await.is_err() {
            let task = &*self.name;
            tracing::warn!(task, "a task did not end in time, it is aborted");
        }
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
