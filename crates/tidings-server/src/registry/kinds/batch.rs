//! The kinds of the group `batch`.

use super::{PLAIN, field, spec, status};
use crate::printers::batch;
use crate::registry::{Generation, Kind, SelectableField};

const BATCH: Kind = Kind {
    group: "batch",
    go_package: "batch",
    ..PLAIN
};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "CronJob",
        plural: "cronjobs",
        printer: &batch::CRON_JOB,
        short_names: &["cj"],
        categories: &["all"],
        members: &[spec("v1.CronJobSpec"), status("v1.CronJobStatus", "{}")],
        generation: Generation::Counted,
        status: true,
        bookmark: concat!(
            r#","spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":"#,
            r#"{"template":{"metadata":{},"spec":{"containers":null}}}}},"status":{}"#
        ),
        ..BATCH
    },
    Kind {
        kind: "Job",
        orphans: true,
        plural: "jobs",
        printer: &batch::JOB,
        categories: &["all"],
        members: &[spec("v1.JobSpec"), status("v1.JobStatus", "{}")],
        // The field is not called as the member that it shows.
        fields: &[SelectableField {
            absent: "0",
            ..field("status.successful", &[&["status", "succeeded"]])
        }], // and here the text is `field label "foo" not supported for Job`
        generation: Generation::Counted,
        status: true,
        bookmark: r#","spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}"#,
        ..BATCH
    },
];
