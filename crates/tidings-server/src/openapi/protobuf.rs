//! The old OpenAPI document in protobuf, in the message types of gnostic, as kubectl asks for it (W34).

use serde_json::{Map, Value};

/// The document of `/openapi/v2`.
pub(super) fn document(json: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &json["swagger"]);
    let mut info = Message::default();
    info.text(1, &json["info"]["title"]);
    info.text(2, &json["info"]["version"]);
    out.message(2, &info);
    out.message(8, &Message::default()); // no paths
    out.message(9, &named_schemas(&json["definitions"]));
    out.0
}

/// A protobuf message, field by field.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.number(field << 3 | 2);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// A field of text, if there is any.
    fn text(&mut self, field: u64, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    /// Any value: gnostic takes it as YAML, of which JSON is a part.
    fn any(&mut self, field: u64, value: &Value) {
        let mut any = Message::default();
        any.bytes(2, value.to_string().as_bytes());
        self.message(field, &any);
    }
}

/// `Definitions` and `Properties`: schemas by name.
fn named_schemas(schemas: &Value) -> Message {
    let mut out = Message::default();
    for (name, value) in schemas.as_object().into_iter().flatten() {
        let mut named = Message::default();
        named.bytes(1, name.as_bytes());
        named.message(2, &schema(value));
        out.message(1, &named);
    }
    out
}

fn schema(json: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, &json["$ref"]);
    out.text(2, &json["format"]);
    out.text(4, &json["description"]);
    if let Some(default) = json.get("default") {
        out.any(5, default);
    }
    for name in json["required"].as_array().into_iter().flatten() {
        out.text(19, name);
    }
    if let Some(values) = json.get("additionalProperties") {
        let mut item = Message::default();
        item.message(1, &schema(values));
        out.message(21, &item);
    }
    if json.get("type").is_some() {
        let mut item = Message::default();
        item.text(1, &json["type"]);
        out.message(22, &item);
    }
    if let Some(elements) = json.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(elements));
        out.message(23, &item);
    }
    if json.get("properties").is_some() {
        out.message(25, &named_schemas(&json["properties"]));
    }
    let empty = Map::new();
    let members = json.as_object().unwrap_or(&empty).iter();
    for (name, value) in members.filter(|(name, _)| name.starts_with("x-")) {
        let mut extension = Message::default();
        extension.bytes(1, name.as_bytes());
        extension.any(2, value);
        out.message(31, &extension);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn w34_a_schema_in_protobuf() {
        let json = json!({"type": "object", "properties": {"a": {"$ref": "#/b"}}, "x-y": 1});
        let bytes = schema(&json).0;
        // Field 22 has a two-byte tag.
        assert!(bytes.starts_with(&[0xb2, 0x01, 8, 0x0a, 6]), "{bytes:?}");
        assert_eq!(&bytes[5..11], b"object");
        let extension = [
            0xfa, 0x01, 10, 0x0a, 3, b'x', b'-', b'y', 0x12, 3, 0x12, 1, b'1',
        ];
        assert!(bytes.ends_with(&extension), "{bytes:?}");
    }
}
