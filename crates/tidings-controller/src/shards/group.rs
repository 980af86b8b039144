//! A group of replicas that split objects, as the program has it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::member::GroupMember;
use super::options::{BadShards, ShardOptions};
use super::permits::{ShardPermits, ShardStatus};
use crate::cluster::Cluster;

/// Several replicas of a program that split the objects of its controllers: each object is reconciled by one of them, chosen by its uid.
///
/// Each replica has a Lease of its own. When one comes, leaves or crashes, only the objects that it gets or had move. An object is handed
/// over when its last owner has ended what it was doing with it, or when its Lease has expired; a replica that cannot renew its Lease, or
/// was asleep for longer, stops before another may begin. A reconcile that does not end is dropped after
/// [`ShardOptions::hand_over_grace`].
///
/// What is exclusive is the object, not its name: when an object is deleted and created again while its reconcile runs, another replica
/// may reconcile the new one at the same time.
///
/// The replica joins when the caches of the controllers that are sharded by the group have their state, or after two minutes; make the
/// controllers right after the group. Clones share the membership; dropping the last one ends it without leaving, so that others take
/// over when the Lease has expired.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Action, BadShards, Cluster, Controller, ShardGroup};
///
/// # async fn run(cluster: Cluster) -> Result<(), BadShards> {
/// let group = ShardGroup::join(&cluster, "default", "my-operator")?;
/// let reconcile = async |_, _| Ok::<_, std::fmt::Error>(Action::AwaitChange);
/// let controller = Controller::<ConfigMap>::new(&cluster).sharded(&group).shutdown_on_signal();
/// controller.run(reconcile, ()).await;
/// group.leave().await; // at once: others need not wait until the Lease has expired
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ShardGroup {
    inner: Arc<JoinedGroup>,
}

struct JoinedGroup {
    name: Arc<str>,
    permits: Arc<ShardPermits>,
    /// Controllers whose caches do not have their state.
    unsynced: watch::Sender<usize>,
    leaving: watch::Sender<bool>,
    has_left: watch::Receiver<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ShardGroup {
    /// Joins a group by its namespace and name, as a task of its own. Its Leases are in this cluster; the controllers may be in others.
    ///
    /// # Errors
    /// If the name cannot be that of a Lease and the value of a label.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn join(cluster: &Cluster, namespace: &str, name: &str) -> Result<ShardGroup, BadShards> {
        ShardGroup::join_with(cluster, namespace, name, ShardOptions::default())
    }

    /// Joins a group with options.
    ///
    /// # Errors
    /// If the name cannot be that of a Lease and the value of a label, or the options contradict each other.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn join_with(
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        options: ShardOptions,
    ) -> Result<ShardGroup, BadShards> {
        let times = options.check(name)?;
        let (leaving, asked) = watch::channel(false);
        let (left, has_left) = watch::channel(false);
        let (unsynced, controllers) = watch::channel(0);
        let permits = Arc::new(ShardPermits::new(options.hand_over()));
        let member = GroupMember::new(
            cluster,
            namespace,
            name,
            times,
            Arc::clone(&permits),
            options.identity,
        );
        let task = tokio::spawn(async move {
            member.run(asked, controllers).await;
            left.send_replace(true);
        });
        Ok(ShardGroup {
            inner: Arc::new(JoinedGroup {
                name: name.into(),
                permits,
                unsynced,
                leaving,
                has_left,
                task: Mutex::new(Some(task)),
            }),
        })
    }

    /// The name of the group.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Who the members are.
    pub fn status(&self) -> ShardStatus {
        self.inner.permits.status()
    }

    /// The member that owns the object with a uid, whether it has it already or waits for the owner before; `None` if nobody does yet.
    pub fn owner_of(&self, uid: &str) -> Option<String> {
        self.inner.permits.owner_of(uid)
    }

    /// Leaves the group: starts nothing any more, waits until what runs has ended, and says so in the Lease, so that others take over at
    /// once. Stop the controllers first if their grace should be kept: what still runs is dropped after
    /// [`ShardOptions::hand_over_grace`].
    ///
    /// While the server does not answer this takes until the Lease has expired, at most. A reconcile that blocks its thread cannot be
    /// dropped, and is waited for.
    pub async fn leave(&self) {
        self.inner.leaving.send_replace(true);
        let mut left = self.inner.has_left.clone();
        // An error means that the task has ended.
        let _ = left.wait_for(|left| *left).await;
    }

    pub(crate) fn permits(&self) -> &Arc<ShardPermits> {
        &self.inner.permits
    }

    /// A place for a controller: the replica joins when its caches have their state.
    pub(crate) fn seat(&self) -> ShardSeat {
        self.inner.unsynced.send_modify(|count| *count += 1);
        ShardSeat {
            group: self.clone(),
            has_synced: AtomicBool::new(false),
        }
    }
}

impl Drop for JoinedGroup {
    fn drop(&mut self) {
        self.permits.end_membership();
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

impl fmt::Debug for ShardGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardGroup")
            .field("name", &self.inner.name)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// A controller's place in a group. Who does not run any more is not waited for.
#[derive(Debug)]
pub(crate) struct ShardSeat {
    group: ShardGroup,
    has_synced: AtomicBool,
}

impl ShardSeat {
    /// The caches of the controller have their state.
    pub(crate) fn synced(&self) {
        if !self.has_synced.swap(true, SeqCst) {
            let unsynced = &self.group.inner.unsynced;
            unsynced.send_modify(|count| *count -= 1);
        }
    }
}

impl Drop for ShardSeat {
    fn drop(&mut self) {
        self.synced();
    }
}

impl Deref for ShardSeat {
    type Target = ShardGroup;

    fn deref(&self) -> &ShardGroup {
        &self.group
    }
}
