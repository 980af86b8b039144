//! Writes of a reconcile: children, status, deletions. Nothing is sent where nothing changes.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tidings_api::{Object, ObjectKey};
use tidings_informer::{Cached, SourceError};
use tidings_kube::{ApiResource, KubeObject, ObjectPath, is_cluster_scoped, resource_of};

use crate::context::Context;

impl<S> Context<S> {
    /// Applies a child of an object (server-side apply): in the namespace of its owner unless it names another one, with the owner as its
    /// controller, under the name of the controller as field manager, taking over fields that others own.
    ///
    /// Sends nothing if this process applied the same configuration before and the cache still has all of it. False if nothing was sent.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply<K, D>(&self, owner: &Cached<K>, child: &D) -> Result<bool, SourceError>
    where
        K: KubeObject,
        D: KubeObject + Serialize,
    {
        let child = ChildConfiguration::of(owner, child)?;
        let is_current = self.is_applied::<D>(&child);
        self.send_applied(&child, is_current).await
    }

    /// True if this process applied the same configuration before, and the cache still has all of it.
    pub(crate) fn is_applied<D: KubeObject + Serialize>(&self, child: &ChildConfiguration) -> bool {
        let ChildConfiguration { resource, key, .. } = child;
        let cached = self.find_store::<D>(|_| true).get_by_key(key.as_str());
        cached.is_some_and(|cached| {
            self.shared.applied.is(resource, key, child.hash)
                && json_object(cached.value()).is_ok_and(|mut cached| {
                    // A projection need not have its type, and the type is the same.
                    set_type(&mut cached, resource);
                    contains(&Value::Object(cached), &child.value)
                })
        })
    }

    /// Applies a configuration, unless it is current. True if it was sent.
    pub(crate) async fn send_applied(
        &self,
        child: &ChildConfiguration,
        is_current: bool,
    ) -> Result<bool, SourceError> {
        if is_current {
            return Ok(false);
        }
        let ChildConfiguration { resource, key, .. } = child;
        // Until it is answered nobody knows what the server has.
        self.shared.applied.set(resource, key, None);
        let path = ObjectPath::new(resource, key.namespace(), key.name());
        let manager = self.controller();
        self.client()
            .apply_object(&path, manager, true, &child.text)
            .await?;
        self.shared.applied.set(resource, key, Some(child.hash));
        Ok(true)
    }

    /// Sets the status of an object by server-side apply. Sends nothing if the object in the cache has this status already. False if
    /// nothing was sent.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply_status<K>(
        &self,
        object: &Cached<K>,
        status: &impl Serialize,
    ) -> Result<bool, SourceError>
    where
        K: KubeObject + Serialize,
    {
        let status = Value::Object(json_object(status)?);
        // The last state that this process wrote, if the cache does not have it yet.
        let latest = self.latest::<K>(object.key());
        let latest = latest.filter(|latest| latest.uid() == object.uid());
        let current = latest
            .as_ref()
            .map_or(object.value(), |latest| latest.value());
        let current = Value::Object(json_object(current)?);
        if current["status"] == status {
            return Ok(false);
        }
        let resource = resource_of::<K>();
        let path = ObjectPath::new(&resource, object.namespace(), object.name());
        let mut configuration = Map::new();
        set_type(&mut configuration, &resource);
        let uid = object.meta().uid.as_deref();
        // With the uid, so that an object that was deleted and created again keeps its own status.
        configuration.insert(
            "metadata".into(),
            json!({ "name": object.name(), "uid": uid }),
        );
        configuration.insert("status".into(), status);
        let manager = format!("{}-status", self.controller());
        let path = path.subresource("status");
        self.client()
            .apply_object(&path, &manager, true, &configuration)
            .await?;
        Ok(true)
    }

    /// Deletes a cached object, unless it was deleted and created again meanwhile. False if it is gone already.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn delete<D: KubeObject>(&self, object: &Cached<D>) -> Result<bool, SourceError> {
        let resource = resource_of::<D>();
        self.shared.applied.set(&resource, object.key(), None);
        let path = ObjectPath::new(&resource, object.namespace(), object.name());
        let uid = object.meta().uid.as_deref();
        self.client().delete_object(&path, uid).await
    }

    /// Deletes the objects of a type that an object owns and that are not wanted any more. Returns how many.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    ///
    /// # Panics
    /// If the controller does not own the type.
    pub async fn prune<D: KubeObject>(
        &self,
        owner: &Cached<impl Sized>,
        is_wanted: impl Fn(&Cached<D>) -> bool,
    ) -> Result<usize, SourceError> {
        let mut pruned = 0;
        for object in self.owned::<D>(owner) {
            if !is_wanted(&object) && object.meta().deletion_timestamp.is_none() {
                pruned += usize::from(self.delete(&object).await?);
            }
        }
        Ok(pruned)
    }

    /// Reads an object from the server, not from the cache.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn read<D: KubeObject>(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<Object>, SourceError> {
        let resource = resource_of::<D>();
        let path = ObjectPath::new(&resource, key.namespace(), key.name());
        self.client().get_object(&path).await
    }
}

