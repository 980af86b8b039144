//! Endpoints.

use crate::complete::{TypeDefaults, defaults};
use crate::kind::Kind;
use crate::kinds::names;
use crate::printers::core as printers;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Endpoints".into(),
        warning: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
            .into(),
        plural: "endpoints".into(),
        store_prefix: "services/endpoints".into(),
        printer: &printers::ENDPOINTS,
        short_names: names(["ep"]),
        create_on_update: true,
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "core/v1.EndpointPort",
    &[("protocol", r#""TCP""#)],
)];
