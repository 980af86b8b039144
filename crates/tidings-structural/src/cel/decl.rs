//! The types that rules see: what a schema looks like from inside an expression, and how large its values can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::node::{Additional, Node};

/// The largest request, in bytes: nothing in an object can be larger.
pub(crate) const REQUEST_BYTES_MAX: i64 = 3 * 1024 * 1024;

/// A type with the bounds that its schema gives it.
#[derive(Debug, Clone)]
pub(crate) struct Decl {
    pub(crate) kind: Kind,
    /// The most elements or characters it can have; zero for scalars.
    pub(crate) elements_max: u64,
    /// The smallest JSON it can be written as, in bytes.
    pub(crate) bytes_min: i64,
}

/// What kind of type it is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Type,
    List(Arc<Decl>),
    Map(Arc<Decl>, Arc<Decl>),
    Object(Arc<BTreeMap<String, Arc<Decl>>>),
    Optional(Arc<Decl>),
    /// A type of the Kubernetes library, such as a quantity.
    Opaque(&'static str),
}

impl Kind {
    pub(crate) fn plain(self) -> Arc<Decl> {
        Arc::new(Decl {
            kind: self,
            elements_max: 0,
            bytes_min: 1,
        })
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Kind::Dyn)
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Kind::Int | Kind::Uint | Kind::Double)
    }

    /// Could a value have both types?
    pub(crate) fn agrees(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Dyn, _) | (_, Kind::Dyn) => true,
            // Objects, messages and wrappers may be null.
            (
                Kind::Null,
                Kind::Null
                | Kind::Object(_)
                | Kind::Opaque(_)
                | Kind::Optional(_)
                | Kind::Duration
                | Kind::Timestamp,
            )
            | (
                Kind::Object(_)
                | Kind::Opaque(_)
                | Kind::Optional(_)
                | Kind::Duration
                | Kind::Timestamp,
                Kind::Null,
            ) => true,
            (Kind::List(a), Kind::List(b)) | (Kind::Optional(a), Kind::Optional(b)) => {
                a.kind.agrees(&b.kind)
            }
            (Kind::Map(ak, av), Kind::Map(bk, bv)) => {
                ak.kind.agrees(&bk.kind) && av.kind.agrees(&bv.kind)
            }
            (Kind::Opaque(a), Kind::Opaque(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Dyn => "dyn",
            Kind::Null => "null",
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Double => "double",
            Kind::String => "string",
            Kind::Bytes => "bytes",
            Kind::Duration => "duration",
            Kind::Timestamp => "timestamp",
            Kind::Type => "type",
            Kind::Object(_) => "object",
            Kind::Opaque(name) => name,
            Kind::List(element) => return write!(f, "list({})", element.kind),
            Kind::Map(key, value) => return write!(f, "map({}, {})", key.kind, value.kind),
            Kind::Optional(inner) => return write!(f, "optional_type({})", inner.kind),
        })
    }
}

impl Decl {
    fn new(kind: Kind, elements_max: i64, bytes_min: i64) -> Option<Arc<Decl>> {
        Some(Arc::new(Decl {
            kind,
            elements_max: u64::try_from(elements_max).unwrap_or(0),
            bytes_min,
        }))
    }

