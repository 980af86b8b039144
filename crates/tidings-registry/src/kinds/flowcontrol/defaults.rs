//! The flow schemas and priority levels that every server has, as in kube-apiserver.

use tidings_json::{Value, json};

use super::FLOW_CONTROL;

/// Objects with this annotation get the spec of this server at its start.
const UPDATED: &str = "apf.kubernetes.io/autoupdate-spec";

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{FLOW_CONTROL}/v1"),
        "kind": kind,
        "metadata": {"name": name, "annotations": {UPDATED: "true"}},
        "spec": spec,
    })
}

fn queued(name: &str, shares: u32, lendable: u32, queues: u32, hand: u32) -> Value {
    let spec = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": shares,
        "limitResponse": {
            "type": "Queue",
            "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50},
        },
        "lendablePercent": lendable,
    }});
    object("PriorityLevelConfiguration", name, &spec)
}

/// The priority levels; the first two are fixed.
pub fn default_priority_levels() -> Vec<Value> {
    let exempt =
        json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let catch_all = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}, "lendablePercent": 0,
    }});
    vec![
        object("PriorityLevelConfiguration", "exempt", &exempt),
        object("PriorityLevelConfiguration", "catch-all", &catch_all),
        queued("system", 30, 33, 64, 6),
        queued("node-high", 40, 25, 64, 6),
        queued("leader-election", 10, 0, 16, 4),
        queued("workload-high", 40, 50, 128, 6),
        queued("workload-low", 100, 90, 128, 6),
        queued("global-default", 20, 50, 128, 6),
    ]
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn kube_system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}

fn on(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({
        "verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"],
    });
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// Everything.
fn all(subjects: &Value) -> Value {
    json!([{
        "subjects": subjects,
        "resourceRules": [on(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }])
}

fn schema(name: &str, level: &str, precedence: u32, by: &str, rules: Value) -> Value {
    let mut spec =
        json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence});
    if !by.is_empty() {
        spec["distinguisherMethod"] = json!({"type": by});
    }
    spec["rules"] = rules;
    object("FlowSchema", name, &spec)
}

/// The flow schemas; the first and the last are fixed.
pub fn default_flow_schemas() -> Vec<Value> {
    let everybody = json!([
        group("system:unauthenticated"),
        group("system:authenticated")
    ]);
    let nodes = json!([group("system:nodes")]);
    let lease = |verbs: &[&str]| on(verbs, "coordination.k8s.io", &["leases"], false);
    vec![
        schema(
            "exempt",
            "exempt",
            1,
            "",
            all(&json!([group("system:masters")])),
        ),
        schema(
            "probes",
            "exempt",
            2,
            "",
            json!([{"subjects": everybody, "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]},
            ]}]),
        ),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            json!([{
                "subjects": [user("system:kube-controller-manager"), user("system:kube-scheduler"), kube_system_accounts()],
                "resourceRules": [lease(&["get", "create", "update"])],
            }]),
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            json!([{"subjects": nodes, "resourceRules": [on(&["*"], "", &["nodes", "nodes/status"], true), lease(&["*"])]}]),
        ),
        schema("system-nodes", "system", 500, "ByUser", all(&nodes)),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            all(&json!([user("system:kube-controller-manager")])),
        ),
        schema(
            "kube-scheduler",
            "workload-high",
            800,
            "ByNamespace",
            all(&json!([user("system:kube-scheduler")])),
        ),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            all(&json!([kube_system_accounts()])),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            all(&json!([group("system:serviceaccounts")])),
        ),
        schema(
            "global-default",
            "global-default",
            9900,
            "ByUser",
            all(&everybody),
        ),
        schema("catch-all", "catch-all", 10000, "ByUser", all(&everybody)),
    ]
}
