//! What a controller applied last.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tidings_api::ObjectKey;
use tidings_kube::ApiResource;

/// What a controller applied last, by resource and key: a hash of the configuration.
///
/// Bound: one entry for each applied object, removed when the object is deleted.
#[derive(Debug, Default)]
pub(crate) struct AppliedHashes(Mutex<HashMap<(String, ObjectKey), u64>>);

impl AppliedHashes {
    pub(crate) fn is(&self, resource: &ApiResource, key: &ObjectKey, hash: u64) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(resource_name(resource), key.clone())) == Some(&hash)
    }

    pub(crate) fn set(&self, resource: &ApiResource, key: &ObjectKey, hash: Option<u64>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (resource_name(resource), key.clone());
        match hash {
            Some(hash) => known.insert(place, hash),
            None => known.remove(&place),
        };
    }
}

fn resource_name(resource: &ApiResource) -> String {
    format!("{}.{}", resource.plural, resource.group)
}
