//! Informers of kube's types, of bytes, of metadata, and of the few fields that matter.

use std::sync::Arc;

use bytes::Bytes;
use kube::core::{ApiResource, ObjectMeta, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidings_api::Object;
use tidings_informer::{Decode, DecodeError, InformerBuilder, Lazy, SharedInformer};

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

/// An informer of a type that keeps the bytes of objects and decodes them when they are asked for, as they do not fit into
/// their type's struct without a multiple of the room.
pub fn lazy<K>(client: &RestClient, scope: &Scope) -> InformerBuilder<Lazy<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
{
    let (resource, form) = of_type::<K>();
    builder(client, &resource, scope, form, Decode::lazy())
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
            return Ok(object.lean());
        }
        let members = object.as_bytes().get(1..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(prefix.len() + members.len());
        bytes.extend_from_slice(prefix.as_bytes());
        bytes.extend_from_slice(members);
        let typed = Object::parse(Bytes::from(bytes)).map_err(DecodeError::new)?;
        Ok(typed.lean())
    })
}

/// Lays what the server answered to a write over an informer's store, in the informer's own form: see
/// [`tidings_informer::WriteOverlay`].
///
/// # Errors
/// If it cannot be read in that form.
pub fn wrote<P, K>(informer: &SharedInformer<P>, answer: &K) -> Result<(), DecodeError>
where
    P: Send + Sync + 'static,
    K: Serialize,
{
    let json = serde_json::to_vec(answer)?;
    let object = Object::parse(Bytes::from(json)).map_err(DecodeError::new)?;
    informer.wrote(&object).map(drop)
}
