//! The OpenAPI 2 document in protobuf, in the message types of gnostic, for kubectl (W34).

use tidings_json::Value;

/// Writes the document of `/openapi/v2`. `json` has what is not encoded yet.
pub(super) fn document<'e>(
    json: &Value,
    paths: impl Iterator<Item = &'e Vec<u8>> + Clone,
    definitions: impl Iterator<Item = &'e Vec<u8>> + Clone,
    mut write: impl FnMut(&[u8]),
) {
    let mut out = ProtobufMessage::default();
    out.text(1, &json["swagger"]);
    let mut info = ProtobufMessage::default();
    info.text(1, &json["info"]["title"]);
    info.text(2, &json["info"]["version"]);
    out.message(2, &info);
    out.head(8, paths.clone().map(Vec::len).sum());
    write(&std::mem::take(&mut out).0);
    paths.for_each(|path| write(path));
    out.head(9, definitions.clone().map(Vec::len).sum());
    write(&std::mem::take(&mut out).0);
    definitions.for_each(|definition| write(definition));
    let mut shared = ProtobufMessage::default();
    for (name, value) in members(&json["parameters"]) {
        shared.message(1, &named(name, &parameter(value)));
    }
    out.message(10, &shared);
    for requirement in elements(&json["security"]) {
        let mut required = ProtobufMessage::default();
        for (name, _) in members(requirement) {
            required.message(1, &named(name, &ProtobufMessage::default()));
        }
        out.message(12, &required);
    }
    let mut ways = ProtobufMessage::default();
    for (name, way) in members(&json["securityDefinitions"]) {
        let mut key = ProtobufMessage::default();
        for (field, member) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
            key.text(field, &way[member]);
        }
        ways.message(1, &named(name, &wrapped(2, &key)));
    }
    out.message(13, &ways);
    write(&out.0);
}

/// A protobuf message that is being encoded.
#[derive(Debug, Default)]
struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// The tag and the length of a field, whose bytes follow.
    fn head(&mut self, field: u64, length: usize) {
        self.number(field << 3 | 2);
        self.number(length as u64);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.head(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &ProtobufMessage) {
        self.bytes(field, &message.0);
    }

    /// Adds a string field, unless the value is empty or absent.
    fn text(&mut self, field: u64, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u64, values: &Value) {
        for value in elements(values) {
            self.text(field, value);
        }
    }

    fn flag(&mut self, field: u64, value: &Value) {
        if value == &Value::Bool(true) {
            self.number(field << 3);
            self.number(1);
        }
    }

    /// Adds the members whose names begin with `x-`.
    fn extensions(&mut self, field: u64, json: &Value) {
        for (name, value) in members(json).filter(|(name, _)| name.starts_with("x-")) {
            let mut extension = ProtobufMessage::default();
            extension.bytes(1, name.as_bytes());
            extension.any(2, value);
            self.message(field, &extension);
        }
    }

    /// Adds any value as text: gnostic parses it as YAML, which includes JSON.
    fn any(&mut self, field: u64, value: &Value) {
        let mut any = ProtobufMessage::default();
        any.bytes(2, value.to_string().as_bytes());
        self.message(field, &any);
    }
}

fn members(json: &Value) -> impl Iterator<Item = (&String, &Value)> {
    json.as_object().into_iter().flatten()
}

fn elements(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn named(name: &str, value: &ProtobufMessage) -> ProtobufMessage {
    let mut named = ProtobufMessage::default();
    named.bytes(1, name.as_bytes());
    named.message(2, value);
    named
}

/// A message with only this field.
fn wrapped(field: u64, inner: &ProtobufMessage) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.message(field, inner);
    out
}

/// A path and its operations, as a field of the message `Paths`.
pub(super) fn path(name: &str, json: &Value) -> Vec<u8> {
    let mut item = ProtobufMessage::default();
    for (field, method) in [
        (2, "get"),
        (3, "put"),
        (4, "post"),
        (5, "delete"),
        (8, "patch"),
    ] {
        if let Some(found) = json.get(method) {
            item.message(field, &operation(found));
        }
    }
    for value in elements(&json["parameters"]) {
        item.message(9, &parameter_or_reference(value));
    }
    wrapped(2, &named(name, &item)).0
}

/// A schema, as a field of the message `Definitions`.
pub(super) fn definition(name: &str, json: &Value) -> Vec<u8> {
    wrapped(1, &named(name, &schema(json))).0
}

