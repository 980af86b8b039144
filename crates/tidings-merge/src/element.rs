//! Elements of field paths: they identify a member of an object or an item of a list.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use tidings_json::{Map, Value, is_plain, write_string};

/// One step of a field path. Names and values are borrowed from the object where possible.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement<'a> {
    /// A member of an object.
    Field(Cow<'a, str>),
    /// The item of a list whose key members have these values, sorted by name.
    Key(Box<[(Cow<'a, str>, ElementValue<'a>)]>),
    /// The item of a set that equals this value.
    Value(ElementValue<'a>),
    /// The item of a list at this index. Only read, never made: lists without keys are atomic.
    Index(i64),
}

/// A key or set value, with the order of `fieldsV1`: numbers, text, booleans, lists, objects, null.
#[derive(Debug, Clone)]
pub enum ElementValue<'a> {
    /// A value of the object.
    Borrowed(&'a Value),
    /// A value of its own. It is boxed to keep elements small: there are many, and few own their value.
    Owned(Box<Value>),
}

impl ElementValue<'_> {
    /// The value.
    pub fn value(&self) -> &Value {
        match self {
            ElementValue::Borrowed(value) => value,
            ElementValue::Owned(value) => value,
        }
    }

    fn into_owned(self) -> ElementValue<'static> {
        match self {
            ElementValue::Borrowed(value) => value.clone().into(),
            ElementValue::Owned(value) => ElementValue::Owned(value),
        }
    }
}

impl From<Value> for ElementValue<'static> {
    fn from(value: Value) -> ElementValue<'static> {
        ElementValue::Owned(Box::new(value))
    }
}

impl PartialEq for ElementValue<'_> {
    fn eq(&self, other: &ElementValue<'_>) -> bool {
        self.value() == other.value()
    }
}

impl Eq for ElementValue<'_> {}

impl PartialOrd for ElementValue<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ElementValue<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.value(), other.value()) {
            (Value::Number(one), Value::Number(two)) => {
                let whole = one.as_i64().zip(two.as_i64());
                let order = whole.map_or_else(
                    || {
                        let broken = |number: &tidings_json::Number| number.as_f64().unwrap_or(0.0);
                        broken(one).total_cmp(&broken(two))
                    },
                    |(one, two)| one.cmp(&two),
                );
                // Equal numbers can have two spellings, such as `1` and `1.0`.
                order.then_with(|| {
                    if one == two {
                        Ordering::Equal
                    } else {
                        one.to_string().cmp(&two.to_string())
                    }
                })
            }
            (Value::String(one), Value::String(two)) => one.cmp(two),
            (one, two) => {
                let ranked = rank(one).cmp(&rank(two));
                ranked.then_with(|| one.to_string().cmp(&two.to_string()))
            }
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

impl<'a> PathElement<'a> {
    /// The element for a member of an object.
    pub fn field(name: &'a str) -> PathElement<'a> {
        PathElement::Field(name.into())
    }

    /// The element for the item of a list with these key values.
    pub fn key(mut values: Vec<(Cow<'a, str>, ElementValue<'a>)>) -> PathElement<'a> {
        values.sort_by(|one, two| one.0.cmp(&two.0));
        PathElement::Key(values.into())
    }

    /// An element that borrows nothing.
    pub fn into_owned(self) -> PathElement<'static> {
        match self {
            PathElement::Field(name) => PathElement::Field(name.into_owned().into()),
            PathElement::Key(parts) => {
                let parts = parts.into_iter();
                let owned = |(name, part): (Cow<'_, str>, ElementValue<'_>)| {
                    (name.into_owned().into(), part.into_owned())
                };
                PathElement::Key(parts.map(owned).collect())
            }
            PathElement::Value(part) => PathElement::Value(part.into_owned()),
            PathElement::Index(index) => PathElement::Index(index),
        }
    }

    /// The encoding in `fieldsV1`: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`. JSON inside is escaped as in Go.
    pub fn encoded(&self) -> String {
        let mut text = String::new();
        self.encode(&mut text);
        text
    }

