//! The CEL types of a schema: which fields rules can use, and how large values can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::node::{AdditionalProperties, SchemaNode};

/// The largest request, in bytes: nothing in an object can be larger.
pub(crate) const REQUEST_BYTES_MAX: i64 = 3 * 1024 * 1024;

/// A CEL type with the size bounds that its schema sets.
#[derive(Debug, Clone)]
pub(crate) struct DeclType {
    pub(crate) kind: TypeKind,
    /// The maximum number of elements or characters; zero for scalars.
    pub(crate) elements_max: u64,
    /// The size of the smallest JSON of this type, in bytes.
    pub(crate) bytes_min: i64,
}

/// A CEL type without bounds.
#[derive(Debug, Clone)]
pub(crate) enum TypeKind {
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
    List(Arc<DeclType>),
    Map(Arc<DeclType>, Arc<DeclType>),
    Object(Arc<BTreeMap<String, Arc<DeclType>>>),
    Optional(Arc<DeclType>),
    /// A type of the Kubernetes library, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// The type of an object or patch that the expression makes, such as `Object.spec`.
    Made(Arc<str>),
}

impl TypeKind {
    pub(crate) fn plain(self) -> Arc<DeclType> {
        Arc::new(DeclType {
            kind: self,
            elements_max: 0,
            bytes_min: 1,
        })
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, TypeKind::Dyn)
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, TypeKind::Int | TypeKind::Uint | TypeKind::Double)
    }

    /// True if a value can have both types.
    pub(crate) fn agrees(&self, other: &TypeKind) -> bool {
        match (self, other) {
            (TypeKind::Dyn, _) | (_, TypeKind::Dyn) => true,
            // Objects, messages and wrappers may be null.
            (
                TypeKind::Null,
                TypeKind::Null
                | TypeKind::Object(_)
                | TypeKind::Opaque(_)
                | TypeKind::Optional(_)
                | TypeKind::Duration
                | TypeKind::Timestamp,
            )
            | (
                TypeKind::Object(_)
                | TypeKind::Opaque(_)
                | TypeKind::Optional(_)
                | TypeKind::Duration
                | TypeKind::Timestamp,
                TypeKind::Null,
            ) => true,
            (TypeKind::List(a), TypeKind::List(b))
            | (TypeKind::Optional(a), TypeKind::Optional(b)) => a.kind.agrees(&b.kind),
            (TypeKind::Map(ak, av), TypeKind::Map(bk, bv)) => {
                ak.kind.agrees(&bk.kind) && av.kind.agrees(&bv.kind)
            }
            (TypeKind::Opaque(a), TypeKind::Opaque(b)) => a == b,
            (TypeKind::Made(a), TypeKind::Made(b)) => a == b,
            (TypeKind::Made(_), TypeKind::Null) | (TypeKind::Null, TypeKind::Made(_)) => true,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl std::fmt::Display for TypeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TypeKind::Dyn => "dyn",
            TypeKind::Null => "null",
            TypeKind::Bool => "bool",
            TypeKind::Int => "int",
            TypeKind::Uint => "uint",
            TypeKind::Double => "double",
            TypeKind::String => "string",
            TypeKind::Bytes => "bytes",
            TypeKind::Duration => "duration",
            TypeKind::Timestamp => "timestamp",
            TypeKind::Type => "type",
            TypeKind::Object(_) => "object",
            TypeKind::Opaque(name) => name,
            TypeKind::Made(name) => name,
            TypeKind::List(element) => return write!(f, "list({})", element.kind),
            TypeKind::Map(key, value) => return write!(f, "map({}, {})", key.kind, value.kind),
            TypeKind::Optional(inner) => return write!(f, "optional_type({})", inner.kind),
        })
    }
}

impl DeclType {
    fn new(kind: TypeKind, elements_max: i64, bytes_min: i64) -> Option<Arc<DeclType>> {
        Some(Arc::new(DeclType {
            kind,
            elements_max: u64::try_from(elements_max).unwrap_or(0),
            bytes_min,
        }))
    }

