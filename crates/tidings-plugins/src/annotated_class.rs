//! `DefaultStorageClass` and `DefaultIngressClass`: objects that name no class get the one that an annotation makes the default.

use tidings_api::Status;
use tidings_json::Value;
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::write::{ClusterView, Known, PluginWrite, is_kind, tree};

pub(crate) struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "persistentvolumeclaims")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        let old_annotation = "volume.beta.kubernetes.io/storage-class";
        if !write.creates() || draft.meta.annotations.contains_key(old_annotation) {
            return Ok(false);
        }
        let annotations = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        let class = || newest_default(write.cluster, Known::StorageClasses, &annotations);
        Ok(fill(draft, "storageClassName", class))
    }
}

pub(crate) struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "networking.k8s.io", "ingresses")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        let old_annotation = "kubernetes.io/ingress.class";
        if !write.creates() || draft.meta.annotations.contains_key(old_annotation) {
            return Ok(false);
        }
        let annotations = ["ingressclass.kubernetes.io/is-default-class"];
        let class = || newest_default(write.cluster, Known::IngressClasses, &annotations);
        Ok(fill(draft, "ingressClassName", class))
    }
}

/// Sets a member of the spec that is not there, if there is something to set.
fn fill(draft: &mut Draft, member: &str, class: impl FnOnce() -> Option<String>) -> bool {
    // An empty name is one: the object wants no class.
    let is_set = draft
        .at(&["spec", member])
        .is_some_and(|name| !name.is_null());
    if is_set {
        return false;
    }
    let (Some(class), Some(spec)) = (class(), draft.members.get_mut("spec")) else {
        return false;
    };
    spec[member] = class.into();
    true
}

/// The name of the class that an annotation makes the default; of several the newest, and of those the first by name.
fn newest_default(cluster: &dyn ClusterView, known: Known, annotations: &[&str]) -> Option<String> {
    let classes = cluster.list(known, "");
    let is_default = |name: &str| {
        let says = |object: &&tidings_api::Object| {
            object.annotation(name).is_some_and(|text| text == "true")
        };
        classes.iter().filter(says).map(tree).collect::<Vec<_>>()
    };
    let defaults = annotations.iter().flat_map(|name| is_default(name));
    let key = |class: &Value| {
        let meta = &class["metadata"];
        let time = meta["creationTimestamp"].as_str().map(ToOwned::to_owned);
        let name = meta["name"].as_str().unwrap_or_default().to_owned();
        (time, std::cmp::Reverse(name))
    };
    let newest = defaults.max_by_key(key)?;
    newest["metadata"]["name"].as_str().map(ToOwned::to_owned)
}
