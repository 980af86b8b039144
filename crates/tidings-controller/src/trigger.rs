//! Triggers: the program asks for reconciles itself.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidings_api::ObjectKey;
use tidings_informer::workqueue::Priority;

use crate::shared::{CauseKind, ControllerShared};

/// Asks controllers for reconciles without a change of an object: for what is told by a webhook, a timer, or an object of another cluster.
///
/// Clones share the trigger. It reaches the controllers that are [triggered by](crate::Controller::triggered_by) it and run, or are about
/// to; keys without an object in their caches, and those of other replicas, are passed over.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_api::ObjectKey;
/// use tidings_controller::{Action, Cluster, Controller, Trigger};
///
/// # async fn run(cluster: Cluster) {
/// let trigger = Trigger::new();
/// let reconcile = async |_, _| Ok::<_, std::fmt::Error>(Action::AwaitChange);
/// let controller = Controller::<ConfigMap>::new(&cluster).triggered_by(&trigger).start(reconcile, ());
/// trigger.reconcile(&ObjectKey::new("default", "settings"));
/// # controller.stop().await;
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Trigger(Arc<Mutex<Vec<Weak<ControllerShared>>>>);

impl Trigger {
    /// A trigger without controllers.
    pub fn new() -> Trigger {
        Trigger::default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<ControllerShared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attach(&self, shared: &Arc<ControllerShared>) {
        let mut controllers = self.lock();
        controllers.retain(|known| known.strong_count() > 0);
        controllers.push(Arc::downgrade(shared));
    }

    /// Reconciles a key. True if a controller here has the object and it is this replica's to reconcile: in a
    /// [`ShardGroup`](crate::ShardGroup) a trigger reaches this replica only. If it is false, trigger all replicas, or the one that
    /// [owns](crate::ShardGroup::owner_of) the object.
    pub fn reconcile(&self, key: &ObjectKey) -> bool {
        let mut is_here = false;
        for shared in self.controllers() {
            shared.enqueue_key(key, CauseKind::Triggered, Priority::NORMAL);
            is_here |= shared.is_own(key);
        }
        is_here
    }

    /// Reconciles all objects that the caches have, after what waits already; in a [`ShardGroup`](crate::ShardGroup) those of this
    /// replica.
    pub fn reconcile_all(&self) {
        for shared in self.controllers() {
            for key in shared.keys_with(&|uid| shared.owns(uid)) {
                shared.enqueue_key(&key, CauseKind::Triggered, Priority::LOW);
            }
        }
    }

    fn controllers(&self) -> Vec<Arc<ControllerShared>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trigger")
            .field(&self.controllers().len())
            .finish()
    }
}
