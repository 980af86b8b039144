//! The coordination group.

use crate::table::fields::{name, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(crate) static LEASE: TablePrinter = TablePrinter {
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
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn leases() {
        let lease = json!({"metadata": meta("l"), "spec": {"holderIdentity": "me"}});
        assert_eq!(print(&LEASE, lease), json!(["l", "me", "24s"]));
    }
}
