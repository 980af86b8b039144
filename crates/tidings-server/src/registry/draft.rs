//! A draft: an object while it is being written. Read from a request or from the store, changed by the rules, and turned into
//! the bytes that are stored.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidings_api::{EventType, Object, ResourceVersion, Spans, Status, go};
use tidings_json::{Map, Value, json};

use tidings_merge::Touched;

use super::meta::{Meta, mismatch, strings};
use super::reading::{self, Place, depth};
use super::stored::Stored;
use super::{Kind, Member, Shape, scalars};
use crate::custom::Live;

/// How deep an object may be nested.
pub(crate) const DEPTH_MAX: usize = 100;

/// An object being written.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) kind: &'static Kind,
    pub(crate) meta: Meta,
    /// The top-level members besides kind, apiVersion and metadata.
    pub(crate) members: Map,
    /// What is odd about fields of the request: those that do not exist, and those that occur twice (W173).
    pub(crate) odd: Vec<String>,
    /// Its managedFields say already who owns what.
    pub(crate) applied: bool,
    /// What the definition of its kind says, if it is a custom resource.
    pub(crate) live: Option<Arc<Live>>,
}

/// The bytes of an object as they are stored, and where its metadata stands in them.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) value: Bytes,
    spans: Spans,
    /// The object as somebody wanted it first. Two want the same: who writes it, and who is told of it by the store.
    stamped: Arc<OnceLock<(EventType, Object)>>,
}

impl Written {
    fn new(value: Vec<u8>, spans: Spans) -> Written {
        Written {
            value: value.into(),
            spans,
            stamped: Arc::default(),
        }
    }

    /// The object at a revision.
    pub(crate) fn stamped(&self, at: ResourceVersion, event: EventType) -> Object {
        let stamp = || Object::stamped_at(&self.value, self.spans, at, event);
        let (known_event, known) = self.stamped.get_or_init(|| (event, stamp()));
        match *known_event == event && known.revision() == at {
            true => known.clone(),
            false => stamp(),
        }
    }
}

