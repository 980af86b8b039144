//! `PersistentVolumeClaim` of the core group: entry, defaults, rules and table.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};

use super::{
    ACCESS_MODES, ATTRIBUTES_CLASS, CAPACITY, STORAGE_CLASS, VOLUME_MODE, access_modes,
    attributes_class, storage_class, volume_mode, volume_phase,
};
use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::names;
use crate::kinds::workload::differs_beyond;
use crate::model::{Draft, Kind, Strategy};
use crate::table::fields::{name, quantity, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

const FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

pub(super) fn kind() -> Kind {
    Kind {
        kind: "PersistentVolumeClaim".into(),
        plural: "persistentvolumeclaims".into(),
        printer: &PRINTER,
        short_names: names(["pvc"]),
        status: true,
        returns_deleted: true,
        strategy: Arc::new(PersistentVolumeClaimStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "core/v1.PersistentVolumeClaimSpec",
        &[("volumeMode", r#""Filesystem""#)],
    ),
    defaults(
        "core/v1.PersistentVolumeClaimStatus",
        &[("phase", r#""Pending""#)],
    ),
];

#[derive(Debug)]
struct PersistentVolumeClaimStrategy;

impl Strategy for PersistentVolumeClaimStrategy {
    fn check_fixed(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        let is_bound = old.text(&["status", "phase"]) == "Bound";
        let may_change: &[&str] = match is_bound {
            true => &["resources", "volumeAttributesClassName"],
            false => &["volumeAttributesClassName"],
        };
        if differs_beyond(new, old, may_change) {
            errors.push(FieldError::forbidden("spec", FIXED));
        }
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Status", "The claim's phase."),
        string("Volume", "The volume the claim is bound to."),
        CAPACITY,
        ACCESS_MODES,
        STORAGE_CLASS,
        ATTRIBUTES_CLASS,
        AGE,
        VOLUME_MODE,
    ],
    cells: |claim, now| {
        let volume = text(claim, &["spec", "volumeName"]);
        // Capacity and access modes are those of the bound volume.
        let (capacity, modes) = if volume.is_empty() {
            (String::new(), String::new())
        } else {
            (
                quantity(claim, &["status", "capacity", "storage"]),
                access_modes(claim, &["status", "accessModes"]),
            )
        };
        cells![
            name(claim),
            volume_phase(claim),
            volume,
            capacity,
            modes,
            storage_class(claim),
            attributes_class(claim),
            age(claim, now),
            volume_mode(claim),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn claims_before_and_after_binding() {
        let mut claim = json!({
            "metadata": meta("c"),
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        });
        assert_eq!(
            print(&PRINTER, claim.clone()),
            json!([
                "c",
                "Pending",
                "",
                "",
                "",
                "",
                "<unset>",
                "24s",
                "Filesystem"
            ])
        );
        claim["spec"] = json!({
            "volumeMode": "Block",
            "storageClassName": "fast",
            "volumeName": "pv9",
            "volumeAttributesClassName": "gold",
        });
        claim["status"] = json!({
            "phase": "Bound",
            "capacity": {"storage": "1024Mi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        });
        assert_eq!(
            print(&PRINTER, claim.clone()),
            json!([
                "c", "Bound", "pv9", "1Gi", "RWO,ROX", "fast", "gold", "24s", "Block"
            ])
        );
        claim["metadata"]["deletionTimestamp"] = json!("2026-11-15T12:00:00Z");
        claim["metadata"]["annotations"] =
            json!({"volume.beta.kubernetes.io/storage-class": "old"});
        let cells = print(&PRINTER, claim);
        assert_eq!(
            (&cells[1], &cells[5]),
            (&json!("Terminating"), &json!("old"))
        );
    }
}
