//! The task of a member: joins the group, renews the membership, and follows the others.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidings_api::Object;
use tidings_informer::{SharedInformer, SourceError, story};
use tidings_kube::{ApiResource, ObjectPath, PatchKind, RestClient, Scope};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::lease::{self, GROUP_LABEL, LeaseForm};
use super::machine::{GroupRecords, ShardAnswer, ShardMachine, ShardStep, ShardTimes};
use super::permit_state::ClockTime;
use super::permits::ShardPermits;
use super::table::MemberId;
use crate::cluster::Cluster;
use crate::identity::random_identity;

/// How long a replica waits for the caches of its controllers before it joins all the same: one that never gets its state must not keep
/// the others from work.
const SYNC_WAIT_MAX: Duration = Duration::from_secs(120);

/// The task of a member.
pub(super) struct GroupMember {
    group: Arc<str>,
    namespace: String,
    resource: ApiResource,
    times: ShardTimes,
    client: RestClient,
    leases: SharedInformer<LeaseForm>,
    permits: Arc<ShardPermits>,
    identity: Option<String>,
    /// Why the last request failed. The next failure is not logged.
    lease_problem: Option<String>,
    /// Why there can be no table.
    table_problem: Option<String>,
}

impl GroupMember {
    pub(super) fn new(
        cluster: &Cluster,
        namespace: &str,
        group: &str,
        times: ShardTimes,
        permits: Arc<ShardPermits>,
        identity: Option<String>,
    ) -> GroupMember {
        let scope = Scope::namespace(namespace).labels(format!("{GROUP_LABEL}={group}"));
        // A watch that works brings at least the member's own renewals.
        let mut reflector = cluster.reflector_options().clone();
        reflector.silence_max = times.renew_deadline / 2;
        let informers = cluster.informers().clone().reflector(reflector);
        GroupMember {
            group: group.into(),
            namespace: namespace.to_owned(),
            resource: lease::leases(),
            times,
            // A renewal that hangs must leave time for another one.
            client: cluster
                .client()
                .clone()
                .retries(0)
                .timeout(times.renew_every),
            leases: informers.projected(&lease::leases(), &scope),
            permits,
            identity,
            lease_problem: None,
            table_problem: None,
        }
    }

    /// Lives until it is asked to leave.
    pub(super) async fn run(
        mut self,
        mut asked: watch::Receiver<bool>,
        controllers: watch::Receiver<usize>,
    ) {
        self.leases.start();
        let mut leaving = asked.clone();
        tokio::select! {
            () = self.synced(controllers) => {}
            // An error means that the group was dropped, and this task is about to be aborted.
            _ = leaving.wait_for(|asked| *asked) => return,
        }
        loop {
            let identity = random_identity(self.identity.as_deref());
            let member: MemberId = format!("{}-{identity}", self.group);
            tracing::info!(group = &*self.group, member, "joins the group");
            let mut machine = ShardMachine::new(self.times, member.clone(), Instant::now());
            self.follow(&member, &mut machine, &mut asked).await;
            self.permits.end_membership();
            if !machine.is_removed() {
                if !machine.has_said_goodbye() {
                    tracing::warn!(
                        group = &*self.group,
                        member,
                        "the server did not answer until the Lease had expired: leaves without a word"
                    );
                }
                return;
            }
            // This process was away for longer than its lease, or never got the Lease.
            tracing::warn!(
                group = &*self.group,
                member,
                reconciles = self.permits.acting(),
                "its Lease is gone, joins again when what it was doing has ended"
            );
            tokio::select! {
                () = self.may_join_again(&machine) => {}
                _ = leaving.wait_for(|asked| *asked) => return,
            }
        }
    }

    /// Waits until the caches have their state: that of the Leases, and those of the controllers for at most [`SYNC_WAIT_MAX`].
    async fn synced(&self, mut controllers: watch::Receiver<usize>) {
        if let Err(error) = self.leases.wait_synced().await {
            self.stopped(&story(&error)).await;
        }
        let synced = controllers.wait_for(|unsynced| *unsynced == 0);
        if timeout(SYNC_WAIT_MAX, synced).await.is_err() {
            tracing::warn!(
                group = &*self.group,
                "joins the group although caches of its controllers do not have their state"
            );
        }
    }

    /// Waits until everything of the last membership has ended, and until the Leases that this replica sees are as new as the last one
    /// that it wrote: who does not see the group must not be in it.
    async fn may_join_again(&self, machine: &ShardMachine) {
        while self.permits.acting() > 0 {
            self.permits.ended.notified().await;
        }
        if let Some(version) = machine.version()
            && let Err(error) = self.leases.wait_for(version).await
        {
            self.stopped(&story(&error)).await;
        }
    }

