//! The kinds of the group `apps`.

mod controller_revision;
pub(super) mod daemon_set;
pub(super) mod deployment;
pub(super) mod replica_set;
pub(super) mod stateful_set;

use tidings_api::FieldErrors;
use tidings_json::Value;

use crate::kinds::workload::{self, RestartPolicies, TEMPLATE};
use crate::model::{Draft, Kind};
use crate::table::fields::{int, int_or};

fn plain() -> Kind {
    Kind {
        group: "apps".into(),
        go_package: "apps",
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        controller_revision::kind(),
        daemon_set::kind(),
        deployment::kind(),
        replica_set::kind(),
        stateful_set::kind(),
    ]
}

/// Refuses a workload with an invalid selector or Pod spec.
fn check_workload(draft: &Draft, errors: &mut FieldErrors) {
    workload::check_selector(draft, errors);
    workload::check_pods(draft, &TEMPLATE, RestartPolicies::OnlyAlways, errors);
}

/// The Ready column: ready Pods out of the desired ones.
fn ready(object: &Value) -> String {
    let ready = int(object, &["status", "readyReplicas"]);
    let desired = int_or(object, &["spec", "replicas"], 1);
    format!("{ready}/{desired}")
}
