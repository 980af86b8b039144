//! CEL values. Values of the object are borrowed, not copied.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, OptionalValue};
use tidings_go::GoNumber;
use tidings_json::{Map, Value};

use crate::node::SchemaNode;

/// Text that is borrowed from the object, or text that an expression made.
#[derive(Clone, Debug)]
pub(crate) enum CelText<'a> {
    Borrowed(&'a str),
    Shared(Arc<String>),
}

impl CelText<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            CelText::Borrowed(text) => text,
            CelText::Shared(text) => text,
        }
    }
}

/// A CEL value.
#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(CelText<'a>),
    Bytes(Arc<Vec<u8>>),
    /// An object and its schema. True for a resource, whose apiVersion, kind and metadata rules can use too.
    Object(&'a Map, &'a SchemaNode, bool),
    /// The metadata of a resource. Rules can use `name`, `generateName` and the fields that the schema specifies.
    Metadata(&'a Map, Option<&'a SchemaNode>),
    /// A map and the schema of its values.
    Entries(&'a Map, &'a SchemaNode),
    /// A list and its schema.
    Elements(&'a [Value], &'a SchemaNode),
    /// A list without a schema.
    JsonList(&'a [Value]),
    /// An object without a schema.
    JsonMap(&'a Map),
    List(Arc<Vec<Val<'a>>>),
    Map(Arc<Vec<(Val<'a>, Val<'a>)>>),
    Optional(Option<Arc<Val<'a>>>),
    Type(String),
    Url(Arc<super::url::CelUrl>),
    Access(Arc<super::authorizer::Access>),
    /// Durations, times and the types of the Kubernetes library.
    Other(kube_cel::cel::Value),
}

/// The error of a call whose arguments have types that the function does not take.
pub(crate) const NO_OVERLOAD: &str = "no such overload";

impl<'a> Val<'a> {
    pub(crate) fn text(text: impl Into<String>) -> Val<'static> {
        Val::Text(CelText::Shared(Arc::new(text.into())))
    }

    /// The field of an object, or the value of a key of a map; `Ok(None)` if it is absent.
    pub(crate) fn member(&self, name: &str) -> Result<Option<Val<'a>>, String> {
        match self {
            Val::Object(object, node, is_resource) => {
                let name = super::decl::unescape(name);
                // A field that is null counts as absent.
                let Some(value) = object.get(&name).filter(|value| !value.is_null()) else {
                    return Ok(None);
                };
                if let Some(property) = node.properties.get(&name)
                    && !(*is_resource && name == "metadata")
                {
                    return Val::of(value, property, property.embedded).map(Some);
                }
                if !is_resource {
                    return Ok(None);
                }
                Ok(match (name.as_str(), value) {
                    ("apiVersion" | "kind", Value::String(text)) => {
                        Some(Val::Text(CelText::Borrowed(text)))
                    }
                    ("metadata", Value::Object(metadata)) => {
                        Some(Val::Metadata(metadata, node.properties.get("metadata")))
                    }
                    _ => None,
                })
            }
            Val::Metadata(metadata, node) => {
                let name = super::decl::unescape(name);
                let specified = node.and_then(|node| node.properties.get(&name));
                match (metadata.get(&name), specified) {
                    (None | Some(Value::Null), _) => Ok(None),
                    (Some(value), Some(field)) => Val::of(value, field, field.embedded).map(Some),
                    (Some(Value::String(text)), None)
                        if name == "name" || name == "generateName" =>
                    {
                        Ok(Some(Val::Text(CelText::Borrowed(text))))
                    }
                    _ => Ok(None),
                }
            }
            Val::Entries(entries, node) => entries
                .get(name)
                .map(|value| Val::of(value, node, node.embedded))
                .transpose(),
            Val::JsonMap(members) => Ok(members.get(name).map(Val::of_json)),
            Val::Access(access) => match access.member(name) {
                Some(member) => Ok(Some(Val::Access(Arc::new(member)))),
                None => Err(NO_OVERLOAD.into()),
            },
            Val::Map(entries) => Ok(entries
                .iter()
                .find(|(key, _)| matches!(key, Val::Text(text) if text.as_str() == name))
                .map(|(_, value)| value.clone())),
            _ => Err(NO_OVERLOAD.into()),
        }
    }

    /// The element at a position of a list, or the value of a key of a map; `Ok(None)` if it is absent.
    pub(crate) fn at(&self, index: &Val<'a>) -> Result<Option<Val<'a>>, String> {
        match self {
            Val::Elements(..) | Val::List(_) | Val::JsonList(_) => {
                let position = match index {
                    Val::Int(position) => usize::try_from(*position).ok(),
                    Val::Uint(position) => usize::try_from(*position).ok(),
                    Val::Double(position) if position.fract() == 0.0 && *position >= 0.0 => {
                        Some(*position as usize)
                    }
                    _ => return Err(NO_OVERLOAD.into()),
                };
                position.map_or(Ok(None), |position| self.element(position))
            }
            Val::Map(entries) => Ok(entries
                .iter()
                .find(|(key, _)| key.equals(index))
                .map(|(_, value)| value.clone())),
            Val::Entries(..) | Val::Object(..) | Val::JsonMap(_) => match index {
                Val::Text(name) => self.member(name.as_str()),
                _ => Err(NO_OVERLOAD.into()),
            },
            _ => Err(NO_OVERLOAD.into()),
        }
    }

    pub(crate) fn element(&self, position: usize) -> Result<Option<Val<'a>>, String> {
        match self {
            Val::List(elements) => Ok(elements.get(position).cloned()),
            Val::JsonList(elements) => Ok(elements.get(position).map(Val::of_json)),
            Val::Elements(elements, node) => match (elements.get(position), &node.items) {
                (Some(element), Some(items)) => Val::of(element, items, items.embedded).map(Some),
                _ => Ok(None),
            },
            _ => Err(NO_OVERLOAD.into()),
        }
    }

    /// The keys of a map.
    pub(crate) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Val::Entries(entries, _) | Val::Object(entries, ..) | Val::Metadata(entries, _) => {
                entries
                    .keys()
                    .map(|key| Val::Text(CelText::Borrowed(key)))
                    .collect()
            }
            Val::JsonMap(members) => members
                .keys()
                .map(|key| Val::Text(CelText::Borrowed(key)))
                .collect(),
            Val::Map(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(
            self,
            Val::Entries(..) | Val::Object(..) | Val::Map(_) | Val::Metadata(..) | Val::JsonMap(_)
        )
    }

    /// The number of elements, entries, characters or bytes.
    pub(crate) fn size(&self) -> Option<usize> {
        Some(match self {
            Val::Text(text) => text.as_str().chars().count(),
            Val::Bytes(bytes) => bytes.len(),
            Val::Elements(elements, _) => elements.len(),
            Val::List(elements) => elements.len(),
            Val::JsonList(elements) => elements.len(),
            Val::JsonMap(members) => members.len(),
            Val::Entries(entries, _) | Val::Object(entries, ..) | Val::Metadata(entries, _) => {
                entries.len()
            }
            Val::Map(entries) => entries.len(),
            _ => return None,
        })
    }

    pub(crate) fn elements(&self) -> Result<Option<Vec<Val<'a>>>, String> {
        match self {
            Val::List(elements) => Ok(Some(elements.to_vec())),
            Val::JsonList(elements) => Ok(Some(elements.iter().map(Val::of_json).collect())),
            Val::Elements(elements, _) => {
                let found: Result<Vec<_>, String> = (0..elements.len())
                    .map(|at| self.element(at).map(|e| e.unwrap_or(Val::Null)))
                    .collect();
                found.map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn type_name(&self) -> String {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::Text(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Elements(..) | Val::List(_) | Val::JsonList(_) => "list",
            Val::Entries(..) | Val::Map(_) | Val::JsonMap(_) => "map",
            Val::Access(access) => access.type_name(),
            Val::Object(..) | Val::Metadata(..) => "object",
            Val::Optional(_) => "optional_type",
            Val::Type(_) => "type",
            Val::Url(_) => "kubernetes.URL",
            Val::Other(kube_cel::cel::Value::Duration(_)) => "google.protobuf.Duration",
            Val::Other(kube_cel::cel::Value::Timestamp(_)) => "google.protobuf.Timestamp",
            Val::Other(kube_cel::cel::Value::Opaque(opaque)) => {
                return opaque.runtime_type_name().to_owned();
            }
            Val::Other(_) => "dyn",
        }
        .to_owned()
    }

    pub(crate) fn equals(&self, other: &Val<'a>) -> bool {
        match (self, other) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Text(a), Val::Text(b)) => a.as_str() == b.as_str(),
            (Val::Bytes(a), Val::Bytes(b)) => a == b,
            (Val::Type(a), Val::Type(b)) => a == b,
            (Val::Url(a), Val::Url(b)) => a == b,
            (Val::Other(a), Val::Other(b)) => a == b,
            (Val::Optional(a), Val::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b),
                _ => false,
            },
            (
                Val::Int(_) | Val::Uint(_) | Val::Double(_),
                Val::Int(_) | Val::Uint(_) | Val::Double(_),
            ) => self.compare(other) == Some(Ordering::Equal),
            (Val::Object(a, node, _), Val::Object(b, other, _)) if std::ptr::eq(*node, *other) => {
                same_json(a, b, node)
            }
            (a, b) if a.is_map() && b.is_map() => {
                a.size() == b.size()
                    && a.keys()
                        .iter()
                        .all(|key| match (a.at_any(key), b.at_any(key)) {
                            (Some(a), Some(b)) => a.equals(&b),
                            _ => false,
                        })
            }
            (Val::Elements(a, node), Val::Elements(b, _))
                if matches!(node.list_type.as_deref(), Some("set" | "map")) =>
            {
                same_unordered(a, b, node)
            }
            (a, b) => match (a.elements(), b.elements()) {
                (Ok(Some(left)), Ok(Some(right))) if a.has_no_order() || b.has_no_order() => {
                    same_members(&left, &right)
                }
                (Ok(Some(a)), Ok(Some(b))) => {
                    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.equals(b))
                }
                _ => false,
            },
        }
    }

    /// True for sets and list maps.
    fn has_no_order(&self) -> bool {
        match self {
            Val::Elements(_, node) => matches!(node.list_type.as_deref(), Some("set" | "map")),
            _ => false,
        }
    }

    fn at_any(&self, key: &Val<'a>) -> Option<Val<'a>> {
        match (self, key) {
            (Val::Metadata(..) | Val::Object(..), Val::Text(name)) => {
                self.member(name.as_str()).ok().flatten()
            }
            _ => self.at(key).ok().flatten(),
        }
    }

    pub(crate) fn compare(&self, other: &Val<'a>) -> Option<Ordering> {
        match (self, other) {
            (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
            (Val::Text(a), Val::Text(b)) => Some(a.as_str().cmp(b.as_str())),
            (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
            (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
            (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
            (Val::Int(a), Val::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Val::Uint(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
            (Val::Double(a), Val::Int(b)) => a.partial_cmp(&(*b as f64)),
            (Val::Int(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
            (Val::Double(a), Val::Uint(b)) => a.partial_cmp(&(*b as f64)),
            (Val::Uint(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
            (Val::Other(a), Val::Other(b)) => a.partial_cmp(b),
            _ => None,
        }
    }

    /// Converts the value for functions of the Kubernetes library.
    pub(crate) fn to_cel(&self) -> Result<kube_cel::cel::Value, String> {
        use kube_cel::cel::Value as Cel;
        Ok(match self {
            Val::Null => Cel::Null,
            Val::Bool(value) => Cel::Bool(*value),
            Val::Int(value) => Cel::Int(*value),
            Val::Uint(value) => Cel::UInt(*value),
            Val::Double(value) => Cel::Float(*value),
            Val::Text(CelText::Borrowed(text)) => Cel::String(Arc::new((*text).to_owned())),
            Val::Text(CelText::Shared(text)) => Cel::String(text.clone()),
            Val::Bytes(bytes) => Cel::Bytes(bytes.clone()),
            Val::Type(name) => Cel::String(Arc::new(name.clone())),
            Val::Url(url) => Cel::String(Arc::new(url.as_str().to_owned())),
            Val::Other(value) => value.clone(),
            Val::Optional(None) => Cel::Opaque(Arc::new(OptionalValue::none())),
            Val::Optional(Some(inner)) => Cel::Opaque(Arc::new(OptionalValue::of(inner.to_cel()?))),
            Val::Access(_) => return Err(NO_OVERLOAD.into()),
            Val::Elements(..) | Val::List(_) | Val::JsonList(_) => {
                let elements = self.elements()?.unwrap_or_default();
                let converted: Result<Vec<Cel>, String> =
                    elements.iter().map(Val::to_cel).collect();
                Cel::List(Arc::new(converted?))
            }
            map => {
                let mut entries = std::collections::HashMap::new();
                for key in map.keys() {
                    let Some(value) = map.at_any(&key) else {
                        continue;
                    };
                    let key = match key {
                        Val::Text(text) => Key::String(Arc::new(text.as_str().to_owned())),
                        Val::Int(key) => Key::Int(key),
                        Val::Uint(key) => Key::Uint(key),
                        Val::Bool(key) => Key::Bool(key),
                        _ => return Err("unsupported key type".into()),
                    };
                    entries.insert(key, value.to_cel()?);
                }
                Cel::from(entries)
            }
        })
    }

    /// Converts the result of a function of the Kubernetes library.
    pub(crate) fn from_cel(value: kube_cel::cel::Value) -> Val<'a> {
        use kube_cel::cel::Value as Cel;
        match value {
            Cel::Null => Val::Null,
            Cel::Bool(value) => Val::Bool(value),
            Cel::Int(value) => Val::Int(value),
            Cel::UInt(value) => Val::Uint(value),
            Cel::Float(value) => Val::Double(value),
            Cel::String(text) => Val::Text(CelText::Shared(text)),
            Cel::Bytes(bytes) => Val::Bytes(bytes),
            Cel::List(elements) => Val::List(Arc::new(
                elements.iter().cloned().map(Val::from_cel).collect(),
            )),
            Cel::Map(map) => {
                let entries = map.map.iter().map(|(key, value)| {
                    let key = match key {
                        Key::Int(key) => Val::Int(*key),
                        Key::Uint(key) => Val::Uint(*key),
                        Key::Bool(key) => Val::Bool(*key),
                        Key::String(key) => Val::Text(CelText::Shared(key.clone())),
                    };
                    (key, Val::from_cel(value.clone()))
                });
                Val::Map(Arc::new(entries.collect()))
            }
            Cel::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
                Some(optional) => Val::Optional(
                    optional
                        .value()
                        .map(|inner| Arc::new(Val::from_cel(inner.clone()))),
                ),
                None => Val::Other(Cel::Opaque(opaque)),
            },
            other => Val::Other(other),
        }
    }
}

/// The longest list that is compared without order, which takes quadratic time. Longer lists must have the same order.
const UNORDERED_MAX: usize = 1024;

/// True if two lists have the same elements in any order.
fn same_members<'a>(left: &[Val<'a>], right: &[Val<'a>]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let in_order = || left.iter().zip(right).all(|(a, b)| a.equals(b));
    let texts = |list: &[Val<'a>]| -> Option<Vec<String>> {
        let mut texts = Vec::with_capacity(list.len());
        for value in list {
            match value {
                Val::Text(text) => texts.push(text.as_str().to_owned()),
                _ => return None,
            }
        }
        texts.sort_unstable();
        Some(texts)
    };
    if let (Some(left), Some(right)) = (texts(left), texts(right)) {
        return left == right;
    }
    if left.len() > UNORDERED_MAX {
        return in_order();
    }
    left.iter().all(|a| right.iter().any(|b| a.equals(b)))
        && right.iter().all(|b| left.iter().any(|a| a.equals(b)))
}

/// True if two objects are equal; the order of sets and list maps in them does not matter.
fn same_json(a: &Map, b: &Map, node: &SchemaNode) -> bool {
    a.len() == b.len()
        && a.iter().all(|(name, a)| {
            b.get(name).is_some_and(|b| match node.field(name) {
                Some(field) => same_value(a, b, field),
                None => a == b,
            })
        })
}

fn same_value(a: &Value, b: &Value, node: &SchemaNode) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => same_json(a, b, node),
        (Value::Array(a), Value::Array(b)) => match (&node.items, node.list_type.as_deref()) {
            (Some(_), Some("set" | "map")) => same_unordered(a, b, node),
            (Some(items), _) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b, items))
            }
            (None, _) => a == b,
        },
        (a, b) => match (GoNumber::of(a), GoNumber::of(b)) {
            (Some(a), Some(b)) => a.as_f64() == b.as_f64(),
            _ => a == b,
        },
    }
}

fn same_unordered(a: &[Value], b: &[Value], node: &SchemaNode) -> bool {
    let Some(items) = &node.items else {
        return a == b;
    };
    if a.len() != b.len() {
        return false;
    }
    match crate::correlate::KeyedElements::new(node, b) {
        Some(keyed) => a
            .iter()
            .all(|a| keyed.get(a).is_some_and(|b| same_value(a, b, items))),
        None => {
            let members: std::collections::HashSet<String> =
                b.iter().map(crate::text::json).collect();
            a.iter().all(|a| members.contains(&crate::text::json(a)))
        }
    }
}
