//! Quotas: what the objects of a namespace take together is written into the status of its quotas before an object is, and taken back after it is gone.
//!
//! Writes and deletions in a namespace with quotas hold it while they are under way, so that objects are not counted again ([`Quotas::recount`]) between
//! the two. A write that is given up or whose end is not known leaves what it took: too much is counted then, until the objects are counted again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_api::{Object, ObjectKey, Status};
use tidings_json::{Map, Value};
use tidings_plugins::{CountedResource, Quota, QuotaCount, QuotaShare, QuotaWrite, UsedAmounts};
use tidings_registry::{Draft, Kind, Subresource};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::resource::Resource;
use super::rewrite::rewrite;
use super::served::ServedSet;
use super::target::Target;

/// Namespaces without writes that are remembered.
const NAMESPACES_KEPT: usize = 256;
/// How long a recount waits for the writes that are under way: meanwhile no others begin.
const RECOUNT_WAIT: Duration = Duration::from_millis(100);

/// The quotas of all namespaces.
pub(crate) struct Quotas {
    quotas: Arc<Resource>,
    namespaces: Mutex<HashMap<String, Weak<NamespaceUse>>>,
}

#[derive(Default)]
struct NamespaceUse {
    /// Held by writes that are counted, and for a recount by nobody else.
    under_way: Arc<RwLock<()>>,
    /// Held while a status changes: writers would only hinder each other.
    changing: tokio::sync::Mutex<()>,
}

/// What became of a recount.
pub(crate) enum Recounted {
    /// The status says what there is.
    Done,
    /// Writes are under way, or the quota has changed: it is to be tried again.
    Busy,
    /// Less is used than the status says, and that was not confirmed.
    Less(QuotaCount),
}

impl Quotas {
    /// `None` if nobody wants quotas.
    pub(super) fn new(served: &ServedSet, enabled: bool) -> Option<Arc<Quotas>> {
        let quotas = served.find("", "v1", "resourcequotas")?.1?;
        let new = || {
            Arc::new(Quotas {
                quotas,
                namespaces: Mutex::default(),
            })
        };
        enabled.then(new)
    }

    /// The resource of quotas.
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.quotas
    }

    fn namespace(&self, name: &str) -> Arc<NamespaceUse> {
        let known = self.namespaces.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if known.len() >= NAMESPACES_KEPT {
            known.retain(|_, known| known.strong_count() > 0);
        }
        let new = Arc::new(NamespaceUse::default());
        known.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }

    /// The quotas of a namespace that are about a resource, in their order.
    fn about(&self, namespace: &str, resource: CountedResource<'_>) -> Vec<ObjectKey> {
        let quotas = self.quotas.list_in(namespace);
        let about = quotas
            .iter()
            .filter(|quota| Quota::read(quota).is_about(resource));
        about.map(Object::key).collect()
    }

    /// Changes what is used of a quota; `None` changes nothing.
    async fn change(
        &self,
        key: &ObjectKey,
        next: &(dyn Fn(&Quota) -> Option<UsedAmounts> + Send + Sync),
    ) -> Result<(), Status> {
        let next = |existing: &Object| match next(&Quota::read(existing)) {
            Some(used) => self.draft(existing, None, used.to_value()).map(Some),
            None => Ok(None),
        };
        rewrite(&self.quotas, key, &next).await.map(drop)
    }

    /// A quota with another status.
    fn draft(&self, existing: &Object, hard: Option<Value>, used: Value) -> Result<Draft, Status> {
        let mut draft = Draft::of(&self.quotas.kind, existing)?;
        let status = draft.members.entry("status");
        let status = status.or_insert_with(|| Value::Object(Map::new()));
        if let Some(hard) = hard {
            status["hard"] = hard;
        }
        status["used"] = used;
        Ok(draft)
    }

    /// Counts the objects of a quota's namespace again. `keeps`: no less is used than the status says, because a server may be about to write what is
    /// counted there. Otherwise a lower count is written if it is the one that was `confirmed`.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub(crate) async fn recount(
        &self,
        served: &ServedSet,
        key: &ObjectKey,
        keeps: bool,
        confirmed: Option<&QuotaCount>,
    ) -> Result<Recounted, Status> {
        let space = self.namespace(key.namespace());
        let alone = tokio::time::timeout(RECOUNT_WAIT, space.under_way.write()).await;
        let Ok(_alone) = alone else {
            return Ok(Recounted::Busy);
        };
        self.quotas.refresh().await?;
        let Some(object) = self.quotas.get(key) else {
            return Ok(Recounted::Done);
        };
        let quota = Quota::read(&object);
        let mut counted = Vec::new();
        for resource in served.resources() {
            let of = counted_resource(&resource.kind);
            if resource.kind.namespaced && quota.names().any(|name| of.counts_for(name)) {
                resource.refresh().await?;
                counted.push((of, resource.list_in(key.namespace())));
            }
        }
        let Some(count) = quota.count(counted.into_iter(), keeps) else {
            return Ok(Recounted::Done);
        };
        if count.is_less && confirmed != Some(&count) {
            return Ok(Recounted::Less(count));
        }
        let next = |existing: &Object| {
            // Of another revision, the count is not one.
            let same = existing.revision() == object.revision();
            same.then(|| self.draft(existing, Some(count.hard()), count.used()))
                .transpose()
        };
        let written = rewrite(&self.quotas, key, &next).await?;
        Ok(match written {
            Some(written) if Quota::read(&written).count_is(&count) => Recounted::Done,
            None => Recounted::Done,
            Some(_) => Recounted::Busy,
        })
    }
}