    /// The type that a schema declares; `None` if rules cannot use values of that schema.
    pub(crate) fn of(node: &SchemaNode, is_resource: bool) -> Option<Arc<DeclType>> {
        let characters = |node: &SchemaNode, otherwise: i64| match node.max_length {
            Some(max) => max.max(0).saturating_mul(4),
            None => otherwise,
        };
        if node.int_or_string {
            return DeclType::new(TypeKind::Dyn, characters(node, REQUEST_BYTES_MAX - 2), 1);
        }
        match node.kind.as_str() {
            "array" => {
                let items = node.items.as_deref()?;
                let element = DeclType::of(items, items.embedded)?;
                let max = match node.max_items {
                    Some(max) => max,
                    None => (REQUEST_BYTES_MAX - 2) / (element.bytes_min + 1),
                };
                DeclType::new(TypeKind::List(element), max, 2)
            }
            "object" => match &node.additional {
                AdditionalProperties::Schema(schema)
                    if !is_resource || node.properties.is_empty() =>
                {
                    let value = DeclType::of(schema, schema.embedded)?;
                    let max = match node.max_properties {
                        Some(max) => max,
                        None => (REQUEST_BYTES_MAX - 2) / (value.bytes_min + 6),
                    };
                    DeclType::new(TypeKind::Map(TypeKind::String.plain(), value), max, 2)
                }
                _ => DeclType::object(node, is_resource),
            },
            "string" => match node.format_text.as_str() {
                "byte" => {
                    let max = node
                        .max_length
                        .map_or(REQUEST_BYTES_MAX - 2, |max| max.max(0));
                    DeclType::new(TypeKind::Bytes, max, 2)
                }
                "duration" => DeclType::new(TypeKind::Duration, 32, 3),
                "date" => DeclType::new(TypeKind::Timestamp, 12, 12),
                "date-time" => DeclType::new(TypeKind::Timestamp, 32, 21),
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
                    DeclType::new(TypeKind::String, characters(node, otherwise), 2)
                }
            },
            "boolean" => DeclType::new(TypeKind::Bool, 0, 4),
            "number" => DeclType::new(TypeKind::Double, 0, 1),
            "integer" => DeclType::new(TypeKind::Int, 0, 1),
            _ => None,
        }
    }

    fn object(node: &SchemaNode, is_resource: bool) -> Option<Arc<DeclType>> {
        let mut fields = BTreeMap::new();
        let mut bytes_min = 2;
        for (name, property) in &node.properties {
            let Some(decl) = DeclType::of(property, property.embedded) else {
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
            let text = || DeclType::new(TypeKind::String, REQUEST_BYTES_MAX - 2, 2);
            for name in ["kind", "apiVersion"] {
                if !fields.contains_key(name) {
                    fields.extend(text().map(|decl| (name.to_owned(), decl)));
                }
            }
            let mut metadata = match fields.get("metadata").map(|decl| &decl.kind) {
                Some(TypeKind::Object(known)) => (**known).clone(),
                _ => BTreeMap::new(),
            };
            for name in ["name", "generateName"] {
                if !metadata.contains_key(name) {
                    metadata.extend(text().map(|decl| (name.to_owned(), decl)));
                }
            }
            fields.extend(
                DeclType::new(TypeKind::Object(Arc::new(metadata)), 0, 2)
                    .map(|decl| ("metadata".to_owned(), decl)),
            );
        }
        DeclType::new(TypeKind::Object(Arc::new(fields)), 0, bytes_min)
    }
}

/// Words that CEL reserves.
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

/// The name of a field in expressions; `None` if expressions cannot name it.
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

/// The field that an expression selects. Reserved words can be written plain or escaped.
pub(crate) fn field<'a, T>(fields: &'a BTreeMap<String, T>, name: &str) -> Option<&'a T> {
    fields.get(name).or_else(|| {
        let is_reserved = RESERVED.contains(&name);
        is_reserved.then(|| fields.get(&format!("__{name}__")))?
    })
}

/// The field name that a name in an expression stands for.
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
