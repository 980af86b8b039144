//! What a request names: the resource, the scope and the form of its objects.

use std::any::TypeId;
use std::fmt::Write as _;

use http::HeaderValue;
use kube::core::{ApiResource, Resource};
use serde::de::DeserializeOwned;
use tidings_api::ShardSelector;
use tidings_informer::InformerKey;

/// A type that knows its resource: a Kubernetes type, a custom resource, a projection of one, or `PartialObjectMeta` of one.
/// Implemented for all types that qualify.
pub trait KubeObject:
    Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static
{
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static> KubeObject for K {}

/// The resource of a type.
pub fn resource_of<K: KubeObject>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// True if the objects of a type have no namespace.
pub fn is_cluster_scoped<K: KubeObject>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<kube::core::ClusterResourceScope>()
}

/// Which objects of a resource: a namespace and selectors. Empty strings mean all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Scope {
    /// The namespace. Leave it empty for cluster-scoped resources.
    pub namespace: String,
    /// The label selector.
    pub label_selector: String,
    /// The field selector.
    pub field_selector: String,
    /// The shard, if only its objects are meant.
    pub shard: Option<ShardSelector>,
}

impl Scope {
    /// All objects.
    pub fn all() -> Scope {
        Scope::default()
    }

    /// The objects of one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Scope {
        Scope {
            namespace: namespace.into(),
            ..Scope::default()
        }
    }

    /// Sets the label selector.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Scope {
        self.label_selector = selector.into();
        self
    }

    /// Sets the field selector.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Scope {
        self.field_selector = selector.into();
        self
    }

    /// Only the objects of one shard: several replicas of a program share a resource.
    ///
    /// ```
    /// use tidings_kube::{Scope, ShardField, ShardSelector};
    ///
    /// // The second of three replicas.
    /// let scope = Scope::all().shard(ShardSelector::split(ShardField::Uid, 1, 3));
    /// ```
    #[must_use]
    pub fn shard(mut self, shard: ShardSelector) -> Scope {
        self.shard = Some(shard);
        self
    }
}

/// Whether the server sends complete objects or metadata only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectForm {
    Whole,
    /// Kind and metadata only.
    Metadata,
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl ObjectForm {
    /// The `Accept` header. A server that cannot send metadata only sends complete objects, and one that has no protobuf sends JSON.
    pub(crate) fn accept(self, watch: bool, protobuf: bool) -> HeaderValue {
        const JSON_LIST: &str =
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        const JSON_OBJECT: &str =
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        const ANY_WHOLE: &str = "application/vnd.kubernetes.protobuf,application/json";
        const ANY_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
            application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        const ANY_OBJECT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
            application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        HeaderValue::from_static(match (self, watch, protobuf) {
            (ObjectForm::Whole, _, false) => return JSON,
            (ObjectForm::Whole, _, true) => ANY_WHOLE,
            (ObjectForm::Metadata, true, false) => JSON_OBJECT,
            (ObjectForm::Metadata, false, false) => JSON_LIST,
            (ObjectForm::Metadata, true, true) => ANY_OBJECT,
            (ObjectForm::Metadata, false, true) => ANY_LIST,
        })
    }

    /// The form in the key of an informer.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ObjectForm::Whole => "",
            ObjectForm::Metadata => "metadata",
        }
    }
}

/// The path of a resource's objects: all of them, or those of one namespace.
pub fn collection_path(resource: &ApiResource, namespace: &str) -> String {
    let mut path = String::from(if resource.group.is_empty() {
        "/api/"
    } else {
        "/apis/"
    });
    let namespaced: &[&str] = match namespace {
        "" => &[],
        namespace => &["namespaces", namespace],
    };
    let group = (!resource.group.is_empty()).then_some(&*resource.group);
    let before = group.into_iter().chain([&*resource.version]);
    let segments = before
        .chain(namespaced.iter().copied())
        .chain([&*resource.plural]);
    for (index, segment) in segments.enumerate() {
        if index > 0 {
            path.push('/');
        }
        push_segment(&mut path, segment);
    }
    path
}

/// The path of an object, or of a collection without a name. Empty segments are left out.
pub(crate) fn object_path(resource: &ApiResource, namespace: &str, name: &[&str]) -> String {
    let mut path = collection_path(resource, namespace);
    for segment in name.iter().filter(|segment| !segment.is_empty()) {
        path.push('/');
        push_segment(&mut path, segment);
    }
    path
}

/// Appends a segment, percent-encoded: a name from a user must not lead to another path.
fn push_segment(path: &mut String, segment: &str) {
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            other => {
                // Writing to a String cannot fail.
                let _ = write!(path, "%{other:02X}");
            }
        }
    }
}

/// The key of an informer in a factory.
pub(crate) fn key(resource: &ApiResource, scope: &Scope, form: ObjectForm) -> InformerKey {
    let ApiResource {
        api_version,
        plural,
        ..
    } = resource;
    InformerKey::new(format!("{api_version}/{plural}"))
        .namespace(&*scope.namespace)
        .label_selector(&*scope.label_selector)
        .field_selector(&*scope.field_selector)
        .shard(scope.shard.clone())
        .form(form.name())
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
        let gvk = GroupVersionKind::gvk(group, "v1", kind);
        ApiResource::from_gvk_with_plural(&gvk, plural)
    }

    #[test]
    fn paths_of_core_and_group_resources() {
        let check = |group, namespace, expected| {
            let found = collection_path(&resource(group, "Pod", "pods"), namespace);
            assert_eq!(found, expected);
        };
        check("", "", "/api/v1/pods");
        check("", "default", "/api/v1/namespaces/default/pods");
        check("apps", "", "/apis/apps/v1/pods");
        check("a.example", "x", "/apis/a.example/v1/namespaces/x/pods");
        check(
            "",
            "a/../b?c#d e",
            "/api/v1/namespaces/a%2F..%2Fb%3Fc%23d%20e/pods",
        );
    }

    #[test]
    fn types_know_whether_they_have_namespaces() {
        use k8s_openapi::api::core::v1::{ConfigMap, Node};
        use kube::core::PartialObjectMeta;
        assert!(is_cluster_scoped::<Node>() && !is_cluster_scoped::<ConfigMap>());
        assert!(is_cluster_scoped::<PartialObjectMeta<Node>>());
        assert!(!is_cluster_scoped::<PartialObjectMeta<ConfigMap>>());
    }

    #[test]
    fn the_key_has_everything_that_tells_informers_apart() {
        let scope = Scope::namespace("n").labels("a=b").fields("c=d");
        let key = key(
            &resource("apps", "Deployment", "deployments"),
            &scope,
            ObjectForm::Metadata,
        );
        assert_eq!(
            key.to_string(),
            "apps/v1/deployments in n with a=b where c=d as metadata"
        );
    }
}
