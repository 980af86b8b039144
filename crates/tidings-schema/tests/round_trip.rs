//! Property tests: objects of all types are unchanged after encoding to protobuf and decoding.

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use tidings_json::{Map, Value, json};
use tidings_schema::protobuf::{
    DecodeOptions, EncodeError, decode_object, encode_object, put_json, put_message,
};
use tidings_schema::{Field, FieldKind, ItemType, StructAlternative, Type};

/// Makes random objects as Go writes them: without empty fields that Go leaves out.
struct Maker {
    random: TestRng,
    /// The number of optional values that may still be made.
    budget: u32,
}

impl Maker {
    fn below(&mut self, bound: u32) -> u32 {
        self.random.next_u32() % bound
    }

    /// True if an optional value is to be made.
    fn wants(&mut self) -> bool {
        let wants = self.budget > 0 && self.below(3) > 0;
        self.budget -= u32::from(wants);
        wants
    }

    fn object(&mut self, of: &Type) -> Map {
        let mut object = Map::new();
        // `kind` and `apiVersion` are in the envelope.
        for field in of.fields().iter().filter(|field| field.number != 0) {
            if let Some(inner) = field.inlined() {
                object.extend(self.object(inner));
                continue;
            }
            let value = self.field(field);
            let absent = match &value {
                Value::Null => true,
                Value::String(text) => text.is_empty() && !field.pointer,
                Value::Bool(value) => !value && !field.pointer,
                Value::Number(number) => number.as_i64() == Some(0) && !field.pointer,
                _ => false,
            };
            if field.keep || !absent {
                object.insert(field.name.to_owned(), value);
            }
        }
        object
    }

    /// A value for a field; `null` if it is absent.
    fn field(&mut self, field: &Field) -> Value {
        match field.kind {
            FieldKind::One(item) => {
                let is_struct = matches!(item, ItemType::Struct(_)) && !field.pointer;
                if is_struct || self.wants() {
                    self.item(item)
                } else if field.pointer {
                    Value::Null
                } else {
                    zero(item)
                }
            }
            FieldKind::List(item) => {
                let mut list = Vec::new();
                while list.len() < 4 && self.wants() {
                    list.push(self.item(item));
                }
                if list.is_empty() {
                    Value::Null
                } else {
                    list.into()
                }
            }
            FieldKind::Map(item) => {
                let mut map = Map::new();
                while map.len() < 4 && self.wants() {
                    let key = self.text();
                    map.insert(key, self.item(item));
                }
                map.sort_keys();
                if map.is_empty() {
                    Value::Null
                } else {
                    map.into()
                }
            }
        }
    }

    fn item(&mut self, item: ItemType) -> Value {
        let number = self.random.next_u64() as i64 >> self.below(64);
        match item {
            ItemType::String => self.text().into(),
            ItemType::Bytes => {
                const SOME: [&str; 5] = ["", "AA==", "AAE=", "AAEC", "//79/A=="];
                SOME[self.below(5) as usize].into()
            }
            ItemType::Bool => (self.below(2) == 0).into(),
            ItemType::Int32 => (number as i32).into(),
            ItemType::Int64 => number.into(),
            ItemType::Double if self.below(2) == 0 => (number >> 11).into(),
            ItemType::Double => (number as f64 / 3.0 + 0.1).into(),
            ItemType::Time => {
                let time = Timestamp::from_second(self.seconds());
                time.expect("within the calendar").to_string().into()
            }
            ItemType::MicroTime => {
                let micros = self.seconds() * 1_000_000 + i64::from(self.below(1_000_000));
                let time = Timestamp::from_microsecond(micros).expect("within the calendar");
                format!("{time:.6}").into()
            }
            ItemType::Quantity => format!("{}Mi", self.below(5000)).into(),
            ItemType::IntOrString if self.below(2) == 0 => self.text().into(),
            ItemType::IntOrString => (number as i32).into(),
            ItemType::Raw | ItemType::Fields => {
                json!({"f:z": {}, "f:a": [null, self.text(), number]})
            }
            ItemType::Strings => json!([self.text(), self.text()]),
            ItemType::Struct(inner) => self.object(inner).into(),
            ItemType::Either(inner, other) => match (self.below(2), other) {
                (0, _) => self.object(inner).into(),
                (_, StructAlternative::Bool) => (self.below(2) == 0).into(),
                (_, StructAlternative::List) => json!([self.object(inner), self.object(inner)]),
                (_, StructAlternative::Strings) => json!([self.text(), self.text()]),
            },
        }
    }

