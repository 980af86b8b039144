//! Reads and writes of single objects: get, create, apply, patch, delete. What is returned has no `metadata.managedFields`, as in informers.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::core::ApiResource;
use serde::Serialize;
use tidings_api::Object;
use tidings_informer::SourceError;

use crate::client::RestClient;
use crate::observe::CreatedName;
use crate::resource::object_path;

/// The largest object that is read; servers have lower limits.
const OBJECT_BYTES_MAX: usize = 64 << 20;

/// An object on the server: its resource, namespace and name, and a part of it.
#[derive(Debug, Clone)]
pub struct ObjectPath<'a> {
    resource: &'a ApiResource,
    namespace: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> ObjectPath<'a> {
    /// An object. The namespace of cluster-scoped objects is empty.
    pub fn new(resource: &'a ApiResource, namespace: &'a str, name: &'a str) -> ObjectPath<'a> {
        ObjectPath {
            resource,
            namespace,
            name,
            subresource: "",
        }
    }

    /// A part of the object with its own path: `status`, `scale`.
    #[must_use]
    pub fn subresource(mut self, subresource: &'a str) -> ObjectPath<'a> {
        self.subresource = subresource;
        self
    }

    fn path(&self) -> String {
        object_path(
            self.resource,
            self.namespace,
            &[self.name, self.subresource],
        )
    }
}

/// The form of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// A JSON patch (RFC 6902): a list of operations.
    Json,
    /// A merge patch (RFC 7386): a part of the object, with null for what is removed.
    Merge,
    /// A strategic merge patch, of built-in kinds only.
    Strategic,
}

impl PatchKind {
    fn media_type(self) -> &'static str {
        match self {
            PatchKind::Json => "application/json-patch+json",
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

impl RestClient {
    /// Reads an object, at its newest version and without `metadata.managedFields`; `None` if there is none.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn get_object(&self, path: &ObjectPath<'_>) -> Result<Option<Object>, SourceError> {
        match self
            .send_object(Method::GET, path.path(), "", Bytes::new())
            .await
        {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object and returns it as the server stored it, without `metadata.managedFields`.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses: 409 if there is an object of this name.
    pub async fn create_object(
        &self,
        resource: &ApiResource,
        namespace: &str,
        object: &impl Serialize,
    ) -> Result<Object, SourceError> {
        let path = object_path(resource, namespace, &[]);
        self.send_object(Method::POST, path, "application/json", json(object)?)
            .await
    }

    /// Applies a configuration (server-side apply) and returns the object, without `metadata.managedFields`. The configuration must have `apiVersion` and `kind`.
    /// With `force` it takes over fields of other managers; without, they are a conflict (409).
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply_object(
        &self,
        path: &ObjectPath<'_>,
        manager: &str,
        force: bool,
        configuration: &impl Serialize,
    ) -> Result<Object, SourceError> {
        self.apply_text(path, manager, force, json(configuration)?)
            .await
    }

    /// Applies a configuration that is text already, JSON or YAML; see [`RestClient::apply_object`].
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply_text(
        &self,
        path: &ObjectPath<'_>,
        manager: &str,
        force: bool,
        configuration: Bytes,
    ) -> Result<Object, SourceError> {
        let query: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("fieldManager", manager)
            .append_pair("force", if force { "true" } else { "false" })
            .finish();
        let path = format!("{}?{query}", path.path());
        let media_type = "application/apply-patch+yaml";
        self.send_object(Method::PATCH, path, media_type, configuration)
            .await
    }

    /// Patches an object and returns it, without `metadata.managedFields`.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn patch_object(
        &self,
        path: &ObjectPath<'_>,
        kind: PatchKind,
        patch: &impl Serialize,
    ) -> Result<Object, SourceError> {
        let body = json(patch)?;
        self.send_object(Method::PATCH, path.path(), kind.media_type(), body)
            .await
    }

    /// Deletes an object; with a uid, only the object that has it. False if there was none.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn delete_object(
        &self,
        path: &ObjectPath<'_>,
        uid: Option<&str>,
    ) -> Result<bool, SourceError> {
        let preconditions = uid.map(|uid| serde_json::json!({ "uid": uid }));
        match self.delete_if(path, preconditions).await {
            // Another object has the name by now: the one that was meant is gone.
            Err(error) if error.code() == Some(409) && uid.is_some() => Ok(false),
            deleted => deleted,
        }
    }

    /// Deletes an object if it still has this resource version. False if it is gone.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses: 409 if the object has another version by now.
    pub async fn delete_object_at(
        &self,
        path: &ObjectPath<'_>,
        resource_version: &str,
    ) -> Result<bool, SourceError> {
        let preconditions = serde_json::json!({ "resourceVersion": resource_version });
        self.delete_if(path, Some(preconditions)).await
    }

    async fn delete_if(
        &self,
        path: &ObjectPath<'_>,
        preconditions: Option<serde_json::Value>,
    ) -> Result<bool, SourceError> {
        let body = match preconditions {
            Some(preconditions) => json(&serde_json::json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions,
            }))?,
            None => Bytes::new(),
        };
        let sent = self.send(Method::DELETE, path.path(), "application/json", body);
        match sent.await {
            Ok(response) => {
                // Read to its end, so that the connection can be used again.
                read(response).await?;
                Ok(true)
            }
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn send_object(
        &self,
        method: Method,
        path: String,
        media_type: &'static str,
        body: Bytes,
    ) -> Result<Object, SourceError> {
        let mut response = self.send(method, path, media_type, body).await?;
        // An observed client has parsed it already.
        if let Some(object) = response.extensions_mut().remove() {
            return Ok(object);
        }
        Object::parse_without_managed_fields(&read(response).await?).map_err(|error| {
            SourceError::Unexpected(format!("an answer that is no object: {error}"))
        })
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        media_type: &'static str,
        body: Bytes,
    ) -> Result<Response<Body>, SourceError> {
        // One object is seldom worth compressing, and nothing here would unpack it.
        let plain = HeaderValue::from_static("identity");
        let created = (method == Method::POST)
            .then(|| CreatedName::of(&body))
            .flatten();
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(ACCEPT_ENCODING, plain);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        let mut request = request
            .body(body)
            .map_err(|error| SourceError::Unexpected(format!("a path: {error}")))?;
        if let Some(created) = created {
            request.extensions_mut().insert(created);
        }
        self.request(request).await
    }
}

async fn read(response: Response<Body>) -> Result<Bytes, SourceError> {
    let body = Limited::new(response.into_body(), OBJECT_BYTES_MAX).collect();
    let body = body.await.map_err(SourceError::transport)?;
    Ok(body.to_bytes())
}

fn json(value: &impl Serialize) -> Result<Bytes, SourceError> {
    match serde_json::to_vec(value) {
        Ok(json) => Ok(json.into()),
        Err(error) => Err(SourceError::Unexpected(format!(
            "a value that cannot be written as JSON: {error}"
        ))),
    }
}
