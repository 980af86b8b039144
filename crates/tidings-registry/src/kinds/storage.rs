//! The kinds of the group `storage.k8s.io`.

use crate::complete::{TypeDefaults, defaults};
use crate::kind::{Generation, Kind};
use crate::kinds::{immutable, names};
use crate::printers::storage as printers;

fn plain() -> Kind {
    Kind {
        group: "storage.k8s.io".into(),
        go_package: "storage",
        namespaced: false,
        returns_deleted: true,
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            kind: "CSIDriver".into(),
            plural: "csidrivers".into(),
            printer: &printers::CSI_DRIVER,
            generation: Generation::CountedFromZero,
            conditional_update: true,
            fixed: vec![
                immutable(&["spec", "attachRequired"]),
                immutable(&["spec", "volumeLifecycleModes"]),
            ],
            ..plain()
        },
        Kind {
            kind: "CSINode".into(),
            plural: "csinodes".into(),
            printer: &printers::CSI_NODE,
            conditional_update: true,
            ..plain()
        },
        Kind {
            kind: "CSIStorageCapacity".into(),
            plural: "csistoragecapacities".into(),
            namespaced: true,
            conditional_update: true,
            returns_deleted: false,
            ..plain()
        },
        Kind {
            kind: "StorageClass".into(),
            plural: "storageclasses".into(),
            printer: &printers::STORAGE_CLASS,
            short_names: names(["sc"]),
            named_texts: &[
                ("reclaimPolicy", "v1.PersistentVolumeReclaimPolicy"),
                ("volumeBindingMode", "v1.VolumeBindingMode"),
            ],
            fixed: vec![
                immutable(&["parameters"]),
                immutable(&["provisioner"]),
                immutable(&["reclaimPolicy"]),
                immutable(&["volumeBindingMode"]),
            ],
            ..plain()
        },
        Kind {
            kind: "VolumeAttachment".into(),
            plural: "volumeattachments".into(),
            printer: &printers::VOLUME_ATTACHMENT,
            status: true,
            conditional_update: true,
            ..plain()
        },
        Kind {
            kind: "VolumeAttributesClass".into(),
            plural: "volumeattributesclasses".into(),
            printer: &printers::VOLUME_ATTRIBUTES_CLASS,
            short_names: names(["vac"]),
            ..plain()
        },
    ]
}

pub(super) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "storage/v1.CSIDriverSpec",
        &[
            ("attachRequired", "true"),
            ("podInfoOnMount", "false"),
            ("storageCapacity", "false"),
            ("fsGroupPolicy", r#""ReadWriteOnceWithFSType""#),
            ("volumeLifecycleModes", r#"["Persistent"]"#),
            ("requiresRepublish", "false"),
            ("seLinuxMount", "false"),
        ],
    ),
    defaults(
        "storage/v1.StorageClass",
        &[
            ("reclaimPolicy", r#""Delete""#),
            ("volumeBindingMode", r#""Immediate""#),
        ],
    ),
];
