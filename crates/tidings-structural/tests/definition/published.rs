//! The definitions and schemas of upstream's published validation tables, with the errors of upstream's code for `v1`. Upstream
//! reports fields in random order, so errors are compared sorted.

use tidings_api::FieldErrors;
use tidings_json::Value;
use tidings_structural::definition::{validate, validate_update};
use tidings_structural::{CompileOptions, Schema};

use crate::{expected, texts};

fn tables() -> Value {
    serde_json::from_str(include_str!("../data/validation.json")).expect("the data is JSON")
}

fn compare(case: &Value, errors: &FieldErrors) {
    let mut found = texts(errors);
    found.sort();
    let mut expected = expected(case);
    // Metadata is checked elsewhere.
    expected.retain(|error| {
        let is_of_metadata = error.contains("| metadata.")
            && !error.contains("| metadata.annotations[")
            && !error.contains("must be spec.names");
        !is_of_metadata
    });
    expected.sort();
    assert_eq!(found, expected, "{}", case["name"]);
}

#[test]
fn w177_new_definitions() {
    let tables = tables();
    for case in tables["create"].as_array().expect("a list") {
        let mut errors = FieldErrors::new();
        validate(&case["new"], &mut errors);
        compare(case, &errors);
    }
}

#[test]
fn w177_updates() {
    let tables = tables();
    for case in tables["update"].as_array().expect("a list") {
        let mut errors = FieldErrors::new();
        validate_update(&case["new"], &case["old"], &mut errors);
        compare(case, &errors);
    }
}

#[test]
fn w179_schemas() {
    let tables = tables();
    for case in tables["schema"].as_array().expect("a list") {
        let options = CompileOptions::default().with_status_subresource(case["status"] == true);
        let path = "spec.validation.openAPIV3Schema";
        let found = Schema::compile(&case["schema"], path, options).err();
        compare(case, &found.unwrap_or_default());
    }
}
