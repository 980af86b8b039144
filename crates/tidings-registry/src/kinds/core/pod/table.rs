//! The table of Pods, and the conditions of its rows.

use jiff::Timestamp;
use tidings_json::{Value, json};

use super::summary::{PodSummary, is_sidecar};
use crate::table::fields::{condition, list, name, nonempty, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string, wide};

pub(super) static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Ready", "Ready containers out of all containers."),
        string("Status", "What the pod is doing, or why it is not running."),
        string(
            "Restarts",
            "Container restarts, and how long ago the last was.",
        ),
        AGE,
        wide("IP", "The pod's address."),
        wide("Node", "The node the pod runs on."),
        wide("Nominated Node", "The node being freed for the pod."),
        wide("Readiness Gates", "Fulfilled readiness gates out of all."),
    ],
    cells,
};

/// The row conditions that mark a pod as finished.
pub(super) fn row_conditions(pod: &Value) -> Vec<Value> {
    let phase = text(pod, &["status", "phase"]);
    let message = match phase {
        "Succeeded" => "The pod ran to completion.",
        "Failed" => "The pod ended with a failure.",
        _ => return Vec::new(),
    };
    vec![json!({
        "type": "Completed",
        "status": "True",
        "reason": phase,
        "message": message,
    })]
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = PodSummary::of(pod);
    let total = list(pod, &["spec", "containers"]).len()
        + list(pod, &["spec", "initContainers"])
            .iter()
            .filter(|container| is_sidecar(container))
            .count();
    let ip = list(pod, &["status", "podIPs"])
        .first()
        .map_or_else(|| text(pod, &["status", "podIP"]), |ip| text(ip, &["ip"]));
    cells![
        name(pod),
        format!("{}/{total}", summary.ready),
        summary.reason,
        summary.restarts.print(now),
        age(pod, now),
        nonempty(ip, "<none>"),
        nonempty(text(pod, &["spec", "nodeName"]), "<none>"),
        nonempty(text(pod, &["status", "nominatedNodeName"]), "<none>"),
        readiness_gates(pod),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_string();
    }
    let fulfilled = gates
        .iter()
        .filter_map(|gate| condition(pod, text(gate, &["conditionType"])))
        .filter(|condition| text(condition, &["status"]) == "True")
        .count();
    format!("{fulfilled}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print, two_containers};

    const JUST_BEFORE: &str = "2026-11-15T11:58:05Z";

    const BEFORE: &str = "2026-11-15T11:54:33Z";

    fn running() -> Value {
        json!({"running": {}})
    }

    fn waiting(reason: &str) -> Value {
        json!({"waiting": {"reason": reason}})
    }

    fn ended(code: i64, reason: &str) -> Value {
        json!({"terminated": {"exitCode": code, "reason": reason}})
    }

    fn status(name: &str, state: Value, ready: bool) -> Value {
        json!({"name": name, "state": state, "ready": ready, "restartCount": 0})
    }

    fn restarted(mut status: Value, count: i64, finished: &str) -> Value {
        status["restartCount"] = json!(count);
        status["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": finished}});
        status
    }

    fn pod(status: Value) -> Value {
        json!({
            "metadata": meta("web"),
            "spec": {"containers": two_containers()},
            "status": status,
        })
    }

    /// A pod with two init containers and a sidecar between them.
    fn init_pod(status: Value) -> Value {
        let mut pod = pod(status);
        pod["spec"]["initContainers"] = json!([
            {"name": "i1"},
            {"name": "i2", "restartPolicy": "Always"},
            {"name": "i3"},
        ]);
        pod
    }

    /// Checks the columns Ready, Status and Restarts.
    #[track_caller]
    fn check(pod: Value, ready: &str, status: &str, restarts: &str) {
        assert_eq!(
            print(&PRINTER, pod),
            json!([
                "web", ready, status, restarts, "24s", "<none>", "<none>", "<none>", "<none>"
            ])
        );
    }

    #[test]
    fn running_pod_shows_all_columns() {
        let mut pod = pod(json!({
            "phase": "Running",
            "podIP": "10.1.0.4",
            "podIPs": [{"ip": "10.1.0.4"}],
            "nominatedNodeName": "node-9",
            "conditions": [
                {"type": "x.io/a", "status": "True"},
                {"type": "x.io/b", "status": "False"},
            ],
            "containerStatuses": [
                restarted(status("app", running(), true), 3, BEFORE),
                restarted(status("log", running(), true), 1, "2026-11-14T11:00:00Z"),
            ],
        }));
        pod["spec"]["nodeName"] = json!("node-1");
        pod["spec"]["readinessGates"] = json!([
            {"conditionType": "x.io/a"},
            {"conditionType": "x.io/b"},
            {"conditionType": "x.io/c"},
        ]);
        assert_eq!(
            print(&PRINTER, pod),
            json!([
                "web",
                "2/2",
                "Running",
                "4 (5m27s ago)",
                "24s",
                "10.1.0.4",
                "node-1",
                "node-9",
                "1/3"
            ])
        );
    }

    #[test]
    fn phase_or_reason_without_container_statuses() {
        check(pod(json!({})), "0/2", "Pending", "0");
        let evicted = json!({"phase": "Failed", "reason": "Evicted"});
        check(pod(evicted), "0/2", "Evicted", "0");
        let gated = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
        ]});
        check(pod(gated), "0/2", "SchedulingGated", "0");
    }

    #[test]
    fn container_states_give_the_status() {
        let two = |app: Value, log: Value| {
            let statuses = [app, status("log", log, true)];
            pod(json!({"phase": "Running", "containerStatuses": statuses}))
        };
        let crash = restarted(
            status("app", waiting("CrashLoopBackOff"), false),
            7,
            JUST_BEFORE,
        );
        check(
            two(crash, running()),
            "1/2",
            "CrashLoopBackOff",
            "7 (115s ago)",
        );
        let exit = json!({"terminated": {"exitCode": 2}});
        check(
            two(status("app", exit, false), running()),
            "1/2",
            "ExitCode:2",
            "0",
        );
        let signal = json!({"terminated": {"exitCode": 137, "signal": 9}});
        check(
            two(status("app", signal, false), running()),
            "1/2",
            "Signal:9",
            "0",
        );
        let done = || status("app", ended(0, "Completed"), false);
        check(two(done(), ended(3, "Error")), "0/2", "Error", "0");
        check(two(done(), ended(0, "Completed")), "0/2", "Completed", "0");
        check(two(done(), running()), "1/2", "NotReady", "0");
        let mut ready = two(done(), running());
        ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        check(ready, "1/2", "Running", "0");
    }

    #[test]
    fn initialization_has_its_own_status() {
        let init = |statuses: Value| {
            init_pod(json!({"phase": "Pending", "initContainerStatuses": statuses}))
        };
        let waits = |name| status(name, waiting("PodInitializing"), false);
        check(
            init(json!([
                status("i1", running(), false),
                waits("i2"),
                waits("i3")
            ])),
            "0/3",
            "Init:0/3",
            "0",
        );
        let mut sidecar = restarted(status("i2", running(), true), 4, "2026-11-15T11:51:15Z");
        sidecar["started"] = json!(true);
        let done = restarted(
            status("i1", ended(0, "Completed"), true),
            2,
            "2026-11-15T11:52:55Z",
        );
        check(
            init(json!([done, sidecar, waits("i3")])),
            "1/3",
            "Init:2/3",
            "6 (7m5s ago)",
        );
        check(
            init(json!([status("i1", ended(5, "Error"), false)])),
            "0/3",
            "Init:Error",
            "0",
        );
        let exit = json!({"terminated": {"exitCode": 5}});
        check(
            init(json!([status("i1", exit, false)])),
            "0/3",
            "Init:ExitCode:5",
            "0",
        );
        let signal = json!({"terminated": {"exitCode": 5, "signal": 9}});
        check(
            init(json!([status("i1", signal, false)])),
            "0/3",
            "Init:Signal:9",
            "0",
        );
        check(
            init(json!([status("i1", waiting("CrashLoopBackOff"), false)])),
            "0/3",
            "Init:CrashLoopBackOff",
            "0",
        );
    }

    #[test]
    fn sidecars_count_after_initialization() {
        let finished = "2026-11-15T11:51:15Z";
        let init_done = restarted(status("i1", ended(0, "Completed"), true), 2, JUST_BEFORE);
        let mut sidecar = restarted(status("i2", running(), true), 4, finished);
        sidecar["started"] = json!(true);
        let mut app = status("app", running(), true);
        app["restartCount"] = json!(1);
        let containers = json!([app, status("log", running(), true)]);
        let mut pod = init_pod(json!({
            "phase": "Running",
            "conditions": [{"type": "Initialized", "status": "True"}],
            "initContainerStatuses": [init_done, sidecar],
            "containerStatuses": containers,
        }));
        check(pod.clone(), "3/3", "Running", "5 (8m45s ago)");

        let crash = status("i2", waiting("CrashLoopBackOff"), false);
        pod["status"]["initContainerStatuses"][1] = restarted(crash, 4, finished);
        check(pod, "2/3", "Init:CrashLoopBackOff", "5 (8m45s ago)");
    }

    #[test]
    fn deletion_shows_unless_the_pod_has_ended() {
        let deleted = |status: Value| {
            let mut pod = pod(status);
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-15T12:00:00Z");
            pod
        };
        check(
            deleted(json!({"phase": "Running"})),
            "0/2",
            "Terminating",
            "0",
        );
        let lost = json!({"phase": "Running", "reason": "NodeLost"});
        check(deleted(lost), "0/2", "Unknown", "0");
        let evicted = json!({"phase": "Failed", "reason": "Evicted"});
        check(deleted(evicted), "0/2", "Evicted", "0");
    }

    #[test]
    fn finished_pods_have_a_row_condition() {
        let reason = |phase: &str| {
            let conditions = row_conditions(&pod(json!({"phase": phase})));
            conditions.first().map(|item| item["reason"].clone())
        };
        assert_eq!(reason("Succeeded"), Some(json!("Succeeded")));
        assert_eq!(reason("Failed"), Some(json!("Failed")));
        assert_eq!(reason("Running"), None);
    }
}