    /// The type of values of a schema; `None` if rules cannot see them.
    pub(crate) fn of(node: &Node, is_resource: bool) -> Option<Arc<Decl>> {
        let characters = |node: &Node, otherwise: i64| match node.max_length {
            Some(max) => max.max(0).saturating_mul(4),
            None => otherwise,
        };
        if node.int_or_string {
            return Decl::new(Kind::Dyn, characters(node, REQUEST_BYTES_MAX - 2), 1);
        }
        match node.kind.as_str() {
            "array" => {
                let items = node.items.as_deref()?;
                let element = Decl::of(items, items.embedded)?;
                let max = match node.max_items {
                    Some(max) => max,
                    None => (REQUEST_BYTES_MAX - 2) / (element.bytes_min + 1),
                };
                Decl::new(Kind::List(element), max, 2)
            }
            "object" => match &node.additional {
                Additional::Schema(schema) if !is_resource || node.properties.is_empty() => {
                    let value = Decl::of(schema, schema.embedded)?;
                    let max = match node.max_properties {
                        Some(max) => max,
                        None => (REQUEST_BYTES_MAX - 2) / (value.bytes_min + 6),
                    };
                    Decl::new(Kind::Map(Kind::String.plain(), value), max, 2)
                }
                _ => Decl::object(node, is_resource),
            },
            "string" => match node.format_text.as_str() {
                "byte" => {
                    let max = node
                        .max_length
                        .map_or(REQUEST_BYTES_MAX - 2, |max| max.max(0));
                    Decl::new(Kind::Bytes, max, 2)
                }
                "duration" => Decl::new(Kind::Duration, 32, 3),
                "date" => Decl::new(Kind::Timestamp, 12, 12),
                "date-time" => Decl::new(Kind::Timestamp, 32, 21),
                _ => {
                    let named = node.enumeration.iter().filter_map(|value| value.as_str());
                    let longest = named
                        .map(|text| i64::try_from(text.len()).unwrap_or(i64::MAX))
                        .max();
                    let otherwise = if node.enumeration.is_empty() {
                        REQUEST_BYTES_MAX - 2
                    } else {
                        longest.unwrap_or(0)
                    };
                    Decl::new(Kind::String, characters(node, otherwise), 2)
                }
            },
            "boolean" => Decl::new(Kind::Bool, 0, 4),
            "number" => Decl::new(Kind::Double, 0, 1),
            "integer" => Decl::new(Kind::Int, 0, 1),
            _ => None,
        }
    }

    fn object(node: &Node, is_resource: bool) -> Option<Arc<Decl>> {
        let mut fields = BTreeMap::new();
        let mut bytes_min = 2;
        for (name, property) in &node.properties {
            let Some(decl) = Decl::of(property, property.embedded) else {
                continue;
            };
            if node.required.contains(name) && property.default.is_none() {
                bytes_min += i64::try_from(name.len()).unwrap_or(i64::MAX / 2) + decl.bytes_min + 4;
            }
            if let Some(escaped) = escape(name) {
                fields.insert(escaped, decl);
            }
        }
        if is_resource {
            let text = || Decl::new(Kind::String, REQUEST_BYTES_MAX - 2, 2);
            for name in ["kind", "apiVersion"] {
                if !fields.contains_key(name) {
                    fields.extend(text().map(|decl| (name.to_owned(), decl)));
                }
            }
            let mut metadata = match fields.get("metadata").map(|decl| &decl.kind) {
                Some(Kind::Object(known)) => (**known).clone(),
                _ => BTreeMap::new(),
            };
            for name in ["name", "generateName"] {
                if !metadata.contains_key(name) {
                    metadata.extend(text().map(|decl| (name.to_owned(), decl)));
                }
            }
            fields.extend(
                Decl::new(Kind::Object(Arc::new(metadata)), 0, 2)
                    .map(|decl| ("metadata".to_owned(), decl)),
            );
        }
        Decl::new(Kind::Object(Arc::new(fields)), 0, bytes_min)
    }
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field inside expressions; `None` if it has none.
pub(crate) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let is_start = |c: char| c.is_ascii_alphabetic() || "_.-/".contains(c);
    if !name.starts_with(is_start) || !name.chars().all(|c| is_start(c) || c.is_ascii_digit()) {
        return None;
    }
    let escaped = name
        .replace("__", "\u{0}")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    Some(escaped.replace('\u{0}', "__underscores__"))
}

/// The field that an expression selects. Reserved words can be written as they are or escaped.
pub(crate) fn field<'a, T>(fields: &'a BTreeMap<String, T>, name: &str) -> Option<&'a T> {
    fields.get(name).or_else(|| {
        let is_reserved = RESERVED.contains(&name);
        is_reserved.then(|| fields.get(&format!("__{name}__")))?
    })
}

/// The field that a name inside expressions means.
pub(crate) fn unescape(name: &str) -> String {
    if let Some(word) = name
        .strip_prefix("__")
        .and_then(|rest| rest.strip_suffix("__"))
        && RESERVED.contains(&word)
    {
        return word.to_owned();
    }
    if !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__underscores__", "\u{0}")
        .replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/")
        .replace('\u{0}', "__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_back() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("namespace", "__namespace__"),
            ("a.b-c/d", "a__dot__b__dash__c__slash__d"),
            ("a__b", "a__underscores__b"),
            ("_x", "_x"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped));
            assert_eq!(unescape(escaped), name);
        }
        assert_eq!(escape("1a"), None);
        assert_eq!(escape("a b"), None);
    }
}
