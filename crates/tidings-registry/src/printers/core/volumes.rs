//! Persistent volumes and their claims.

use tidings_json::Value;

use crate::table::fields::quantity;
use crate::table::fields::{field, is_deleting, name, text, text_or, texts};
use crate::table::format::age;
use crate::table::{AGE, Column, NAME, TablePrinter, string, wide};

const CAPACITY: Column = string("Capacity", "The volume's size.");

const ACCESS_MODES: Column = string("Access Modes", "How the volume can be mounted.");

const STORAGE_CLASS: Column = string("StorageClass", "The storage class.");

const ATTRIBUTES_CLASS: Column = string("VolumeAttributesClass", "The volume attributes class.");

const VOLUME_MODE: Column = wide("VolumeMode", "Whether it is a file system or a raw device.");

pub(crate) static PERSISTENT_VOLUME: TablePrinter = TablePrinter {
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
            .map(|claim| format!("{}/{}", text(claim, &["namespace"]), name_of(claim)))
            .unwrap_or_default();
        cells![
            name(volume),
            quantity(volume, &["spec", "capacity", "storage"]),
            access_modes(volume, &["spec", "accessModes"]),
            text_or(volume, &["spec", "persistentVolumeReclaimPolicy"], "Retain"),
            phase(volume),
            claim,
            storage_class(volume),
            attributes_class(volume),
            text(volume, &["status", "reason"]),
            age(volume, now),
            volume_mode(volume),
        ]
    },
};

pub(crate) static PERSISTENT_VOLUME_CLAIM: TablePrinter = TablePrinter {
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
        // Size and modes are facts of the volume, unknown before there is one.
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
            phase(claim),
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

fn name_of(reference: &Value) -> &str {
    text(reference, &["name"])
}

fn phase(object: &Value) -> &str {
    if is_deleting(object) {
        "Terminating"
    } else {
        text_or(object, &["status", "phase"], "Pending")
    }
}

fn access_modes(object: &Value, path: &[&str]) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = texts(object, path);
    let short: Vec<&str> = SHORT
        .into_iter()
        .filter(|(mode, _)| modes.contains(mode))
        .map(|(_, short)| short)
        .collect();
    short.join(",")
}

/// The annotation is older than the field and still comes first.
fn storage_class(object: &Value) -> &str {
    text_or(
        object,
        &[
            "metadata",
            "annotations",
            "volume.beta.kubernetes.io/storage-class",
        ],
        text(object, &["spec", "storageClassName"]),
    )
}

fn attributes_class(object: &Value) -> &str {
    text_or(object, &["spec", "volumeAttributesClassName"], "<unset>")
}

fn volume_mode(object: &Value) -> &str {
    text_or(object, &["spec", "volumeMode"], "Filesystem")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

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
            print(&PERSISTENT_VOLUME, volume),
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

    #[test]
    fn claims_before_and_after_binding() {
        let mut claim = json!({
            "metadata": meta("c"),
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        });
        assert_eq!(
            print(&PERSISTENT_VOLUME_CLAIM, claim.clone()),
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
            print(&PERSISTENT_VOLUME_CLAIM, claim.clone()),
            json!([
                "c", "Bound", "pv9", "1Gi", "RWO,ROX", "fast", "gold", "24s", "Block"
            ])
        );
        claim["metadata"]["deletionTimestamp"] = json!("2026-11-15T12:00:00Z");
        claim["metadata"]["annotations"] =
            json!({"volume.beta.kubernetes.io/storage-class": "old"});
        let cells = print(&PERSISTENT_VOLUME_CLAIM, claim);
        assert_eq!(
            (&cells[1], &cells[5]),
            (&json!("Terminating"), &json!("old"))
        );
    }
}
