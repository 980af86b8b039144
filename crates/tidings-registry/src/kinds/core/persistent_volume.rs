//! `PersistentVolume` of the core group: entry, defaults, rules and table.

use std::sync::Arc;

use tidings_json::json;

use super::{
    ACCESS_MODES, ATTRIBUTES_CLASS, CAPACITY, STORAGE_CLASS, VOLUME_MODE, access_modes,
    attributes_class, storage_class, volume_mode, volume_phase,
};
use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::names;
use crate::model::{Draft, Kind, Strategy};
use crate::table::fields::{field, name, quantity, text, text_or};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "PersistentVolume".into(),
        plural: "persistentvolumes".into(),
        printer: &PRINTER,
        short_names: names(["pv"]),
        namespaced: false,
        status: true,
        returns_deleted: true,
        strategy: Arc::new(PersistentVolumeStrategy),
        ..super::plain()
    }
}

#[derive(Debug)]
struct PersistentVolumeStrategy;

impl Strategy for PersistentVolumeStrategy {
    fn prepare_create(&self, draft: &mut Draft) {
        let Some(time) = draft.meta.creation_timestamp.clone() else {
            return;
        };
        let pending = || json!({ "phase": "Pending" });
        let status = draft.members.entry("status").or_insert_with(pending);
        status["lastPhaseTransitionTime"] = time.into();
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "core/v1.PersistentVolumeSpec",
        &[
            ("persistentVolumeReclaimPolicy", r#""Retain""#),
            ("volumeMode", r#""Filesystem""#),
        ],
    ),
    defaults(
        "core/v1.PersistentVolumeStatus",
        &[("phase", r#""Pending""#)],
    ),
];

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        CAPACITY,
        ACCESS_MODES,
        string("Reclaim Policy", "What happens once the claim is gone."),
        string("Status", "The volume's phase."),
        string("Claim", "The claim that uses the volume."),
        STORAGE_CLASS,
        ATTRIBUTES_CLASS,
        string("Reason", "Why the volume is in its phase."),
        AGE,
        VOLUME_MODE,
    ],
    cells: |volume, now| {
        let claim = field(volume, &["spec", "claimRef"])
            .map(|claim| format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"])))
            .unwrap_or_default();
        cells![
            name(volume),
            quantity(volume, &["spec", "capacity", "storage"]),
            access_modes(volume, &["spec", "accessModes"]),
            text_or(volume, &["spec", "persistentVolumeReclaimPolicy"], "Retain"),
            volume_phase(volume),
            claim,
            storage_class(volume),
            attributes_class(volume),
            text(volume, &["status", "reason"]),
            age(volume, now),
            volume_mode(volume),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};

    #[test]
    fn failed_volume() {
        let volume = json!({
            "metadata": meta("pv"),
            "spec": {
                "capacity": {"storage": "2048Mi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "storageClassName": "fast",
                "claimRef": {"namespace": "a", "name": "b"},
            },
            "status": {"phase": "Failed", "reason": "Broken"},
        });
        assert_eq!(
            print(&PRINTER, volume),
            json!([
                "pv",
                "2Gi",
                "RWO,RWX",
                "Retain",
                "Failed",
                "a/b",
                "fast",
                "<unset>",
                "Broken",
                "24s",
                "Filesystem"
            ])
        );
    }
}
