//! The target of a request: a resource, or one object or subresource of it.

use std::sync::Arc;

use tidings_api::{ObjectKey, Status};
use tidings_registry::{Kind, Subresource};

use super::resource::Resource;

/// A resource, or one object or subresource of it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The kind whose form the request and the answer have.
    pub(crate) kind: Arc<Kind>,
    /// The stored objects; `None` for reviews, which are not stored.
    pub(crate) resource: Option<Arc<Resource>>,
    namespace: Option<String>,
    name: Option<String>,
    pub(crate) subresource: Option<Subresource>,
    /// The namespace and name of the object; empty if the target is a collection.
    pub(crate) key: ObjectKey,
}

impl Target {
    pub(crate) fn new(
        kind: Arc<Kind>,
        resource: Option<Arc<Resource>>,
        namespace: Option<String>,
        name: Option<String>,
        subresource: Option<Subresource>,
    ) -> Target {
        let key = ObjectKey::new(
            namespace.as_deref().unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        );
        Target {
            kind,
            resource,
            namespace,
            name,
            subresource,
            key,
        }
    }

    /// The stored objects.
    ///
    /// # Errors
    /// If the kind is not stored.
    pub(crate) fn resource(&self) -> Result<&Arc<Resource>, Status> {
        self.resource.as_ref().ok_or_else(Status::no_such_resource)
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// 404 for an object that does not exist.
    pub(crate) fn not_found(&self) -> Status {
        Status::not_found(self.kind.group_resource(), self.key.name())
    }
}
