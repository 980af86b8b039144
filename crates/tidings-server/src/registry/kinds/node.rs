//! The kind of the group `node.k8s.io`.

use super::{PLAIN, member};
use crate::printers::node;
use crate::registry::{Kind, Shape};

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    printer: &node::RUNTIME_CLASS,
    go_package: "node",
    namespaced: false,
    members: &[
        member("handler", Shape::String, "\"\""),
        member("overhead", Shape::Object("v1.Overhead"), ""),
        member("scheduling", Shape::Object("v1.Scheduling"), ""),
    ],
    create_on_update: true,
    conditional_update: true,
    bookmark: r#","handler":"""#,
    ..PLAIN
}];
