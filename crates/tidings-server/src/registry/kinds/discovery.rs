//! The kind of the group `discovery.k8s.io`.

use super::{PLAIN, member};
use crate::printers::discovery;
use crate::registry::{Generation, Kind, Shape};

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    printer: &discovery::ENDPOINT_SLICE,
    go_package: "discovery",
    members: &[
        member("addressType", Shape::Named("v1.AddressType"), "\"\""),
        member("endpoints", Shape::Array("[]v1.Endpoint"), "null"),
        member("ports", Shape::Array("[]v1.EndpointPort"), "null"),
    ],
    generation: Generation::CountedWithLabels,
    bookmark: r#","addressType":"","endpoints":null,"ports":null"#,
    ..PLAIN
}];
