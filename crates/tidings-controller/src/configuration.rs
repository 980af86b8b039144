//! The configuration of a child: what is applied for it.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tidings_api::ObjectKey;
use tidings_informer::{Cached, SourceError};
use tidings_kube::{ApiResource, KubeObject, is_cluster_scoped, resource_of};

use crate::applied::{annotation, configuration_hash, is_applied_annotation};
use crate::context::Context;
use crate::labelled;

/// What is applied for a child: in the namespace of its owner unless it names another one, with the owner as its controller, or labelled.
pub(crate) struct ChildConfiguration {
    pub(crate) resource: ApiResource,
    pub(crate) key: ObjectKey,
    /// As JSON, with the annotation that has the hash.
    pub(crate) text: Bytes,
    pub(crate) hash: u64,
}

impl ChildConfiguration {
    pub(crate) fn of<S, K: KubeObject, D: KubeObject + Serialize>(
        context: &Context<S>,
        owner: &Cached<K>,
        child: &D,
    ) -> Result<ChildConfiguration, SourceError> {
        let labels = context.labels_children::<D>();
        let json = serde_json::to_vec(child).map_err(no_json)?;
        let members: BTreeMap<String, &RawValue> =
            serde_json::from_slice(&json).map_err(no_json)?;
        let parts = (child.meta().clone(), members);
        ChildConfiguration::belonging::<K, D>(context.controller(), owner, parts, labels)
    }

    /// The configuration of a child of type `D` that is JSON.
    pub(crate) fn of_json<S, K: KubeObject, D: KubeObject>(
        context: &Context<S>,
        owner: &Cached<K>,
        mut child: Value,
    ) -> Result<ChildConfiguration, SourceError> {
        let labels = context.labels_children::<D>();
        let metadata = child.get_mut("metadata").map(Value::take);
        let metadata = serde_json::from_value(metadata.unwrap_or_default()).map_err(no_json)?;
        let members = match &child {
            Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)),
            _ => {
                return Err(SourceError::Unexpected(
                    "a child that is no JSON object".into(),
                ));
            }
        };
        let parts = (metadata, members.collect());
        ChildConfiguration::belonging::<K, D>(context.controller(), owner, parts, labels)
    }

    /// The configuration of a child that gets the owner, or, if it cannot have it and `labels` is true, labels. Of the child it takes its
    /// metadata and its other members.
    fn belonging<K: KubeObject, D: KubeObject>(
        controller: &str,
        owner: &Cached<K>,
        (mut metadata, members): (ObjectMeta, BTreeMap<String, impl Serialize>),
        labels: bool,
    ) -> Result<ChildConfiguration, SourceError> {
        let resource = resource_of::<D>();
        match NoOwner::of::<K, D>(owner, &mut metadata) {
            None => add_owner(&mut metadata, owner),
            Some(NoOwner::Unnamed) => return Err(NoOwner::Unnamed.refusal(&resource, owner)),
            Some(_) if labels => labelled::label(&mut metadata, controller, owner),
            Some(reason) => return Err(reason.refusal(&resource, owner)),
        }
        let named = |name: &Option<String>| name.clone().unwrap_or_default();
        let key = ObjectKey::new(&named(&metadata.namespace), &named(&metadata.name));
        let annotations = metadata.annotations.take().unwrap_or_default();
        // The annotations come last, so that the hash of everything can be added to them.
        let mut text = Vec::with_capacity(1024);
        text.extend_from_slice(b"{\"apiVersion\":");
        push_json(&mut text, &resource.api_version)?;
        text.extend_from_slice(b",\"kind\":");
        push_json(&mut text, &resource.kind)?;
        for (name, value) in &members {
            if !matches!(&**name, "apiVersion" | "kind" | "metadata") {
                text.push(b',');
                push_json(&mut text, name)?;
                text.push(b':');
                push_json(&mut text, value)?;
            }
        }
        text.extend_from_slice(b",\"metadata\":");
        push_json(&mut text, &metadata)?;
        // Its closing brace; a child has a name or a namespace at least, or the server refuses it.
        text.pop();
        if !text.ends_with(b"{") {
            text.push(b',');
        }
        text.extend_from_slice(b"\"annotations\":");
        push_json(&mut text, &annotations)?;
        text.extend_from_slice(b"}}");
        let hash = configuration_hash(controller, &text);
        text.truncate(text.len() - b"}}}".len());
        if !annotations.is_empty() {
            text.push(b',');
        }
        push_json(&mut text, &annotation(controller))?;
        text.extend_from_slice(format!(":\"{hash:016x}\"}}}}}}").as_bytes());
        Ok(ChildConfiguration {
            resource,
            key,
            text: text.into(),
            hash,
        })
    }

    /// True if a cached object of the same key has all of the configuration.
    pub(crate) fn is_in<D: KubeObject + Serialize>(&self, cached: &Cached<D>) -> bool {
        let value = |json: &[u8]| serde_json::from_slice::<Value>(json);
        let (Ok(found), Ok(mut wanted)) = (serde_json::to_value(cached.value()), value(&self.text))
        else {
            return false;
        };
        // A projection need not have what is known of every cached object: its type, key and labels, and the annotation, as its mark.
        if let Some(wanted) = wanted.as_object_mut() {
            wanted.remove("apiVersion");
            wanted.remove("kind");
        }
        if let Some(Value::Object(metadata)) = wanted.get_mut("metadata") {
            metadata.remove("name");
            metadata.remove("namespace");
            let labels = metadata.remove("labels");
            let labels = labels.as_ref().and_then(Value::as_object);
            let has =
                |(name, value): (&String, &Value)| cached.labels().get(name) == value.as_str();
            if !labels.into_iter().flatten().all(has) {
                return false;
            }
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.retain(|name, _| !is_applied_annotation(name));
            }
        }
        contains(&found, &wanted)
    }
}