fn counted_resource(kind: &Kind) -> CountedResource<'_> {
    CountedResource {
        group: &kind.group,
        plural: &kind.plural,
    }
}

/// The quotas, for a call that they may concern.
pub(crate) struct CallQuotas(Arc<Quotas>);

/// A namespace in which objects are not counted while this is held.
pub(super) struct HeldNamespace {
    quotas: Arc<Quotas>,
    space: Arc<NamespaceUse>,
    _under_way: OwnedRwLockReadGuard<()>,
}

/// A write that is under way, and what of it is counted.
pub(super) struct CountedWrite {
    held: HeldNamespace,
    kind: Arc<Kind>,
    /// The quotas that are about it.
    about: Vec<ObjectKey>,
    /// What it took of them.
    taken: Vec<(ObjectKey, QuotaShare)>,
    new: Value,
    old: Value,
    of_status: bool,
}

impl CallQuotas {
    /// `None` if no quota is in the namespace of a call.
    pub(super) fn of(quotas: Option<&Arc<Quotas>>, target: &Target) -> Option<CallQuotas> {
        let quotas = quotas?;
        let namespace = target.namespace().unwrap_or_default();
        let concern =
            target.kind.namespaced && !namespace.is_empty() && quotas.quotas.has_any_in(namespace);
        concern.then(|| CallQuotas(quotas.clone()))
    }

    /// Holds the namespace of a write or deletion until that is counted.
    pub(super) async fn hold(&self, namespace: &str) -> HeldNamespace {
        let space = self.0.namespace(namespace);
        HeldNamespace {
            _under_way: space.under_way.clone().read_owned().await,
            quotas: self.0.clone(),
            space,
        }
    }

    /// Counts a write before it is done: `new` is the object after it, `old` the one before it.
    ///
    /// # Errors
    /// If a quota would be exceeded.
    pub(super) async fn begin(
        &self,
        target: &Target,
        key: &ObjectKey,
        (new, old): (Option<&[u8]>, Option<&Object>),
        dry_run: bool,
    ) -> Result<CountedWrite, Status> {
        let held = self.hold(key.namespace()).await;
        let kind = tidings_registry::stored(&target.kind).clone();
        let mut write = CountedWrite {
            about: self.0.about(key.namespace(), counted_resource(&kind)),
            taken: Vec::new(),
            new: Value::Null,
            old: Value::Null,
            of_status: target.subresource == Some(Subresource::Status),
            kind,
            held,
        };
        if write.about.is_empty() {
            return Ok(write);
        }
        let tree = |json: Option<&[u8]>| match json {
            Some(json) => serde_json::from_slice(json).map_err(Status::internal),
            None => Ok(Value::Null),
        };
        (write.new, write.old) = (tree(new)?, tree(old.map(Object::as_bytes))?);
        for quota in write.about.clone() {
            let charged = match dry_run {
                true => write.check(&quota).await,
                false => write.charge(quota).await,
            };
            let refused = match charged {
                Ok(Ok(())) => continue,
                Ok(Err(why)) => Status::forbidden(target.kind.group_resource(), key.name(), &why),
                Err(status) => status,
            };
            write.undo().await;
            return Err(refused);
        }
        Ok(write)
    }
}

