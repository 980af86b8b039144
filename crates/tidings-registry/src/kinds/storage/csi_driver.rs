//! `CSIDriver` of `storage.k8s.io`: entry, defaults, fixed fields and table.

use tidings_json::Value;

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::immutable;
use crate::model::{Generation, Kind};
use crate::table::fields::{flag, flag_or, has, list, name, text, texts};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, boolean, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "CSIDriver".into(),
        plural: "csidrivers".into(),
        printer: &PRINTER,
        generation: Generation::CountedFromZero,
        conditional_update: true,
        fixed: vec![
            immutable(&["spec", "attachRequired"]),
            immutable(&["spec", "volumeLifecycleModes"]),
        ],
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "storage/v1.CSIDriverSpec",
    &[
        ("attachRequired", "true"),
        ("podInfoOnMount", "false"),
        ("storageCapacity", "false"),
        ("fsGroupPolicy", r#""ReadWriteOnceWithFSType""#),
        ("volumeLifecycleModes", r#"["Persistent"]"#),
        ("requiresRepublish", "false"),
        ("seLinuxMount", "false"),
    ],
)];

static PRINTER: TablePrinter = TablePrinter {
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
    fn csi_drivers() {
        let mut driver = json!({"metadata": meta("d"), "spec": {}});
        assert_eq!(
            print(&PRINTER, driver.clone()),
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
            print(&PRINTER, driver),
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
}
