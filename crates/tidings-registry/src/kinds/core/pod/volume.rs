//! The defaults of volumes of Pods.

use tidings_json::json;

use crate::defaults::{TypeDefaults, defaults, rule};

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults("core/v1.ConfigMapVolumeSource", &[("defaultMode", "420")]),
    defaults("core/v1.DownwardAPIVolumeSource", &[("defaultMode", "420")]),
    defaults("core/v1.HostPathVolumeSource", &[("type", r#""""#)]),
    defaults(
        "core/v1.ISCSIVolumeSource",
        &[("iscsiInterface", r#""default""#)],
    ),
    defaults("core/v1.ProjectedVolumeSource", &[("defaultMode", "420")]),
    defaults("core/v1.SecretVolumeSource", &[("defaultMode", "420")]),
    defaults(
        "core/v1.ServiceAccountTokenProjection",
        &[("expirationSeconds", "3600")],
    ),
    // A volume without a source is an emptyDir.
    rule("core/v1.Volume", |volume| {
        let mut members = volume.iter();
        if members.all(|(name, value)| name == "name" || value.is_null()) {
            volume.insert("emptyDir".into(), json!({}));
        }
    }),
];
