//! `Event` of `events.k8s.io`: a view of the core Event with other member names. The table is that of the core Event.

use tidings_json::Map;

use crate::kinds::core::event::PRINTER;
use crate::kinds::{names, selectable};
use crate::model::{Kind, ViewOf};

/// Members with different names: the name in `events.k8s.io`, and the name in the core group, which is stored.
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
        view_of: Some(ViewOf {
            stored: ("", "v1", "Event"),
            show,
            store,
        }),
        // The paths are those of the stored object.
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
        // An event that an update creates must have a DNS subdomain as its name here; the core group accepts any path segment.
        create_on_update: true,
        collected: false,
        ..Kind::plain()
    }
}

/// Renames the members of a stored event to their names in this group.
fn show(members: &mut Map) {
    for (shown, stored) in EVENT_NAMES {
        rename(members, stored, shown);
    }
}

/// Renames the members of an event of this group to their stored names.
fn store(members: &mut Map) {
    for (shown, stored) in EVENT_NAMES {
        rename(members, shown, stored);
    }
}

fn rename(members: &mut Map, from: &str, to: &str) {
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}
