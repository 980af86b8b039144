//! A group of replicas that split keys: joins it, renews the membership, and follows the others.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tidings_api::Object;
use tidings_informer::{SharedInformer, SourceError, story};
use tidings_kube::{ApiResource, ObjectPath, PatchKind, RestClient, Scope};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::lease::{self, GROUP_LABEL, LeaseForm};
use super::machine::{GroupRecords, Ownership, ShardAnswer, ShardMachine, ShardStep, ShardTimes};
use super::options::{BadShards, ShardOptions};
use super::permits::{ShardPermits, ShardStatus};
use super::table::MemberId;
use crate::cluster::Cluster;
use crate::identity::random_identity;

/// Several replicas of a program that split the keys of its controllers: each object is reconciled by one of them, chosen by its uid.
///
/// Each replica has a Lease of its own. When one comes, leaves or crashes, only the keys that it gets or had move. A key is handed over
/// when its last owner has ended what it was doing with it, or when its Lease has expired; a replica that cannot renew its Lease, or was
/// asleep for longer, stops before another may begin. Clones share the membership; dropping the last one ends it without leaving, so
/// that others take over when the Lease has expired.
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
    leaving: watch::Sender<bool>,
    has_left: watch::Receiver<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ShardGroup {
    /// Joins a group by its namespace and name, as a task of its own. Its Leases are in this cluster; the controllers may be in others.
    ///
    /// # Errors
    /// If the name cannot be that of a Lease.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn join(cluster: &Cluster, namespace: &str, name: &str) -> Result<ShardGroup, BadShards> {
        ShardGroup::join_with(cluster, namespace, name, ShardOptions::default())
    }

    /// Joins a group with options.
    ///
    /// # Errors
    /// If the name cannot be that of a Lease, or the options contradict each other.
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
        let (permits, name): (_, Arc<str>) = (Arc::new(ShardPermits::new()), name.into());
        let scope = Scope::namespace(namespace).labels(format!("{GROUP_LABEL}={name}"));
        let member = GroupMember {
            group: Arc::clone(&name),
            namespace: namespace.to_owned(),
            resource: lease::leases(),
            times,
            // A renewal that hangs must leave time for another one.
            client: cluster
                .client()
                .clone()
                .retries(0)
                .timeout(times.renew_every),
            leases: cluster.informers().projected(&lease::leases(), &scope),
            permits: Arc::clone(&permits),
            asked,
            identity: options.identity,
            was_failing: false,
        };
        let task = tokio::spawn(async move {
            member.run().await;
            left.send_replace(true);
        });
        Ok(ShardGroup {
            inner: Arc::new(JoinedGroup {
                name,
                permits,
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
    /// once. Stop the controllers first if their grace should be kept: a reconcile that runs keeps the member from leaving.
    pub async fn leave(&self) {
        self.inner.leaving.send_replace(true);
        let mut left = self.inner.has_left.clone();
        // An error means that the task has ended.
        let _ = left.wait_for(|left| *left).await;
    }

    pub(crate) fn permits(&self) -> &Arc<ShardPermits> {
        &self.inner.permits
    }
}

impl Drop for JoinedGroup {
    fn drop(&mut self) {
        self.permits.set(Ownership::default(), None);
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

/// The task of a member.
struct GroupMember {
    group: Arc<str>,
    namespace: String,
    resource: ApiResource,
    times: ShardTimes,
    client: RestClient,
    leases: SharedInformer<LeaseForm>,
    permits: Arc<ShardPermits>,
    asked: watch::Receiver<bool>,
    identity: Option<String>,
    /// The last request failed: the next failure is not logged.
    was_failing: bool,
}

impl GroupMember {
    async fn run(mut self) {
        self.leases.start();
        loop {
            let identity = random_identity(self.identity.as_deref());
            let member: MemberId = format!("{}-{identity}", self.group);
            tracing::info!(group = &*self.group, member, "joins the group");
            let is_removed = self.follow(&member).await;
            self.permits.set(Ownership::default(), None);
            if !is_removed {
                return;
            }
            // This process was away for longer than its lease.
            tracing::warn!(
                group = &*self.group,
                member,
                "others have taken over, joins again"
            );
        }
    }

    /// Lives as one member. True if it was removed by others.
    async fn follow(&mut self, member: &MemberId) -> bool {
        let mut machine = ShardMachine::new(self.times, member.clone(), Instant::now());
        let mut known = GroupRecords::default();
        loop {
            let now = Instant::now();
            let records = lease::records(&self.group, &self.leases.store().snapshot());
            if records != known {
                machine.others_changed();
                known = records;
            }
            machine.observed(&known, now);
            if *self.asked.borrow() {
                machine.leave(now);
            }
            self.permits.set(machine.ownership(), machine.valid_until());
            if self.permits.is_drained() {
                machine.drained();
            }
            machine.hurry(now);
            match machine.step(now) {
                ShardStep::End => return machine.is_removed(),
                ShardStep::Wait(until) => self.wait(until, &known).await,
                step => {
                    let answer = self.perform(member, &step).await;
                    machine.answered(&step, answer, now, Instant::now());
                }
            }
        }
    }

    async fn wait(&mut self, until: Instant, known: &GroupRecords) {
        let group = &self.group;
        let changed = async {
            let changed = |leases: &tidings_informer::Store<LeaseForm>| {
                lease::records(group, &leases.snapshot()) != *known
            };
            if self.leases.wait_until(changed).await.is_err() {
                // The informer has stopped with the program.
                std::future::pending::<()>().await;
            }
        };
        let was_asked = *self.asked.borrow();
        tokio::select! {
            () = sleep_until(until) => {}
            () = changed => {}
            () = self.permits.ended.notified() => {}
            asked = self.asked.changed(), if !was_asked => {
                if asked.is_err() {
                    // The group was dropped, and this task is about to be aborted.
                    sleep(self.times.renew_every).await;
                }
            }
        }
    }

    async fn perform(&mut self, member: &MemberId, step: &ShardStep) -> ShardAnswer {
        let Self {
            client,
            resource,
            namespace,
            ..
        } = &*self;
        let (now, group) = (SystemTime::now(), &*self.group);
        let path = |name| ObjectPath::new(resource, namespace, name);
        let result = match step {
            ShardStep::Join => {
                let lease = lease::joining(group, member, self.times.lease, now);
                client
                    .create_object(resource, namespace, &lease)
                    .await
                    .map(Some)
            }
            ShardStep::Renew {
                version,
                acknowledged,
                leaving,
            } => {
                let patch = lease::renewal(version, *acknowledged, *leaving, now);
                client
                    .patch_object(&path(member), PatchKind::Merge, &patch)
                    .await
                    .map(Some)
            }
            ShardStep::Read => client.get_object(&path(member)).await,
            ShardStep::Advance { table, version } => {
                let lease = lease::table(group, table, version.as_deref(), member, now);
                let advanced = match version {
                    Some(_) => {
                        client
                            .patch_object(&path(group), PatchKind::Merge, &lease)
                            .await
                    }
                    None => client.create_object(resource, namespace, &lease).await,
                };
                if advanced.is_ok() {
                    let members = table.members.len();
                    tracing::info!(
                        group,
                        epoch = table.epoch,
                        members,
                        "the members have changed"
                    );
                }
                advanced.map(Some)
            }
            ShardStep::Remove { member, version } => {
                let removed = client.delete_object_at(&path(member), version).await;
                if removed.is_ok() {
                    tracing::info!(
                        group,
                        member,
                        "removes a member that does not renew or has left"
                    );
                }
                removed.map(|_| None)
            }
            ShardStep::Wait(_) | ShardStep::End => Ok(None),
        };
        self.answer(step, result)
    }

    fn answer(
        &mut self,
        step: &ShardStep,
        result: Result<Option<Object>, SourceError>,
    ) -> ShardAnswer {
        let code = result.as_ref().err().and_then(SourceError::code);
        let answer = match result {
            Ok(Some(object)) => ShardAnswer::Done(object.revision().get().to_string()),
            Ok(None) if matches!(step, ShardStep::Read) => ShardAnswer::Gone,
            Ok(None) => ShardAnswer::Done(String::new()),
            Err(_) if code == Some(404) && !matches!(step, ShardStep::Join) => ShardAnswer::Gone,
            Err(_) if code == Some(409) => ShardAnswer::Conflict,
            Err(error) => {
                if !self.was_failing {
                    let (group, error) = (&*self.group, story(&error));
                    tracing::warn!(group, error, "the Leases of the group cannot be written");
                }
                self.was_failing = true;
                return ShardAnswer::Failed;
            }
        };
        self.was_failing = false;
        answer
    }
}
