//! CronJobs.

use std::sync::Arc;

use tidings_api::FieldErrors;

use crate::complete::{TypeDefaults, defaults};
use crate::draft::Draft;
use crate::kind::{Generation, Kind, Subresource};
use crate::kinds::names;
use crate::kinds::workload::{self, JOB_TEMPLATE, Runs};
use crate::printers::batch as printers;
use crate::strategy::Strategy;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "CronJob".into(),
        plural: "cronjobs".into(),
        printer: &printers::CRON_JOB,
        short_names: names(["cj"]),
        categories: names(["all"]),
        generation: Generation::Counted,
        status: true,
        strategy: Arc::new(CronJobs),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "batch/v1.CronJobSpec",
    &[
        ("concurrencyPolicy", r#""Allow""#),
        ("suspend", "false"),
        ("successfulJobsHistoryLimit", "3"),
        ("failedJobsHistoryLimit", "1"),
    ],
)];

#[derive(Debug)]
struct CronJobs;

impl Strategy for CronJobs {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_replicas(new, errors);
        workload::check_pods(new, &JOB_TEMPLATE, Runs::ToCompletion, errors);
    }
}
