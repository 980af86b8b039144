//! Defaults and errors of new definitions.

use tidings_api::FieldErrors;
use tidings_json::json;
use tidings_structural::definition::{
    Definition, fill_in, status_of, validate, validate_status_update, warnings,
};

use crate::{NOW, cases, compare, data, definition, errors_of, merged};

#[test]
fn w177_new_definitions_are_filled_in_and_refused_as_upstream_does_it() {
    let data = data();
    for case in cases(&data, "create") {
        let mut new = merged(&data["base"], &case["change"]);
        fill_in(&mut new);
        let mut errors = FieldErrors::new();
        validate(&new, &mut errors);
        compare(case, &new, &errors);
        if errors.is_empty() {
            let read = Definition::read(&new);
            assert!(read.is_ok(), "{}: {:?}", case["name"], read.err());
        }
    }
}

#[test]
fn w177_selectable_fields_of_a_schema_with_references_are_told_too() {
    // Upstream panics here.
    let mut crd = definition(&json!({}));
    let version = &mut crd["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "properties": {"a": {"type": "string", "$ref": "x"}}});
    version["selectableFields"] = json!([{"jsonPath": ".a"}]);
    assert_eq!(
        errors_of(&crd),
        [
            "FieldValueForbidden | spec.validation.openAPIV3Schema.properties[a].$ref: Forbidden: $ref is not supported",
            "FieldValueInvalid | spec.schema.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema '$ref' is not supported",
        ]
    );
}

#[test]
fn w177_members_of_the_wrong_type_are_told_and_nothing_else() {
    let crd = definition(&json!({"spec": {
        "group": 5, "names": {"shortNames": ["a", 1]}, "preserveUnknownFields": "yes",
        "versions": [{"name": "v1", "additionalPrinterColumns": [{"priority": 1.5}, null]}],
    }}));
    let mut found = errors_of(&crd);
    found.sort();
    assert_eq!(
        found,
        [
            "FieldValueRequired | spec.versions[0].additionalPrinterColumns[1]: Required value: must not be null",
            "FieldValueTypeInvalid | spec.group: Invalid value: 5: must be of type string",
            "FieldValueTypeInvalid | spec.names.shortNames[1]: Invalid value: 1: must be of type string",
            "FieldValueTypeInvalid | spec.preserveUnknownFields: Invalid value: \"yes\": must be of type boolean",
            "FieldValueTypeInvalid | spec.versions[0].additionalPrinterColumns[0].priority: Invalid value: 1.5: must be of type \
             integer of 32 bits",
        ]
    );
}

#[test]
fn w177_what_is_no_definition_at_all_is_refused_everywhere() {
    for mut crd in [
        json!(null),
        json!([]),
        json!({"spec": []}),
        json!({"status": 1}),
    ] {
        fill_in(&mut crd);
        assert!(!errors_of(&crd).is_empty(), "{crd}");
        assert!(Definition::read(&crd).is_err(), "{crd}");
        status_of(&crd, &[&crd], NOW);
    }
}

#[test]
fn w177_accepted_names_are_checked_when_status_is_written() {
    let old = definition(&json!({}));
    let mut new = old.clone();
    new["status"]["acceptedNames"] = json!({"plural": "A", "kind": "B", "listKind": "B"});
    let mut errors = FieldErrors::new();
    validate_status_update(&new, &old, &mut errors);
    let paths: Vec<&str> = errors.iter().map(|error| error.path()).collect();
    assert_eq!(
        paths,
        [
            "status.acceptedNames.plural",
            "status.acceptedNames.listKind"
        ]
    );
    // An update of the status does not check the spec.
    new["spec"]["scope"] = "Nowhere".into();
    new["status"] = old["status"].clone();
    let mut errors = FieldErrors::new();
    validate_status_update(&new, &old, &mut errors);
    assert!(errors.is_empty());
}

#[test]
fn w177_authors_are_warned_of_formats_that_nobody_checks() {
    let mut crd = definition(&json!({}));
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({
        "a": {"type": "string", "format": "date-time"},
        "b": {"type": "string", "format": "dns"},
        "c": {"type": "array", "items": {"type": "integer", "format": "int128"}},
        "d": {"type": "boolean", "format": "date"},
    });
    let mut found = warnings(&crd, None);
    found.sort();
    assert_eq!(
        found,
        [
            "unrecognized format \"date\"",
            "unrecognized format \"dns\"",
            "unrecognized format \"int128\""
        ]
    );
    assert_eq!(warnings(&crd, Some(&crd)), [""; 0]);
}

#[test]
fn w181_roots_say_little_if_all_versions_have_a_status() {
    let crd = definition(&json!({"spec": {"versions": [
        {
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "maxProperties": 3}},
        },
        {
            "name": "v2", "served": true, "storage": false, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object"}},
        },
    ]}}));
    let found = errors_of(&crd);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "FieldValueInvalid | spec.versions[0].schema.openAPIV3Schema: Invalid value: {\"ID\":"
        ),
        "{found:?}"
    );
    assert!(
        found[0].ends_with(
            "fields are allowed at the root of the schema if the status subresource is enabled"
        ),
        "{found:?}"
    );
}
