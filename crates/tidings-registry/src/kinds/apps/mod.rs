//! The kinds of the group `apps`.

pub(super) mod daemon_set;
pub(super) mod deployment;
pub(super) mod replica_set;
pub(super) mod stateful_set;

use tidings_api::FieldErrors;

use crate::draft::Draft;
use crate::kind::Kind;
use crate::kinds::workload::{self, Runs, TEMPLATE};
use crate::printers::apps as printers;

fn plain() -> Kind {
    Kind {
        group: "apps".into(),
        go_package: "apps",
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            kind: "ControllerRevision".into(),
            plural: "controllerrevisions".into(),
            printer: &printers::CONTROLLER_REVISION,
            ..plain()
        },
        daemon_set::kind(),
        deployment::kind(),
        replica_set::kind(),
        stateful_set::kind(),
    ]
}

/// Refuses a workload whose replicas, selector or Pods are wrong.
fn check_workload(draft: &Draft, errors: &mut FieldErrors) {
    workload::check_replicas(draft, errors);
    workload::check_selector(draft, errors);
    workload::check_pods(draft, &TEMPLATE, Runs::ForEver, errors);
}
