//! Pruning, defaulting and coercion, on small schemas.

#![allow(
    clippy::needless_pass_by_value,
    reason = "tables of cases read better without references"
)]

use tidings_json::{Value, json};
use tidings_structural::{CompileOptions, Malformed, Schema};

fn compile(properties: Value) -> Schema {
    let schema = json!({"type": "object", "properties": properties});
    Schema::compile(&schema, "schema", CompileOptions::default())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn preserving(properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true})
}

fn pruned(what: &str, properties: Value, mut object: Value, expected: Value, unknown: &[&str]) {
    let schema = compile(properties);
    assert_eq!(schema.prune(&mut object), unknown, "{what}");
    assert_eq!(object, expected, "{what}");
    assert!(
        schema.prune(&mut object).is_empty(),
        "{what}: a second time"
    );
}

#[test]
fn w180_unspecified_fields_are_pruned() {
    let number = json!({"type": "integer"});
    pruned(
        "type and metadata of the object itself stay",
        json!({}),
        json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "odd": 1}, "other": 1}),
        json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "odd": 1}}),
        &["other"],
    );
    pruned(
        "objects without properties are emptied",
        json!({"o": {"type": "object"}}),
        json!({"o": {"a": 1, "b": {"c": 2}}}),
        json!({"o": {}}),
        &["o.a", "o.b"],
    );
    pruned(
        "elements of lists",
        json!({"l": {"type": "array", "items": {"type": "object", "properties": {"a": number}}}}),
        json!({"l": [{"a": 1, "b": 2}, {"c": 3}, {}]}),
        json!({"l": [{"a": 1}, {}, {}]}),
        &["l[0].b", "l[1].c"],
    );
    pruned(
        "values of maps",
        json!({"m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": number}}}}),
        json!({"m": {"x": {"a": 1, "b": 2}, "y.z": {"c": 1}}}),
        json!({"m": {"x": {"a": 1}, "y.z": {}}}),
        &["m.x.b", "m.y.z.c"],
    );
    pruned(
        "a map of anything keeps keys, not what is below them",
        json!({"m": {"type": "object", "additionalProperties": true}}),
        json!({"m": {"x": 1, "y": {"z": 1}}}),
        json!({"m": {"x": 1, "y": {}}}),
        &["m.y.z"],
    );
    pruned(
        "values of the wrong type are left to validation",
        json!({"o": {"type": "object", "properties": {"a": number}}, "n": number}),
        json!({"o": 5, "n": {"b": 1}}),
        json!({"o": 5, "n": {}}),
        &["n.b"],
    );
}

#[test]
fn w180_unknown_fields_are_preserved_where_the_schema_says_so() {
    let number = json!({"type": "integer"});
    pruned(
        "what is unknown stays, with all below it",
        json!({"o": preserving(json!({}))}),
        json!({"o": {"a": {"b": [{"c": 1}]}}}),
        json!({"o": {"a": {"b": [{"c": 1}]}}}),
        &[],
    );
    pruned(
        "what is specified below is pruned again",
        json!({"o": preserving(json!({"p": {"type": "object", "properties": {"a": number}}}))}),
        json!({"o": {"x": 1, "p": {"a": 1, "b": 2}}}),
        json!({"o": {"x": 1, "p": {"a": 1}}}),
        &["o.p.b"],
    );
    pruned(
        "and preserved again below that",
        json!({"o": {"type": "object", "properties": {"p": preserving(json!({})), "q": {"type": "object"}}}}),
        json!({"o": {"p": {"a": 1}, "q": {"a": 1}}}),
        json!({"o": {"p": {"a": 1}, "q": {}}}),
        &["o.q.a"],
    );
}

