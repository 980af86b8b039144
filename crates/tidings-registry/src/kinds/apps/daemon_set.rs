//! `DaemonSet` of `apps`: entry, defaults, rules and table.

use std::sync::Arc;

use jiff::Timestamp;
use tidings_api::FieldErrors;
use tidings_json::{Value, json};

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::workload::{TEMPLATE_CONTAINERS, complete_rolling_update};
use crate::kinds::{immutable, names};
use crate::model::{Draft, Generation, Kind, Strategy, Subresource};
use crate::table::fields::{int, name};
use crate::table::format::{age, containers, labels, selector_or_none};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, integer, string};

/// The annotation that counts changes of the template. It is older than `metadata.generation`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn kind() -> Kind {
    Kind {
        kind: "DaemonSet".into(),
        plural: "daemonsets".into(),
        printer: &PRINTER,
        short_names: names(["ds"]),
        categories: names(["all"]),
        generation: Generation::Counted,
        status: true,
        fixed: vec![immutable(&["spec", "selector"])],
        strategy: Arc::new(DaemonSetStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults("apps/v1.DaemonSetSpec", &[("revisionHistoryLimit", "10")]),
    defaults(
        "apps/v1.DaemonSetUpdateStrategy",
        &[("type", r#""RollingUpdate""#)],
    )
    .and(|strategy| {
        let defaults = [("maxUnavailable", json!(1)), ("maxSurge", json!(0))];
        complete_rolling_update(strategy, &defaults);
    }),
];

#[derive(Debug)]
struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
    fn fill_in(&self, draft: &mut Draft) {
        count_template(draft, 1);
    }

    fn prepare_update(&self, new: &mut Draft, old: &Draft, _: Option<Subresource>) {
        let before = old.meta.annotations.get(TEMPLATE_GENERATION);
        let before = before.and_then(|count| count.parse().ok()).unwrap_or(0);
        let template = |draft: &Draft| draft.at(&["spec", "template"]).cloned();
        let changed = template(new) != template(old);
        count_template(new, before + i64::from(changed));
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        super::check_workload(new, errors);
    }
}

fn count_template(draft: &mut Draft, count: i64) {
    let annotations = &mut draft.meta.annotations;
    annotations.insert(TEMPLATE_GENERATION.into(), count.to_string());
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Desired", "Nodes that should run the pod."),
        integer("Current", "Nodes that run the pod and should."),
        integer("Ready", "Nodes whose pod is ready."),
        integer("Up-to-date", "Nodes whose pod has the newest template."),
        integer("Available", "Nodes whose pod serves for long enough."),
        string("Node Selector", "Labels of the nodes that run the pod."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells,
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE_CONTAINERS);
    let status = |key| int(object, &["status", key]);
    cells![
        name(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        labels(object, &["spec", "template", "spec", "nodeSelector"]),
        age(object, now),
        names,
        images,
        selector_or_none(object, &["spec", "selector"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{print, workload};

    #[test]
    fn daemon_sets() {
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        let status = json!({
            "desiredNumberScheduled": 5,
            "currentNumberScheduled": 4,
            "numberReady": 3,
            "updatedNumberScheduled": 2,
            "numberAvailable": 1,
        });
        assert_eq!(
            print(&PRINTER, workload(spec, status)),
            json!([
                "w",
                5,
                4,
                3,
                2,
                1,
                "disk=ssd,x=y",
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "app=web"
            ])
        );
    }
}