/// Why a child cannot have an owner: the garbage collector would delete it.
enum NoOwner {
    /// The child has no namespace, and the owner has one.
    ClusterScoped,
    /// The child is in another namespace.
    Elsewhere(String),
    /// The owner has no namespace, and the child does not say in which it is.
    Unnamed,
}

impl NoOwner {
    /// Sets the namespace of a child to that of its owner, if it names none.
    fn of<K: KubeObject, D: KubeObject>(
        owner: &Cached<K>,
        metadata: &mut ObjectMeta,
    ) -> Option<NoOwner> {
        if is_cluster_scoped::<D>() {
            return (!owner.namespace().is_empty()).then_some(NoOwner::ClusterScoped);
        }
        if metadata.namespace.is_none() && !owner.namespace().is_empty() {
            metadata.namespace = Some(owner.namespace().to_owned());
        }
        match metadata.namespace.as_deref() {
            None | Some("") => Some(NoOwner::Unnamed),
            Some(_) if owner.namespace().is_empty() => None,
            Some(namespace) if namespace == owner.namespace() => None,
            Some(namespace) => Some(NoOwner::Elsewhere(namespace.to_owned())),
        }
    }

    fn refusal<K>(&self, resource: &ApiResource, owner: &Cached<K>) -> SourceError {
        let (kind, namespace) = (&resource.kind, owner.namespace());
        let instead = "the garbage collector would delete it; call owns_labelled for its type, and clean up with a finalizer";
        SourceError::Unexpected(match self {
            NoOwner::ClusterScoped => {
                format!(
                    "no request: a {kind} has no namespace and cannot have an owner in {namespace}, {instead}"
                )
            }
            NoOwner::Elsewhere(place) => {
                format!(
                    "no request: a child in the namespace {place} cannot have an owner in {namespace}, {instead}"
                )
            }
            NoOwner::Unnamed => {
                format!("no request: a {kind} of an owner without a namespace must name its own")
            }
        })
    }
}

/// Makes an object the controller of a child.
fn add_owner<K: KubeObject>(metadata: &mut ObjectMeta, owner: &Cached<K>) {
    let uid = owner.meta().uid.clone().unwrap_or_default();
    let owners = metadata.owner_references.get_or_insert_default();
    owners.retain(|known| known.uid != uid);
    owners.push(OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name().to_owned(),
        uid,
        controller: Some(true),
        block_owner_deletion: Some(true),
    });
}

fn push_json(text: &mut Vec<u8>, value: &impl Serialize) -> Result<(), SourceError> {
    serde_json::to_writer(text, value).map_err(no_json)
}

/// A value that cannot be sent.
#[allow(clippy::needless_pass_by_value)] // for map_err
pub(crate) fn no_json(error: serde_json::Error) -> SourceError {
    SourceError::Unexpected(format!("a value that is no JSON: {error}"))
}

