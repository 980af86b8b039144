//! The kind of the group `node.k8s.io`.

use crate::kind::Kind;
use crate::printers::node as printers;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        group: "node.k8s.io".into(),
        kind: "RuntimeClass".into(),
        plural: "runtimeclasses".into(),
        printer: &printers::RUNTIME_CLASS,
        go_package: "node",
        namespaced: false,
        create_on_update: true,
        conditional_update: true,
        ..Kind::plain()
    }]
}
