//! Quotas: what the objects of a namespace take together is written into the status of its quotas before an object is, and taken back after it is gone.
//!
//! A write holds its namespace while it is under way, so that objects are not counted again ([`Quotas::recount`]) between the two.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_api::{Object, ObjectKey, Status};
use tidings_json::Value;
use tidings_plugins::{CountedResource, Quota, QuotaWrite, UsedAmounts};
use tidings_registry::{Draft, Kind, Subresource};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::clock;
use super::resource::Resource;
use super::rewrite::rewrite;
use super::served::ServedSet;
use super::target::Target;

/// Namespaces without writes that are remembered.
const NAMESPACES_KEPT: usize = 256;
/// How long a recount waits for the writes that are under way.
const RECOUNT_WAIT: Duration = Duration::from_secs(10);

/// What is used of a quota after a change; `None` if nothing changes.
type NextUsed<'a> = &'a (dyn Fn(&Quota) -> Result<Option<UsedAmounts>, Status> + Send + Sync);
/// The members `hard` and `used` of a status after a change. The limits stay if there are none.
type NextStatus<'a> =
    &'a (dyn Fn(&Quota) -> Result<Option<(Option<Value>, Value)>, Status> + Send + Sync);

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
        let mut known = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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

    /// The quotas of a namespace that are about a resource.
    fn about(&self, namespace: &str, resource: CountedResource<'_>) -> Vec<ObjectKey> {
        let quotas = self.quotas.list_in(namespace);
        let about = quotas
            .iter()
            .filter(|quota| Quota::read(quota).is_about(resource));
        about.map(Object::key).collect()
    }

    /// True if some quota may be about writes of a kind in a namespace. Cheap where there are none.
    fn concern(&self, kind: &Kind, namespace: &str) -> bool {
        kind.namespaced && !namespace.is_empty() && self.quotas.has_any_in(namespace)
    }

    /// Changes the status of a quota. `next` says what is used then; `None` changes nothing.
    async fn change(&self, key: &ObjectKey, next: NextUsed<'_>) -> Result<(), Status> {
        let next = |quota: &Quota| Ok(next(quota)?.map(|used| (None, used.to_value())));
        self.edit(key, &next).await
    }

    /// As [`Quotas::change`], with the limits in the status.
    async fn edit(&self, key: &ObjectKey, next: NextStatus<'_>) -> Result<(), Status> {
        let next = |existing: &Object| {
            let Some((hard, used)) = next(&Quota::read(existing))? else {
                return Ok(None);
            };
            let mut draft = Draft::of(&self.quotas.kind, existing)?;
            let new = || Value::Object(tidings_json::Map::new());
            let status = draft.members.entry("status").or_insert_with(new);
            if let Some(hard) = hard {
                status["hard"] = hard;
            }
            status["used"] = used;
            Ok(Some(draft))
        };
        rewrite(&self.quotas, key, &next).await.map(drop)
    }

    /// Counts the objects of a quota's namespace again. `settles` also where writes of other servers may be under way: what is counted already stays.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub(crate) async fn recount(
        &self,
        served: &ServedSet,
        key: &ObjectKey,
        settles: bool,
    ) -> Result<(), Status> {
        let space = self.namespace(key.namespace());
        let alone = tokio::time::timeout(RECOUNT_WAIT, space.under_way.write()).await;
        let Ok(_alone) = alone else {
            return Ok(()); // there is a next time
        };
        let Some(quota) = self.quotas.current(key).await? else {
            return Ok(());
        };
        let before = quota.revision();
        let quota = Quota::read(&quota);
        let mut counted = Vec::new();
        for resource in served.resources() {
            let (group, plural) = (&*resource.kind.group, &*resource.kind.plural);
            let of = CountedResource { group, plural };
            if resource.kind.namespaced && quota.names().any(|name| of.counts_for(name)) {
                resource.refresh().await?;
                counted.push((of, resource.list_in(key.namespace())));
            }
        }
        let now = clock::timestamp().as_second();
        let Some((hard, used)) = quota.counted(counted.into_iter(), now, settles) else {
            return Ok(());
        };
        let _changing = space.changing.lock().await;
        let current = self.quotas.current(key).await?;
        if current.is_none_or(|current| current.revision() != before) {
            return Ok(()); // somebody has changed it: it is looked at again
        }
        let status = |_: &Quota| Ok(Some((Some(hard.to_value()), used.to_value())));
        self.edit(key, &status).await
    }
}

/// The quotas, for a call that they may concern.
pub(crate) struct CallQuotas(Arc<Quotas>);

/// A write that is under way, and what of it is counted.
pub(super) struct CountedWrite {
    quotas: Arc<Quotas>,
    space: Arc<NamespaceUse>,
    _under_way: OwnedRwLockReadGuard<()>,
    keys: Vec<ObjectKey>,
    kind: Arc<Kind>,
    new: Value,
    old: Value,
    of_status: bool,
}

impl CallQuotas {
    /// `None` if no quota is in the namespace of a call.
    pub(super) fn of(quotas: Option<&Arc<Quotas>>, target: &Target) -> Option<CallQuotas> {
        let quotas = quotas?;
        let namespace = target.namespace().unwrap_or_default();
        let concern = quotas.concern(&target.kind, namespace);
        concern.then(|| CallQuotas(quotas.clone()))
    }