    /// A time in the years 1 to 9999, which Go can write, except Go's zero time.
    fn seconds(&mut self) -> i64 {
        const FIRST: i64 = -62_135_596_799;
        const COUNT: u64 = 315_537_000_000;
        FIRST + (self.random.next_u64() % COUNT) as i64
    }

    fn text(&mut self) -> String {
        const SOME: [&str; 8] = [
            "",
            "a",
            "\"\\/\n",
            "<&>",
            "\u{2028}é",
            "😀",
            "k8s.io/name",
            "0",
        ];
        let long = "x".repeat(self.below(300) as usize);
        match self.below(9) {
            8 => long,
            at => SOME[at as usize].to_owned(),
        }
    }
}

/// The zero value as Go writes it.
fn zero(item: ItemType) -> Value {
    match item {
        ItemType::String => "".into(),
        ItemType::Bool => false.into(),
        ItemType::Int32 | ItemType::Int64 | ItemType::IntOrString => 0.into(),
        ItemType::Quantity => "0".into(),
        _ => Value::Null,
    }
}

fn document(of: &Type, object: Map) -> Value {
    let api_version = match of.group {
        "" => of.version.to_owned(),
        group => format!("{group}/{}", of.version),
    };
    let mut document = Map::new();
    document.insert("kind".into(), of.name.into());
    document.insert("apiVersion".into(), api_version.into());
    document.extend(object);
    document.into()
}

fn any_document(of: &'static Type) -> impl Strategy<Value = Value> {
    (0_u32..400).prop_perturb(move |budget, random| {
        let mut maker = Maker { random, budget };
        document(of, maker.object(of))
    })
}

#[test]
fn objects_of_every_kind_come_back_unchanged() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let mut count = 0;
    for kind in tidings_schema::kinds() {
        runner
            .run(&any_document(kind), |document| {
                let json = document.to_string();
                let body = encode_object(json.as_bytes())
                    .map_err(|error| TestCaseError::fail(error.to_string()))?;
                let decoded = decode_object(&body, None)
                    .map_err(|error| TestCaseError::fail(error.to_string()))?;
                // Escapes may differ, and nothing else.
                let decoded: Value = serde_json::from_slice(&decoded)
                    .map_err(|error| TestCaseError::fail(error.to_string()))?;
                prop_assert_eq!(decoded.to_string(), json);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        count += 1;
    }
    assert!(count > 100, "{count} kinds");
}

fn pod() -> &'static Type {
    tidings_schema::find("", "v1", "Pod").expect("Pod")
}

/// The object with the members in order or in reverse order. Without managedFields, whose order and spaces would be kept.
fn arranged(value: &Value, reverse: bool) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(name, _)| *name != "managedFields");
            let mut members: Vec<(String, Value)> = members
                .map(|(name, value)| (name.clone(), arranged(value, reverse)))
                .collect();
            if reverse {
                members.reverse();
            }
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(|item| arranged(item, reverse)).collect(),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_and_the_spaces_of_json_do_not_matter(document in any_document(pod())) {
        let body = encode_object(arranged(&document, false).to_string().as_bytes());
        let again = encode_object(format!("{:#}", arranged(&document, true)).as_bytes());
        prop_assert_eq!(body, again);
    }

    #[test]
    fn damaged_json_never_panics(document in any_document(pod()), at in any::<usize>(), byte in any::<u8>()) {
        let mut json = document.to_string().into_bytes();
        let at = at % json.len();
        json[at] = byte;
        let _ = encode_object(&json);
        let _ = put_message(pod(), &json, &mut Vec::new());
        let _ = put_message(pod(), &json[..at], &mut Vec::new());
    }
}

