//! Steps of a path: how a part of a value is told from the others.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// The member of an object.
    Field(Box<str>),
    /// The item of a list that has these values, sorted by their names.
    Key(Box<[(Box<str>, Part)]>),
    /// The item of a list that is this.
    Value(Part),
    /// The item of a list at this place. Only ever read: lists that are told apart by places are taken as one.
    Index(i64),
}

/// A value with the order in which sets of fields are written: numbers, text, booleans, lists, objects, null.
#[derive(Debug, Clone, PartialEq)]
pub struct Part(pub Value);

impl Eq for Part {}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Part) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Part {
    fn cmp(&self, other: &Part) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Number(one), Value::Number(two)) => {
                let whole = one.as_i64().zip(two.as_i64());
                let order = whole.map_or_else(
                    || {
                        let broken = |number: &serde_json::Number| number.as_f64().unwrap_or(0.0);
                        broken(one).total_cmp(&broken(two))
                    },
                    |(one, two)| one.cmp(&two),
                );
                // Numbers that are equal may still be written in two ways.
                order.then_with(|| one.to_string().cmp(&two.to_string()))
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

impl Element {
    /// The member of an object.
    pub fn field(name: &str) -> Element {
        Element::Field(name.into())
    }

    /// The item of a list with these values.
    pub fn key(mut values: Vec<(Box<str>, Value)>) -> Element {
        values.sort_by(|one, two| one.0.cmp(&two.0));
        let parts = values.into_iter().map(|(name, value)| (name, Part(value)));
        Element::Key(parts.collect())
    }

    /// As `FieldsV1` has it: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`.
    pub fn encoded(&self) -> String {
        match self {
            Element::Field(name) => format!("f:{name}"),
            Element::Key(parts) => {
                let members = parts.iter();
                let members = members.map(|(name, part)| (String::from(&**name), part.0.clone()));
                format!("k:{}", Value::Object(members.collect()))
            }
            Element::Value(part) => format!("v:{}", part.0),
            Element::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads what [`Element::encoded`] writes. `None` if it is nothing of the kind.
    pub fn decode(text: &str) -> Option<Element> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Element::field(rest)),
            "k" => {
                let members: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let values = members.into_iter();
                Some(Element::key(
                    values.map(|(name, value)| (name.into(), value)).collect(),
                ))
            }
            "v" => Some(Element::Value(Part(serde_json::from_str(rest).ok()?))),
            "i" => Some(Element::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

/// As paths are shown: `.name`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(parts) => {
                let parts = parts.iter();
                let parts: Vec<_> = parts
                    .map(|(name, part)| format!("{name}={}", part.0))
                    .collect();
                write!(f, "[{}]", parts.join(","))
            }
            Element::Value(part) => write!(f, "[={}]", part.0),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        for text in [
            "f:spec",
            "f:a.b/c:d",
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            r#"v:"example.com/f""#,
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
        let port = |number: i64| Element::key(vec![("port".into(), json!(number))]);
        assert!(port(80) < port(443));
        assert!(Part(json!(9)) < Part(json!("1")));
        assert!(Part(json!("a")) < Part(json!(true)));
        assert!(Element::field("z") < port(1) && port(1) < Element::Value(Part(json!(0))));
    }

    #[test]
    fn paths_are_shown_as_people_know_them() {
        let shown = |element: Element| element.to_string();
        assert_eq!(shown(Element::field("data")), ".data");
        let key = vec![
            ("protocol".into(), json!("TCP")),
            ("containerPort".into(), json!(80)),
        ];
        assert_eq!(
            shown(Element::key(key)),
            r#"[containerPort=80,protocol="TCP"]"#
        );
        assert_eq!(shown(Element::Value(Part(json!("x")))), r#"[="x"]"#);
    }
}