impl Draft {
    /// Reads the body of a request (W132, W133).
    pub(crate) fn read(kind: &'static Kind, body: &[u8]) -> Result<Draft, Status> {
        if let Some(live) = kind.live() {
            return Draft::read_custom(kind, live, body);
        }
        let (members, duplicates) = document_with_duplicates(body).map_err(|why| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {why}",
                kind.kind
            ))
        })?;
        let read = Draft::read_members(kind, members, &Touched::Whole);
        let read = read.map(|(mut draft, unknown)| {
            if !(duplicates.is_empty() && unknown.is_empty()) {
                let found = reading::odd_in_order(body, &duplicates, &unknown);
                draft.odd = found.iter().map(|(what, field)| odd(what, field)).collect();
            }
            draft
        });
        read.map_err(|why| {
            let members = document(body).unwrap_or_default();
            let named = |member: &str, default: &str| {
                let text = members.get(member).and_then(Value::as_str);
                let text = text.filter(|text| !text.is_empty());
                text.unwrap_or(default).to_owned()
            };
            let said_kind = named("kind", kind.kind);
            let said_version = named("apiVersion", &kind.group_version().to_string());
            Status::bad_request(format!(
                "{said_kind} in version {} cannot be handled as a {}: {why}",
                go::quote(said_version.rsplit('/').next().unwrap_or_default()),
                kind.kind
            ))
        })
    }

    /// Reads a whole object that may be of the wrong kind. `Err` is Go's message.
    pub(crate) fn read_value(kind: &'static Kind, value: Value) -> Result<Draft, String> {
        Draft::read_touched(kind, value, &Touched::Whole)
    }

    /// The same of a stored object of which some parts are others now.
    pub(crate) fn read_touched(
        kind: &'static Kind,
        value: Value,
        touched: &Touched,
    ) -> Result<Draft, String> {
        match value {
            Value::Object(members) => {
                if let Some(live) = kind.live() {
                    return Draft::read_custom_members(kind, live, members);
                }
                let (mut draft, unknown) = Draft::read_members(kind, members, touched)?;
                draft.odd = unknown.iter().map(|field| odd("unknown", field)).collect();
                Ok(draft)
            }
            other => Err(mismatch(&other, "", kind.kind)),
        }
    }

    /// The draft, and the fields that do not exist.
    fn read_members(
        kind: &'static Kind,
        mut members: Map,
        touched: &Touched,
    ) -> Result<(Draft, Vec<String>), String> {
        let wrong = ["kind", "apiVersion"].into_iter().find_map(|name| {
            let value = members.get(name)?;
            let right = value.is_string() || value.is_null();
            (!right).then(|| mismatch(value, &format!("{}.{name}", kind.kind), "string"))
        });
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let mut name = |member: &str, default: String| match members.remove(member) {
            Some(Value::String(text)) if !text.is_empty() => text,
            _ => default,
        };
        let api_version = kind.group_version().to_string();
        let said_kind = name("kind", kind.kind.to_owned());
        let said_version = name("apiVersion", api_version.clone());
        if said_kind != kind.kind || said_version != api_version {
            let other = |known: &&&Kind| {
                known.kind == said_kind && known.group_version().to_string() == said_version
            };
            return Err(match super::KINDS.iter().find(other) {
                Some(known) => format!(
                    "converting ({}.{}) to ({}.{}): unknown conversion",
                    known.version, known.kind, kind.go_package, kind.kind
                ),
                None => unregistered(&said_kind, &said_version),
            });
        }
        let (draft, unknown) = Draft::from_members(kind, members, touched)?;
        let mut draft = draft.stored();
        draft.complete(touched);
        Ok((draft, unknown))
    }

    /// The object as it is stored, if its kind is another view of that.
    fn stored(self) -> Draft {
        if self.kind.stored_as.is_none() {
            return self;
        }
        let Draft {
            kind,
            mut meta,
            mut members,
            odd,
            applied,
            live,
        } = self;
        let annotations = std::mem::take(&mut meta.annotations);
        members.insert("metadata".into(), json!({ "annotations": annotations }));
        kind.to_stored(&mut members);
        if let Some(metadata) = members.remove("metadata") {
            let annotations = strings(metadata["annotations"].clone(), "annotations");
            meta.annotations = annotations.unwrap_or_default();
        }
        Draft {
            kind: kind.stored(),
            meta,
            members,
            odd,
            applied,
            live,
        }
    }

    /// Reads an object that this server has written.
    pub(crate) fn of(kind: &'static Kind, object: &Object) -> Result<Draft, Status> {
        if let Some(live) = kind.live() {
            return Draft::custom_of(kind, live, object);
        }
        let stored = Stored::read(object.as_bytes()).map_err(Status::internal)?;
        Draft::of_builtin(kind.stored(), stored, &Touched::Whole)
    }

    /// The same of one that has been read and is as its kind shows it. That its values are of their types is not checked again.
    pub(crate) fn of_stored(
        kind: &'static Kind,
        live: Option<Arc<Live>>,
        stored: Stored,
    ) -> Result<Draft, Status> {
        let Some(live) = live else {
            return Draft::of_builtin(kind, stored, &Touched::nothing());
        };
        let Stored {
            mut members,
            managed,
        } = stored;
        let meta = match members.remove("metadata") {
            Some(Value::Object(meta)) => Meta::read(meta, &mut Vec::new()),
            _ => Ok(Meta::default()),
        };
        members.remove("kind");
        members.remove("apiVersion");
        let mut meta = meta.map_err(Status::internal)?;
        meta.managed_fields = managed;
        Ok(Draft {
            kind,
            meta,
            members,
            odd: Vec::new(),
            applied: false,
            live: Some(live),
        })
    }

    fn of_builtin(kind: &'static Kind, stored: Stored, touched: &Touched) -> Result<Draft, Status> {
        let Stored {
            mut members,
            managed,
        } = stored;
        members.remove("kind");
        members.remove("apiVersion");
        let read = Draft::from_members(kind, members, touched);
        let (mut draft, _) = read.map_err(Status::internal)?;
        draft.meta.managed_fields = managed;
        Ok(draft)
    }

    /// An object in which nothing is set.
    pub(crate) fn empty(kind: &'static Kind) -> Draft {
        let members = format!("{{{}}}", kind.bookmark.trim_start_matches(','));
        Draft {
            kind,
            meta: Meta::default(),
            members: serde_json::from_str(&members).unwrap_or_default(),
            odd: Vec::new(),
            applied: false,
            live: kind.live(),
        }
    }

    /// The draft, and the fields that do not exist.
    fn from_members(
        kind: &'static Kind,
        mut members: Map,
        touched: &Touched,
    ) -> Result<(Draft, Vec<String>), String> {
        let mut unknown = Vec::new();
        let meta = match members.remove("metadata") {
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
        let schema = kind.schema();
        for Member { name, shape, .. } in kind.members {
            let Some(value) = members.remove(name).filter(|value| !value.is_null()) else {
                continue;
            };
            let wrong = |value: &Value, go_type: &str| {
                mismatch(value, &format!("{}.{name}", kind.kind), go_type)
            };
            if let Some(mut value) = shaped(*shape, value, &wrong)? {
                if let Some(owner) = schema
                    && let Some(field) = owner.field(name)
                    && let Some(touched) = touched.member(name)
                {
                    let place = Place::Member(&Place::Top, name);
                    reading::fit(&mut value, field, owner, &place, touched, &mut unknown)?;
                }
                known.insert((*name).to_owned(), value);
            }
        }
        unknown.extend(members.into_iter().map(|(name, _)| name));
        let draft = Draft {
            kind,
            meta,
            members: known,
            odd: Vec::new(),
            applied: false,
            live: None,
        };
        Ok((draft, unknown))
    }

    /// An object that is nested deeper than this cannot be read by everybody; what is written down about its fields in the
    /// metadata is a little deeper.
    pub(crate) fn check_depth(&self) -> Result<(), Status> {
        let members = self.members.values().map(depth).max().unwrap_or(0);
        let managed = self.meta.managed_sent.iter().map(depth).max().unwrap_or(0);
        if members < DEPTH_MAX && managed < DEPTH_MAX {
            return Ok(());
        }
        Err(Status::bad_request(format!(
            "the object is nested deeper than {DEPTH_MAX} levels"
        )))
    }

    /// True if nothing is different in what would be stored.
    pub(crate) fn is_same_as(&self, other: &Draft) -> bool {
        let same = |Member { name, absent, .. }: &Member| match (
            self.members.get(name),
            other.members.get(name),
        ) {
            (Some(one), Some(two)) => one == two,
            (None, None) => true,
            (Some(only), None) | (None, Some(only)) => {
                serde_json::from_str(absent).is_ok_and(|absent: Value| absent == *only)
            }
        };
        if self.live.is_some() {
            return self.meta == other.meta && self.members == other.members;
        }
        self.meta == other.meta && self.kind.members.iter().all(same)
    }

    /// The bytes that are stored: the object as GET returns it, without its resourceVersion.
    pub(crate) fn to_bytes(&self) -> Result<Bytes, Status> {
        self.write().map(|written| written.value)
    }

    /// The same, ready to be stamped.
    pub(crate) fn write(&self) -> Result<Written, Status> {
        if let Some(live) = &self.live {
            let value = self.custom_bytes(live)?;
            let spans = Spans::of(&value).map_err(Status::internal)?;
            return Ok(Written::new(value, spans));
        }
        // What is owned tells how much there is, roughly.
        let owners = self.meta.managed_fields.0.iter();
        let owned: usize = owners.map(|owner| owner.fields.json().len()).sum();
        let mut bytes = Vec::with_capacity(1024 + owned * 5 / 2);
        bytes.extend_from_slice(self.kind.object_head().as_bytes());
        bytes.extend_from_slice(b"\"metadata\":");
        go::write_json(&mut bytes, &self.meta).map_err(Status::internal)?;
        // So far it is short: where things stand need not be looked for in the whole object later.
        bytes.push(b'}');
        let mut spans = Spans::of(&bytes).map_err(Status::internal)?;
        bytes.pop();
        self.meta.write_owners(&mut bytes);
        spans.metadata.end = u32::try_from(bytes.len()).map_err(Status::internal)?;
        for Member { name, absent, .. } in self.kind.members {
            let value = self.members.get(name);
            if value.is_none() && absent.is_empty() {
                continue;
            }
            for part in [",\"", name, "\":"] {
                bytes.extend_from_slice(part.as_bytes());
            }
            match value {
                Some(value) => value.write(&mut bytes),
                None => bytes.extend_from_slice(absent.as_bytes()),
            }
        }
        bytes.push(b'}');
        Ok(Written::new(bytes, spans))
    }

    /// The text at a path of members.
    pub(crate) fn text(&self, path: &[&str]) -> &str {
        let mut value = path.first().and_then(|name| self.members.get(name));
        for name in path.iter().skip(1) {
            value = value.and_then(|value| value.get(name));
        }
        value.and_then(Value::as_str).unwrap_or_default()
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

pub(crate) fn odd(what: &str, field: &str) -> String {
    format!("{what} field {}", go::quote(field))
}

/// A body as an object whose kind and apiVersion are text. `Err` is upstream's message.
pub(crate) fn document(body: &[u8]) -> Result<Map, String> {
    document_with_duplicates(body).map(|(members, _)| members)
}

/// The same, and the fields that occur twice.
pub(crate) fn document_with_duplicates(body: &[u8]) -> Result<(Map, Vec<String>), String> {
    let shown = || {
        let start = &body[..body.len().min(30)];
        if body.is_empty() {
            "<empty>".to_owned()
        } else if body.first() == Some(&b'{') {
            let more = if body.len() > start.len() { " ..." } else { "" };
            format!("{}{more}", String::from_utf8_lossy(start))
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
    let (value, duplicates) = reading::read(body).map_err(|why| {
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
    Ok((members, duplicates))
}

/// What a member should have been; `wrong` says so in Go's words.
fn text(value: Value, go_type: &str, wrong: Wrong<'_>) -> Result<Option<Value>, String> {
    match value {
        Value::String(text) => Ok(Some(Value::String(text)).filter(|text| text != "")),
        other => Err(wrong(&other, go_type)),
    }
}

/// Says that a value is not of a Go type.
type Wrong<'a> = &'a dyn Fn(&Value, &str) -> String;

/// A member in its canonical form; `None` if it is empty and therefore left out. `Err` is Go's message.
fn shaped(shape: Shape, value: Value, wrong: Wrong<'_>) -> Result<Option<Value>, String> {
    match shape {
        Shape::Any => Ok(Some(value)),
        Shape::Object(go_type) if !value.is_object() => Err(wrong(&value, go_type)),
        Shape::Object(_) => Ok(Some(value)),
        Shape::Array(go_type) => match value {
            Value::Array(values) => Ok((!values.is_empty()).then_some(Value::Array(values))),
            other => Err(wrong(&other, go_type)),
        },
        Shape::Number(go_type) => match value.as_i64() {
            Some(number) => Ok((number != 0).then_some(value)),
            None => Err(wrong(&value, go_type)),
        },
        Shape::Flag | Shape::Bool => match value {
            Value::Bool(flag) => Ok((flag || shape == Shape::Bool).then_some(value)),
            other => Err(wrong(&other, "bool")),
        },
        Shape::String => text(value, "string", wrong),
        Shape::Named(go_type) => text(value, go_type, wrong),
        Shape::Strings => strings_in_place(value, "map[string]string", wrong),
        Shape::Bytes => {
            let map = strings_in_place(value, "map[string][]uint8", wrong)?;
            let texts = map.iter().filter_map(Value::as_object).flatten();
            for text in texts.filter_map(|(_, value)| value.as_str()) {
                scalars::base64(text)?;
            }
            Ok(map)
        }
    }
}

/// A map of text, sorted.
fn strings_in_place(
    value: Value,
    go_type: &str,
    wrong: Wrong<'_>,
) -> Result<Option<Value>, String> {
    let mut members = match value {
        Value::Object(members) => members,
        other => return Err(wrong(&other, go_type)),
    };
    for value in members.values_mut() {
        match value {
            Value::String(_) => {}
            Value::Null => *value = "".into(),
            other => return Err(wrong(other, "string")),
        }
    }
    members.sort_keys();
    Ok((!members.is_empty()).then_some(Value::Object(members)))
}
