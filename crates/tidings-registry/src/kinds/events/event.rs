//! Events of `events.k8s.io`: a view of core events with other names.

use tidings_json::Map;

use crate::kind::Kind;
use crate::kinds::core::event::PRINTER;
use crate::kinds::{names, selectable};

/// The names of members of an event in `events.k8s.io`, and in the core group.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

pub(super) fn kind() -> Kind {
    Kind {
        group: "events.k8s.io".into(),
        kind: "Event".into(),
        plural: "events".into(),
        printer: &PRINTER,
        short_names: names(["ev"]),
        go_package: "core",
        // The paths lead through the object as it is stored.
        fields: vec![
            selectable("reason", &[&["reason"]]),
            selectable("regarding.kind", &[&["involvedObject", "kind"]]),
            selectable("regarding.namespace", &[&["involvedObject", "namespace"]]),
            selectable("regarding.name", &[&["involvedObject", "name"]]),
            selectable("regarding.uid", &[&["involvedObject", "uid"]]),
            selectable("regarding.apiVersion", &[&["involvedObject", "apiVersion"]]),
            selectable(
                "regarding.resourceVersion",
                &[&["involvedObject", "resourceVersion"]],
            ),
            selectable("regarding.fieldPath", &[&["involvedObject", "fieldPath"]]),
            selectable("reportingController", &[&["reportingComponent"]]),
            selectable("type", &[&["type"]]),
        ],
        // Names of updated events are subdomains here, while the core group lets any segment pass.
        create_on_update: true,
        collected: false,
        ..Kind::plain()
    }
}

/// Makes the members of a stored event those of this group.
pub(in crate::kinds) fn show(members: &mut Map) {
    for (shown, stored) in EVENT_NAMES {
        rename(members, stored, shown);
    }
}

/// Makes the members of an event of this group those that are stored.
pub(in crate::kinds) fn store(members: &mut Map) {
    for (shown, stored) in EVENT_NAMES {
        rename(members, shown, stored);
    }
}

fn rename(members: &mut Map, from: &str, to: &str) {
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}
