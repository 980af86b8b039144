//! The coordination group.

use super::fields::{name, text};
use super::format::age;
use super::{AGE, NAME, Printer, string};

pub(crate) static LEASE: Printer = Printer {
    columns: &[NAME, string("Holder", "Who holds the lease."), AGE],
    cells: |object, now| {
        cells![
            name(object),
            text(object, &["spec", "holderIdentity"]),
            age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printers::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn leases() {
        let lease = json!({"metadata": meta("l"), "spec": {"holderIdentity": "me"}});
        assert_eq!(print(&LEASE, lease), json!(["l", "me", "24s"]));
    }
}
