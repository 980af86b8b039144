//! `StorageObjectInUseProtection`: volumes and claims have a finalizer, so that they do not go while they are used.

use tidings_api::Status;
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::write::{PluginWrite, is_kind};

pub(crate) struct StorageObjectInUseProtection;

/// The finalizer of a kind, if it has one.
fn finalizer(kind: &Kind) -> Option<&'static str> {
    if is_kind(kind, "", "persistentvolumeclaims") {
        return Some("kubernetes.io/pvc-protection");
    }
    is_kind(kind, "", "persistentvolumes").then_some("kubernetes.io/pv-protection")
}

impl Plugin for StorageObjectInUseProtection {
    fn concerns(&self, kind: &Kind) -> bool {
        finalizer(kind).is_some()
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        let Some(finalizer) = finalizer(write.kind).filter(|_| write.creates()) else {
            return Ok(false);
        };
        if draft.meta.finalizers.iter().any(|known| known == finalizer) {
            return Ok(false);
        }
        draft.meta.finalizers.push(finalizer.to_owned());
        Ok(true)
    }
}
