//! Tables: the columns and rows that `kubectl get` shows.
//!
//! A printer is a list of columns and a function that turns one stored object into one cell per column. Each kind has its printer
//! in its own file; this module has the parts that they share. Objects are read as plain JSON, so any field may be missing or of
//! an unexpected type; such a field prints as if it were unset.

use jiff::Timestamp;
use tidings_go::json_text;
use tidings_json::Value;

/// Builds a row: every argument becomes one JSON cell.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => {
        vec![$(::tidings_json::Value::from($cell)),*]
    };
}

pub(crate) mod fields;
pub(crate) mod format;

use fields::{name, text_or};
pub(crate) use format::ago;

/// One column of a table.
#[derive(Debug)]
pub struct Column {
    /// The head of the column.
    pub name: &'static str,
    /// The cell's type: "string", "integer", "number", "date" or "boolean".
    pub kind: &'static str,
    /// The cell's format: `name`, or empty.
    pub format: &'static str,
    /// What the cells mean.
    pub description: &'static str,
    /// The priority: columns above 0 appear only in wide output.
    pub wide: i32,
}

impl Column {
    /// The column as a table defines it, as JSON.
    pub(crate) fn to_json(&self) -> String {
        format!(
            "{{\"name\":{},\"type\":\"{}\",\"format\":\"{}\",\"description\":{},\"priority\":{}}}",
            json_text(self.name),
            self.kind,
            self.format,
            json_text(self.description),
            self.wide
        )
    }
}

/// The table of one kind.
#[derive(Debug)]
pub struct TablePrinter {
    /// The columns.
    pub columns: &'static [Column],
    /// The cells of one object, in column order, as seen at the given time.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// The table of kinds that have no printer of their own.
pub(crate) static DEFAULT: TablePrinter = TablePrinter {
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

/// The column Name.
pub(crate) const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "The object's name.",
    wide: 0,
};

pub(crate) const AGE: Column = string("Age", "Time since the object was created.");

pub(crate) const CONTAINERS: Column = wide("Containers", "Container names in the pod template.");

pub(crate) const IMAGES: Column = wide("Images", "Container images in the pod template.");

pub(crate) const SELECTOR: Column = wide("Selector", "Labels that select the pods.");

pub(crate) const fn column(
    name: &'static str,
    kind: &'static str,
    description: &'static str,
) -> Column {
    Column {
        name,
        kind,
        format: "",
        description,
        wide: 0,
    }
}

pub(crate) const fn string(name: &'static str, description: &'static str) -> Column {
    column(name, "string", description)
}

pub(crate) const fn integer(name: &'static str, description: &'static str) -> Column {
    column(name, "integer", description)
}

pub(crate) const fn boolean(name: &'static str, description: &'static str) -> Column {
    column(name, "boolean", description)
}

/// A text column that only wide output shows.
pub(crate) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        wide: 1,
    }
}

#[cfg(test)]
pub(crate) mod tests {
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

    /// An object that makes Pods from a template.
    pub(crate) fn workload(spec: Value, status: Value) -> Value {
        let mut object = json!({"metadata": meta("w"), "spec": spec, "status": status});
        object["spec"]["template"] = json!({"spec": {
            "containers": two_containers(),
            "nodeSelector": {"x": "y", "disk": "ssd"},
        }});
        object
    }

    /// Prints an object and checks that each column got a cell.
    pub(crate) fn print(printer: &TablePrinter, object: Value) -> Value {
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
        let all = crate::builtin();
        let printers = all.iter().map(|kind| kind.printer);
        for printer in printers {
            for object in &odd {
                print(printer, object.clone());
            }
        }
    }
}
