//! JSONPath, selectable fields, and the view of a schema for merging.

use tidings_api::FieldErrors;
use tidings_json::{Value, json};
use tidings_structural::{
    CompileOptions, JsonPath, ListKind, Schema, SchemaShape, check_simple_json_path,
};

fn object() -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"a.b": "dotted", "app.kubernetes.io/name": "long"}},
        "spec": {"replicas": 3, "on": true, "list": [1, 2, 3, 4]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "age": 5},
            {"type": "Stuck", "status": "False", "age": 9},
        ]},
    })
}

#[test]
fn w184_json_paths_find_what_kubernetes_finds() {
    for (path, expected) in [
        (".spec.replicas", json!([3])),
        ("{.spec.replicas}", json!([3])),
        ("$.spec.replicas", json!([3])),
        (".spec.missing.deeper", json!([])),
        (r".metadata.labels.a\.b", json!(["dotted"])),
        (r".metadata.labels['a\.b']", json!(["dotted"])),
        (r".metadata.labels['a.b']", json!(["dotted"])),
        (
            r".metadata.labels.app\.kubernetes\.io/name",
            json!(["long"]),
        ),
        (".metadata['name']", json!(["a"])),
        (".spec.list[0]", json!([1])),
        (".spec.list[-1]", json!([4])),
        (".spec.list[9]", json!([])),
        (".spec.list[0,2]", json!([1, 3])),
        (".spec.list[1:3]", json!([2, 3])),
        (".spec.list[:2]", json!([1, 2])),
        (".spec.list[::2]", json!([1, 3])),
        (".spec.list[*]", json!([1, 2, 3, 4])),
        (".status.conditions[*].type", json!(["Ready", "Stuck"])),
        (
            r#".status.conditions[?(@.type=="Ready")].status"#,
            json!(["True"]),
        ),
        (
            ".status.conditions[?(@.type == 'Stuck')].status",
            json!(["False"]),
        ),
        (
            ".status.conditions[?(@.type != 'Stuck')].status",
            json!(["True"]),
        ),
        (".status.conditions[?(@.age > 5)].type", json!(["Stuck"])),
        (".status.conditions[?(@.age <= 5)].type", json!(["Ready"])),
        (".status.conditions[?(@.missing)].type", json!([])),
        ("..age", json!([5, 9])),
        (".", json!([object()])),
    ] {
        let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let object = object();
        assert_eq!(json!(parsed.find(&object)), expected, "{path}");
        assert_eq!(parsed.first(&object), expected.get(0), "{path}");
    }
}

#[test]
fn w184_texts_that_are_no_paths_are_refused() {
    for (path, expected) in [
        (".spec[", "unterminated array"),
        (".spec[a]", "invalid array index a"),
        (".spec['a", "unterminated array"),
        (".spec[1:2:3:4]", "invalid array index 1:2:3:4"),
        (".spec[::0]", "step must be > 0"),
        (".spec[?(@.a==b)]", "invalid filter operand b"),
        (".spec..", "empty field name"),
        ("@", "unrecognized character in action: U+0040 '@'"),
        (".a b", "unrecognized character in action: U+0020 ' '"),
    ] {
        let error = JsonPath::parse(path).expect_err(path);
        assert_eq!(error.to_string(), expected, "{path}");
    }
    assert!(
        JsonPath::parse(&".a".repeat(100)).is_err(),
        "a path has a bound"
    );
}

#[test]
fn values_of_selectors_are_texts() {
    let text = |path: &str| JsonPath::parse(path).expect("a path").first_text(&object());
    assert_eq!(text(".spec.replicas"), "3");
    assert_eq!(text(".spec.on"), "true");
    assert_eq!(text(".metadata.name"), "a");
    assert_eq!(text(".spec.missing"), "");
}

#[test]
fn printer_columns_start_with_a_dot() {
    let mut errors = FieldErrors::new();
    check_simple_json_path(".spec.a", "columns[0].JSONPath", &mut errors);
    assert!(errors.is_empty());
    check_simple_json_path("spec.a", "columns[1].JSONPath", &mut errors);
    assert_eq!(
        errors.to_string(),
        r#"columns[1].JSONPath: Invalid value: "spec.a": must be a simple json path starting with ."#
    );
}

fn schema() -> Schema {
    let schema = json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": {"type": "object", "properties": {
            "color": {"type": "string", "enum": ["red"]},
            "size": {"type": "integer"},
            "ratio": {"type": "number"},
            "plain": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "required": ["port"], "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                }},
            },
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true},
        }},
    }});
    Schema::compile(&schema, "schema", CompileOptions::default())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn w184_selectable_fields_are_checked_against_the_schema() {
    let fields = schema()
        .selectable_fields(&[".spec.color", ".spec.size"], "fields")
        .expect("they are right");
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["spec.color", "spec.size"]);
    assert_eq!(fields[1].1.first_text(&json!({"spec": {"size": 4}})), "4");

    let wrong = [
        "",
        ".spec.color",
        ".spec.color",
        ".spec.nope",
        ".metadata.name",
        ".spec.ratio",
        ".spec.ports[0]",
        "spec.size",
    ];
    let errors = schema()
        .selectable_fields(&wrong, "fields")
        .expect_err("they are wrong");
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "fields[0].jsonPath: Required value",
            r#"fields[2].jsonPath: Duplicate value: ".spec.color""#,
            r#"fields[3].jsonPath: Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field"#,
            r#"fields[4].jsonPath: Invalid value: ".metadata.name": must not point to fields in metadata"#,
            r#"fields[5].jsonPath: Invalid value: ".spec.ratio": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
            r#"fields[6].jsonPath: Invalid value: ".spec.ports[0]": is an invalid path: array notation is not allowed"#,
            r#"fields[7].jsonPath: Invalid value: "spec.size": is an invalid path: expected [ or . but got: spec"#,
        ]
    );
}

#[test]
fn views_say_how_values_merge() {
    let schema = schema();
    let spec = schema.view().field("spec").expect("spec is specified");
    let shape = |name: &str| {
        let view = spec.field(name).expect(name);
        (view.shape(), view.list_kind(), view.is_atomic())
    };
    let keys = ["port".to_owned(), "protocol".to_owned()];
    assert_eq!(shape("size"), (SchemaShape::Scalar, ListKind::Atomic, true));
    assert_eq!(shape("port"), (SchemaShape::Scalar, ListKind::Atomic, true));
    assert_eq!(shape("plain"), (SchemaShape::List, ListKind::Atomic, true));
    assert_eq!(shape("set"), (SchemaShape::List, ListKind::Set, false));
    assert_eq!(
        shape("ports"),
        (SchemaShape::List, ListKind::Map(&keys), false)
    );
    assert_eq!(shape("labels"), (SchemaShape::Map, ListKind::Atomic, false));
    assert_eq!(
        shape("whole"),
        (SchemaShape::Struct, ListKind::Atomic, true)
    );
    assert_eq!(
        shape("free"),
        (SchemaShape::Untyped, ListKind::Atomic, true)
    );
    assert!(!spec.is_atomic());
    assert!(spec.field("nope").is_none());
    let ports = spec
        .field("ports")
        .and_then(|ports| ports.items())
        .expect("items are specified");
    assert_eq!(
        ports.field("protocol").and_then(|field| field.default()),
        Some(&json!("TCP"))
    );
    assert_eq!(
        ports.fields().map(|(name, _)| name).collect::<Vec<_>>(),
        ["port", "protocol"]
    );
    assert_eq!(
        spec.field("labels")
            .and_then(|labels| labels.field("any"))
            .map(|view| view.type_name()),
        Some("string")
    );
}
