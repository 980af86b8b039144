//! Schemas and objects with the errors that kube-apiserver 1.36.4 reported for them, recorded in `data/`. It reports fields in
//! random order, so errors are compared sorted.

use tidings_api::FieldErrors;
use tidings_json::Value;
use tidings_structural::{CompileOptions, Malformed, Schema};

const PATH: &str = "spec.validation.openAPIV3Schema";

fn data(text: &str) -> Value {
    serde_json::from_str(text).expect("the data is JSON")
}

fn sorted(errors: &FieldErrors) -> Vec<String> {
    let mut texts: Vec<String> = errors
        .iter()
        .map(|error| format!("{} | {error}", error.reason()))
        .collect();
    texts.sort();
    texts
}

fn expected(value: &Value) -> Vec<String> {
    let texts = value.as_array().expect("errors are a list").iter();
    texts
        .map(|text| text.as_str().expect("errors are text").to_owned())
        .collect()
}

fn compile(schema: &Value) -> Result<Schema, FieldErrors> {
    Schema::compile(schema, PATH, CompileOptions::default())
}

fn errors_of(schema: &Value) -> Vec<String> {
    compile(schema)
        .err()
        .map(|errors| sorted(&errors))
        .unwrap_or_default()
}

#[test]
fn w179_schemas_are_refused_with_upstreams_texts() {
    for case in data(include_str!("data/schemas.json"))
        .as_array()
        .expect("a list")
    {
        assert_eq!(
            errors_of(&case["schema"]),
            expected(&case["errors"]),
            "{}",
            case["name"]
        );
    }
}

#[test]
fn w179_rules_are_checked_and_estimated_before_they_run() {
    let data = data(include_str!("data/rules.json"));
    for case in data["rules"].as_array().expect("a list") {
        let schema = tidings_json::json!({
            "type": "object",
            "properties": {"spec": {
                "type": "object",
                "properties": data["properties"],
                "x-kubernetes-validations": [{"rule": case["rule"]}],
            }},
        });
        assert_eq!(
            errors_of(&schema),
            expected(&case["errors"]),
            "{}",
            case["rule"]
        );
    }
}

#[test]
fn w179_w180_objects_are_pruned_defaulted_and_validated() {
    for case in data(include_str!("data/objects.json"))
        .as_array()
        .expect("a list")
    {
        let schema =
            compile(&case["schema"]).unwrap_or_else(|errors| panic!("{}: {errors}", case["name"]));
        for object in case["objects"].as_array().expect("a list") {
            let mut new = object["new"].clone();
            let unknown = schema.prune(&mut new);
            // Validation reports metadata of the wrong type.
            let _ = schema.coerce(&mut new, Malformed::Refuse);
            schema.default(&mut new);
            let becomes = object.get("becomes").unwrap_or(&object["new"]);
            assert_eq!(new, *becomes, "{}: {}", case["name"], object["new"]);
            let known = object.get("unknown").map(expected).unwrap_or_default();
            assert_eq!(unknown, known, "{}: {}", case["name"], object["new"]);
            let mut errors = FieldErrors::new();
            schema.validate(&new, None, &mut errors);
            assert_eq!(
                sorted(&errors),
                expected(&object["errors"]),
                "{}: {}",
                case["name"],
                object["new"]
            );
        }
    }
}

#[test]
fn w179_what_was_wrong_before_an_update_is_let_through_where_it_is_unchanged() {
    let data = data(include_str!("data/updates.json"));
    let schema = compile(&data["schema"]).expect("it is structural");
    let old = &data["old"];
    for update in data["updates"].as_array().expect("a list") {
        let mut new = old.clone();
        for (field, value) in update["changes"].as_object().expect("an object") {
            new["spec"][field] = value.clone();
        }
        schema.prune(&mut new);
        schema.default(&mut new);
        let mut errors = FieldErrors::new();
        schema.validate(&new, Some(old), &mut errors);
        assert_eq!(
            sorted(&errors),
            expected(&update["errors"]),
            "{}",
            update["changes"]
        );
    }
}

#[test]
fn w179_w180_metadata_of_embedded_resources_is_decoded_and_checked() {
    let schema = compile(&tidings_json::json!({
        "type": "object",
        "properties": {"e": {
            "type": "object",
            "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        }},
    }))
    .expect("it is structural");
    for case in data(include_str!("data/metadata.json"))
        .as_array()
        .expect("a list")
    {
        let metadata = &case["metadata"];
        let mut object =
            tidings_json::json!({"e": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}});
        let refused = match schema.coerce(&mut object, Malformed::Refuse) {
            Ok(unknown) => {
                let known = case.get("unknown").map(expected).unwrap_or_default();
                assert_eq!(unknown, known, "{metadata}");
                None
            }
            Err(error) => Some(error.to_string()),
        };
        let known = case.get("refused").and_then(Value::as_str);
        assert_eq!(refused.as_deref(), known, "{metadata}");
        if known.is_some() {
            continue;
        }
        let mut errors = FieldErrors::new();
        schema.validate(&object, None, &mut errors);
        let mut known = case.get("errors").map(expected).unwrap_or_default();
        known.sort();
        assert_eq!(sorted(&errors), known, "{metadata}");
        if errors.is_empty() {
            let becomes = case.get("becomes").unwrap_or(metadata);
            assert_eq!(object["e"]["metadata"], *becomes, "{metadata}");
        }
    }
}
