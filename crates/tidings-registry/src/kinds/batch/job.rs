//! `Job` of `batch`: entry, defaults, rules and table.

use std::sync::Arc;

use jiff::Timestamp;
use tidings_api::{FieldError, FieldErrors};
use tidings_go::quote;
use tidings_json::{Map, Value, json};

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::workload::{self, RestartPolicies, TEMPLATE, TEMPLATE_CONTAINERS};
use crate::kinds::{immutable, names, selectable};
use crate::model::{
    Draft, Generation, Kind, SelectableField, Strategy, Subresource, check_builtin_field,
};
use crate::table::fields::{has, int, int_or, is_deleting, is_true, name};
use crate::table::format::{age, containers, human_duration, selector_or_none, time};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, string};

const ORPHAN_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                              remove them or set propagationPolicy=Orphan to suppress this warning";

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Job".into(),
        orphans: true,
        orphan_warning: ORPHAN_WARNING,
        plural: "jobs".into(),
        printer: &PRINTER,
        categories: names(["all"]),
        // The field is called `status.successful`, the member `status.succeeded`.
        fields: vec![SelectableField {
            absent: "0",
            ..selectable("status.successful", &[&["status", "succeeded"]])
        }],
        generation: Generation::Counted,
        status: true,
        fixed: vec![
            immutable(&["spec", "selector"]),
            immutable(&["spec", "completionMode"]),
        ],
        strategy: Arc::new(JobStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "batch/v1.PodFailurePolicyOnPodConditionsPattern",
    &[("status", r#""True""#)],
)];

#[derive(Debug)]
struct JobStrategy;

impl Strategy for JobStrategy {
    fn check_field(&self, kind: &Kind, field: &str) -> Result<(), String> {
        let supported = check_builtin_field(kind, field);
        supported.map_err(|_| format!("field label {} not supported for Job", quote(field)))
    }

    fn complete(&self, draft: &mut Draft) -> bool {
        let Some(spec) = workload::spec_mut(draft) else {
            return false;
        };
        complete_spec(spec);
        workload::label_as_template(draft);
        true
    }

    fn prepare_create(&self, draft: &mut Draft) {
        select_own_pods(draft);
        draft.complete(); // the selector stands in its place
    }

    fn check_fixed(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        if let (Some(new), Some(old)) = (new.members.get("spec"), old.members.get("spec")) {
            check_spec_update(new, old, errors);
        }
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_pods(new, &TEMPLATE, RestartPolicies::NotAlways, errors);
    }
}

fn complete_spec(spec: &mut Map) {
    let absent = |name: &str| spec.get(name).is_none_or(Value::is_null);
    let mut defaults = Vec::new();
    if absent("parallelism") {
        defaults.push(("parallelism", json!(1)));
        if absent("completions") {
            defaults.push(("completions", json!(1)));
        }
    }
    let backoff = if absent("backoffLimitPerIndex") {
        6
    } else {
        i32::MAX
    };
    let replacement = if absent("podFailurePolicy") {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    let others = [
        ("backoffLimit", json!(backoff)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(replacement)),
        ("manualSelector", json!(false)),
    ];
    defaults.extend(others.into_iter().filter(|(name, _)| absent(name)));
    for (name, value) in defaults {
        spec.insert(name.to_owned(), value);
    }
}

/// Labels the Pod template with the Job's uid and name, and makes the Job select Pods by its uid.
fn select_own_pods(draft: &mut Draft) {
    let (uid, name) = (draft.meta.uid.clone(), draft.meta.name.clone());
    let unlabelled = draft.meta.labels.is_empty();
    let Some(Value::Object(spec)) = draft.members.get_mut("spec") else {
        return;
    };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let own = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let labels = &mut template["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for (label, value) in own {
        labels[label] = value.as_str().into();
        if unlabelled {
            draft.meta.labels.insert(label.to_owned(), value.clone());
        }
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.sort_keys();
    }
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    spec.insert("selector".into(), selector);
}

/// Refuses changes of the completions or the template that the Job's state does not allow.
fn check_spec_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut fixed = |name: &str| {
        if new.get(name) != old.get(name) {
            let value = new.get(name).unwrap_or(&Value::Null);
            let path = format!("spec.{name}");
            errors.push(FieldError::invalid_value(path, value, "field is immutable"));
        }
    };
    // An indexed Job can be resized if the update sets completions and parallelism to the same number.
    let indexed = new["completionMode"] == "Indexed" && new["completions"] == new["parallelism"];
    if !indexed {
        fixed("completions");
    }
    // The template of a suspended Job may change.
    if old["suspend"] != true {
        fixed("template");
    }
}

static PRINTER: TablePrinter = TablePrinter {
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
        let (names, images) = containers(job, TEMPLATE_CONTAINERS);
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

/// The Completions column. A Job with parallelism and without completions is complete when one of its Pods succeeds.
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
            print(&PRINTER, job),
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
}
