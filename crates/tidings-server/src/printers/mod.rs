//! Server-side table printers: what `kubectl get` shows for each built-in kind.
//!
//! A printer is a list of columns and a function that turns one stored object
//! into one cell per column. Objects are read as plain JSON, so any field may be
//! missing or of an unexpected type; such a field prints as if it were unset.

// Literals read best in tests when they are passed by value.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))]

use jiff::Timestamp;
use tidings_json::Value;

/// Builds a row: every argument becomes one JSON cell.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => {
        vec![$(::tidings_json::Value::from($cell)),*]
    };
}

pub(crate) mod admissionregistration;
pub(crate) mod apps;
pub(crate) mod autoscaling;
pub(crate) mod batch;
pub(crate) mod certificates;
pub(crate) mod coordination;
pub(crate) mod core;
pub(crate) mod discovery;
pub(crate) mod events;
mod fields;
mod format;
pub(crate) mod networking;
pub(crate) mod node;
pub(crate) mod policy;
mod quantity;
pub(crate) mod rbac;
pub(crate) mod scheduling;
pub(crate) mod storage;

use fields::{name, text_or};
pub(crate) use format::ago;

/// One column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// The cell's type: "string", "integer", "number", "date" or "boolean".
    pub(crate) kind: &'static str,
    pub(crate) format: &'static str,
    pub(crate) description: &'static str,
    /// The priority: columns above 0 appear only in wide output.
    pub(crate) wide: i32,
}

/// How the objects of one kind are shown.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) columns: &'static [Column],
    /// The cells of one object, in column order, as seen at the given time.
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// Shows kinds that have no printer of their own.
pub(crate) static DEFAULT: Printer = Printer {
    columns: &[
        NAME,
        column("Created At", "date", "When the object was created."),
    ],
    cells: |object, _| {
        let created = text_or(
            object,
            &["metadata", "creationTimestamp"],
            "0001-01-01T00:00:00Z",
        );
        cells![name(object), created]
    },
};

pub(crate) const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "The object's name.",
    wide: 0,
};

const AGE: Column = string("Age", "Time since the object was created.");

const CONTAINERS: Column = wide("Containers", "Container names in the pod template.");

const IMAGES: Column = wide("Images", "Container images in the pod template.");

const SELECTOR: Column = wide("Selector", "Labels that select the pods.");

const fn column(name: &'static str, kind: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind,
        format: "",
        description,
        wide: 0,
    }
}

const fn string(name: &'static str, description: &'static str) -> Column {
    column(name, "string", description)
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    column(name, "integer", description)
}

const fn boolean(name: &'static str, description: &'static str) -> Column {
    column(name, "boolean", description)
}

/// A text column that only wide output shows.
const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        wide: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_json::json;

    /// The time at which every printer test looks at its objects.
    pub(crate) fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    /// Metadata of an object that is 24 seconds old.
    pub(crate) fn meta(name: &str) -> Value {
        json!({"name": name, "creationTimestamp": "2026-11-15T11:59:36Z"})
    }

    /// Two containers for pod templates.
    pub(crate) fn two_containers() -> Value {
        json!([{"name": "app", "image": "nginx:1.27"}, {"name": "log", "image": "busybox"}])
    }

    /// Prints an object and checks that each column got a cell.
    pub(crate) fn print(printer: &Printer, object: Value) -> Value {
        let cells = (printer.cells)(&object, now());
        assert!(cells.len() >= printer.columns.len());
        Value::from(cells)
    }

    #[test]
    fn default_shows_name_and_creation() {
        let role = json!({"metadata": {
            "name": "admin",
            "creationTimestamp": "2026-11-15T11:13:18Z",
        }});
        assert_eq!(
            print(&DEFAULT, role),
            json!(["admin", "2026-11-15T11:13:18Z"])
        );
        assert_eq!(
            print(&DEFAULT, json!(7)),
            json!(["", "0001-01-01T00:00:00Z"])
        );
    }

    #[test]
    fn printers_accept_any_json() {
        let odd = [
            json!(null),
            json!("text"),
            json!({"metadata": [], "spec": 3, "status": "x", "subsets": {}, "webhooks": true}),
            json!({"spec": {"template": [], "ports": [1], "metrics": [null], "rules": [[]]},
                   "status": {"conditions": {}, "containerStatuses": [4], "hard": {"cpu": []}}}),
        ];
        let printers = [
            &core::POD,
            &core::POD_TEMPLATE,
            &core::NODE,
            &core::SERVICE,
            &core::ENDPOINTS,
            &core::RESOURCE_QUOTA,
            &core::PERSISTENT_VOLUME,
            &core::PERSISTENT_VOLUME_CLAIM,
            &apps::DEPLOYMENT,
            &apps::CONTROLLER_REVISION,
            &batch::JOB,
            &batch::CRON_JOB,
            &autoscaling::HORIZONTAL_POD_AUTOSCALER,
            &discovery::ENDPOINT_SLICE,
            &events::EVENT,
            &networking::INGRESS,
            &networking::IP_ADDRESS,
            &admissionregistration::VALIDATING_ADMISSION_POLICY_BINDING,
            &certificates::CERTIFICATE_SIGNING_REQUEST,
            &storage::CSI_DRIVER,
        ];
        for printer in printers {
            for object in &odd {
                print(printer, object.clone());
            }
        }
    }
}
