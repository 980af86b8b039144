//! `CronJob` of `batch`: entry, defaults, rules and table.

use std::sync::Arc;

use jiff::Timestamp;
use tidings_api::FieldErrors;
use tidings_json::Value;

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::names;
use crate::kinds::workload::{self, JOB_TEMPLATE, RestartPolicies};
use crate::model::{Draft, Generation, Kind, Strategy, Subresource};
use crate::table::fields::{count, field, flag, has, name, text, text_or};
use crate::table::format::{age, containers, selector_or_none, since};
use crate::table::{
    AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, boolean, integer, string,
};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "CronJob".into(),
        plural: "cronjobs".into(),
        printer: &PRINTER,
        short_names: names(["cj"]),
        categories: names(["all"]),
        generation: Generation::Counted,
        status: true,
        strategy: Arc::new(CronJobStrategy),
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
struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_pods(new, &JOB_TEMPLATE, RestartPolicies::NotAlways, errors);
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Schedule", "When jobs start, in cron syntax."),
        string("Timezone", "The time zone of the schedule."),
        boolean("Suspend", "Whether no new jobs start."),
        integer("Active", "How many jobs run."),
        string("Last Schedule", "Time since the last job was started."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells,
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    const JOB_SPEC: [&str; 3] = ["spec", "jobTemplate", "spec"];
    let job = field(object, &JOB_SPEC).unwrap_or(&Value::Null);
    let (names, images) = containers(job, &["template", "spec", "containers"]);
    let suspend = match flag(object, &["spec", "suspend"]) {
        true => "True",
        false => "False",
    };
    let last = if has(object, &["status", "lastScheduleTime"]) {
        since(object, &["status", "lastScheduleTime"], now)
    } else {
        "<none>".to_string()
    };
    cells![
        name(object),
        text(object, &["spec", "schedule"]),
        text_or(object, &["spec", "timeZone"], "<none>"),
        suspend,
        count(object, &["status", "active"]),
        last,
        age(object, now),
        names,
        images,
        selector_or_none(job, &["selector"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print, two_containers};
    use tidings_json::json;

    #[test]
    fn cron_jobs() {
        let job_spec = json!({"template": {"spec": {"containers": two_containers()}}});
        let mut cron = json!({
            "metadata": meta("cj"),
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job_spec}},
        });
        assert_eq!(
            print(&PRINTER, cron.clone()),
            json!([
                "cj",
                "*/5 * * * *",
                "<none>",
                "False",
                0,
                "<none>",
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "<none>"
            ])
        );
        cron["spec"]["suspend"] = json!(true);
        cron["spec"]["timeZone"] = json!("Europe/Berlin");
        cron["status"] = json!({"lastScheduleTime": "2026-11-15T09:58:00Z", "active": [{}, {}]});
        assert_eq!(
            print(&PRINTER, cron),
            json!([
                "cj",
                "*/5 * * * *",
                "Europe/Berlin",
                "True",
                2,
                "122m",
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "<none>"
            ])
        );
    }
}
