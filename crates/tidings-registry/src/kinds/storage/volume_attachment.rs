//! `VolumeAttachment` of `storage.k8s.io`: entry and table.

use crate::model::Kind;
use crate::table::fields::{flag, name, text};
use crate::table::format::age;
use crate::table::{AGE, Column, NAME, TablePrinter, boolean, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "VolumeAttachment".into(),
        plural: "volumeattachments".into(),
        printer: &PRINTER,
        status: true,
        conditional_update: true,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        Column {
            format: "name",
            ..string("Attacher", "The driver that attaches the volume.")
        },
        string("PV", "The volume."),
        string("Node", "The node the volume is for."),
        boolean("Attached", "Whether the volume is attached."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            text(object, &["spec", "attacher"]),
            text(object, &["spec", "source", "persistentVolumeName"]),
            text(object, &["spec", "nodeName"]),
            flag(object, &["status", "attached"]),
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
    fn volume_attachments() {
        let attachment = json!({
            "metadata": meta("va"),
            "spec": {
                "attacher": "x.io",
                "nodeName": "n",
                "source": {"persistentVolumeName": "pv"},
            },
            "status": {"attached": true},
        });
        assert_eq!(
            print(&PRINTER, attachment),
            json!(["va", "x.io", "pv", "n", true, "24s"])
        );
    }
}