impl HeldNamespace {
    /// Takes back what an object took that is gone.
    pub(super) async fn gone(&self, kind: &Arc<Kind>, object: &Object) {
        let about = self
            .quotas
            .about(&object.namespace(), counted_resource(kind));
        if about.is_empty() {
            return;
        }
        let old: Value = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
        let write = QuotaWrite {
            resource: counted_resource(kind),
            new: &Value::Null,
            old: &old,
            of_status: false,
        };
        for key in &about {
            let free = |quota: &Quota| Some(quota.without(&quota.freed(write)?));
            self.change(key, &free).await;
        }
    }

    /// Changes what is used of a quota. If that fails, too much is counted until the objects are counted again.
    async fn change(
        &self,
        key: &ObjectKey,
        next: &(dyn Fn(&Quota) -> Option<UsedAmounts> + Send + Sync),
    ) {
        let _changing = self.space.changing.lock().await;
        if let Err(status) = self.quotas.change(key, next).await {
            tracing::debug!(quota = %key, %status, "cannot write what is used of a quota");
        }
    }
}

impl CountedWrite {
    fn write(&self) -> QuotaWrite<'_> {
        QuotaWrite {
            resource: counted_resource(&self.kind),
            new: &self.new,
            old: &self.old,
            of_status: self.of_status,
        }
    }

    /// Whether a quota allows the write. The inner error says why not.
    async fn check(&self, quota: &ObjectKey) -> Result<Result<(), String>, Status> {
        let current = self.held.quotas.quotas.current(quota).await?;
        let charge = current.map(|quota| Quota::read(&quota).charge(self.write()));
        Ok(charge.transpose().map(drop))
    }

    /// As [`CountedWrite::check`]; notes in the quota what the write takes.
    async fn charge(&mut self, key: ObjectKey) -> Result<Result<(), String>, Status> {
        // What was found out with the last state of the quota.
        let found = Mutex::new(Ok(None));
        let note = |is| {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            *found = is;
        };
        let changed = {
            let _changing = self.held.space.changing.lock().await;
            let charge = |quota: &Quota| match quota.charge(self.write()) {
                Ok(Some(share)) => {
                    let used = quota.with(&share);
                    note(Ok(Some(share)));
                    Some(used)
                }
                other => {
                    note(other);
                    None
                }
            };
            self.held.quotas.change(&key, &charge).await
        };
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        changed?;
        match found {
            Ok(share) => {
                self.taken.extend(share.map(|share| (key, share)));
                Ok(Ok(()))
            }
            // The cache may have been behind: the store decides.
            Err(_) => {
                self.held.quotas.quotas.refresh().await?;
                self.settle_refusal(key).await
            }
        }
    }

    /// Decides again what was refused, with the current state of the quota.
    async fn settle_refusal(&mut self, key: ObjectKey) -> Result<Result<(), String>, Status> {
        match self.check(&key).await? {
            Ok(()) => Box::pin(self.charge(key)).await,
            Err(why) => Ok(Err(why)),
        }
    }

    /// The write has ended. Gives back what the object before it took more, or what was taken for a write that was not done.
    pub(super) async fn end(&self, written: &Result<Option<Object>, Status>) {
        match written {
            Ok(Some(_)) => self.done().await,
            Ok(None) => self.undo().await,
            // The store may have done it all the same.
            Err(status) if status.code >= 500 => {}
            Err(_) => self.undo().await,
        }
    }

    async fn done(&self) {
        if self.old.is_null() {
            return;
        }
        for key in &self.about {
            let free = |quota: &Quota| Some(quota.without(&quota.freed(self.write())?));
            self.held.change(key, &free).await;
        }
    }

    async fn undo(&self) {
        for (key, share) in &self.taken {
            let without = |quota: &Quota| Some(quota.without(share));
            self.held.change(key, &without).await;
        }
    }
}
