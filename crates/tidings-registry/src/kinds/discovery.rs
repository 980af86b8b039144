//! The kind of the group `discovery.k8s.io`.

use crate::complete::{TypeDefaults, defaults};
use crate::kind::{Generation, Kind};
use crate::printers::discovery as printers;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        group: "discovery.k8s.io".into(),
        kind: "EndpointSlice".into(),
        plural: "endpointslices".into(),
        printer: &printers::ENDPOINT_SLICE,
        go_package: "discovery",
        named_texts: &[("addressType", "v1.AddressType")],
        generation: Generation::CountedWithLabels,
        ..Kind::plain()
    }]
}

pub(super) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "discovery/v1.EndpointPort",
    &[("name", r#""""#), ("protocol", r#""TCP""#)],
)];
