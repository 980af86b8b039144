//! The columns Ready, Status and Restarts of the Pod table, computed from the container statuses.

use jiff::Timestamp;
use tidings_json::Value;

use crate::table::fields::{
    field, flag, has, int, is_deleting, is_true, list, nonempty, text, text_or,
};
use crate::table::format::{human_duration, time};

/// The cells of a Pod that follow from its container statuses.
pub(super) struct PodSummary {
    /// Ready containers.
    pub(super) ready: usize,
    /// The Status column.
    pub(super) reason: String,
    pub(super) restarts: ContainerRestarts,
}

impl PodSummary {
    pub(super) fn of(pod: &Value) -> PodSummary {
        let phase = text_or(pod, &["status", "phase"], "Pending");
        let pod_reason = text(pod, &["status", "reason"]);
        let mut summary = PodSummary {
            ready: 0,
            reason: nonempty(pod_reason, phase).to_string(),
            restarts: ContainerRestarts::default(),
        };
        if is_gated(pod) {
            summary.reason = "SchedulingGated".to_string();
        }
        let initializing = summary.add_init_containers(pod);
        if !initializing || is_true(pod, "Initialized") {
            summary.add_containers(pod);
        }
        if is_deleting(pod) {
            if pod_reason == "NodeLost" {
                summary.reason = "Unknown".to_string();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.reason = "Terminating".to_string();
            }
        }
        summary
    }

    /// Reads the init containers up to the first unfinished one. Returns true if there is an unfinished one. Restarts of init
    /// containers count until the Pod is initialized; restarts of sidecars always count.
    fn add_init_containers(&mut self, pod: &Value) -> bool {
        let specs = list(pod, &["spec", "initContainers"]);
        let mut all = ContainerRestarts::default();
        let mut sidecars = ContainerRestarts::default();
        let mut unfinished = None;
        for (index, status) in list(pod, &["status", "initContainerStatuses"])
            .iter()
            .enumerate()
        {
            let sidecar = specs
                .iter()
                .rfind(|spec| text(spec, &["name"]) == text(status, &["name"]))
                .is_some_and(is_sidecar);
            all.add(status);
            if sidecar {
                sidecars.add(status);
            }
            if exit_code(status) == Some(0) {
                continue;
            }
            if sidecar && flag(status, &["started"]) {
                self.ready += usize::from(flag(status, &["ready"]));
                continue;
            }
            unfinished = Some((index, status));
            break;
        }
        let Some((index, status)) = unfinished else {
            self.restarts = sidecars;
            return false;
        };
        self.restarts = if is_true(pod, "Initialized") {
            sidecars
        } else {
            all
        };
        self.reason = match (terminated_reason(status), waiting_reason(status)) {
            (Some(reason), _) => format!("Init:{reason}"),
            (None, "" | "PodInitializing") => format!("Init:{index}/{}", specs.len()),
            (None, reason) => format!("Init:{reason}"),
        };
        true
    }

    /// Reads the containers. The reason is that of the first container that waits or has terminated; a running or failed
    /// container overrides the reason Completed.
    fn add_containers(&mut self, pod: &Value) {
        let mut running = false;
        let mut failure = None;
        for status in list(pod, &["status", "containerStatuses"]).iter().rev() {
            self.restarts.add(status);
            let waiting = waiting_reason(status);
            if !waiting.is_empty() {
                self.reason = waiting.to_string();
            } else if let Some(reason) = terminated_reason(status) {
                if exit_code(status) != Some(0) {
                    failure = Some(reason.clone());
                }
                self.reason = reason;
            } else if flag(status, &["ready"]) && has(status, &["state", "running"]) {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && has_ready_condition(pod) {
                self.reason = "Running".to_string();
            } else if let Some(reason) = failure {
                self.reason = reason;
            } else if running {
                self.reason = "NotReady".to_string();
            }
        }
    }
}

/// The number of container restarts, and the time at which the last restarted container had terminated.
#[derive(Default)]
pub(super) struct ContainerRestarts {
    count: i64,
    last: Option<Timestamp>,
}

impl ContainerRestarts {
    fn add(&mut self, status: &Value) {
        let count = int(status, &["restartCount"]);
        self.count = self.count.saturating_add(count);
        let ended = time(status, &["lastState", "terminated", "finishedAt"]);
        self.last = self.last.max(ended);
    }

    pub(super) fn print(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                let ago = human_duration(now.duration_since(last));
                format!("{} ({ago} ago)", self.count)
            }
            _ => self.count.to_string(),
        }
    }
}

/// True for a sidecar: an init container that keeps running.
pub(super) fn is_sidecar(container: &Value) -> bool {
    text(container, &["restartPolicy"]) == "Always"
}

fn is_gated(pod: &Value) -> bool {
    list(pod, &["status", "conditions"]).iter().any(|item| {
        text(item, &["type"]) == "PodScheduled" && text(item, &["reason"]) == "SchedulingGated"
    })
}

fn has_ready_condition(pod: &Value) -> bool {
    list(pod, &["status", "conditions"])
        .iter()
        .any(|item| text(item, &["type"]) == "Ready" && text(item, &["status"]) == "True")
}

fn waiting_reason(status: &Value) -> &str {
    text(status, &["state", "waiting", "reason"])
}

/// The exit code of a terminated container.
fn exit_code(status: &Value) -> Option<i64> {
    field(status, &["state", "terminated"]).map(|state| int(state, &["exitCode"]))
}

/// The reason of a terminated container, or else its signal or exit code.
fn terminated_reason(status: &Value) -> Option<String> {
    let state = field(status, &["state", "terminated"])?;
    let reason = text(state, &["reason"]);
    let signal = int(state, &["signal"]);
    Some(if !reason.is_empty() {
        reason.to_string()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", int(state, &["exitCode"]))
    })
}
