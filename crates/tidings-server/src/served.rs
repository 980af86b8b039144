//! What is served at a moment: the kinds, and of each that is stored its place in the store and its cache.
//!
//! The set is replaced as a whole when it changes; a request sees one set from its beginning to its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidings_api::ObjectKey;
use tidings_informer::{BackoffOptions, Reflector, ReflectorOptions};
use tidings_storage::{Revision, Storage};
use tidings_structural::definition::compare_versions;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cache::{Cache, CacheStore};
use crate::custom::Reader;
use crate::discovery::Aggregated;
use crate::metrics::WatchCounts;
use crate::openapi::Documents;
use crate::registry::{self, KINDS, Kind};
use crate::source::{SetAside, StoreListerWatcher};

/// How long a cache waits before it reads the store again.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Objects of one kind in the store, whichever kinds show them.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) kind: &'static Kind,
    /// What the keys of its objects begin with.
    pub(crate) prefix: Bytes,
    pub(crate) cache: Arc<Cache>,
    pub(crate) watches: Arc<WatchCounts>,
    /// Values among them that are no objects.
    pub(crate) set_aside: Arc<SetAside>,
    filler: Arc<Filler>,
}

/// Fills the cache of a resource as long as it is there.
#[derive(Debug)]
struct Filler(JoinHandle<()>);

impl Drop for Filler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Resource {
    /// What fills a cache never ends by itself: if it has, the server must be started again.
    pub(crate) fn is_dead(&self) -> bool {
        self.filler.0.is_finished()
    }

    /// The same objects, stored as another kind from now on.
    pub(crate) fn of(&self, kind: &'static Kind) -> Resource {
        Resource {
            kind,
            ..self.clone()
        }
    }

    /// Where an object is in the store.
    pub(crate) fn store_key(&self, key: &ObjectKey) -> Bytes {
        let key = [&self.prefix[..], key.as_str().as_bytes()];
        key.concat().into()
    }

    /// Stands for what is not served any more: its cache is never filled.
    pub(crate) fn nowhere(changed: Arc<Notify>) -> Arc<Resource> {
        Arc::new(Resource {
            kind: KINDS[0],
            prefix: Bytes::from_static(b"nowhere/"),
            cache: Cache::new(0, changed),
            watches: Arc::default(),
            set_aside: Arc::default(),
            filler: Arc::new(Filler(tokio::spawn(std::future::ready(())))),
        })
    }
}

/// Makes resources of kinds.
pub(crate) struct Opener {
    pub(crate) store: Arc<dyn Storage>,
    /// How much the event log of one resource may hold.
    pub(crate) log_bytes_max: usize,
    /// Told of every change of every cache.
    pub(crate) changed: Arc<Notify>,
}

impl Opener {
    /// Begins to fill a cache with the history from `from` on, or as much of it as there is. The objects of a custom resource are
    /// read as `reader` says. Must be called within a tokio runtime.
    pub(crate) fn open(
        &self,
        kind: &'static Kind,
        reader: Option<Arc<Reader>>,
        from: Revision,
    ) -> Arc<Resource> {
        let cache = Cache::new(self.log_bytes_max, self.changed.clone());
        let prefix = Bytes::from(kind.prefix());
        let set_aside = Arc::new(SetAside::new(prefix.clone()));
        let source = Arc::new(StoreListerWatcher {
            store: self.store.clone(),
            prefix: prefix.clone(),
            cache: cache.clone(),
            from,
            set_aside: set_aside.clone(),
            followed: Arc::default(),
        });
        let mut options = ReflectorOptions::default();
        // The store is in this process or has its own signs of life: silence means that nothing happens.
        options.silence_max = Duration::from_secs(3600);
        // It is this server's own, and everybody waits for it.
        options.backoff = BackoffOptions::default().between(BACKOFF_FIRST, BACKOFF_MAX);
        let name = kind.group_resource().to_string();
        let reflector = Reflector::new(
            name,
            source,
            CacheStore::new(cache.clone(), reader),
            options,
        );
        let filler = tokio::spawn(async move {
            // It stops for refusals only, and a store does not refuse.
            reflector.run().await;
        });
        Arc::new(Resource {
            kind,
            prefix,
            cache,
            watches: Arc::default(),
            set_aside,
            filler: Arc::new(Filler(filler)),
        })
    }
}

