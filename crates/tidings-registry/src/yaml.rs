//! Converts YAML to JSON, and JSON to YAML with sorted keys as upstream writes it.

use bytes::Bytes;
use tidings_json::{Map, Value};

/// A YAML document as JSON.
///
/// # Errors
/// With the reason, if it cannot be read.
pub fn to_json(yaml: &[u8]) -> Result<Bytes, String> {
    if yaml.iter().all(u8::is_ascii_whitespace) {
        return Ok(Bytes::from_static(b"null"));
    }
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    let value: Value = serde_saphyr::from_slice_with_options(yaml, options).map_err(|error| {
        // The first line names the error; the lines after it show the place in the document.
        let text = error.to_string();
        format!("yaml: {}", text.lines().next().unwrap_or_default())
    })?;
    serde_json::to_vec(&value)
        .map(Bytes::from)
        .map_err(|error| error.to_string())
}

/// A JSON document as YAML.
///
/// # Errors
/// If it is not JSON.
pub fn from_json(json: &[u8]) -> Result<Vec<u8>, String> {
    let value: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        empty_as_braces: true,
    };
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, &sorted(value), options)
        .map_err(|error| error.to_string())?;
    Ok(text.into_bytes())
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(String, Value)> = members.into_iter().collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            let sorted = members.into_iter().map(|(key, value)| (key, sorted(value)));
            Value::Object(sorted.collect::<Map>())
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    #[test]
    fn w41_a_document_is_the_same_in_both() {
        let document = json!({
            "kind": "ConfigMap",
            "metadata": {"name": "x", "labels": {}, "finalizers": []},
            "data": {"a": "1", "b": "true", "c": "line\nline\n", "d": "", "e": "yes", "f": "# no", "g": " x: y"},
            "list": [{"a": 1, "b": [1, 2]}, null, false, "~"],
        });
        let yaml = from_json(document.to_string().as_bytes()).unwrap();
        let text = String::from_utf8(yaml.clone()).unwrap();
        let back: Value = serde_json::from_slice(&to_json(&yaml).unwrap()).unwrap();
        assert_eq!(back, document, "{text}");
        assert!(text.starts_with("data:\n  a: "), "{text}");
        assert!(text.contains("labels: {}"), "{text}");
    }

    #[test]
    fn w40_what_people_write_is_understood() {
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x # a comment\ndata:\n  a: \"1\"\n  text: |\n    one\n    two\n";
        let json: Value = serde_json::from_slice(&to_json(yaml.as_bytes()).unwrap()).unwrap();
        assert_eq!(json["data"]["text"], "one\ntwo\n");
        assert_eq!(json["data"]["a"], "1");
        assert!(to_json(b"a: b: c").unwrap_err().starts_with("yaml: "));
    }
}
