//! `ResourceQuota` of the core group: entry and table.

use tidings_json::Value;

use crate::kinds::names;
use crate::model::Kind;
use crate::table::fields::{map, name, quantity};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ResourceQuota".into(),
        plural: "resourcequotas".into(),
        printer: &PRINTER,
        short_names: names(["quota"]),
        status: true,
        returns_deleted: true,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
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

/// Used and hard amounts of each resource, as text: first all resources but limits, then the limits.
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
    fn quota_splits_requests_and_limits() {
        let quota = json!({"metadata": meta("rq"), "status": {
            "hard": {"pods": "1000", "requests.cpu": "2000m", "limits.cpu": "4",
                     "limits.memory": "2048Mi", "count/x.y": "1"},
            "used": {"pods": "2", "requests.cpu": "500m", "limits.memory": "1.5Gi",
                     "count/x.y": "0"},
        }});
        assert_eq!(
            print(&PRINTER, quota),
            json!([
                "rq",
                "count/x.y: 0/1, pods: 2/1k, requests.cpu: 500m/2",
                "limits.cpu: 0/4, limits.memory: 1536Mi/2Gi",
                "24s"
            ])
        );
    }
}