/// What is applied for a child.
pub(crate) struct ChildConfiguration {
    pub(crate) resource: ApiResource,
    pub(crate) key: ObjectKey,
    value: Value,
    /// Written once: for the hash and for the request.
    text: Box<RawValue>,
    hash: u64,
}

impl ChildConfiguration {
    pub(crate) fn of<K: KubeObject, D: KubeObject + Serialize>(
        owner: &Cached<K>,
        child: &D,
    ) -> Result<ChildConfiguration, SourceError> {
        let value = child_of(owner, child)?;
        let named = |name: &str| value["metadata"][name].as_str().unwrap_or_default();
        let key = ObjectKey::new(named("namespace"), named("name"));
        let text = to_raw_value(&value).map_err(|error| {
            SourceError::Unexpected(format!("a value that is no JSON: {error}"))
        })?;
        Ok(ChildConfiguration {
            resource: resource_of::<D>(),
            key,
            hash: hash_of(text.get()),
            text,
            value,
        })
    }
}

/// The configuration of a child: in the namespace of its owner, with the owner as its controller.
fn child_of<K: KubeObject, D: KubeObject + Serialize>(
    owner: &Cached<K>,
    child: &D,
) -> Result<Value, SourceError> {
    let resource = resource_of::<D>();
    let refused = |why: String| Err(SourceError::Unexpected(format!("no request: {why}")));
    let mut child = json_object(child)?;
    set_type(&mut child, &resource);
    let metadata = child.entry("metadata").or_insert_with(|| json!({}));
    let is_cluster_scoped = is_cluster_scoped::<D>();
    if is_cluster_scoped && !owner.namespace().is_empty() {
        return refused(format!(
            "a {} has no namespace and cannot have an owner in {}, the garbage collector would delete it; apply it with the client, without \
             an owner, and delete it with a finalizer",
            resource.kind,
            owner.namespace()
        ));
    }
    if metadata["namespace"].is_null() && !owner.namespace().is_empty() {
        metadata["namespace"] = owner.namespace().into();
    }
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() && !is_cluster_scoped {
        return refused(format!(
            "a {} of an owner without a namespace must name its own",
            resource.kind
        ));
    }
    if !owner.namespace().is_empty() && namespace != owner.namespace() {
        return refused(format!(
            "a child in the namespace {namespace} cannot have an owner in {}, the garbage collector would delete it; apply it with the \
             client, without an owner",
            owner.namespace()
        ));
    }
    let mut owners = match metadata["ownerReferences"].take() {
        Value::Array(owners) => owners,
        _ => Vec::new(),
    };
    let reference = owner_reference(owner);
    owners.retain(|known| known["uid"] != reference["uid"]);
    owners.push(reference);
    metadata["ownerReferences"] = owners.into();
    Ok(Value::Object(child))
}

/// The reference to a controlling owner, as JSON.
fn owner_reference<K: KubeObject>(owner: &Cached<K>) -> Value {
    let resource = resource_of::<K>();
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name(),
        "uid": owner.meta().uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn set_type(object: &mut Map<String, Value>, resource: &ApiResource) {
    object.insert("apiVersion".into(), resource.api_version.clone().into());
    object.insert("kind".into(), resource.kind.clone().into());
}

fn json_object(value: &impl Serialize) -> Result<Map<String, Value>, SourceError> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(SourceError::Unexpected(
            "a value that is no JSON object".into(),
        )),
        Err(error) => Err(SourceError::Unexpected(format!(
            "a value that is no JSON: {error}"
        ))),
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
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
    use super::*;

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
