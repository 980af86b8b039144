//! A draft: an object while it is being written. Read from a request or from the store, changed by the rules, and turned into
//! the bytes that are stored.

use bytes::Bytes;
use serde_json::{Map, Value};
use tidings_api::{Object, Status, go};

use super::meta::{Meta, mismatch, strings};
use super::{Kind, Member, Shape};

/// An object being written.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) kind: &'static Kind,
    pub(crate) meta: Meta,
    /// The top-level members besides kind, apiVersion and metadata.
    pub(crate) members: Map<String, Value>,
    /// Fields of the request that do not exist.
    pub(crate) unknown: Vec<String>,
}

impl Draft {
    /// Reads the body of a request (W132, W133).
    pub(crate) fn read(kind: &'static Kind, body: &[u8]) -> Result<Draft, Status> {
        let mut members = document(body).map_err(|why| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {why}",
                kind.kind
            ))
        })?;
        let mut name = |member: &str, default: &str| match members.shift_remove(member) {
            None | Some(Value::Null) => default.to_owned(),
            Some(Value::String(text)) if text.is_empty() => default.to_owned(),
            Some(Value::String(text)) => text,
            Some(_) => default.to_owned(), // `document` has refused it
        };
        let api_version = kind.group_version().to_string();
        let (said_kind, said_version) = (name("kind", kind.kind), name("apiVersion", &api_version));
        let refused = |why: String| {
            Status::bad_request(format!(
                "{said_kind} in version {} cannot be handled as a {}: {why}",
                go::quote(said_version.rsplit('/').next().unwrap_or_default()),
                kind.kind
            ))
        };
        if said_kind != kind.kind || said_version != api_version {
            let other = |known: &&Kind| {
                known.kind == said_kind && known.group_version().to_string() == said_version
            };
            return Err(refused(match super::KINDS.iter().find(other) {
                Some(known) => format!(
                    "converting ({}.{}) to ({}.{}): unknown conversion",
                    known.version,
                    known.kind,
                    internal_package(kind),
                    kind.kind
                ),
                None => unregistered(&said_kind, &said_version),
            }));
        }
        Draft::from_members(kind, members).map_err(refused)
    }

    /// Reads an object that this server has written.
    pub(crate) fn of(kind: &'static Kind, object: &Object) -> Result<Draft, Status> {
        let mut members: Map<String, Value> =
            serde_json::from_slice(object.as_bytes()).map_err(Status::internal)?;
        members.shift_remove("kind");
        members.shift_remove("apiVersion");
        Draft::from_members(kind, members).map_err(Status::internal)
    }

    fn from_members(kind: &'static Kind, mut members: Map<String, Value>) -> Result<Draft, String> {
        let mut unknown = Vec::new();
        let meta = match members.shift_remove("metadata") {
            None | Some(Value::Null) => Meta::default(),
            Some(Value::Object(meta)) => Meta::read(meta, &mut unknown)?,
            Some(other) => {
                return Err(mismatch(
                    &other,
                    &format!("{}.metadata", kind.kind),
                    "v1.ObjectMeta",
                ));
            }
        };
        let mut known = Map::new();
        for Member { name, shape, .. } in kind.members {
            let Some(value) = members.shift_remove(*name).filter(|value| !value.is_null()) else {
                continue;
            };
            let field = format!("{}.{name}", kind.kind);
            if let Some(value) = shaped(*shape, value, &field)? {
                known.insert((*name).to_owned(), value);
            }
        }
        unknown.extend(members.into_iter().map(|(name, _)| name));
        Ok(Draft {
            kind,
            meta,
            members: known,
            unknown,
        })
    }

    /// The bytes that are stored: the object as GET returns it, without its resourceVersion.
    pub(crate) fn to_bytes(&self) -> Result<Bytes, Status> {
        let mut bytes = self.kind.object_head().into_bytes();
        bytes.extend_from_slice(b"\"metadata\":");
        bytes.extend(go::json(&self.meta).map_err(Status::internal)?);
        for Member { name, absent, .. } in self.kind.members {
            let value = match self.members.get(*name) {
                Some(value) => go::json(value).map_err(Status::internal)?,
                None if absent.is_empty() => continue,
                None => absent.as_bytes().to_vec(),
            };
            bytes.extend_from_slice(format!(",\"{name}\":").as_bytes());
            bytes.extend(value);
        }
        bytes.push(b'}');
        Ok(Bytes::from(bytes))
    }

    /// The text at a path of members.
    pub(crate) fn text(&self, path: &[&str]) -> &str {
        let mut value = path.first().and_then(|name| self.members.get(*name));
        for name in path.iter().skip(1) {
            value = value.and_then(|value| value.get(name));
        }
        value.and_then(Value::as_str).unwrap_or_default()
    }
}

