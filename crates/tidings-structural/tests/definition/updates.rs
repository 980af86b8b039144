//! Errors of updates of definitions, and faults that updates may keep.

use tidings_api::FieldErrors;
use tidings_json::{Value, json};
use tidings_structural::definition::{Definition, fill_in, validate_update};

use crate::{cases, compare, data, definition, errors_of, errors_of_update, merged, read};

#[test]
fn w177_updates_are_refused_as_upstream_does_it() {
    let data = data();
    for case in cases(&data, "update") {
        let mut old = merged(&data["base"], &case["old"]);
        old["status"] = case["old_status"].clone();
        fill_in(&mut old);
        let mut new = merged(&old, &case["change"]);
        fill_in(&mut new);
        let mut errors = FieldErrors::new();
        validate_update(&new, &old, &mut errors);
        compare(case, &new, &errors);
    }
}

const PROPERTIES: &str = "/spec/versions/0/schema/openAPIV3Schema/properties";

/// Adds a property to the schema of the first version.
fn specify(crd: &mut Value, name: &str, schema: Value) {
    crd.pointer_mut(PROPERTIES).expect("it is there")[name] = schema;
}

#[test]
fn w179_an_update_may_keep_what_was_wrong_with_a_schema() {
    for (fault, new_fault) in [
        (json!({"type": "strings"}), "Unsupported value: \"strings\""),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "default": {"c": 1}}),
            "must not have unknown fields",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
            "must be atomic as item of a list",
        ),
        (
            json!({
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            }),
            "so it must have a default or be a required property",
        ),
        (
            json!({
                "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": true},
            }),
            "cannot be nullable when x-kubernetes-list-type is set",
        ),
    ] {
        let good = definition(&json!({}));
        let mut faulty = good.clone();
        specify(&mut faulty, "x", fault.clone());
        let refused = errors_of_update(&faulty, &good);
        assert!(
            matches!(refused.as_slice(), [one] if one.contains(new_fault)),
            "{fault}: {refused:?}"
        );
        let mut changed = faulty.clone();
        specify(&mut changed, "y", fault.clone());
        assert_eq!(errors_of_update(&changed, &faulty), [""; 0], "{fault}");
        assert!(Definition::read(&changed).is_ok(), "{fault}");
    }
}

#[test]
fn w179_a_schema_that_is_not_structural_stays_only_while_unknown_fields_do() {
    let mut old = definition(&json!({"spec": {"preserveUnknownFields": true}}));
    specify(&mut old, "x", json!({}));
    assert_eq!(errors_of_update(&old, &old), [""; 0]);
    let mut new = old.clone();
    new["spec"]["preserveUnknownFields"] = false.into();
    let needs_type = "FieldValueRequired | spec.validation.openAPIV3Schema.properties[x].type: Required value: must not be empty for \
                      specified object fields";
    assert_eq!(errors_of_update(&new, &old), [needs_type]);
    let mut new = old.clone();
    specify(&mut new, "y", json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(errors_of_update(&new, &old), [needs_type]);
    let mut new = old.clone();
    specify(&mut new, "y", json!({"type": "string", "default": "a"}));
    assert_eq!(
        errors_of_update(&new, &old),
        [
            "FieldValueInvalid | spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema",
            needs_type
        ]
    );
}

#[test]
fn w177_an_approval_that_was_missing_may_be_missing_still() {
    let mut old = definition(&json!({
        "metadata": {"name": "shirts.defs.k8s.io"}, "spec": {"group": "defs.k8s.io"},
    }));
    assert_eq!(errors_of_update(&old, &old), [""; 0]);
    let mut new = old.clone();
    new["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "nonsense"});
    assert_eq!(errors_of_update(&new, &old).len(), 1);
    old["metadata"]["annotations"] = new["metadata"]["annotations"].clone();
    assert_eq!(errors_of_update(&new, &old), [""; 0]);
}

#[test]
fn w177_a_stored_version_that_is_missing_is_told_at_its_last_place() {
    let old = definition(&json!({}));
    let mut new = old.clone();
    new["status"]["storedVersions"] = json!(["v0", "v1", "va", "v0"]);
    let mut errors = FieldErrors::new();
    validate_update(&new, &old, &mut errors);
    let paths: Vec<&str> = errors.iter().map(|error| error.path()).collect();
    assert_eq!(
        paths,
        ["status.storedVersions[2]", "status.storedVersions[3]"]
    );
}

#[test]
fn w177_versions_without_schemas_stay_only_while_they_are_not_served() {
    let mut old = definition(&json!({}));
    old["spec"]["versions"][0]["schema"] = Value::Null;
    let because = "FieldValueRequired | spec.versions[0].schema.openAPIV3Schema: Required value: because otherwise all fields are \
                   pruned";
    assert_eq!(errors_of_update(&old, &old), [because]);
    let mut new = old.clone();
    new["spec"]["versions"][0]["served"] = false.into();
    assert_eq!(errors_of_update(&new, &old), [""; 0]);
}

#[test]
fn w184_too_many_selectable_fields_may_stay_but_not_change() {
    let of = |count: usize| {
        let mut crd = definition(&json!({}));
        for index in 0..10 {
            specify(&mut crd, &format!("a{index}"), json!({"type": "string"}));
        }
        let fields = (0..count).map(|index| json!({"jsonPath": format!(".a{index}")}));
        crd["spec"]["versions"][0]["selectableFields"] = fields.collect();
        crd
    };
    assert_eq!(errors_of_update(&of(9), &of(9)), [""; 0]);
    assert_eq!(read(&of(9)).storage().fields.len(), 9);
    assert_eq!(
        errors_of_update(&of(10), &of(9)),
        ["FieldValueTooMany | spec.selectableFields: Too many: 10: must have at most 8 items"]
    );
}

#[test]
fn w179_rules_of_an_unchanged_schema_may_cost_what_they_cost() {
    let mut crd = definition(&json!({}));
    let expensive = json!({
        "type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 1000,
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a == b || a != b))"}],
    });
    specify(&mut crd, "x", expensive);
    let refused = errors_of(&crd);
    assert!(
        matches!(refused.as_slice(), [one] if one.contains("estimated rule cost exceeds budget")),
        "{refused:?}"
    );
    assert_eq!(errors_of_update(&crd, &crd), [""; 0]);
    assert!(Definition::read(&crd).is_ok());
    let mut changed = crd.clone();
    specify(&mut changed, "y", json!({"type": "string"}));
    assert_eq!(errors_of_update(&changed, &crd), refused);
}
