//! The kind of the group `coordination.k8s.io`.

use crate::kind::Kind;
use crate::printers::coordination as printers;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        group: "coordination.k8s.io".into(),
        kind: "Lease".into(),
        plural: "leases".into(),
        printer: &printers::LEASE,
        go_package: "coordination",
        create_on_update: true,
        conditional_update: true,
        ..Kind::plain()
    }]
}
