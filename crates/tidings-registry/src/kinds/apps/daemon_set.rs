//! DaemonSets.

use std::sync::Arc;

use tidings_api::FieldErrors;
use tidings_json::json;

use crate::complete::{TypeDefaults, defaults};
use crate::draft::Draft;
use crate::kind::{Generation, Kind, Subresource};
use crate::kinds::workload::complete_rolling_update;
use crate::kinds::{immutable, names};
use crate::printers::apps as printers;
use crate::strategy::Strategy;

/// Counts the changes of the template, as DaemonSets did before they had a generation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn kind() -> Kind {
    Kind {
        kind: "DaemonSet".into(),
        plural: "daemonsets".into(),
        printer: &printers::DAEMON_SET,
        short_names: names(["ds"]),
        categories: names(["all"]),
        generation: Generation::Counted,
        status: true,
        fixed: vec![immutable(&["spec", "selector"])],
        strategy: Arc::new(DaemonSets),
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
struct DaemonSets;

impl Strategy for DaemonSets {
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