    /// Appends the encoding, see [`PathElement::encoded`].
    pub(crate) fn encode(&self, text: &mut String) {
        match self {
            PathElement::Field(name) => {
                text.push_str("f:");
                text.push_str(name);
            }
            PathElement::Key(parts) => {
                text.push_str("k:{");
                for (at, (name, part)) in parts.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    write_string(text, name);
                    text.push(':');
                    push_value(text, part.value());
                }
                text.push('}');
            }
            PathElement::Value(part) => {
                text.push_str("v:");
                push_value(text, part.value());
            }
            PathElement::Index(index) => {
                text.push_str("i:");
                text.push_str(&index.to_string());
            }
        }
    }

    /// Appends the encoding as a JSON string if only quotes need escapes, which is the common case. Otherwise returns false and
    /// appends nothing.
    pub(crate) fn push_plain(&self, json: &mut String) -> bool {
        let before = json.len();
        let done = match self {
            PathElement::Field(name) => {
                json.push_str("\"f:");
                push_if_plain(json, name)
            }
            PathElement::Key(parts) => {
                json.push_str("\"k:{");
                let done = parts.iter().enumerate().all(|(at, (name, part))| {
                    json.push_str(if at > 0 { ",\\\"" } else { "\\\"" });
                    let named = push_if_plain(json, name);
                    json.push_str("\\\":");
                    named && push_plain_value(json, part.value())
                });
                json.push('}');
                done
            }
            PathElement::Value(part) => {
                json.push_str("\"v:");
                push_plain_value(json, part.value())
            }
            PathElement::Index(_) => false,
        };
        if done {
            json.push('"');
        } else {
            json.truncate(before);
        }
        done
    }

    /// Reads what [`PathElement::encoded`] writes. `None` if the text is not an element.
    pub fn decode(text: &str) -> Option<PathElement<'static>> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(PathElement::Field(rest.to_owned().into())),
            "k" => {
                let members: Map = serde_json::from_str(rest).ok()?;
                let values = members.into_iter();
                Some(PathElement::key(
                    values
                        .map(|(name, value)| (name.into(), value.into()))
                        .collect(),
                ))
            }
            "v" => {
                let value: Value = serde_json::from_str(rest).ok()?;
                Some(PathElement::Value(value.into()))
            }
            "i" => Some(PathElement::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

/// Appends text that needs no escapes in JSON. Otherwise returns false and appends nothing.
fn push_if_plain(json: &mut String, text: &str) -> bool {
    let plain = is_plain(text);
    if plain {
        json.push_str(text);
    }
    plain
}

fn push_plain_value(json: &mut String, value: &Value) -> bool {
    let Value::String(text) = value else {
        json.push_str(&value.to_string());
        return matches!(value, Value::Number(_) | Value::Bool(_) | Value::Null);
    };
    json.push_str("\\\"");
    let done = push_if_plain(json, text);
    json.push_str("\\\"");
    done
}

fn push_value(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => write_string(text, string),
        other => text.push_str(&other.to_string()),
    }
}

/// The form in error messages: `.name`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(parts) => {
                let parts = parts.iter();
                let parts: Vec<_> = parts
                    .map(|(name, part)| format!("{name}={}", part.value()))
                    .collect();
                write!(f, "[{}]", parts.join(","))
            }
            PathElement::Value(part) => write!(f, "[={}]", part.value()),
            PathElement::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        for text in [
            "f:spec",
            "f:a.b/c:d",
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            r#"v:"example.com/f""#,
            r#"k:{"name":"a\u003cb"}"#,
            "f:a<b",
            "v:7",
            "i:3",
        ] {
            let element = PathElement::decode(text).expect(text);
            assert_eq!(element.encoded(), text);
        }
        for text in ["", "f", "x:y", "k:[]", "k:{", "v:", "i:x"] {
            assert_eq!(PathElement::decode(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_come_in_their_order_and_before_text() {
        let part = |value: Value| ElementValue::from(value);
        let port = |number: i64| PathElement::key(vec![("port".into(), part(json!(number)))]);
        assert!(port(80) < port(443));
        assert!(part(json!(9)) < part(json!("1")));
        assert!(part(json!("a")) < part(json!(true)));
        assert!(PathElement::field("z") < port(1) && port(1) < PathElement::Value(part(json!(0))));
    }

    #[test]
    fn paths_are_shown_as_people_know_them() {
        let shown = |element: PathElement<'_>| element.to_string();
        assert_eq!(shown(PathElement::field("data")), ".data");
        let key = vec![
            ("protocol".into(), ElementValue::from(json!("TCP"))),
            ("containerPort".into(), ElementValue::from(json!(80))),
        ];
        assert_eq!(
            shown(PathElement::key(key)),
            r#"[containerPort=80,protocol="TCP"]"#
        );
        assert_eq!(shown(PathElement::Value(json!("x").into())), r#"[="x"]"#);
    }
}
