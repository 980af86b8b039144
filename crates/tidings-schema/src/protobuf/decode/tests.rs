//! Decodes single fields of test types.

use tidings_json::{Value, json};

use super::*;
use crate::protobuf::put_json;
use crate::table::TypeTable;

/// Encodes a field of bytes.
fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("short");
    let mut field = vec![number << 3 | 2];
    if length >= 0x80 {
        field.extend([length, 1]);
    } else {
        field.push(length);
    }
    field.extend(value);
    field
}

/// Decodes bytes as a type with one field, which is given as a line of the type table.
fn check(line: &str, raw: &[u8]) -> Result<Value, DecodeError> {
    let text = format!("package test/v1 v1\ntype A\n {line}\ntype B\n x 1 string keep");
    let table = TypeTable::parse(text.leak()).expect("a table");
    let message_type = table.named("test/v1", "A").expect("A");
    let mut json = Vec::new();
    put_json(
        message_type,
        raw,
        &DecodeOptions::default(),
        &mut json,
        &mut |_| {},
    )?;
    Ok(serde_json::from_slice(&json).expect("JSON"))
}

#[test]
fn zero_values_are_left_out_unless_kept_or_pointed_to() {
    let wire = |line: &str| check(line, &[0x08, 0]).expect("decodes");
    assert_eq!(wire("a 1 int32"), json!({}));
    assert_eq!(wire("a 1 int32 keep"), json!({"a": 0}));
    assert_eq!(wire("a 1 *int32"), json!({"a": 0}));
    assert_eq!(wire("a 1 bool"), json!({}));
    assert_eq!(wire("a 1 *bool"), json!({"a": false}));
    assert_eq!(check("a 1 time", &bytes(1, &[])), Ok(json!({})));
    assert_eq!(check("a 1 *string", &bytes(1, &[])), Ok(json!({"a": ""})));
    assert_eq!(check("a 1 *B", &bytes(1, &[])), Ok(json!({"a": {"x": ""}})));
}

#[test]
fn kept_fields_are_there_without_being_sent() {
    for (line, expected) in [
        ("a 1 string keep", json!("")),
        ("a 1 int64 keep", json!(0)),
        ("a 1 bool keep", json!(false)),
        ("a 1 bytes keep", json!(null)),
        ("a 1 []string keep", json!(null)),
        ("a 1 {}string keep", json!(null)),
        ("a 1 *B keep", json!(null)),
        ("a 1 B keep", json!({"x": ""})),
        ("a 1 time keep", json!(null)),
        ("a 1 microtime keep", json!(null)),
        ("a 1 quantity keep", json!("0")),
        ("a 1 intorstring keep", json!(0)),
        ("a 1 raw keep", json!(null)),
    ] {
        assert_eq!(check(line, &[]), Ok(json!({"a": expected})), "{line}");
    }
    assert_eq!(check("- 1 B", &[]), Ok(json!({"x": ""})));
}

#[test]
fn negative_numbers_are_cut_to_their_size() {
    let minus_two = [
        0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
    ];
    assert_eq!(check("a 1 int32", &minus_two), Ok(json!({"a": -2})));
    assert_eq!(check("a 1 int64", &minus_two), Ok(json!({"a": -2})));
}

#[test]
fn numbers_come_packed_or_not() {
    assert_eq!(
        check("a 1 []int64", &[0x08, 1, 0x0a, 2, 2, 3]),
        Ok(json!({"a": [1, 2, 3]}))
    );
    assert_eq!(
        check("a 1 []int64", &[0x0a, 1, 0x80]),
        Err(DecodeError::Truncated)
    );
}

