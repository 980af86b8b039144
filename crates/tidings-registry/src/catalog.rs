//! The catalog of kinds: the built-in ones, and those of custom resource definitions.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidings_structural::definition::compare_versions;

use crate::kinds;
use crate::members::members;
use crate::model::{Kind, KindView, Name, Subresource, ViewOf};

/// A set of kinds in the order in which discovery lists them, indexed by name.
#[derive(Debug, Default)]
pub struct Catalog {
    kinds: Vec<Arc<Kind>>,
    groups: HashMap<Name, CatalogGroup>,
    /// The names of the groups, in the order of their first kinds.
    group_names: Vec<Name>,
}

/// The kinds of one group.
#[derive(Debug, Default)]
struct CatalogGroup {
    versions: HashMap<Name, CatalogVersion>,
    /// The names of the versions, the preferred one first.
    version_names: Vec<Name>,
    /// Every kind of the group is a custom resource.
    custom: bool,
}

/// The positions in the catalog of the kinds of one version.
#[derive(Debug, Default)]
struct CatalogVersion {
    by_plural: HashMap<Name, usize>,
    by_kind: HashMap<Name, usize>,
    all: Vec<usize>,
}

/// The catalog of the built-in kinds.
pub fn builtin() -> &'static Catalog {
    static BUILTIN: LazyLock<Catalog> = LazyLock::new(|| Catalog::of(builtin_kinds()));
    &BUILTIN
}

/// The kind of what is posted to a subresource, if that is a question and no object of the resource.
pub fn posted_kind(part: Subresource) -> Option<&'static Arc<Kind>> {
    static KINDS: LazyLock<[Arc<Kind>; 3]> = LazyLock::new(|| {
        [kinds::token_request(), kinds::binding(), kinds::eviction()]
            .map(|kind| Arc::new(described(kind, &[])))
    });
    let [token_request, binding, eviction] = &*KINDS;
    match part {
        Subresource::Token => Some(token_request),
        Subresource::Binding => Some(binding),
        Subresource::Eviction => Some(eviction),
        _ => None,
    }
}

/// The prefixes of store keys whose values expire, and after how long: for the options of a store.
pub fn lifetimes() -> impl Iterator<Item = (String, Duration)> {
    let kinds = builtin().iter().filter(|kind| kind.view.is_none());
    kinds.filter_map(|kind| Some((kind.store_prefix(), kind.lifetime?)))
}

/// The prefixes of the store keys of all built-in resources, with their groups and plurals.
pub fn store_prefixes() -> impl Iterator<Item = (String, &'static str, &'static str)> {
    let kinds = builtin()
        .iter()
        .filter(|kind| kind.view.is_none() && kind.is_stored());
    kinds.map(|kind| (kind.store_prefix(), &*kind.group, &*kind.plural))
}

/// The built-in kinds, with what the table of types says of them.
fn builtin_kinds() -> Vec<Arc<Kind>> {
    let mut all: Vec<Arc<Kind>> = Vec::new();
    for kind in kinds::entries() {
        let kind = described(kind, &all);
        all.push(Arc::new(kind));
    }
    all
}

/// An entry with what the table of types says of it. A view needs its stored kind to be one of `before`.
fn described(mut kind: Kind, before: &[Arc<Kind>]) -> Kind {
    kind.schema = tidings_schema::find(&kind.group, &kind.version, &kind.kind);
    kind.view = kind.view_of.and_then(|view| resolved(view, before));
    kind.members = members(&kind);
    kind
}

/// A view with its stored kind, which must be one of `before`.
fn resolved(view: ViewOf, before: &[Arc<Kind>]) -> Option<KindView> {
    let ViewOf {
        stored,
        show,
        store,
    } = view;
    let is_stored = |kind: &&Arc<Kind>| (&*kind.group, &*kind.version, &*kind.kind) == stored;
    let stored = before.iter().find(is_stored)?.clone();
    Some(KindView {
        stored,
        show,
        store,
    })
}

impl Catalog {
    fn of(kinds: Vec<Arc<Kind>>) -> Catalog {
        let mut groups: HashMap<Name, CatalogGroup> = HashMap::new();
        let mut group_names = Vec::new();
        for (at, kind) in kinds.iter().enumerate() {
            let group = groups.entry(kind.group.clone()).or_insert_with(|| {
                group_names.push(kind.group.clone());
                CatalogGroup {
                    custom: true,
                    ..CatalogGroup::default()
                }
            });
            group.custom &= kind.is_custom();
            let version = group.versions.entry(kind.version.clone());
            let version = version.or_insert_with(|| {
                group.version_names.push(kind.version.clone());
                CatalogVersion::default()
            });
            version.all.push(at);
            version.by_plural.insert(kind.plural.clone(), at);
            version.by_kind.entry(kind.kind.clone()).or_insert(at);
        }
        Catalog {
            kinds,
            groups,
            group_names,
        }
    }

    /// The built-in kinds, then the custom ones, sorted by group, then by version with the preferred one first. Custom kinds in a
    /// version of a built-in group are left out.
    pub fn with_customs(customs: impl IntoIterator<Item = Arc<Kind>>) -> Catalog {
        let always = builtin();
        let customs = customs
            .into_iter()
            .filter(|kind| !always.has_version(&kind.group, &kind.version));
        let mut customs: Vec<Arc<Kind>> = customs.collect();
        customs.sort_by(|one, other| {
            let versions = || compare_versions(&other.version, &one.version);
            (one.group.cmp(&other.group))
                .then_with(versions)
                .then_with(|| one.plural.cmp(&other.plural))
        });
        Catalog::of(always.kinds.iter().cloned().chain(customs).collect())
    }

    /// All kinds.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.iter()
    }

    /// The names of the groups, in the order of their first kinds.
    pub fn groups(&self) -> impl Iterator<Item = &Name> {
        self.group_names.iter()
    }

    /// The names of the versions of a group, the preferred one first.
    pub fn versions(&self, group: &str) -> impl Iterator<Item = &Name> {
        let group = self.groups.get(group).into_iter();
        group.flat_map(|group| group.version_names.iter())
    }

    /// The kinds of a version of a group.
    pub fn of_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Kind>> {
        let version = self.version(group, version).into_iter();
        let positions = version.flat_map(|version| version.all.iter());
        positions.filter_map(|at| self.kinds.get(*at))
    }

    fn version(&self, group: &str, version: &str) -> Option<&CatalogVersion> {
        self.groups.get(group)?.versions.get(version)
    }

    /// The position of the kind of a resource.
    pub fn position(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        let version = self.version(group, version)?;
        version.by_plural.get(plural).copied()
    }

    /// The kind at a position.
    pub fn at(&self, position: usize) -> Option<&Arc<Kind>> {
        self.kinds.get(position)
    }

    /// The kind of a resource.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.at(self.position(group, version, plural)?)
    }

    /// The position of the kind with a name such as `Pod`.
    pub fn position_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<usize> {
        let version = self.version(group, version)?;
        version.by_kind.get(kind).copied()
    }

    /// The kind with a name such as `Pod`.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.at(self.position_of_kind(group, version, kind)?)
    }

    /// True if the group has any kind.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// True if the version of the group has any kind.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.version(group, version).is_some()
    }

    /// True if every kind of the group is a custom resource.
    pub fn is_custom(&self, group: &str) -> bool {
        self.groups.get(group).is_none_or(|group| group.custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_expire_after_an_hour() {
        let hour = Duration::from_secs(3600);
        assert_eq!(
            lifetimes().collect::<Vec<_>>(),
            [("events/".to_owned(), hour)]
        );
    }
}
