//! PersistentVolumes.

use crate::complete::{TypeDefaults, defaults};
use crate::kind::Kind;
use crate::kinds::names;
use crate::printers::core as printers;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "PersistentVolume".into(),
        plural: "persistentvolumes".into(),
        printer: &printers::PERSISTENT_VOLUME,
        short_names: names(["pv"]),
        namespaced: false,
        status: true,
        returns_deleted: true,
        ..super::plain()
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
    // Upstream adds `lastPhaseTransitionTime`, the time of the creation.
    defaults(
        "core/v1.PersistentVolumeStatus",
        &[("phase", r#""Pending""#)],
    ),
];
