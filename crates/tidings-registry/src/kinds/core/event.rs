//! `Event` of the core group: entry and table. `events.k8s.io` shows these objects with other member names.

use std::time::Duration;

use jiff::Timestamp;
use tidings_json::Value;

use crate::kinds::{names, selectable};
use crate::model::{Kind, NameRule};
use crate::table::fields::{field, int, name, nonempty, text};
use crate::table::format::{since, time};
use crate::table::{Column, NAME, TablePrinter, string, wide};

/// How long an Event is kept after its last write, as in kube-apiserver.
const LIFETIME: Duration = Duration::from_secs(3600);

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Event".into(),
        plural: "events".into(),
        printer: &PRINTER,
        short_names: names(["ev"]),
        fields: vec![
            selectable("involvedObject.kind", &[&["involvedObject", "kind"]]),
            selectable(
                "involvedObject.namespace",
                &[&["involvedObject", "namespace"]],
            ),
            selectable("involvedObject.name", &[&["involvedObject", "name"]]),
            selectable("involvedObject.uid", &[&["involvedObject", "uid"]]),
            selectable(
                "involvedObject.apiVersion",
                &[&["involvedObject", "apiVersion"]],
            ),
            selectable(
                "involvedObject.resourceVersion",
                &[&["involvedObject", "resourceVersion"]],
            ),
            selectable(
                "involvedObject.fieldPath",
                &[&["involvedObject", "fieldPath"]],
            ),
            selectable("reason", &[&["reason"]]),
            selectable("reportingComponent", &[&["reportingComponent"]]),
            selectable(
                "source",
                &[&["source", "component"], &["reportingComponent"]],
            ),
            selectable("type", &[&["type"]]),
        ],
        name_rule: NameRule::Segment,
        create_on_update: true,
        lifetime: Some(LIFETIME),
        collected: false, // they expire
        ..super::plain()
    }
}

/// The table of events of both groups: it reads the stored object.
pub(in crate::kinds) static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        string("Last Seen", "Time since it last happened."),
        string("Type", "Whether it is normal or a warning."),
        string("Reason", "Why it happened, in one word."),
        string("Object", "The object it is about."),
        wide("Subobject", "The part of the object it is about."),
        wide("Source", "Who reported it."),
        string("Message", "What happened."),
        wide("First Seen", "Time since it first happened."),
        wide("Count", "How often it happened."),
        Column { wide: 1, ..NAME },
    ],
    cells,
};

fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = match time(event, &["firstTimestamp"]) {
        Some(_) => since(event, &["firstTimestamp"], now),
        None => since(event, &["eventTime"], now),
    };
    let (last, count) = match field(event, &["series"]) {
        Some(series) => (
            since(series, &["lastObservedTime"], now),
            int(series, &["count"]),
        ),
        None => {
            let last = match time(event, &["lastTimestamp"]) {
                Some(_) => since(event, &["lastTimestamp"], now),
                None => first.clone(),
            };
            // Clients of `events.k8s.io` do not count an event that happened once.
            let count = match int(event, &["count"]) {
                0 => 1,
                count => count,
            };
            (last, count)
        }
    };
    cells![
        last,
        text(event, &["type"]),
        text(event, &["reason"]),
        target(event),
        text(event, &["involvedObject", "fieldPath"]),
        source(event),
        text(event, &["message"]).trim(),
        first,
        count,
        name(event),
    ]
}

fn target(event: &Value) -> String {
    let kind = text(event, &["involvedObject", "kind"]).to_lowercase();
    match text(event, &["involvedObject", "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// The reporting component and its host, from the old or the newer members.
fn source(event: &Value) -> String {
    let component = nonempty(
        text(event, &["source", "component"]),
        text(event, &["reportingComponent"]),
    );
    let host = nonempty(
        text(event, &["source", "host"]),
        text(event, &["reportingInstance"]),
    );
    match host {
        "" => component.to_string(),
        host => format!("{component}, {host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn counted_event() {
        let event = json!({
            "metadata": meta("ev"),
            "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{app}"},
            "reason": "BackOff",
            "message": "  Back-off \n",
            "source": {"component": "kubelet", "host": "node-1"},
            "firstTimestamp": "2026-11-15T10:53:00Z",
            "lastTimestamp": "2026-11-15T11:54:35Z",
            "eventTime": null,
            "count": 12,
            "type": "Warning",
        });
        assert_eq!(
            print(&PRINTER, event),
            json!([
                "5m25s",
                "Warning",
                "BackOff",
                "pod/web",
                "spec.containers{app}",
                "kubelet, node-1",
                "Back-off",
                "67m",
                12,
                "ev"
            ])
        );
    }

    #[test]
    fn event_in_the_newer_form() {
        let mut event = json!({
            "metadata": meta("ev"),
            "involvedObject": {"kind": "Pod", "name": "web"},
            "reason": "Scheduled",
            "message": "ok",
            "eventTime": "2026-11-15T11:50:00.000000Z",
            "reportingComponent": "sched",
            "reportingInstance": "s-0",
            "type": "Normal",
        });
        assert_eq!(
            print(&PRINTER, event.clone()),
            json!([
                "10m",
                "Normal",
                "Scheduled",
                "pod/web",
                "",
                "sched, s-0",
                "ok",
                "10m",
                1,
                "ev"
            ])
        );
        event["series"] = json!({"count": 5, "lastObservedTime": "2026-11-15T11:55:25.000000Z"});
        let cells = print(&PRINTER, event);
        assert_eq!((&cells[0], &cells[8]), (&json!("4m35s"), &json!(5)));
    }

    #[test]
    fn sparse_event() {
        let event = json!({"metadata": meta("ev"), "involvedObject": {"kind": "Node"}});
        assert_eq!(
            print(&PRINTER, event),
            json!([
                "<unknown>",
                "",
                "",
                "node",
                "",
                "",
                "",
                "<unknown>",
                1,
                "ev"
            ])
        );
    }
}
