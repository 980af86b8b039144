//! `StatefulSet` of `apps`: entry, defaults, rules and table.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::{Map, Value, json};

use crate::defaults::{TypeDefaults, defaults, is_empty, rule};
use crate::kinds::names;
use crate::kinds::workload;
use crate::kinds::workload::{
    TEMPLATE_CONTAINERS, complete_rolling_update, differs_beyond, spec_mut,
};
use crate::model::{Draft, Generation, Kind, NameRule, Scale, Strategy, Subresource};
use crate::table::fields::name;
use crate::table::format::{age, containers};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, TablePrinter, string};

const FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
/// Members of the spec that an update may change.
const FREE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) fn kind() -> Kind {
    Kind {
        kind: "StatefulSet".into(),
        plural: "statefulsets".into(),
        printer: &PRINTER,
        short_names: names(["sts"]),
        categories: names(["all"]),
        name_rule: NameRule::Label, // the names of its Pods begin with it, and are DNS labels
        generation: Generation::Counted,
        status: true,
        scale: Some(Scale::LabelSelector),
        bookmark_replicas: true,
        strategy: Arc::new(StatefulSetStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "apps/v1.StatefulSetSpec",
        &[
            ("replicas", "1"),
            ("podManagementPolicy", r#""OrderedReady""#),
            ("revisionHistoryLimit", "10"),
            ("persistentVolumeClaimRetentionPolicy", "{}"),
        ],
    ),
    defaults(
        "apps/v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[
            ("whenDeleted", r#""Retain""#),
            ("whenScaled", r#""Retain""#),
        ],
    ),
    rule("apps/v1.StatefulSetUpdateStrategy", complete_strategy),
];

fn complete_strategy(strategy: &mut Map) {
    if is_empty(strategy.get("type")) {
        strategy.insert("type".into(), "RollingUpdate".into());
        strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
    }
    if strategy.contains_key("rollingUpdate") {
        complete_rolling_update(strategy, &[("partition", json!(0))]);
    }
}

#[derive(Debug)]
struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn complete(&self, draft: &mut Draft) -> bool {
        let Some(spec) = spec_mut(draft) else {
            return false;
        };
        let templates = spec.get_mut("volumeClaimTemplates");
        let templates = templates.and_then(Value::as_array_mut);
        for template in templates.into_iter().flatten() {
            template["kind"] = "PersistentVolumeClaim".into();
            template["apiVersion"] = "v1".into();
            template["status"]["phase"] = "Pending".into();
        }
        true
    }

    fn check_fixed(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        if differs_beyond(new, old, &FREE) {
            errors.push(FieldError::forbidden("spec", FIXED));
        }
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_replicas(new, errors);
        super::check_workload(new, errors);
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Ready", "Ready pods out of the desired ones."),
        AGE,
        CONTAINERS,
        IMAGES,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, TEMPLATE_CONTAINERS);
        cells![
            name(object),
            super::ready(object),
            age(object, now),
            names,
            images
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{print, workload};

    #[test]
    fn stateful_sets() {
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        let status = json!({"replicas": 2, "readyReplicas": 1});
        assert_eq!(
            print(&PRINTER, workload(spec, status)),
            json!(["w", "1/1", "24s", "app,log", "nginx:1.27,busybox"])
        );
    }
}
