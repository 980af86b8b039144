//! The kind of the group `coordination.k8s.io`.

use super::{PLAIN, spec};
use crate::printers::coordination;
use crate::registry::Kind;

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    printer: &coordination::LEASE,
    go_package: "coordination",
    members: &[spec("v1.LeaseSpec")],
    create_on_update: true,
    conditional_update: true,
    bookmark: r#","spec":{}"#,
    ..PLAIN
}];
