//! Objects as YAML manifests: for files that people read and `kubectl apply` takes.

use serde::Serialize;
use serde_json::Value;

/// Lists of words are written in one line up to this width.
const LINE_WIDTH: usize = 100;

/// Words that YAML reads as something else than text. YAML 1.1, which kubectl reads, has more of them than 1.2.
const YAML_WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// An object cannot be written as a manifest.
#[derive(Debug, thiserror::Error)]
#[error("an object cannot be written as a manifest: it is no JSON")]
pub struct ManifestError(#[source] serde_json::Error);

/// Writes objects as YAML documents. The same objects give the same text, so that a test can compare a file with what the code says.
///
/// ```
/// # use serde_json::json;
/// let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "website"}});
/// let text = tidings_controller::manifest([account])?;
/// assert_eq!(text, "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: website\n");
/// # Ok::<_, tidings_controller::ManifestError>(())
/// ```
///
/// # Errors
/// If an object cannot be written as JSON.
pub fn manifest(
    objects: impl IntoIterator<Item = impl Serialize>,
) -> Result<String, ManifestError> {
    let values = objects.into_iter().map(serde_json::to_value);
    let values: Vec<Value> = values.collect::<Result<_, _>>().map_err(ManifestError)?;
    Ok(documents(&values))
}

/// The YAML documents of some values.
pub(crate) fn documents(values: &[Value]) -> String {
    let mut text = String::new();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        match value {
            Value::Object(members) if members.is_empty() => text.push_str("{}\n"),
            Value::Array(items) if items.is_empty() => text.push_str("[]\n"),
            Value::Object(_) | Value::Array(_) => block(&mut text, value, 0),
            other => {
                text.push_str(&scalar(other));
                text.push('\n');
            }
        }
    }
    text
}

/// Writes a mapping or a sequence that is not empty, one entry a line.
fn block(text: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                text.push_str(&pad);
                text.push_str(&word(name));
                text.push(':');
                match in_line(member, indent + name.len()) {
                    Some(line) => {
                        text.push(' ');
                        text.push_str(&line);
                        text.push('\n');
                    }
                    None => {
                        text.push('\n');
                        block(text, member, indent + 2);
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                text.push_str(&pad);
                text.push_str("- ");
                match in_line(item, indent) {
                    Some(line) => {
                        text.push_str(&line);
                        text.push('\n');
                    }
                    None => {
                        // The first line of the item stands beside its dash.
                        let start = text.len();
                        block(text, item, indent + 2);
                        text.replace_range(start..start + indent + 2, "");
                    }
                }
            }
        }
        _ => {}
    }
}

/// A value that fits into the line of its name: a scalar, nothing, or a short list of words.
fn in_line(value: &Value, used: usize) -> Option<String> {
    match value {
        Value::Object(members) if members.is_empty() => Some("{}".to_owned()),
        Value::Object(_) => None,
        Value::Array(items) => {
            let words: Option<Vec<String>> = items.iter().map(list_word).collect();
            let line = format!("[{}]", words?.join(", "));
            (items.len() < 2 || used + line.len() <= LINE_WIDTH).then_some(line)
        }
        other => Some(scalar(other)),
    }
}

fn list_word(value: &Value) -> Option<String> {
    match value {
        Value::Object(_) | Value::Array(_) => None,
        Value::String(text) => Some(word(text)),
        other => Some(other.to_string()),
    }
}

/// A value that has no parts.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text, " ,()'") => text.clone(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// A text in a list or as a name: a comma would end it.
fn word(text: &str) -> String {
    match is_plain(text, "") {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// True if YAML reads a text without quotes as this text. A text that begins with a letter is no number and no time.
fn is_plain(text: &str, also: &str) -> bool {
    let is_harmless = |character: char| {
        character.is_ascii_alphanumeric() || "-_./".contains(character) || also.contains(character)
    };
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_harmless)
        && !text.ends_with(' ')
        && !YAML_WORDS.contains(&&*text.to_ascii_lowercase())
}

/// A text in quotes, as JSON has it. YAML wants more characters to be escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for character in Value::from(text).to_string().chars() {
        match character {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            printable => quoted.push(printable),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_so_that_yaml_reads_the_same() {
        let check = |value: Value, expected: &str| {
            assert_eq!(documents(&[json!({ "a": value })]), expected);
        };
        check(json!("text"), "a: text\n");
        check(json!("two words, (or so)"), "a: two words, (or so)\n");
        check(json!("key: value"), "a: \"key: value\"\n");
        check(json!("a # b"), "a: \"a # b\"\n");
        check(json!("Yes"), "a: \"Yes\"\n");
        check(json!("1.5"), "a: \"1.5\"\n");
        check(json!("2026-01-01"), "a: \"2026-01-01\"\n");
        check(json!(""), "a: \"\"\n");
        check(json!("ends "), "a: \"ends \"\n");
        check(json!("two\nlines\u{85}"), "a: \"two\\nlines\\u0085\"\n");
        check(json!(true), "a: true\n");
        check(json!(-1.5), "a: -1.5\n");
        check(json!(null), "a: null\n");
        check(json!({}), "a: {}\n");
        check(json!([]), "a: []\n");
        check(json!(["get", "*", "a, b"]), "a: [get, \"*\", \"a, b\"]\n");
        check(
            json!([{"b": 1, "c": {"d": 2}}, {"e": []}]),
            "a:\n  - b: 1\n    c:\n      d: 2\n  - e: []\n",
        );
        check(json!([[{"b": 1}], ["c"]]), "a:\n  - - b: 1\n  - [c]\n");
        let long = "x".repeat(LINE_WIDTH);
        check(json!([long, "b"]), &format!("a:\n  - {long}\n  - b\n"));
        check(json!([long]), &format!("a: [{long}]\n"));
        check(json!({"on": 1, "x/y": 2}), "a:\n  \"on\": 1\n  x/y: 2\n");
    }

    #[test]
    fn documents_are_separated() {
        assert_eq!(
            documents(&[json!({"a": 1}), json!({}), json!("b")]),
            "a: 1\n---\n{}\n---\nb\n"
        );
    }
}
