//! Property tests: no input panics, and pruning and defaulting twice has the effect of once.

use proptest::prelude::*;
use tidings_api::FieldErrors;
use tidings_json::{Value, json};
use tidings_structural::{CompileOptions, JsonPath, Malformed, Schema};

const NAMES: [&str; 6] = ["a", "b", "c", "kind", "metadata", "apiVersion"];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![6 => prop::sample::select(&NAMES[..]).prop_map(str::to_owned), 1 => "[a-zé.\\-]{0,3}"]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..9_i64).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c0-9%.:/ é-]{0,6}".prop_map(Value::from),
    ]
}

/// Any JSON. Few names, so that schemas specify some of them.
fn anything() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

const KEYWORDS: [&str; 38] = [
    "type",
    "nullable",
    "default",
    "properties",
    "additionalProperties",
    "items",
    "format",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "required",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    "id",
    "$ref",
    "definitions",
    "dependencies",
    "patternProperties",
    "title",
    "description",
];

/// Objects that look like schemas; most are invalid.
fn almost_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        scalar(),
        Just(json!("object")),
        Just(json!("array")),
        Just(json!("string")),
        Just(json!(["a", "b"])),
        Just(json!([{"rule": "self.a > self.b[0] && has(self.c)"}])),
        Just(json!([{"rule": "self.all(x, x.", "fieldPath": ".a['b"}])),
        Just(json!({})),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        let keyword = prop::sample::select(&KEYWORDS[..]).prop_map(str::to_owned);
        prop_oneof![
            3 => prop::collection::vec((keyword, inner.clone()), 0..6).prop_map(|entries| Value::Object(entries.into_iter().collect())),
            1 => prop::collection::vec((name(), inner.clone()), 0..4).prop_map(|entries| Value::Object(entries.into_iter().collect())),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

/// Structural schemas, some with defaults and rules.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "default": "a", "maxLength": 3})),
        Just(json!({"type": "string", "nullable": true, "pattern": "^[a-c]*$"})),
        Just(json!({"type": "string", "format": "date-time"})),
        Just(json!({"type": "integer", "default": 3, "minimum": 1, "multipleOf": 3})),
        Just(
            json!({"type": "number", "maximum": 2.5, "x-kubernetes-validations": [{"rule": "self < 2.0"}]})
        ),
        Just(json!({"type": "boolean", "nullable": true, "default": true})),
        Just(
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
        ),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
        ),
    ];
    let node = leaf.prop_recursive(3, 16, 3, |inner| {
        let fields = prop::collection::vec((prop::sample::select(&NAMES[..3]), inner.clone()), 0..3);
        prop_oneof![
            fields.prop_map(|fields| {
                let properties: tidings_json::Map = fields.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
                json!({"type": "object", "properties": properties, "default": {},
                    "x-kubernetes-validations": [{"rule": "self == self"}]})
            }),
            inner.clone().prop_map(|node| json!({"type": "array", "items": node, "maxItems": 5})),
            inner.prop_map(|node| json!({"type": "object", "additionalProperties": node, "maxProperties": 5})),
            Just(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 5})),
            Just(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "maxItems": 5, "items": {
                "type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "integer", "minimum": 2}}}})),
        ]
    });
    let fields = prop::collection::vec((prop::sample::select(&NAMES[..3]), node), 1..4);
    fields.prop_map(|fields| {
        let properties: tidings_json::Map = fields
            .into_iter()
            .map(|(name, node)| (name.to_owned(), node))
            .collect();
        json!({"type": "object", "properties": properties})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn compiling_never_panics(schema in almost_schema()) {
        let _ = Schema::compile(&schema, "schema", CompileOptions::default().with_status_subresource(true));
    }

    #[test]
    fn compiling_anything_never_panics(schema in anything()) {
        let _ = Schema::compile(&schema, "schema", CompileOptions::default());
    }

    #[test]
    fn reading_a_path_never_panics(text in "[.\\[\\]'\"a@?()=<>0-9:,*\\\\ $-]{0,12}", value in anything()) {
        if let Ok(path) = JsonPath::parse(&text) {
            let found = path.find(&value);
            prop_assert_eq!(path.first(&value), found.first().copied());
        }
    }

    #[test]
    fn objects_settle(schema in schema(), object in anything(), old in anything()) {
        let schema = Schema::compile(&schema, "schema", CompileOptions::default()).unwrap_or_else(|errors| panic!("{errors}"));
        let mut errors = FieldErrors::new();
        schema.validate(&object, None, &mut errors);
        schema.validate(&object, Some(&old), &mut errors);
        schema.validate_status(&object, &old, &mut errors);

        let mut once = object.clone();
        schema.prune(&mut once);
        let _ = schema.coerce(&mut once, Malformed::Drop);
        schema.default(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
        schema.default(&mut twice);
        prop_assert_eq!(&once, &twice, "what is pruned and defaulted stays as it is");
    }
}
