//! Steps of a path: how a part of a value is told from the others.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use tidings_json::{Map, Value, is_plain, write_string};

/// One step of a path. Names and values are borrowed from the object, where there is one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element<'a> {
    /// The member of an object.
    Field(Cow<'a, str>),
    /// The item of a list that has these values, sorted by their names.
    Key(Box<[(Cow<'a, str>, Part<'a>)]>),
    /// The item of a list that is this.
    Value(Part<'a>),
    /// The item of a list at this place. Only ever read: lists that are told apart by places are taken as one.
    Index(i64),
}

/// A value with the order in which sets of fields are written: numbers, text, booleans, lists, objects, null.
#[derive(Debug, Clone)]
pub enum Part<'a> {
    /// Stands in an object.
    Borrowed(&'a Value),
    /// Stands alone. It is boxed because elements are many and their own values few.
    Owned(Box<Value>),
}

impl Part<'_> {
    /// The value.
    pub fn value(&self) -> &Value {
        match self {
            Part::Borrowed(value) => value,
            Part::Owned(value) => value,
        }
    }

    fn into_owned(self) -> Part<'static> {
        match self {
            Part::Borrowed(value) => value.clone().into(),
            Part::Owned(value) => Part::Owned(value),
        }
    }
}

impl From<Value> for Part<'static> {
    fn from(value: Value) -> Part<'static> {
        Part::Owned(Box::new(value))
    }
}

impl PartialEq for Part<'_> {
    fn eq(&self, other: &Part<'_>) -> bool {
        self.value() == other.value()
    }
}

impl Eq for Part<'_> {}

impl PartialOrd for Part<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Part<'_> {
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
                // Numbers that are equal may still be written in two ways.
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

impl<'a> Element<'a> {
    /// The member of an object.
    pub fn field(name: &'a str) -> Element<'a> {
        Element::Field(name.into())
    }

    /// The item of a list with these values.
    pub fn key(mut values: Vec<(Cow<'a, str>, Part<'a>)>) -> Element<'a> {
        values.sort_by(|one, two| one.0.cmp(&two.0));
        Element::Key(values.into())
    }

    /// An element that borrows nothing.
    pub fn into_owned(self) -> Element<'static> {
        match self {
            Element::Field(name) => Element::Field(name.into_owned().into()),
            Element::Key(parts) => {
                let parts = parts.into_iter();
                let owned = |(name, part): (Cow<'_, str>, Part<'_>)| {
                    (name.into_owned().into(), part.into_owned())
                };
                Element::Key(parts.map(owned).collect())
            }
            Element::Value(part) => Element::Value(part.into_owned()),
            Element::Index(index) => Element::Index(index),
        }
    }

    /// As `FieldsV1` has it: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`. What is JSON in it is escaped as Go does it.
    pub fn encoded(&self) -> String {
        let mut text = String::new();
        self.encode(&mut text);
        text
    }

    /// Appends what [`Element::encoded`] makes.
    pub(crate) fn encode(&self, text: &mut String) {
        match self {
            Element::Field(name) => {
                text.push_str("f:");
                text.push_str(name);
            }
            Element::Key(parts) => {
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
            Element::Value(part) => {
                text.push_str("v:");
                push_value(text, part.value());
            }
            Element::Index(index) => {
                text.push_str("i:");
                text.push_str(&index.to_string());
            }
        }
    }

    /// Appends the same as a JSON string, if nothing in it has to be escaped but quotes, as is the rule. False, and nothing is
    /// appended, if something has.
    pub(crate) fn push_plain(&self, json: &mut String) -> bool {
        let before = json.len();
        let done = match self {
            Element::Field(name) => {
                json.push_str("\"f:");
                push_if_plain(json, name)
            }
            Element::Key(parts) => {
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
            Element::Value(part) => {
                json.push_str("\"v:");
                push_plain_value(json, part.value())
            }
            Element::Index(_) => false,
        };
        if done {
            json.push('"');
        } else {
            json.truncate(before);
        }
        done
    }

    /// Reads what [`Element::encoded`] writes. `None` if it is nothing of the kind.
    pub fn decode(text: &str) -> Option<Element<'static>> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Element::Field(rest.to_owned().into())),
            "k" => {
                let members: Map = serde_json::from_str(rest).ok()?;
                let values = members.into_iter();
                Some(Element::key(
                    values
                        .map(|(name, value)| (name.into(), value.into()))
                        .collect(),
                ))
            }
            "v" => {
                let value: Value = serde_json::from_str(rest).ok()?;
                Some(Element::Value(value.into()))
            }
            "i" => Some(Element::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

/// Appends text that stands in JSON as it is. False, and nothing is appended, if it does not.
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

/// As paths are shown: `.name`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(parts) => {
                let parts = parts.iter();
                let parts: Vec<_> = parts
                    .map(|(name, part)| format!("{name}={}", part.value()))
                    .collect();
                write!(f, "[{}]", parts.join(","))
            }
            Element::Value(part) => write!(f, "[={}]", part.value()),
            Element::Index(index) => write!(f, "[{index}]"),
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
            let element = Element::decode(text).expect(text);
            assert_eq!(element.encoded(), text);
        }
        for text in ["", "f", "x:y", "k:[]", "k:{", "v:", "i:x"] {
            assert_eq!(Element::decode(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_come_in_their_order_and_before_text() {
        let part = |value: Value| Part::from(value);
        let port = |number: i64| Element::key(vec![("port".into(), part(json!(number)))]);
        assert!(port(80) < port(443));
        assert!(part(json!(9)) < part(json!("1")));
        assert!(part(json!("a")) < part(json!(true)));
        assert!(Element::field("z") < port(1) && port(1) < Element::Value(part(json!(0))));
    }

    #[test]
    fn paths_are_shown_as_people_know_them() {
        let shown = |element: Element<'_>| element.to_string();
        assert_eq!(shown(Element::field("data")), ".data");
        let key = vec![
            ("protocol".into(), Part::from(json!("TCP"))),
            ("containerPort".into(), Part::from(json!(80))),
        ];
        assert_eq!(
            shown(Element::key(key)),
            r#"[containerPort=80,protocol="TCP"]"#
        );
        assert_eq!(shown(Element::Value(json!("x").into())), r#"[="x"]"#);
    }
}