    /// Counts a write before it is done: `new` is the object after it, `old` the one before it. `None` if no quota is about it.
    ///
    /// # Errors
    /// If a quota would be exceeded.
    pub(super) async fn begin(
        &self,
        target: &Target,
        key: &ObjectKey,
        (new, old): (Option<&[u8]>, Option<&Object>),
        dry_run: bool,
    ) -> Result<Option<CountedWrite>, Status> {
        let quotas = &self.0;
        let kind = tidings_registry::stored(&target.kind).clone();
        let (namespace, name) = (key.namespace(), key.name());
        let mut keys = quotas.about(namespace, counted(&kind));
        if keys.is_empty() {
            return Ok(None);
        }
        let tree = |json: Option<&[u8]>| match json {
            Some(json) => serde_json::from_slice(json).map_err(Status::internal),
            None => Ok(Value::Null),
        };
        let space = quotas.namespace(namespace);
        let under_way = space.under_way.clone().read_owned().await;
        keys.sort_unstable();
        let mut write = CountedWrite {
            quotas: quotas.clone(),
            space,
            _under_way: under_way,
            keys: Vec::new(),
            new: tree(new)?,
            old: tree(old.map(Object::as_bytes))?,
            of_status: target.subresource == Some(Subresource::Status),
            kind: kind.clone(),
        };
        for quota in keys {
            let forbidden =
                |why: String| Status::forbidden(target.kind.group_resource(), name, &why);
            let charged = match dry_run {
                true => write.check(&quota).await,
                false => write.charge(&quota).await,
            };
            match charged {
                Ok(Ok(())) if dry_run => {}
                Ok(Ok(())) => write.keys.push(quota),
                Ok(Err(why)) => {
                    write.undo().await;
                    return Err(forbidden(why));
                }
                Err(status) => {
                    write.undo().await;
                    return Err(status);
                }
            }
        }
        Ok(Some(write))
    }

    /// Takes back what an object took that is gone.
    pub(super) async fn gone(&self, kind: &Arc<Kind>, object: &Object) {
        let quotas = &self.0;
        let key = object.key();
        let keys = quotas.about(key.namespace(), counted(kind));
        if keys.is_empty() {
            return;
        }
        let space = quotas.namespace(key.namespace());
        let under_way = space.under_way.clone().read_owned().await;
        let write = CountedWrite {
            quotas: quotas.clone(),
            space,
            _under_way: under_way,
            keys,
            kind: kind.clone(),
            new: Value::Null,
            old: serde_json::from_slice(object.as_bytes()).unwrap_or_default(),
            of_status: false,
        };
        write.done().await;
    }
}

fn counted(kind: &Kind) -> CountedResource<'_> {
    CountedResource {
        group: &kind.group,
        plural: &kind.plural,
    }
}

impl CountedWrite {
    fn write(&self) -> QuotaWrite<'_> {
        QuotaWrite {
            resource: counted(&self.kind),
            new: &self.new,
            old: &self.old,
            of_status: self.of_status,
            now: clock::timestamp().as_second(),
        }
    }

    /// Whether a quota allows the write. The inner error says why not.
    async fn check(&self, quota: &ObjectKey) -> Result<Result<(), String>, Status> {
        let current = self.quotas.quotas.current(quota).await?;
        let charged = current.map(|quota| Quota::read(&quota).charged(self.write()));
        Ok(charged.transpose().map(drop))
    }

    /// As [`CountedWrite::check`]; notes in the quota what is used then.
    async fn charge(&self, quota: &ObjectKey) -> Result<Result<(), String>, Status> {
        let refused: Mutex<Option<String>> = Mutex::default();
        let _changing = self.space.changing.lock().await;
        let charge = |quota: &Quota| {
            quota.charged(self.write()).map_err(|why| {
                let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                *refused = Some(why.clone());
                Status::forbidden(self.kind.group_resource(), "", &why)
            })
        };
        match self.quotas.change(quota, &charge).await {
            Ok(()) => Ok(Ok(())),
            Err(status) => {
                let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
                match refused.filter(|_| status.code == 403) {
                    Some(why) => Ok(Err(why)),
                    None => Err(status),
                }
            }
        }
    }

    /// The write is done: takes back what the object before it took more.
    pub(super) async fn done(&self) {
        self.release(self.write()).await;
    }

    /// The write was not done: takes back what was counted for it.
    pub(super) async fn undo(&self) {
        let write = self.write();
        self.release(QuotaWrite {
            new: write.old,
            old: write.new,
            ..write
        })
        .await;
    }

    async fn release(&self, write: QuotaWrite<'_>) {
        for key in &self.keys {
            let _changing = self.space.changing.lock().await;
            let release = |quota: &Quota| Ok(quota.released(write));
            if let Err(status) = self.quotas.change(key, &release).await {
                // Too much is counted until the objects are counted again.
                tracing::debug!(quota = %key, %status, "cannot write what is used of a quota");
            }
        }
    }
}
