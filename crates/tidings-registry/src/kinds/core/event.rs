//! Events, which `events.k8s.io` shows with other names.

use crate::kind::{Kind, NameRule};
use crate::kinds::{field, names};
use crate::printers::events;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Event".into(),
        plural: "events".into(),
        printer: &events::EVENT,
        short_names: names(["ev"]),
        fields: vec![
            field("involvedObject.kind", &[&["involvedObject", "kind"]]),
            field(
                "involvedObject.namespace",
                &[&["involvedObject", "namespace"]],
            ),
            field("involvedObject.name", &[&["involvedObject", "name"]]),
            field("involvedObject.uid", &[&["involvedObject", "uid"]]),
            field(
                "involvedObject.apiVersion",
                &[&["involvedObject", "apiVersion"]],
            ),
            field(
                "involvedObject.resourceVersion",
                &[&["involvedObject", "resourceVersion"]],
            ),
            field(
                "involvedObject.fieldPath",
                &[&["involvedObject", "fieldPath"]],
            ),
            field("reason", &[&["reason"]]),
            field("reportingComponent", &[&["reportingComponent"]]),
            field(
                "source",
                &[&["source", "component"], &["reportingComponent"]],
            ),
            field("type", &[&["type"]]),
        ],
        name_rule: NameRule::Segment,
        create_on_update: true,
        collected: false, // events go by themselves after a while
        ..super::plain()
    }
}
