//! The batch group.

use jiff::Timestamp;
use tidings_json::Value;

use crate::table::fields::{
    count, field, flag, has, int, int_or, is_deleting, is_true, name, text, text_or,
};
use crate::table::format::{age, containers, human_duration, selector_or_none, since, time};
use crate::table::{
    AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, boolean, integer, string,
};

pub(crate) static JOB: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Status", "What the job is doing."),
        string("Completions", "Succeeded pods out of the needed ones."),
        string("Duration", "How long the job ran, or runs so far."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |job, now| {
        let (names, images) = containers(job, &["spec", "template", "spec", "containers"]);
        cells![
            name(job),
            status(job),
            completions(job),
            duration(job, now),
            age(job, now),
            names,
            images,
            selector_or_none(job, &["spec", "selector"]),
        ]
    },
};

pub(crate) static CRON_JOB: TablePrinter = TablePrinter {
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
    cells: cron_job_cells,
};

fn cron_job_cells(object: &Value, now: Timestamp) -> Vec<Value> {
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

fn status(job: &Value) -> &'static str {
    if is_true(job, "Complete") {
        "Complete"
    } else if is_true(job, "Failed") {
        "Failed"
    } else if is_deleting(job) {
        "Terminating"
    } else if is_true(job, "Suspended") {
        "Suspended"
    } else if is_true(job, "FailureTarget") {
        "FailureTarget"
    } else if is_true(job, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

/// A job that only sets its parallelism is done once any of its pods succeeds.
fn completions(job: &Value) -> String {
    let succeeded = int(job, &["status", "succeeded"]);
    let parallelism = int_or(job, &["spec", "parallelism"], 1);
    if has(job, &["spec", "completions"]) {
        format!("{succeeded}/{}", int(job, &["spec", "completions"]))
    } else if parallelism > 1 {
        format!("{succeeded}/1 of {parallelism}")
    } else {
        format!("{succeeded}/1")
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let Some(start) = time(job, &["status", "startTime"]) else {
        return String::new();
    };
    let end = time(job, &["status", "completionTime"]).unwrap_or(now);
    human_duration(end.duration_since(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print, two_containers};
    use tidings_json::json;

    fn job(spec: Value, status: Value) -> Value {
        let mut job = json!({"metadata": meta("j"), "spec": spec, "status": status});
        job["spec"]["template"] = json!({"spec": {"containers": two_containers()}});
        job["spec"]["selector"] = json!({"matchLabels": {"uid": "1"}});
        job
    }

    /// Checks the columns Status, Completions and Duration.
    #[track_caller]
    fn check(job: Value, expected: [&str; 3]) {
        let [status, completions, duration] = expected;
        assert_eq!(
            print(&JOB, job),
            json!([
                "j",
                status,
                completions,
                duration,
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "uid=1"
            ])
        );
    }

    #[test]
    fn jobs() {
        let start = "2026-11-15T11:51:15Z";
        check(job(json!({}), json!({})), ["Running", "0/1", ""]);
        check(
            job(json!({"parallelism": 3}), json!({"startTime": start})),
            ["Running", "0/1 of 3", "8m45s"],
        );
        check(
            job(
                json!({"completions": 4, "parallelism": 2}),
                json!({
                    "startTime": start,
                    "completionTime": "2026-11-15T11:56:15Z",
                    "succeeded": 4,
                    "conditions": [
                        {"type": "SuccessCriteriaMet", "status": "True"},
                        {"type": "Complete", "status": "True"},
                    ],
                }),
            ),
            ["Complete", "4/4", "5m"],
        );
        for status in ["Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"] {
            let conditions = json!({"conditions": [{"type": status, "status": "True"}]});
            check(job(json!({}), conditions), [status, "0/1", ""]);
        }
        let mut deleted = job(json!({}), json!({}));
        deleted["metadata"]["deletionTimestamp"] = json!("2026-11-15T12:00:00Z");
        check(deleted, ["Terminating", "0/1", ""]);
    }

    #[test]
    fn cron_jobs() {
        let job_spec = json!({"template": {"spec": {"containers": two_containers()}}});
        let mut cron = json!({
            "metadata": meta("cj"),
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job_spec}},
        });
        assert_eq!(
            print(&CRON_JOB, cron.clone()),
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
            print(&CRON_JOB, cron),
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