/// The package of a kind's internal Go type, which error texts name.
fn internal_package(kind: &Kind) -> &'static str {
    match kind.group {
        "" => "core",
        "coordination.k8s.io" => "coordination",
        group => group,
    }
}

/// What upstream says of a kind that it does not know.
pub(crate) fn unregistered(kind: &str, version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        go::quote(kind),
        go::quote(version)
    )
}

/// A body as an object whose kind and apiVersion are text. `Err` is upstream's message.
pub(crate) fn document(body: &[u8]) -> Result<Map<String, Value>, String> {
    let shown = || {
        let start = &body[..body.len().min(30)];
        if body.is_empty() {
            "<empty>".to_owned()
        } else if body.first() == Some(&b'{') {
            String::from_utf8_lossy(start).into_owned()
        } else {
            start.iter().map(|byte| format!("{byte:02x}")).collect()
        }
    };
    let error = |why: String| {
        format!(
            "couldn't get version/kind; json parse error: {why} ({})",
            shown()
        )
    };
    let value: Value = serde_json::from_slice(body).map_err(|why| {
        error(if why.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            format!("invalid JSON: {why}")
        })
    })?;
    let members = match value {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        other => {
            let go_type = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            let kind = super::meta::go_kind(&other);
            return Err(error(format!(
                "json: cannot unmarshal {kind} into Go value of type {go_type}"
            )));
        }
    };
    for name in ["apiVersion", "kind"] {
        if let Some(other) = members
            .get(name)
            .filter(|value| !value.is_string() && !value.is_null())
        {
            return Err(error(mismatch(other, &format!(".{name}"), "string")));
        }
    }
    Ok(members)
}

/// A member in its canonical form; `None` if it is empty and therefore left out. `Err` is Go's message.
fn shaped(shape: Shape, value: Value, field: &str) -> Result<Option<Value>, String> {
    Ok(match shape {
        Shape::Any => Some(value),
        Shape::Object(go_type) => match value {
            Value::Object(_) => Some(value),
            other => return Err(mismatch(&other, field, go_type)),
        },
        Shape::Bool => match value {
            Value::Bool(_) => Some(value),
            other => return Err(mismatch(&other, field, "bool")),
        },
        Shape::String => match value {
            Value::String(text) => Some(Value::String(text)).filter(|text| text != ""),
            other => return Err(mismatch(&other, field, "string")),
        },
        Shape::Strings | Shape::Bytes => {
            let map = match (shape, value) {
                (Shape::Bytes, other) if !other.is_object() => {
                    return Err(mismatch(&other, field, "map[string][]uint8"));
                }
                (_, value) => strings(value, field)?,
            };
            if shape == Shape::Bytes {
                for text in map.values() {
                    let decoded =
                        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text);
                    if let Err(error) = decoded {
                        return Err(format!("illegal base64 data: {error}"));
                    }
                }
            }
            let sorted = map
                .into_iter()
                .map(|(key, text)| (key, Value::String(text)));
            Some(Value::Object(sorted.collect()))
                .filter(|map| map.as_object().is_some_and(|map| !map.is_empty()))
        }
    })
}