#[test]
fn values_of_another_type_are_refused() {
    let encode = |object: Value| put_message(pod(), object.to_string().as_bytes(), &mut Vec::new());
    for (object, field) in [
        (json!([]), "Pod"),
        (json!({"metadata": 1}), "metadata"),
        (json!({"metadata": {"labels": ["a"]}}), "labels"),
        (json!({"metadata": {"labels": {"a": 1}}}), "labels"),
        (json!({"metadata": {"generation": "1"}}), "generation"),
        (json!({"metadata": {"generation": 1.5}}), "generation"),
        (
            json!({"metadata": {"creationTimestamp": "now"}}),
            "creationTimestamp",
        ),
        (json!({"spec": {"hostNetwork": "true"}}), "hostNetwork"),
        (json!({"spec": {"priority": 1_i64 << 40}}), "priority"),
        (json!({"spec": {"containers": {}}}), "containers"),
    ] {
        assert_eq!(
            encode(object.clone()),
            Err(EncodeError::Value(field)),
            "{object}"
        );
    }
    let secret = tidings_schema::find("", "v1", "Secret").expect("Secret");
    let bad = put_message(secret, br#"{"data":{"a":"?"}}"#, &mut Vec::new());
    assert_eq!(bad, Err(EncodeError::Value("data")));
    assert_eq!(encode_object(b"{"), Err(EncodeError::Json));
    let unknown = encode_object(br#"{"kind":"Nope","apiVersion":"v1"}"#);
    assert!(matches!(unknown, Err(EncodeError::UnknownKind { .. })));
}

/// Encodes a schema as a message and decodes it again.
fn schema_and_back(json: &Value) -> Result<Value, EncodeError> {
    let schema = tidings_schema::find_type("apiextensions/v1", "JSONSchemaProps");
    let schema = schema.expect("JSONSchemaProps");
    let mut out = Vec::new();
    put_message(schema, json.to_string().as_bytes(), &mut out)?;
    let mut decoded = Vec::new();
    put_json(
        schema,
        &out,
        &DecodeOptions::default(),
        &mut decoded,
        &mut |_| {},
    )
    .expect("decodes");
    Ok(serde_json::from_slice(&decoded).expect("JSON"))
}

#[test]
fn a_schema_or_something_else_is_read_as_go_does() {
    for (json, expected) in [
        (json!({"items": {}}), json!({"items": {}})),
        (
            json!({"items": [null, {"type": "a"}]}),
            json!({"items": [{}, {"type": "a"}]}),
        ),
        (json!({"items": []}), json!({"items": null})),
        (json!({"items": 1}), json!({"items": null})),
        (
            json!({"additionalItems": false, "additionalProperties": {}}),
            json!({"additionalItems": false, "additionalProperties": {}}),
        ),
        (
            json!({"dependencies": {"a": null, "b": ["c", null], "d": {"id": "e", "nosuch": 1}}}),
            json!({"dependencies": {"a": null, "b": ["c", ""], "d": {"id": "e"}}}),
        ),
        (
            json!({"maximum": 100.0, "minimum": -0.5, "multipleOf": 1e300}),
            json!({"maximum": 100, "minimum": -0.5, "multipleOf": 1e300}),
        ),
        (
            json!({"default": null, "enum": [null, 1], "example": 0}),
            json!({"enum": [null, 1], "example": 0}),
        ),
    ] {
        let found = schema_and_back(&json).map(|found| found.as_object().cloned());
        // Ignores the order of members, which is that of the type.
        assert_eq!(found, Ok(expected.as_object().cloned()), "{json}");
    }
    for (json, field) in [
        (
            json!({"additionalProperties": "true"}),
            "additionalProperties",
        ),
        (json!({"items": [1]}), "items"),
        (json!({"dependencies": {"a": [1]}}), "dependencies"),
        (json!({"maximum": "1"}), "maximum"),
    ] {
        assert_eq!(
            schema_and_back(&json),
            Err(EncodeError::Value(field)),
            "{json}"
        );
    }
}

#[test]
fn of_members_with_one_name_the_last_counts() {
    let message = |json: &str| {
        let mut out = Vec::new();
        put_message(pod(), json.as_bytes(), &mut out).map(|()| out)
    };
    assert_eq!(
        message(r#"{"metadata":{"name":"a","name":"b","labels":{"k":"1","k":"2"}},"nosuch":1}"#),
        message(r#"{"metadata":{"name":"b","labels":{"k":"2"}}}"#)
    );
    assert_eq!(
        message(r#"{"metadata":null,"spec":{"containers":[null]}}"#),
        message(r#"{"spec":{"containers":[{}]}}"#)
    );
}
