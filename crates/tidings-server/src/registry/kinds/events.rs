//! The kind of the group `events.k8s.io`: the same events as in the core group, with other names.

use super::{PLAIN, field, member};
use crate::printers::events;
use crate::registry::{Kind, Shape, Special, StoredAs};

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    printer: &events::EVENT,
    short_names: &["ev"],
    go_package: "core",
    stored_as: Some(StoredAs::CoreEvent),
    members: &[
        member("eventTime", Shape::Any, "null"),
        member("series", Shape::Object("v1.EventSeries"), ""),
        member("reportingController", Shape::String, ""),
        member("reportingInstance", Shape::String, ""),
        member("action", Shape::String, ""),
        member("reason", Shape::String, ""),
        member("regarding", Shape::Object("v1.ObjectReference"), "{}"),
        member("related", Shape::Object("v1.ObjectReference"), ""),
        member("note", Shape::String, ""),
        member("type", Shape::String, ""),
        member("deprecatedSource", Shape::Object("v1.EventSource"), "{}"),
        member("deprecatedFirstTimestamp", Shape::Any, "null"),
        member("deprecatedLastTimestamp", Shape::Any, "null"),
        member("deprecatedCount", Shape::Number("int32"), ""),
    ],
    // The paths lead through the object as it is stored.
    fields: &[
        field("reason", &[&["reason"]]),
        field("regarding.kind", &[&["involvedObject", "kind"]]),
        field("regarding.namespace", &[&["involvedObject", "namespace"]]),
        field("regarding.name", &[&["involvedObject", "name"]]),
        field("regarding.uid", &[&["involvedObject", "uid"]]),
        field("regarding.apiVersion", &[&["involvedObject", "apiVersion"]]),
        field(
            "regarding.resourceVersion",
            &[&["involvedObject", "resourceVersion"]],
        ),
        field("regarding.fieldPath", &[&["involvedObject", "fieldPath"]]),
        field("reportingController", &[&["reportingComponent"]]),
        field("type", &[&["type"]]),
    ],
    // The names of new events are subdomains here, while the core group lets any segment pass.
    create_on_update: true,
    special: Special::Event,
    bookmark: concat!(
        r#","eventTime":null,"regarding":{},"deprecatedSource":{},"#,
        r#""deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null"#
    ),
    ..PLAIN
}];
