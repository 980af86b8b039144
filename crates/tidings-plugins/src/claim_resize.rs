//! `PersistentVolumeClaimResize`: claims grow only if their class allows it.

use tidings_api::Status;
use tidings_go::Quantity;
use tidings_json::Value;
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::write::{Known, PluginSaid, PluginWrite, is_kind, tree};

pub(crate) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "persistentvolumeclaims")
    }

    fn check(
        &self,
        write: &PluginWrite<'_>,
        new: &Draft,
        old: Option<&Draft>,
        _: &mut PluginSaid,
    ) -> Result<(), Status> {
        let Some(old) = old.filter(|_| write.updates()) else {
            return Ok(());
        };
        if size(new) <= size(old) {
            return Ok(());
        }
        if old.text(&["status", "phase"]) != "Bound" {
            let why = "Only bound persistent volume claims can be expanded";
            return Err(write.forbidden(new, why));
        }
        let (class, before) = (class(new), class(old));
        let found = write.cluster.get(Known::StorageClasses, "", class);
        let grows =
            found.is_some_and(|class| tree(&class)["allowVolumeExpansion"] == Value::Bool(true));
        if class.is_empty() || class != before || !grows {
            let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
            return Err(write.forbidden(new, why));
        }
        Ok(())
    }
}

fn size(claim: &Draft) -> Quantity {
    let text = claim.text(&["spec", "resources", "requests", "storage"]);
    Quantity::parse(text).unwrap_or(Quantity::ZERO)
}

fn class(claim: &Draft) -> &str {
    let annotations = &claim.meta.annotations;
    match annotations.get("volume.beta.kubernetes.io/storage-class") {
        Some(name) => name,
        None => claim.text(&["spec", "storageClassName"]),
    }
}
