//! Nodes.

use crate::kind::{Kind, SelectableField};
use crate::kinds::{field, names};
use crate::printers::core as printers;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Node".into(),
        plural: "nodes".into(),
        store_prefix: "minions".into(),
        printer: &printers::NODE,
        short_names: names(["no"]),
        namespaced: false,
        fields: vec![SelectableField {
            absent: "false",
            ..field("spec.unschedulable", &[&["spec", "unschedulable"]])
        }],
        status: true,
        // Kubelets register themselves with a status.
        created_with_status: true,
        ..super::plain()
    }
}