/// True if an object has all of a configuration. Lists must have equal lengths; the server may have added members to their items.
fn contains(object: &Value, configuration: &Value) -> bool {
    match (object, configuration) {
        (Value::Object(object), Value::Object(configuration)) => {
            configuration.iter().all(|(name, wanted)| {
                object
                    .get(name)
                    .map_or_else(|| is_empty(wanted), |value| contains(value, wanted))
            })
        }
        (Value::Array(items), Value::Array(wanted)) => {
            items.len() == wanted.len()
                && items
                    .iter()
                    .zip(wanted)
                    .all(|(item, wanted)| contains(item, wanted))
        }
        (value, wanted) => value == wanted,
    }
}

/// True for values that the server leaves out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use tidings_api::Object;
    use tidings_informer::Decode;

    use super::*;

    fn map(json: &Value) -> std::sync::Arc<Cached<ConfigMap>> {
        let object = Object::parse(json.to_string()).unwrap();
        Cached::new(&object, &Decode::json()).unwrap()
    }

    #[test]
    fn a_child_gets_its_type_its_owner_and_the_hash() {
        let owner = map(&json!({"metadata": {"name": "o", "namespace": "n", "uid": "u"}}));
        let mut child = ConfigMap {
            data: Some([("a".to_owned(), "b".to_owned())].into()),
            ..ConfigMap::default()
        };
        child.metadata.name = Some("c".into());
        let of = |child: &ConfigMap| {
            let members = serde_json::to_value(child).unwrap();
            let members = members.as_object().unwrap().clone().into_iter();
            let parts = (child.metadata.clone(), members.collect());
            ChildConfiguration::belonging::<_, ConfigMap>("web", &owner, parts, false).unwrap()
        };
        let read =
            |found: &ChildConfiguration| -> Value { serde_json::from_slice(&found.text).unwrap() };
        let found = of(&child);
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u",
            "controller": true, "blockOwnerDeletion": true});
        let hash = format!("{:016x}", found.hash);
        let mut expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "c", "namespace": "n", "ownerReferences": [reference],
                "annotations": {"applied.tidings.dev/web": hash}}});
        assert_eq!(read(&found), expected);
        assert_eq!(found.key.as_str(), "n/c");

        // An owner that is there already is renewed, and annotations of the child stay.
        child.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v2".into(),
            uid: "u".into(),
            ..OwnerReference::default()
        }]);
        child.metadata.annotations = Some([("x".to_owned(), "y".to_owned())].into());
        let found = of(&child);
        let hash = format!("{:016x}", found.hash);
        expected["metadata"]["annotations"] = json!({"x": "y", "applied.tidings.dev/web": hash});
        assert_eq!(read(&found), expected);
        assert!(found.is_in(&map(&expected)));
        let mut other = expected.clone();
        other["metadata"]["annotations"]["x"] = "z".into();
        assert!(!found.is_in(&map(&other)));
        // Labels are those of the cached object, whatever its type keeps of them.
        child.metadata.labels = Some([("l".to_owned(), "m".to_owned())].into());
        let found = of(&child);
        assert!(!found.is_in(&map(&expected)));
        expected["metadata"]["labels"] = json!({"l": "m", "more": "n"});
        assert!(found.is_in(&map(&expected)));
    }

    #[test]
    fn what_the_server_adds_does_not_count() {
        let wanted = json!({"spec": {"ports": [{"port": 80}], "selector": {}}, "metadata": {"labels": {"a": "b"}}});
        let mut stored = wanted.clone();
        stored["spec"]["ports"][0]["protocol"] = "TCP".into();
        stored["metadata"]["uid"] = "u".into();
        stored["spec"].as_object_mut().unwrap().remove("selector");
        assert!(contains(&stored, &wanted));
        for (path, other) in [
            ("/spec/ports/0/port", json!(81)),
            ("/metadata/labels/a", json!("c")),
            ("/spec/ports", json!([{"port": 80}, {"port": 81}])),
            ("/metadata/labels", json!({})),
        ] {
            let mut changed = stored.clone();
            *changed.pointer_mut(path).unwrap() = other;
            assert!(!contains(&changed, &wanted), "{path}");
        }
    }
}
