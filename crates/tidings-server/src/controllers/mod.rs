//! The server's own controllers. They are clients of the core, as programs outside are clients of the API.

mod accounts;
mod certificates;
mod client;
mod definitions;
mod flows;
mod garbage;
mod namespaces;
mod quotas;
mod roles;
mod set;
mod volumes;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_storage::Revision;
use tokio::task::JoinSet;

use crate::core::Core;
use crate::signer::ClientSigner;
pub(crate) use garbage::GarbageCounts;
pub use set::{ControllerError, ControllerSet};

/// How often caches are told the store's revision and the oldest revision of the history, and files of credentials are looked at.
const TICK: Duration = Duration::from_secs(1);
/// The controllers of a server. Dropping this stops them.
#[derive(Debug)]
pub(crate) struct Controllers {
    tasks: Mutex<JoinSet<()>>,
    /// How many tasks run until the server stops.
    started: usize,
    pub(crate) garbage: Arc<GarbageCounts>,
}

impl Controllers {
    /// Serves the custom resources of all definitions, creates the default objects, and then runs the controllers until this is dropped.
    pub(crate) async fn start(
        core: &Arc<Core>,
        set: &ControllerSet,
        signer: Option<ClientSigner>,
    ) -> Controllers {
        let mut definitions = definitions::DefinitionController::default();
        definitions.follow(core).await;
        namespaces::create_defaults(core).await;
        if core.access().has_rbac() {
            roles::create_defaults(core).await;
        }
        flows::create_defaults(core).await;
        let garbage: Arc<GarbageCounts> = Arc::default();
        let weak = || Arc::downgrade(core);
        let mut tasks = JoinSet::new();
        tasks.spawn(tick(weak()));
        tasks.spawn(definitions.run(weak()));
        tasks.spawn(follow_credentials(weak()));
        tasks.spawn(flows::run(weak()));
        if set.has(set::NAMESPACES) {
            tasks.spawn(namespaces::run(weak()));
        }
        if set.has(set::ROLES) {
            tasks.spawn(roles::run(weak()));
        }
        if set.has(set::CERTIFICATES) {
            tasks.spawn(certificates::run(weak(), signer));
        }
        if set.has(set::ACCOUNTS) {
            accounts::create_defaults(core).await;
            tasks.spawn(accounts::run(weak()));
        }
        if set.has(set::QUOTAS) {
            tasks.spawn(quotas::run(weak()));
        }
        if set.has(set::CLAIMS) {
            tasks.spawn(volumes::run(weak()));
        }
        if set.has(set::GARBAGE) {
            tasks.spawn(garbage::run(weak(), core.changed(), garbage.clone()));
        }
        Controllers {
            started: tasks.len(),
            tasks: Mutex::new(tasks),
            garbage,
        }
    }

    /// True if a task has panicked: the server must be restarted.
    pub(crate) fn is_dead(&self) -> bool {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.len() < self.started
    }
}

/// Reads files of credentials again that have changed.
async fn follow_credentials(core: Weak<Core>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(core) = core.upgrade() else {
            return;
        };
        if core.authentication().has_files() {
            // On another thread: a disk may be slow.
            let follow = move || core.authentication().follow_files();
            let _ = tokio::task::spawn_blocking(follow).await;
        }
    }
}

/// Keeps the revision of idle caches up to date, and trims their history when the store compacts its own.
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
