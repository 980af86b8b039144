//! The served set: the kinds that are served at one moment, and for each kind the resource with its objects.
//!
//! The set is immutable and is replaced as a whole. A request uses the same set from its beginning to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidings_cache::{CacheOptions, StoreCache, StoredReader};
use tidings_registry::{Catalog, Kind, builtin};
use tidings_storage::{Revision, Storage};
use tokio::sync::Notify;

use super::conversion::ConversionContext;
use super::resource::{Resource, ResourceId};

/// Opens resources over a store.
pub(crate) struct ResourceOpener {
    pub(crate) store: Arc<dyn Storage>,
    /// How many bytes of objects the event log of one resource may hold.
    pub(crate) log_bytes_max: usize,
    /// Notified of every change of every cache.
    pub(crate) changed: Arc<Notify>,
    /// How resources convert objects between versions.
    pub(crate) conversions: ConversionContext,
    /// The id of the next resource.
    next_id: AtomicU64,
}

impl ResourceOpener {
    pub(crate) fn new(store: Arc<dyn Storage>, log_bytes_max: usize) -> ResourceOpener {
        let changed: Arc<Notify> = Arc::default();
        ResourceOpener {
            store,
            log_bytes_max,
            conversions: ConversionContext {
                clients: Arc::default(),
                counts: Arc::default(),
                log_bytes_max,
                changed: changed.clone(),
            },
            changed,
            next_id: AtomicU64::new(0),
        }
    }

    /// Begins to fill a cache with the objects of a kind and their history after `from`. Must be called within a tokio runtime.
    pub(crate) fn open(
        &self,
        kind: &Arc<Kind>,
        reader: Option<StoredReader>,
        from: Revision,
    ) -> Resource {
        let mut options = CacheOptions::default();
        options.name = kind.group_resource().to_string();
        options.log_bytes_max = self.log_bytes_max;
        options.from = from;
        options.reader = reader;
        options.changed = self.changed.clone();
        let store = StoreCache::open(self.store.clone(), kind.store_prefix(), options);
        let id = ResourceId(self.next_id.fetch_add(1, Ordering::Relaxed));
        Resource::new(id, kind.clone(), store, self.conversions.clone())
    }
}

/// A custom resource with its kinds.
#[derive(Debug)]
pub(crate) struct CustomResource {
    /// The kinds of the versions that are served.
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) resource: Arc<Resource>,
}

/// The kinds that are served, and their resources.
#[derive(Debug)]
pub(crate) struct ServedSet {
    pub(crate) catalog: Catalog,
    /// The resource of each kind, in the order of the catalog; reviews have none.
    by_kind: Vec<Option<Arc<Resource>>>,
    /// Every resource once, the built-in ones first.
    resources: Vec<Arc<Resource>>,
    /// How many of the resources are built in.
    builtin: usize,
    /// How many served sets there were before this one.
    pub(crate) number: u64,
}

impl ServedSet {
    /// The set of the built-in kinds.
    pub(crate) fn open(opener: &ResourceOpener) -> ServedSet {
        let stored = builtin().iter();
        let stored = stored.filter(|kind| kind.view.is_none() && kind.is_stored());
        let open = |kind| Arc::new(opener.open(kind, None, Revision(0)));
        let resources: Vec<Arc<Resource>> = stored.map(open).collect();
        ServedSet::of(resources, &[], 0)
    }

    /// The next set: the built-in resources of this one, and these custom resources.
    pub(crate) fn with(&self, customs: &[CustomResource]) -> ServedSet {
        tracing::trace!(target: "tidings::walk", "makes the next served set");
        let builtin = self.resources[..self.builtin].to_vec();
        ServedSet::of(builtin, customs, self.number + 1)
    }

    fn of(mut resources: Vec<Arc<Resource>>, customs: &[CustomResource], number: u64) -> ServedSet {
        let builtin = resources.len();
        let kinds = customs.iter().flat_map(|custom| &custom.kinds);
        let catalog = Catalog::with_customs(kinds.cloned());
        resources.extend(customs.iter().map(|custom| custom.resource.clone()));
        let by_prefix: std::collections::HashMap<String, &Arc<Resource>> = resources
            .iter()
            .map(|resource| (resource.kind.store_prefix(), resource))
            .collect();
        let resource_of = |kind: &Arc<Kind>| {
            let stored = tidings_registry::stored(kind);
            let resource = by_prefix.get(&stored.store_prefix());
            resource.filter(|_| kind.is_stored()).copied().cloned()
        };
        let by_kind = catalog.iter().map(resource_of).collect();
        ServedSet {
            catalog,
            by_kind,
            resources,
            builtin,
            number,
        }
    }

    /// The built-in kinds, without their objects.
    #[cfg(test)]
    pub(crate) fn without_objects() -> ServedSet {
        ServedSet::of(Vec::new(), &[], 0)
    }

    /// The kinds that show the objects of a resource: versions, views.
    pub(crate) fn kinds_of(&self, resource: &Arc<Resource>) -> impl Iterator<Item = &Arc<Kind>> {
        let pairs = self.catalog.iter().zip(&self.by_kind);
        pairs.filter_map(move |(kind, of)| {
            let is_same = of.as_ref().is_some_and(|of| of.id == resource.id);
            is_same.then_some(kind)
        })
    }

    /// The kind with a plural name, as in URLs, and its resource. Reviews have no resource.
    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<(Arc<Kind>, Option<Arc<Resource>>)> {
        self.at(self.catalog.position(group, version, plural)?)
    }

    /// The kind with a kind name, as in `ownerReferences`, and its resource. Reviews have no resource.
    pub(crate) fn find_kind(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<(Arc<Kind>, Option<Arc<Resource>>)> {
        self.at(self.catalog.position_of_kind(group, version, kind)?)
    }

    fn at(&self, position: usize) -> Option<(Arc<Kind>, Option<Arc<Resource>>)> {
        let kind = self.catalog.at(position)?.clone();
        let resource = self.by_kind.get(position)?.clone();
        Some((kind, resource))
    }

    /// Every resource once.
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// Retires the resources of this set that are not in the next one.
    pub(crate) fn retire_all_but(&self, next: &ServedSet) {
        for resource in &self.resources[self.builtin..] {
            let mut kept = next.resources.iter();
            if !kept.any(|kept| kept.id == resource.id) {
                resource.retire();
            }
        }
    }
}
