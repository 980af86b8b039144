//! Informers of kube's types, of raw objects, of metadata, and of selected fields.

use std::sync::Arc;

use kube::core::{ApiResource, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidings_api::Object;
use tidings_informer::{Decode, DecodeError, InformerBuilder, Lazy, SharedInformer};

use crate::client::RestClient;
use crate::list_watch::RestListWatch;
use crate::object_metadata::ObjectMetadata;
use crate::resource::{ObjectForm, Scope, key};

/// An informer of a type that knows its resource: a Kubernetes type or a custom resource. For a `PartialObjectMeta<K>` it
/// requests metadata only.
///
/// Set a namespace only for namespaced resources: for others the server answers 404.
pub fn informer<K>(client: &RestClient, scope: &Scope) -> InformerBuilder<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    let (resource, form) = of_type::<K>();
    builder(client, &resource, scope, form, Decode::json())
}

/// An informer of a type that keeps objects as bytes and decodes them on demand. The structs of Kubernetes types take several
/// times the memory of the bytes.
pub fn lazy<K>(client: &RestClient, scope: &Scope) -> InformerBuilder<Lazy<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
{
    let (resource, form) = of_type::<K>();
    builder(client, &resource, scope, form, Decode::lazy())
}

/// The resource of a type, and the form to request.
pub(crate) fn of_type<K: Resource<DynamicType = ()>>() -> (ApiResource, ObjectForm) {
    let form = if K::metadata_api() {
        ObjectForm::Metadata
    } else {
        ObjectForm::Whole
    };
    (ApiResource::erase::<K>(&()), form)
}

/// An informer that keeps objects as bytes, for resources that are known only at run time.
///
/// Servers leave `kind` and `apiVersion` out of list items. They are added, so that all objects have them.
pub fn dynamic(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
) -> InformerBuilder<Object> {
    let decode = with_type(resource);
    builder(client, resource, scope, ObjectForm::Whole, decode)
}

/// An informer that requests and keeps metadata only, in a small form.
pub fn metadata(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
) -> InformerBuilder<ObjectMetadata> {
    builder(
        client,
        resource,
        scope,
        ObjectForm::Metadata,
        ObjectMetadata::decode(),
    )
}

/// An informer that keeps only the fields of the struct `P`: the rest is never decoded.
pub fn projected<P>(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
) -> InformerBuilder<P>
where
    P: DeserializeOwned + Send + Sync + 'static,
{
    builder(client, resource, scope, ObjectForm::Whole, Decode::json())
}

pub(crate) fn builder<K: Send + Sync + 'static>(
    client: &RestClient,
    resource: &ApiResource,
    scope: &Scope,
    form: ObjectForm,
    decode: Decode<K>,
) -> InformerBuilder<K> {
    // The reflector retries by itself, and its state shows that.
    let client = client.clone().retries(0);
    let source = RestListWatch::new(&client, resource, &scope.namespace).form(form);
    SharedInformer::builder(Arc::new(source.selected(scope)), decode)
        .name(key(resource, scope, form).to_string())
}

/// Keeps the bytes, and adds `kind` and `apiVersion` where they are missing.
fn with_type(resource: &ApiResource) -> Decode<Object> {
    let names = [
        ("apiVersion", &resource.api_version),
        ("kind", &resource.kind),
    ];
    let quoted = names.map(|(name, value)| format!("\"{name}\":{}", serde_json::json!(value)));
    let prefix = format!("{{{},", quoted.join(","));
    Decode::with(move |object| {
        if !object.kind().is_empty() {
            return Ok(object);
        }
        let members = object.as_bytes().get(1..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(prefix.len() + members.len());
        bytes.extend_from_slice(prefix.as_bytes());
        bytes.extend_from_slice(members);
        let typed = Object::parse(bytes).map_err(DecodeError::new)?;
        Ok(typed)
    })
}

/// Puts the server's answer to a write into the informer's overlay, decoded like its other objects: see
/// [`tidings_informer::WriteOverlay`].
///
/// # Errors
/// If the answer cannot be decoded into the informer's type.
pub fn wrote<P, K>(informer: &SharedInformer<P>, answer: &K) -> Result<(), DecodeError>
where
    P: Send + Sync + 'static,
    K: Serialize,
{
    let json = serde_json::to_vec(answer)?;
    let object = Object::parse(json).map_err(DecodeError::new)?;
    informer.wrote(&object).map(drop)
}