/// The kinds that there are.
#[derive(Debug, Clone)]
pub(crate) struct Kinds(Vec<&'static Kind>);

impl Kinds {
    /// Those that are always there.
    pub(crate) fn builtin() -> Kinds {
        Kinds(KINDS.to_vec())
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Kind> {
        self.0.iter().copied()
    }

    /// The kind of a resource.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        registry::find_among(&self.0, group, version, plural)
    }

    /// Those of groups in the order of their names, the version first that clients should use.
    fn sort_custom(&mut self) {
        let customs = self.0.iter().position(|kind| kind.custom.is_some());
        let customs = customs.unwrap_or(self.0.len());
        self.0[customs..].sort_by(|one, other| {
            let versions = || compare_versions(other.version, one.version);
            (one.group.cmp(other.group))
                .then_with(versions)
                .then_with(|| one.plural.cmp(other.plural))
        });
    }

    /// True if all that the group has is defined by users.
    pub(crate) fn is_custom(&self, group: &str) -> bool {
        let mut kinds = self.iter().filter(|kind| kind.group == group);
        kinds.all(|kind| kind.custom.is_some())
    }

    /// True if the group has any kind.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.0.iter().any(|kind| kind.group == group)
    }

    /// Those whose objects are stored: all that are neither another view of them nor questions.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &'static Kind> {
        let kinds = self.0.iter().copied();
        kinds.filter(|kind| kind.stored_as.is_none() && kind.review.is_none())
    }
}

/// Kinds are told apart by where they are.
fn address(kind: &'static Kind) -> usize {
    std::ptr::from_ref(kind).addr()
}

/// The objects of a definition, and the kinds that show them.
#[derive(Debug)]
pub(crate) struct CustomResource {
    /// The versions, and whether they are served.
    pub(crate) kinds: Vec<(&'static Kind, bool)>,
    pub(crate) resource: Arc<Resource>,
}

/// The set of all that is served.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) kinds: Kinds,
    /// What describes the kinds.
    pub(crate) openapi: Documents,
    resources: Vec<Arc<Resource>>,
    /// Where the resource of a stored kind stands among them.
    places: HashMap<usize, usize>,
    pub(crate) discovery: Aggregated,
}

impl Served {
    /// What is always there.
    pub(crate) fn open(opener: &Opener) -> Served {
        let kinds = Kinds::builtin();
        let open = |kind| opener.open(kind, None, Revision(0));
        let resources: Vec<_> = kinds.stored().map(open).collect();
        let places = resources.iter().enumerate();
        let places = places.map(|(at, resource)| (address(resource.kind), at));
        Served {
            kinds,
            openapi: Documents::default(),
            places: places.collect(),
            resources,
            discovery: Aggregated::default(),
        }
    }

    /// The same with other custom resources.
    pub(crate) fn with(&self, customs: &[CustomResource]) -> Served {
        let builtin = self
            .resources
            .iter()
            .filter(|one| one.kind.custom.is_none());
        let mut served = Served {
            kinds: Kinds::builtin(),
            resources: builtin.cloned().collect(),
            places: self.places.clone(),
            discovery: Aggregated::default(),
            openapi: self.openapi.with_other_customs(),
        };
        served
            .places
            .retain(|_, place| *place < served.resources.len());
        for custom in customs {
            let place = served.resources.len();
            served.resources.push(custom.resource.clone());
            for (kind, is_served) in &custom.kinds {
                served.places.insert(address(kind), place);
                // What is built in comes first.
                let group = (kind.group, kind.version);
                let taken = KINDS.iter().any(|one| (one.group, one.version) == group);
                if *is_served && !taken {
                    served.kinds.0.push(kind);
                }
            }
        }
        served.kinds.sort_custom();
        served
    }

    /// Where the objects of a kind are. `None` if it is not served any more, or has none.
    pub(crate) fn resource(&self, kind: &'static Kind) -> Option<&Arc<Resource>> {
        let place = self.places.get(&address(kind.stored()))?;
        self.resources.get(*place)
    }

    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }
}