#[test]
fn w180_embedded_resources_keep_their_type_and_metadata() {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}});
    pruned(
        "the rest of them is pruned",
        json!({"e": embedded, "l": {"type": "array", "items": embedded}}),
        json!({
            "e": {"apiVersion": "v1", "kind": "A", "metadata": {"odd": 1}, "spec": {"a": 1}, "b": 1},
            "l": [{"kind": "A", "c": 1}],
        }),
        json!({"e": {"apiVersion": "v1", "kind": "A", "metadata": {"odd": 1}, "spec": {}}, "l": [{"kind": "A"}]}),
        &["e.b", "e.spec.a", "l[0].c"],
    );
    pruned(
        "fields that happen to have these names do not stay elsewhere",
        json!({"o": {"type": "object", "properties": {"a": {"type": "string"}}}}),
        json!({"o": {"kind": "A", "metadata": {}, "a": "b"}}),
        json!({"o": {"a": "b"}}),
        &["o.kind", "o.metadata"],
    );
}

fn defaulted(what: &str, properties: Value, mut object: Value, expected: Value) {
    let schema = compile(properties);
    schema.prune(&mut object);
    schema.default(&mut object);
    assert_eq!(object, expected, "{what}");
    schema.default(&mut object);
    assert_eq!(object, expected, "{what}: a second time");
}

#[test]
fn w180_defaults_are_set() {
    let text = json!({"type": "string", "default": "A"});
    defaulted(
        "absent fields",
        json!({"a": text}),
        json!({}),
        json!({"a": "A"}),
    );
    defaulted(
        "present fields stay",
        json!({"a": text}),
        json!({"a": ""}),
        json!({"a": ""}),
    );
    defaulted(
        "nothing is set in objects that are absent",
        json!({"o": {"type": "object", "properties": {"a": text}}}),
        json!({}),
        json!({}),
    );
    defaulted(
        "unless they have a default themselves",
        json!({"o": {"type": "object", "default": {}, "properties": {"a": text}}}),
        json!({}),
        json!({"o": {"a": "A"}}),
    );
    defaulted(
        "in elements and values",
        json!({
            "l": {"type": "array", "items": {"type": "object", "properties": {"a": text}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": text}}},
        }),
        json!({"l": [{}, {"a": "B"}], "m": {"x": {}}}),
        json!({"l": [{"a": "A"}, {"a": "B"}], "m": {"x": {"a": "A"}}}),
    );
}

#[test]
fn w180_null_is_dropped_defaulted_or_kept() {
    defaulted(
        "by what the schema says",
        json!({
            "plain": {"type": "string"},
            "defaulted": {"type": "string", "default": "A"},
            "nullable": {"type": "string", "nullable": true},
            "both": {"type": "string", "nullable": true, "default": "A"},
        }),
        json!({"plain": null, "defaulted": null, "nullable": null, "both": null}),
        json!({"defaulted": "A", "nullable": null, "both": null}),
    );
    defaulted(
        "in lists it stays for validation to refuse",
        json!({"l": {"type": "array", "items": {"type": "string"}}}),
        json!({"l": ["a", null]}),
        json!({"l": ["a", null]}),
    );
}

#[test]
fn schemas_without_defaults_say_so() {
    assert!(
        !compile(json!({"o": {"type": "object", "properties": {"a": {"type": "string"}}}}))
            .has_defaults()
    );
    let deep = json!({"l": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string", "default": "A"}}}}});
    assert!(compile(deep).has_defaults());
    assert!(!compile(json!({})).has_rules());
}

#[test]
fn embedded_metadata_is_coerced() {
    let schema = compile(json!({
        "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }));
    let stored = json!({"metadata": {"bogus": 1}, "e": {"apiVersion": 1, "kind": "A", "metadata": {
        "name": "a", "bogus": 1, "labels": {"a": 1}, "generation": 2, "creationTimestamp": null,
    }}});

    let mut object = stored.clone();
    let error = schema
        .coerce(&mut object, Malformed::Refuse)
        .expect_err("apiVersion is a number");
    assert_eq!(
        error.to_string(),
        "e.apiVersion: Invalid value: 1: must be a string"
    );

    let mut object = stored;
    assert_eq!(
        schema.coerce(&mut object, Malformed::Drop),
        Ok(vec!["e.metadata.bogus".to_owned()])
    );
    assert_eq!(
        object,
        json!({"metadata": {"bogus": 1}, "e": {"kind": "A", "metadata": {"name": "a", "generation": 2}}}),
        "the metadata of the object itself is not its schema's business"
    );
}
