//! PersistentVolumeClaims.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};

use crate::complete::{TypeDefaults, defaults};
use crate::draft::Draft;
use crate::kind::Kind;
use crate::kinds::names;
use crate::kinds::workload::differs_beyond;
use crate::printers::core as printers;
use crate::strategy::Strategy;

const FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

pub(super) fn kind() -> Kind {
    Kind {
        kind: "PersistentVolumeClaim".into(),
        plural: "persistentvolumeclaims".into(),
        printer: &printers::PERSISTENT_VOLUME_CLAIM,
        short_names: names(["pvc"]),
        status: true,
        returns_deleted: true,
        strategy: Arc::new(Claims),
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
struct Claims;

impl Strategy for Claims {
    fn check_fixed(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        if differs_beyond(new, old, &["resources", "volumeAttributesClassName"]) {
            errors.push(FieldError::forbidden("spec", FIXED));
        }
    }
}
