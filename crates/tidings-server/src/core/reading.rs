//! Where lists and watches read the objects of a resource: in its cache, or in that of their version if a webhook converts between versions.

use std::sync::Arc;

use tidings_api::{ResourceVersion, Status};
use tidings_cache::{Cache, ConvertedCache};
use tidings_registry::Kind;

use super::conversion::not_converted;
use super::resource::Resource;

/// The objects of a resource in one version, for lists and watches.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    resource: Arc<Resource>,
    /// The cache of the version, if a webhook converts objects.
    converted: Option<Arc<ConvertedCache>>,
}

impl Reading {
    /// The objects of a resource in the version of a kind.
    pub(super) fn of(resource: &Arc<Resource>, kind: &Arc<Kind>) -> Reading {
        Reading {
            resource: resource.clone(),
            converted: resource.converted_cache(kind),
        }
    }

    /// The cache to read.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        match &self.converted {
            Some(converted) => converted.cache(),
            None => self.resource.cache(),
        }
    }

    /// True if a webhook converts the objects.
    pub(crate) fn is_converted(&self) -> bool {
        self.converted.is_some()
    }

    /// As [`Resource::refresh`].
    pub(super) async fn refresh(&self) -> Result<(), Status> {
        self.resource.refresh().await?;
        match self.resource.cache().reached() {
            Some(revision) => self.convert_up_to(revision).await,
            None => Ok(()),
        }
    }

    /// As [`Resource::reach`].
    pub(super) async fn reach(&self, revision: ResourceVersion) -> Result<(), Status> {
        self.resource.reach(revision).await?;
        self.convert_up_to(revision).await
    }

    async fn convert_up_to(&self, revision: ResourceVersion) -> Result<(), Status> {
        let Some(converted) = &self.converted else {
            return Ok(());
        };
        let reached = Box::pin(converted.reach(revision)).await; // few requests need its memory
        reached.map_err(|error| not_converted(&error))
    }
}