fn operation(json: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.texts(1, &json["tags"]);
    out.text(3, &json["description"]);
    out.text(5, &json["operationId"]);
    out.texts(6, &json["produces"]);
    out.texts(7, &json["consumes"]);
    for value in elements(&json["parameters"]) {
        out.message(8, &parameter_or_reference(value));
    }
    let mut responses = ProtobufMessage::default();
    for (code, value) in members(&json["responses"]) {
        let mut response = ProtobufMessage::default();
        response.text(1, &value["description"]);
        if let Some(found) = value.get("schema") {
            response.message(2, &wrapped(1, &schema(found)));
        }
        responses.message(1, &named(code, &wrapped(1, &response)));
    }
    out.message(9, &responses);
    out.texts(10, &json["schemes"]);
    out.extensions(13, json);
    out
}

fn parameter_or_reference(json: &Value) -> ProtobufMessage {
    if json.get("$ref").is_some() {
        let mut reference = ProtobufMessage::default();
        reference.text(1, &json["$ref"]);
        return wrapped(2, &reference);
    }
    wrapped(1, &parameter(json))
}

/// A parameter in the body, in the path, or in the query.
fn parameter(json: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    if json["in"] == "body" {
        out.text(2, &json["name"]);
        out.text(3, &json["in"]);
        out.flag(4, &json["required"]);
        out.message(5, &schema(&json["schema"]));
        return wrapped(1, &out);
    }
    out.flag(1, &json["required"]);
    out.text(2, &json["in"]);
    out.text(3, &json["description"]);
    out.text(4, &json["name"]);
    // In gnostic's messages a query parameter has one more field before the type than a path parameter.
    let (place, type_field, unique_field) = match json["in"].as_str() {
        Some("path") => (4, 5, 19),
        _ => (3, 6, 20),
    };
    out.text(type_field, &json["type"]);
    out.flag(unique_field, &json["uniqueItems"]);
    wrapped(2, &wrapped(place, &out))
}

/// The message `Properties`: schemas by name.
fn named_schemas(schemas: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    for (name, value) in members(schemas) {
        out.message(1, &named(name, &schema(value)));
    }
    out
}

fn schema(json: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.text(1, &json["$ref"]);
    out.text(2, &json["format"]);
    out.text(4, &json["description"]);
    if let Some(default) = json.get("default") {
        out.any(5, default);
    }
    for name in json["required"].as_array().into_iter().flatten() {
        out.text(19, name);
    }
    for value in elements(&json["enum"]) {
        out.any(20, value);
    }
    if let Some(values) = json.get("additionalProperties") {
        let mut item = ProtobufMessage::default();
        item.message(1, &schema(values));
        out.message(21, &item);
    }
    if json.get("type").is_some() {
        let mut item = ProtobufMessage::default();
        item.text(1, &json["type"]);
        out.message(22, &item);
    }
    if let Some(elements) = json.get("items") {
        let mut item = ProtobufMessage::default();
        item.message(1, &schema(elements));
        out.message(23, &item);
    }
    if json.get("properties").is_some() {
        out.message(25, &named_schemas(&json["properties"]));
    }
    out.extensions(31, json);
    out
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

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

    #[test]
    fn w34_a_document_in_protobuf_says_how_to_authenticate() {
        let json = json!({
            "security": [{"B": []}],
            "securityDefinitions": {"B": {"type": "t", "name": "n", "in": "i"}},
        });
        let expected = [
            &[0x62, 7, 0x0a, 5, 0x0a, 1, b'B', 0x12, 0][..],
            &[0x6a, 18, 0x0a, 16, 0x0a, 1, b'B', 0x12, 11, 0x12, 9],
            &[0x0a, 1, b't', 0x12, 1, b'n', 0x1a, 1, b'i'],
        ];
        let mut bytes = Vec::new();
        let none: [Vec<u8>; 0] = [];
        document(&json, none.iter(), none.iter(), |part| {
            bytes.extend_from_slice(part)
        });
        assert!(bytes.ends_with(&expected.concat()), "{bytes:?}");
    }

    #[test]
    fn w34_an_operation_in_protobuf() {
        let json = json!({
            "tags": ["t"],
            "consumes": ["c"],
            "parameters": [{"$ref": "#/p"}, {"name": "n", "in": "path", "required": true, "type": "string"}],
            "responses": {"200": {"description": "OK"}},
        });
        let parameter = [
            0x42, 25, 0x0a, 23, 0x12, 21, 0x22, 19, 8, 1, 0x12, 4, b'p', b'a', b't', b'h', 0x22, 1,
            b'n', 0x2a, 6, b's', b't', b'r', b'i', b'n', b'g',
        ];
        let expected = [
            &[0x0a, 1, b't', 0x3a, 1, b'c'][..],
            &[0x42, 7, 0x12, 5, 0x0a, 3, b'#', b'/', b'p'],
            &parameter,
            &[
                0x4a, 15, 0x0a, 13, 0x0a, 3, b'2', b'0', b'0', 0x12, 6, 0x0a, 4, 0x0a, 2, b'O',
                b'K',
            ],
        ];
        assert_eq!(operation(&json).0, expected.concat());
    }
}
