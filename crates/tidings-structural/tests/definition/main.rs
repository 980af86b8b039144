//! Defaults, errors and names of definitions. The expected results in `data/` are recorded from kube-apiserver 1.36.4.

mod checks;
mod names;
mod published;
mod serving;
mod updates;

use tidings_api::FieldErrors;
use tidings_json::{Value, json};
use tidings_structural::definition::{Definition, fill_in, validate, validate_update};

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-02T00:00:00Z";

fn data() -> Value {
    serde_json::from_str(include_str!("../data/definitions.json")).expect("the data is JSON")
}

/// Applies a merge patch; lists are replaced.
fn merge(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in change {
        match value {
            Value::Null => drop(target.as_object_mut().map(|object| object.remove(name))),
            value => merge(&mut target[name.as_str()], value),
        }
    }
}

fn merged(base: &Value, change: &Value) -> Value {
    let mut merged = base.clone();
    merge(&mut merged, change);
    merged
}

fn texts(errors: &FieldErrors) -> Vec<String> {
    errors
        .iter()
        .map(|error| format!("{} | {error}", error.reason()))
        .collect()
}

/// The errors of upstream without those of metadata.
fn expected(case: &Value) -> Vec<String> {
    let errors = case.get("errors").and_then(Value::as_array);
    errors
        .into_iter()
        .flatten()
        .map(|error| error.as_str().expect("errors are text").to_owned())
        .filter(|error| !error.contains("| metadata.name:") || error.contains("must be spec.names"))
        .collect()
}

fn compare(case: &Value, new: &Value, errors: &FieldErrors) {
    let mut found = texts(errors);
    let mut expected = expected(case);
    if case.get("unordered").is_some() {
        found.sort();
        expected.sort();
    }
    assert_eq!(found, expected, "{}", case["name"]);
    if let Some(becomes) = case.get("becomes") {
        let name = &case["name"];
        assert_eq!(new["spec"]["names"], becomes["names"], "{name}");
        assert_eq!(new["spec"]["conversion"], becomes["conversion"], "{name}");
        assert_eq!(new["status"], becomes["status"], "{name}");
    }
}

fn cases<'a>(data: &'a Value, what: &str) -> &'a [Value] {
    let cases = data[what].as_array().expect("a list");
    assert!(!cases.is_empty());
    cases
}

/// The smallest valid definition with a change, and with defaults.
fn definition(change: &Value) -> Value {
    let mut crd = merged(&data()["base"], change);
    fill_in(&mut crd);
    crd
}

fn errors_of(crd: &Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    validate(crd, &mut errors);
    texts(&errors)
}

fn errors_of_update(new: &Value, old: &Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    validate_update(new, old, &mut errors);
    texts(&errors)
}

fn read(crd: &Value) -> Definition {
    Definition::read(crd).expect("it can be served")
}
