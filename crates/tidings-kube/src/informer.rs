//! Informers of kube's types, of bytes, of metadata, and of the few fields that matter.

use std::sync::Arc;

use bytes::Bytes;
use kube::core::{ApiResource, ObjectMeta, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidings_api::{Object, ObjectKey};
use tidings_informer::{
    Cached, Decode, DecodeError, InformerBuilder, SharedInformer, Uid, Version,
};

use crate::client::RestClient;
use crate::list_watch::RestListWatch;
use crate::resource::{Form, Scope, key};

/// What a metadata-only informer keeps of an object.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct ObjectMetadata {
    /// The metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
}

/// An informer of a type that knows its resource: one of Kubernetes, or a custom resource. A `PartialObjectMeta<K>` makes it
/// ask for metadata only.
///
/// A namespace makes sense for namespaced resources only: others have no such path, and the server answers 404.
pub fn informer<K>(client: &RestClient, scope: &Scope) -> InformerBuilder<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    let (resource, form) = of_type::<K>();
    builder(client, &resource, scope, form, Decode::json())
}

/// The resource of a type, and how to ask for it.
pub(crate) fn of_type<K: Resource<DynamicType = ()>>() -> (ApiResource, Form) {
    let form = if K::metadata_api() {
        Form::Metadata
    } else {
        Form::Whole
    };
    (ApiResource::erase::<K>(&()), form)
}

/// An informer that keeps the bytes of objects, for resources that are known when the program runs.
///
/// Servers leave kind and apiVersion out of the items of a list. They are put in, so that all objects look the same.
pub fn dynamic(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
) -> InformerBuilder<Object> {
    let decode = with_type(resource);
    builder(client, resource, scope, Form::Whole, decode)
}

/// An informer that asks for metadata and keeps that.
pub fn metadata(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
) -> InformerBuilder<ObjectMetadata> {
    builder(client, resource, scope, Form::Metadata, Decode::json())
}

/// An informer that keeps the few fields that matter, as a struct: the rest is never decoded.
pub fn projected<P>(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
) -> InformerBuilder<P>
where
    P: DeserializeOwned + Send + Sync + 'static,
{
    builder(client, resource, scope, Form::Whole, Decode::json())
}

pub(crate) fn builder<K: Send + Sync + 'static>(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
    form: Form,
    decode: Decode<K>,
) -> InformerBuilder<K> {
    // The reflector tries again, and shows that it does.
    let client = client.clone().retries(0);
    let source = RestListWatch::new(&client, resource, &scope.namespace).form(form);
    SharedInformer::builder(Arc::new(source.selected(scope)), decode)
        .name(key(resource, scope, form).to_string())
}

/// Keeps the bytes, with kind and apiVersion in front where they are missing.
fn with_type(resource: &ApiResource) -> Decode<Object> {
    let names = [
        ("apiVersion", &resource.api_version),
        ("kind", &resource.kind),
    ];
    let quoted = names.map(|(name, value)| format!("\"{name}\":{}", serde_json::json!(value)));
    let prefix = format!("{{{},", quoted.join(","));
    Decode::with(move |object| {
        if !object.kind().is_empty() {
            return Ok(object.clone());
        }
        let members = object.as_bytes().get(1..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(prefix.len() + members.len());
        bytes.extend_from_slice(prefix.as_bytes());
        bytes.extend_from_slice(members);
        Object::parse(Bytes::from(bytes)).map_err(DecodeError::new)
    })
}

/// Lays what the server answered to a write over an informer's store: see [`tidings_informer::WriteOverlay`].
pub fn wrote<K>(informer: &SharedInformer<K>, object: K)
where
    K: Resource + Send + Sync + 'static,
{
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let key = ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), name);
    let version = meta.resource_version.as_deref().unwrap_or_default();
    let version = Version::new(version).number().unwrap_or_default();
    let uid = Uid::new(meta.uid.as_deref().unwrap_or_default());
    let labels = meta.labels.clone().unwrap_or_default();
    let written = Cached::from_parts(key, version, uid, labels, object);
    informer.overlay().wrote(&written);
}
