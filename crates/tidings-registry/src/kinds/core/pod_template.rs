//! `PodTemplate` of the core group: entry and table.

use crate::model::{Generation, Kind};
use crate::table::fields::name;
use crate::table::format::{containers, labels};
use crate::table::{NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "PodTemplate".into(),
        plural: "podtemplates".into(),
        printer: &PRINTER,
        generation: Generation::Counted,
        returns_deleted: true,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Containers", "Container names in the template."),
        string("Images", "Container images in the template."),
        string("Pod Labels", "Labels that the pods get."),
    ],
    cells: |object, _| {
        let (names, images) = containers(object, &["template", "spec", "containers"]);
        let labels = labels(object, &["template", "metadata", "labels"]);
        cells![name(object), names, images, labels]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print, two_containers};
    use tidings_json::json;

    #[test]
    fn pod_templates() {
        let template = json!({"metadata": meta("t"), "template": {
            "metadata": {"labels": {"app": "web", "a": "b"}},
            "spec": {"containers": two_containers()},
        }});
        assert_eq!(
            print(&PRINTER, template),
            json!(["t", "app,log", "nginx:1.27,busybox", "a=b,app=web"])
        );
    }
}
