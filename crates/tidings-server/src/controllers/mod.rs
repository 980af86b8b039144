//! The server's own controllers. They are clients of the core, as programs outside are clients of the API.

mod client;
mod definitions;
mod garbage;
mod namespaces;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_storage::Revision;
use tokio::task::JoinSet;

use crate::core::Core;
pub(crate) use garbage::GarbageCounts;

/// How often caches hear of revisions of other resources and of the end of history.
const TICK: Duration = Duration::from_secs(1);
/// The tasks that never end by themselves: ticks, namespaces, definitions, garbage.
const TASKS: usize = 4;

/// The controllers of a server. They stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Controllers {
    tasks: Mutex<JoinSet<()>>,
    pub(crate) garbage: Arc<GarbageCounts>,
}

impl Controllers {
    /// Serves what the definitions say, makes what is always there, and then runs the controllers until this is dropped.
    pub(crate) async fn start(core: &Arc<Core>) -> Controllers {
        let mut definitions = definitions::DefinitionController::default();
        definitions.follow(core).await;
        namespaces::make_defaults(core).await;
        let garbage: Arc<GarbageCounts> = Arc::default();
        let weak = || Arc::downgrade(core);
        let mut tasks = JoinSet::new();
        tasks.spawn(tick(weak()));
        tasks.spawn(namespaces::run(weak()));
        tasks.spawn(definitions.run(weak()));
        tasks.spawn(garbage::run(weak(), core.changed(), garbage.clone()));
        Controllers {
            tasks: Mutex::new(tasks),
            garbage,
        }
    }

    /// True if a task has ended: the server must be started again.
    pub(crate) fn is_dead(&self) -> bool {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.len() < TASKS
    }
}

/// Keeps quiet caches up to date, and forgets with the store.
async fn tick(core: Weak<Core>) {
    let mut last = Revision(0);
    loop {
        tokio::time::sleep(TICK).await;
        let Some(core) = core.upgrade() else {
            return;
        };
        last = core.tick(last).await;
    }
}
