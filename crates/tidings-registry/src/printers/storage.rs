//! The storage group. CSI storage capacities use the default printer.

use tidings_json::Value;

use crate::table::fields::{count, flag, flag_or, has, list, name, text, text_or, texts};
use crate::table::format::{age, is_annotated};
use crate::table::{AGE, Column, NAME, TablePrinter, boolean, integer, string};

pub(crate) static STORAGE_CLASS: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Provisioner", "Who makes the volumes."),
        string("ReclaimPolicy", "What happens once a claim is gone."),
        string("VolumeBindingMode", "When volumes are made and bound."),
        string("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ],
    cells: |object, now| {
        let mut name = name(object).to_string();
        if is_annotated(object, "storageclass.kubernetes.io/is-default-class")
            || is_annotated(object, "storageclass.beta.kubernetes.io/is-default-class")
        {
            name.push_str(" (default)");
        }
        cells![
            name,
            text(object, &["provisioner"]),
            text_or(object, &["reclaimPolicy"], "Delete"),
            text_or(object, &["volumeBindingMode"], "Immediate"),
            flag(object, &["allowVolumeExpansion"]),
            age(object, now),
        ]
    },
};

pub(crate) static VOLUME_ATTRIBUTES_CLASS: TablePrinter = TablePrinter {
    columns: &[NAME, string("DriverName", "The driver it is for."), AGE],
    cells: |object, now| {
        cells![
            name(object),
            text(object, &["driverName"]),
            age(object, now),
        ]
    },
};

pub(crate) static VOLUME_ATTACHMENT: TablePrinter = TablePrinter {
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

pub(crate) static CSI_NODE: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Drivers", "How many drivers the node has."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            count(object, &["spec", "drivers"]),
            age(object, now),
        ]
    },
};

pub(crate) static CSI_DRIVER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        boolean("AttachRequired", "Whether volumes need attaching."),
        boolean("PodInfoOnMount", "Whether mounting needs to know the pod."),
        boolean(
            "StorageCapacity",
            "Whether scheduling looks at free capacity.",
        ),
        string("TokenRequests", "Audiences of the tokens the driver gets."),
        boolean(
            "RequiresRepublish",
            "Whether volumes are published repeatedly.",
        ),
        string("Modes", "Kinds of volumes the driver supports."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            flag_or(object, &["spec", "attachRequired"], true),
            flag(object, &["spec", "podInfoOnMount"]),
            flag(object, &["spec", "storageCapacity"]),
            token_requests(object),
            flag(object, &["spec", "requiresRepublish"]),
            modes(object),
            age(object, now),
        ]
    },
};

fn token_requests(driver: &Value) -> String {
    if !has(driver, &["spec", "tokenRequests"]) {
        return "<unset>".to_string();
    }
    let audiences: Vec<&str> = list(driver, &["spec", "tokenRequests"])
        .iter()
        .map(|request| text(request, &["audience"]))
        .collect();
    audiences.join(",")
}

fn modes(driver: &Value) -> String {
    match texts(driver, &["spec", "volumeLifecycleModes"]).as_slice() {
        [] => "Persistent".to_string(),
        modes => modes.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn storage_classes() {
        let mut class = json!({"metadata": meta("sc"), "provisioner": "x.io/p"});
        assert_eq!(
            print(&STORAGE_CLASS, class.clone()),
            json!(["sc", "x.io/p", "Delete", "Immediate", false, "24s"])
        );
        class["metadata"]["annotations"] =
            json!({"storageclass.kubernetes.io/is-default-class": "true"});
        assert_eq!(print(&STORAGE_CLASS, class)[0], "sc (default)");
    }

    #[test]
    fn csi_drivers() {
        let mut driver = json!({"metadata": meta("d"), "spec": {}});
        assert_eq!(
            print(&CSI_DRIVER, driver.clone()),
            json!([
                "d",
                true,
                false,
                false,
                "<unset>",
                false,
                "Persistent",
                "24s"
            ])
        );
        driver["spec"] = json!({
            "attachRequired": false,
            "podInfoOnMount": true,
            "storageCapacity": true,
            "requiresRepublish": true,
            "tokenRequests": [{"audience": "a"}, {"audience": "b"}],
            "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        });
        assert_eq!(
            print(&CSI_DRIVER, driver),
            json!([
                "d",
                false,
                true,
                true,
                "a,b",
                true,
                "Persistent,Ephemeral",
                "24s"
            ])
        );
    }

    #[test]
    fn volumes_on_nodes() {
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
            print(&VOLUME_ATTACHMENT, attachment),
            json!(["va", "x.io", "pv", "n", true, "24s"])
        );
        let node = json!({"metadata": meta("n"), "spec": {"drivers": [{"name": "a"}]}});
        assert_eq!(print(&CSI_NODE, node), json!(["n", 1, "24s"]));
        let class = json!({"metadata": meta("vac"), "driverName": "x.io"});
        assert_eq!(
            print(&VOLUME_ATTRIBUTES_CLASS, class),
            json!(["vac", "x.io", "24s"])
        );
    }
}