#[test]
fn maps_are_sorted_and_entries_may_lack_key_or_value() {
    let entry = |key: &[u8], value: &[u8]| bytes(1, &[bytes(1, key), bytes(2, value)].concat());
    let raw = [
        entry(b"b", b"1"),
        entry(b"a", b"2"),
        entry(b"b", b"3"),
        bytes(1, &[]),
    ]
    .concat();
    let decoded = check("a 1 {}string", &raw).expect("decodes");
    assert_eq!(decoded.to_string(), r#"{"a":{"":"","a":"2","b":"3"}}"#);
    assert_eq!(
        check("a 1 {}bytes", &bytes(1, &[])),
        Ok(json!({"a": {"": ""}}))
    );
    let strings = entry(b"k", &bytes(1, b"v"));
    assert_eq!(
        check("a 1 {}strings", &strings),
        Ok(json!({"a": {"k": ["v"]}}))
    );
}

#[test]
fn times_are_as_go_writes_them() {
    let at = |line: &str, raw: &[u8]| check(line, &bytes(1, raw)).map(|found| found["a"].clone());
    assert_eq!(
        at("a 1 *time", &[0x08, 0, 0x10, 5]),
        Ok(json!("1970-01-01T00:00:00Z"))
    );
    assert_eq!(
        at("a 1 *microtime", &[0x08, 1]),
        Ok(json!("1970-01-01T00:00:01.000000Z"))
    );
    let nanos = [0x08, 1, 0x10, 0xcf, 0x0f];
    assert_eq!(
        at("a 1 *microtime", &nanos),
        Ok(json!("1970-01-01T00:00:01.000001Z"))
    );
    let beyond = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(at("a 1 *time", &beyond), Err(DecodeError::Value("a")));
    assert_eq!(at("a 1 *microtime", &beyond), Err(DecodeError::Value("a")));
    let year_one = [
        0x08, 0x80, 0x92, 0xb8, 0xc3, 0x98, 0xfe, 0xff, 0xff, 0xff, 1,
    ];
    assert_eq!(at("a 1 *time", &year_one), Ok(json!(null)));
}

#[test]
fn embedded_json_keeps_its_order_and_must_be_json() {
    let raw = |json: &[u8]| check("a 1 raw keep", &bytes(1, &bytes(1, json)));
    let decoded = raw(br#"{"z":1,"a":[null]}"#).expect("decodes");
    assert_eq!(decoded.to_string(), r#"{"a":{"z":1,"a":[null]}}"#);
    assert_eq!(raw(b"{"), Err(DecodeError::Value("a")));
    assert_eq!(raw(b""), Ok(json!({"a": null})));
}

#[test]
fn unknown_fields_are_skipped() {
    let mut raw = vec![0x10, 5]; // a number
    raw.extend([0x19, 1, 2, 3, 4, 5, 6, 7, 8]); // 64 bits
    raw.extend([0x25, 1, 2, 3, 4]); // 32 bits
    raw.extend([0x2b, 0x33, 0x10, 5, 0x34, 0x2c]); // a group in a group
    raw.extend(bytes(1, b"v"));
    assert_eq!(check("a 1 string", &raw), Ok(json!({"a": "v"})));
}

#[test]
fn malformed_input_is_refused() {
    let refuse = |raw: &[u8], error| assert_eq!(check("a 1 string", raw), Err(error), "{raw:?}");
    refuse(&[0x0a], DecodeError::Truncated);
    refuse(&[0x0a, 2, b'a'], DecodeError::Truncated);
    refuse(
        &[
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
        ],
        DecodeError::Truncated,
    );
    refuse(&[0xff; 11], DecodeError::Overflow);
    refuse(&[0x08, 1], DecodeError::WireType("a"));
    refuse(&[0x02, 0], DecodeError::Tag(2));
    refuse(&[0x0c], DecodeError::Tag(4));
    refuse(&[0x0b, 0x0b], DecodeError::Truncated);
}

#[test]
fn text_that_is_not_utf8_is_replaced_byte_by_byte() {
    assert_eq!(text(b"a\xff\xe2\x82b"), "a\u{fffd}\u{fffd}\u{fffd}b");
    assert_eq!(text("☃".as_bytes()), "☃");
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| {
        // Builds from the inside out, because lengths can have several bytes.
        let mut raw = Vec::new();
        for _ in 0..depth {
            let mut outer = vec![0x0a];
            let mut length = raw.len();
            while length >= 0x80 {
                outer.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            outer.push(length as u8);
            outer.append(&mut raw);
            raw = outer;
        }
        check("a 1 *A", &raw)
    };
    assert!(nested(DEPTH_MAX - 1).is_ok());
    assert_eq!(nested(DEPTH_MAX), Err(DecodeError::Depth));
}

#[test]
fn the_number_of_values_is_bounded() {
    let raw = |count: usize| [0x08, 1].repeat(count);
    assert!(check("a 1 []bool", &raw(VALUES_MAX)).is_ok());
    assert_eq!(
        check("a 1 []bool", &raw(VALUES_MAX + 1)),
        Err(DecodeError::Values)
    );
}

#[test]
fn fields_that_later_ones_replace_are_counted_too() {
    let entries = |count: usize| [0x0a, 0].repeat(count);
    assert_eq!(
        check("a 1 {}string", &entries(VALUES_MAX)),
        Ok(json!({"a": {"": ""}}))
    );
    assert_eq!(
        check("a 1 {}string", &entries(VALUES_MAX + 1)),
        Err(DecodeError::Values)
    );
}
