//! The set of what is served at a moment: the kinds, and for each the resource that holds its objects.
//!
//! The set is replaced as a whole when it changes. A request finds its resource in one set at its beginning and carries it to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidings_cache::{CacheOptions, StoreCache, StoredReader};
use tidings_registry::{Catalog, Kind, builtin};
use tidings_storage::{Revision, Storage};
use tokio::sync::Notify;

use super::resource::{Resource, ResourceId};

/// Opens resources over a store.
pub(crate) struct ResourceOpener {
    pub(crate) store: Arc<dyn Storage>,
    /// Bytes of objects that the event log of one resource may hold.
    pub(crate) log_bytes_max: usize,
    /// Notified of every change of every cache.
    pub(crate) changed: Arc<Notify>,
    /// The number of the next resource.
    next_id: AtomicU64,
}

impl ResourceOpener {
    pub(crate) fn new(store: Arc<dyn Storage>, log_bytes_max: usize) -> ResourceOpener {
        ResourceOpener {
            store,
            log_bytes_max,
            changed: Arc::default(),
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
        Resource::new(id, kind.clone(), store)
    }
}

/// The objects of a definition, and the kinds that show them.
#[derive(Debug)]
pub(crate) struct CustomResource {
    /// The kinds that are served.
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) resource: Arc<Resource>,
}

/// The set of what is served.
#[derive(Debug)]
pub(crate) struct ServedSet {
    pub(crate) catalog: Catalog,
    /// The resource of each kind, in the order of the catalog; reviews have none.
    by_kind: Vec<Option<Arc<Resource>>>,
    /// Every resource once, those that are always there first.
    resources: Vec<Arc<Resource>>,
    /// How many of them are always there.
    builtin: usize,
    /// How many sets there were before.
    pub(crate) number: u64,
}

impl ServedSet {
    /// The set of what is always served.
    pub(crate) fn open(opener: &ResourceOpener) -> ServedSet {
        let stored = builtin().iter();
        let stored = stored.filter(|kind| kind.view.is_none() && kind.is_stored());
        let open = |kind| Arc::new(opener.open(kind, None, Revision(0)));
        let resources: Vec<Arc<Resource>> = stored.map(open).collect();
        ServedSet::of(resources, &[], 0)
    }

    /// The set with these custom resources in place of others.
    pub(crate) fn with(&self, customs: &[CustomResource]) -> ServedSet {
        tracing::trace!(target: "tidings::walk", "makes the next set of what is served");
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

    /// The kinds that are always served, without their objects.
    #[cfg(test)]
    pub(crate) fn without_objects() -> ServedSet {
        ServedSet::of(Vec::new(), &[], 0)
    }

    /// The kind of a resource in URLs, and the objects of it.
    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<(Arc<Kind>, Option<Arc<Resource>>)> {
        self.at(self.catalog.position(group, version, plural)?)
    }

    /// The kind of a name, and the objects of it.
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

    /// Refuses writes to the resources that another set has no longer.
    pub(crate) fn retire_all_but(&self, next: &ServedSet) {
        for resource in &self.resources[self.builtin..] {
            let mut kept = next.resources.iter();
            if !kept.any(|kept| kept.id == resource.id) {
                resource.retire();
            }
        }
    }
}
