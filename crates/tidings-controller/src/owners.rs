//! Owner references: which objects an object belongs to.

use serde::Deserialize;
use tidings_api::{Object, ObjectKey};
use tidings_informer::Uid;
use tidings_kube::{ApiResource, KubeObject};

/// Which owners count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnerKind {
    /// The owner whose reference has `controller: true`; an object has at most one.
    #[default]
    Controller,
    /// Every owner.
    Any,
}

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct OwnerLink {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
}

impl OwnerLink {
    /// The owners of a typed object.
    pub(crate) fn of<D: KubeObject>(object: &D) -> Vec<OwnerLink> {
        let references = object.meta().owner_references.iter().flatten();
        let link = references.map(|reference| OwnerLink {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            uid: reference.uid.clone(),
            controller: reference.controller,
        });
        link.collect()
    }

    /// The owners of an object in bytes.
    pub(crate) fn of_object(object: &Object) -> Vec<OwnerLink> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Metadata {
            owner_references: Vec<OwnerLink>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Whole {
            metadata: Metadata,
        }
        let whole: Whole = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
        whole.metadata.owner_references
    }

    /// True if the owner is of a resource, whichever its version.
    fn is_of(&self, resource: &ApiResource) -> bool {
        let group = self
            .api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        self.kind == resource.kind && group == resource.group
    }
}

/// The names of the owners of a kind.
pub(crate) fn names<'l>(
    links: &'l [OwnerLink],
    resource: &'l ApiResource,
    which: OwnerKind,
) -> impl Iterator<Item = &'l str> {
    let counts = move |link: &&OwnerLink| {
        link.is_of(resource) && (which == OwnerKind::Any || link.controller == Some(true))
    };
    links.iter().filter(counts).map(|link| link.name.as_str())
}

/// The uids of the owners that count.
pub(crate) fn uids(links: &[OwnerLink], which: OwnerKind) -> Vec<Uid> {
    let counts = |link: &&OwnerLink| which == OwnerKind::Any || link.controller == Some(true);
    let uids = links.iter().filter(counts).map(|link| Uid::new(&link.uid));
    uids.collect()
}

/// True if an object has a controller, and it is not this one: nobody else deletes it.
pub(crate) fn is_controlled_by_another(links: &[OwnerLink], owner: Uid) -> bool {
    let mut controllers = links.iter().filter(|link| link.controller == Some(true));
    controllers.any(|link| Uid::new(&link.uid) != owner)
}

/// The key of an owner of an object in a namespace. `exists` tells whether an owner is in the cache: one that is not in the namespace may
/// be cluster-scoped.
pub(crate) fn key(namespace: &str, name: &str, exists: &dyn Fn(&ObjectKey) -> bool) -> ObjectKey {
    let in_namespace = ObjectKey::new(namespace, name);
    if namespace.is_empty() || exists(&in_namespace) {
        return in_namespace;
    }
    let in_cluster = ObjectKey::new("", name);
    if exists(&in_cluster) {
        in_cluster
    } else {
        in_namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn websites() -> ApiResource {
        ApiResource {
            group: "example.com".into(),
            version: "v1".into(),
            api_version: "example.com/v1".into(),
            kind: "Website".into(),
            plural: "websites".into(),
        }
    }

    fn link(api_version: &str, kind: &str, name: &str, controller: Option<bool>) -> OwnerLink {
        OwnerLink {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: format!("uid of {name}"),
            controller,
        }
    }

    #[test]
    fn cr24_cr25_owners_count_by_group_kind_and_control() {
        let links = [
            link("example.com/v1", "Website", "controls", Some(true)),
            link("example.com/v2", "Website", "other-version", Some(true)),
            link("example.com/v1", "Website", "owns", None),
            link("example.com/v1", "Website", "owns-too", Some(false)),
            link("other.com/v1", "Website", "other-group", Some(true)),
            link("v1", "Website", "core", Some(true)),
            link("example.com/v1", "Page", "other-kind", Some(true)),
            link("a/b/c", "Website", "odd", Some(true)),
            link("", "Website", "no-version", Some(true)),
        ];
        let resource = websites();
        let found = |which| -> Vec<&str> { names(&links, &resource, which).collect() };
        assert_eq!(found(OwnerKind::Controller), ["controls", "other-version"]);
        assert_eq!(
            found(OwnerKind::Any),
            ["controls", "other-version", "owns", "owns-too"]
        );
        let controlling = uids(&links[..3], OwnerKind::Controller);
        assert_eq!(
            controlling,
            [
                Uid::new("uid of controls"),
                Uid::new("uid of other-version")
            ]
        );
        assert_eq!(uids(&links[..3], OwnerKind::Any).len(), 3);
    }

    #[test]
    fn what_has_no_controller_or_this_one_is_not_controlled_by_another() {
        let own = Uid::new("uid of a");
        let (mine, plain) = (link("v1", "K", "a", Some(true)), link("v1", "K", "b", None));
        let other = link("v1", "K", "b", Some(true));
        assert!(!is_controlled_by_another(&[], own));
        assert!(!is_controlled_by_another(&[mine, plain], own));
        assert!(is_controlled_by_another(&[other], own));
    }

    #[test]
    fn cr26_an_owner_that_is_not_in_the_namespace_may_be_cluster_scoped() {
        let there = |known: &'static str| move |key: &ObjectKey| key.as_str() == known;
        let found = |known| key("blue", "a", &there(known)).as_str().to_owned();
        assert_eq!(found("blue/a"), "blue/a");
        assert_eq!(found("a"), "a");
        assert_eq!(found("other"), "blue/a", "it may come yet");
    }
}