    /// The cache of the Leases has stopped, with the program or because the server refuses. Never ends.
    async fn stopped(&self, error: &str) {
        tracing::error!(group = &*self.group, error, "cannot join the group");
        let problem = format!("the Leases of the group cannot be watched: {error}");
        self.permits.note(|notes| notes.problem = Some(problem));
        std::future::pending().await
    }

    /// Lives as one member, until it has left or was removed by others.
    async fn follow(
        &mut self,
        member: &MemberId,
        machine: &mut ShardMachine,
        asked: &mut watch::Receiver<bool>,
    ) {
        let mut known = GroupRecords::default();
        // By the wall clock, when the last renewal began that was answered.
        let mut renewed_at = SystemTime::now();
        loop {
            let now = ClockTime::now();
            let records = lease::records(&self.group, &self.leases.store().snapshot());
            if records != known {
                machine.others_changed();
                known = records;
            }
            machine.observed(&known, now.monotonic);
            if *asked.borrow_and_update() {
                machine.leave(now.monotonic);
            }
            let valid_until = machine.valid_until().map(|monotonic| ClockTime {
                monotonic,
                wall: renewed_at + self.times.renew_deadline,
            });
            self.permits.set(machine.ownership(), valid_until);
            self.permits
                .note(|notes| notes.waits_for = machine.waits_for());
            if self.permits.is_drained() {
                machine.drained();
            }
            machine.hurry(now.monotonic);
            match machine.step(now.monotonic) {
                ShardStep::End => return,
                ShardStep::Wait(until) => self.wait(until, &known, asked).await,
                step => {
                    let valid_until = machine.valid_until();
                    let answer = self.perform(member, &step).await;
                    machine.answered(&step, answer, now.monotonic, Instant::now());
                    if machine.valid_until() != valid_until {
                        renewed_at = now.wall;
                    }
                }
            }
        }
    }

    async fn wait(&self, until: Instant, known: &GroupRecords, asked: &mut watch::Receiver<bool>) {
        let group = &self.group;
        let changed = async {
            let changed = |leases: &tidings_informer::Store<LeaseForm>| {
                lease::records(group, &leases.snapshot()) != *known
            };
            if self.leases.wait_until(changed).await.is_err() {
                // The informer has stopped: this member does not see its renewals, and will let its membership lapse.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = sleep_until(until) => {}
            () = changed => {}
            () = self.permits.ended.notified() => {}
            Ok(()) = asked.changed() => {}
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
                    let members = table.members.names().len();
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
        let answer = self.answer(step, result);
        if matches!(step, ShardStep::Advance { version: None, .. }) {
            return self.table_answer(answer).await;
        }
        answer
    }

    /// The answer to the creation of the table. A Lease of its name that is not the group's is in the way for ever: this must be said.
    async fn table_answer(&mut self, answer: ShardAnswer) -> ShardAnswer {
        let mut problem = None;
        if answer == ShardAnswer::Conflict {
            let path = ObjectPath::new(&self.resource, &self.namespace, &self.group);
            let found = self.client.get_object(&path).await.ok().flatten();
            let is_own = |found: &Object| found.labels().get(GROUP_LABEL) == Some(&*self.group);
            if found.is_some_and(|found| !is_own(&found)) {
                problem = Some(format!(
                    "the Lease {} in {} is not the group's, one of a leader election perhaps: delete it, or choose another name for the group",
                    self.group, self.namespace
                ));
            }
        }
        let is_in_the_way = problem.is_some();
        if self.table_problem != problem {
            if let Some(problem) = &problem {
                tracing::error!(group = &*self.group, problem, "the group has no table");
            }
            self.table_problem = problem;
            self.tell_problem();
        }
        match is_in_the_way {
            true => ShardAnswer::Failed,
            false => answer,
        }
    }

    fn tell_problem(&self) {
        let problem = self.table_problem.as_ref().or(self.lease_problem.as_ref());
        self.permits.note(|notes| notes.problem = problem.cloned());
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
                let (group, error) = (&*self.group, story(&error));
                if self.lease_problem.is_none() {
                    tracing::warn!(group, error, "the Leases of the group cannot be written");
                }
                self.lease_problem = Some(format!(
                    "the Leases of the group cannot be written: {error}"
                ));
                self.tell_problem();
                return ShardAnswer::Failed;
            }
        };
        if self.lease_problem.take().is_some() {
            self.tell_problem();
        }
        answer
    }
}
