//! Namespaces and what configures them: config maps, secrets, accounts, quotas.

use tidings_json::Value;

use crate::table::fields::quantity;
use crate::table::fields::{count, map, name, text_or};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(crate) static NAMESPACE: TablePrinter = TablePrinter {
    columns: &[NAME, string("Status", "The namespace's phase."), AGE],
    cells: |object, now| {
        let phase = text_or(object, &["status", "phase"], "Active");
        cells![name(object), phase, age(object, now)]
    },
};

pub(crate) static CONFIG_MAP: TablePrinter = TablePrinter {
    columns: &[NAME, string("Data", "How many entries it has."), AGE],
    cells: |object, now| {
        let entries = count(object, &["data"]) + count(object, &["binaryData"]);
        cells![name(object), entries, age(object, now)]
    },
};

pub(crate) static SECRET: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Type", "What the secret is for."),
        string("Data", "How many entries it has."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            text_or(object, &["type"], "Opaque"),
            count(object, &["data"]),
            age(object, now),
        ]
    },
};

pub(crate) static SERVICE_ACCOUNT: TablePrinter = TablePrinter {
    columns: &[NAME, AGE],
    cells: |object, now| cells![name(object), age(object, now)],
};

pub(crate) static RESOURCE_QUOTA: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string(
            "Request",
            "Used and allowed amounts of requests and objects.",
        ),
        string("Limit", "Used and allowed amounts of limits."),
        AGE,
    ],
    cells: |object, now| {
        let (requests, limits) = quota(object);
        cells![name(object), requests, limits, age(object, now)]
    },
};

/// Used and hard amounts by resource, those of limits apart from all others.
fn quota(object: &Value) -> (String, String) {
    let mut resources: Vec<&str> = map(object, &["status", "hard"])
        .into_iter()
        .flatten()
        .map(|(resource, _)| resource.as_str())
        .collect();
    resources.sort_unstable();
    let (limits, requests): (Vec<&str>, Vec<&str>) = resources
        .into_iter()
        .partition(|resource| resource.starts_with("limits."));
    let print = |resources: Vec<&str>| {
        let amounts: Vec<String> = resources
            .into_iter()
            .map(|resource| {
                let used = quantity(object, &["status", "used", resource]);
                let hard = quantity(object, &["status", "hard", resource]);
                format!("{resource}: {used}/{hard}")
            })
            .collect();
        amounts.join(", ")
    };
    (print(requests), print(limits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn entries_are_counted() {
        let config = json!({
            "metadata": meta("cm"),
            "data": {"a": "1", "b": "2"},
            "binaryData": {"c": "AAAA"},
        });
        assert_eq!(print(&CONFIG_MAP, config), json!(["cm", 3, "24s"]));
        let secret = json!({"metadata": meta("s"), "data": {"a": "MQ=="}});
        assert_eq!(print(&SECRET, secret), json!(["s", "Opaque", 1, "24s"]));
    }

    #[test]
    fn new_namespace_is_active() {
        let namespace = json!({"metadata": meta("default")});
        assert_eq!(
            print(&NAMESPACE, namespace),
            json!(["default", "Active", "24s"])
        );
    }

    #[test]
    fn quota_splits_requests_and_limits() {
        let quota = json!({"metadata": meta("rq"), "status": {
            "hard": {"pods": "1000", "requests.cpu": "2000m", "limits.cpu": "4",
                     "limits.memory": "2048Mi", "count/x.y": "1"},
            "used": {"pods": "2", "requests.cpu": "500m", "limits.memory": "1.5Gi",
                     "count/x.y": "0"},
        }});
        assert_eq!(
            print(&RESOURCE_QUOTA, quota),
            json!([
                "rq",
                "count/x.y: 0/1, pods: 2/1k, requests.cpu: 500m/2",
                "limits.cpu: 0/4, limits.memory: 1536Mi/2Gi",
                "24s"
            ])
        );
    }
}
