//! Reads and writes objects of built-in kinds by the table of types.

use std::borrow::Cow;
use std::sync::Arc;

use tidings_api::{GroupVersion, Object, Spans, Status, UnstampedObject};
use tidings_go::mismatch;
use tidings_json::{Map, Touched, Value, json};
use tidings_schema::{Field, FieldKind, FieldPath, ItemType, fit};

use crate::complete;
use crate::field_schema::FieldSchema;
use crate::form::ObjectForm;
use crate::model::{
    Draft, Kind, KindView, Member, Meta, document, document_with_duplicates, stored, texts,
    unhandled, unrecognized, unregistered,
};
use crate::reading::{OddField, odd_in_order};
use crate::stored::StoredObject;

/// The form of built-in kinds.
pub(crate) struct TypedForm;

impl ObjectForm for TypedForm {
    fn read_body(&self, kind: &Arc<Kind>, body: &[u8]) -> Result<Draft, Status> {
        read_body(kind, body)
    }

    fn read_value(
        &self,
        kind: &Arc<Kind>,
        value: Value,
        touched: &Touched,
    ) -> Result<Draft, String> {
        match value {
            Value::Object(members) => {
                let (mut draft, unknown) = read_members(kind, members, touched)?;
                draft.odd = unknown.into_iter().map(OddField::Unknown).collect();
                Ok(draft)
            }
            other => Err(mismatch(&other, "", &kind.kind)),
        }
    }

    fn read_object(&self, kind: &Arc<Kind>, object: &Object) -> Result<Draft, Status> {
        let object = StoredObject::read(object.as_bytes()).map_err(Status::internal)?;
        read_stored(stored(kind), object, &Touched::Whole)
    }

    fn read_stored(&self, kind: &Arc<Kind>, stored: StoredObject) -> Result<Draft, Status> {
        read_stored(kind, stored, &Touched::NOTHING)
    }

    fn write(&self, draft: &Draft) -> Result<UnstampedObject, Status> {
        write(draft)
    }

    fn is_same(&self, one: &Draft, other: &Draft) -> bool {
        is_same(one, other)
    }

    fn shown<'a>(&self, kind: &Kind, object: &'a Object) -> Cow<'a, [u8]> {
        match &kind.view {
            Some(view) => shown_by_view(kind, view, object).into(),
            None => object.as_bytes().into(),
        }
    }

    fn shows_as_stored(&self, kind: &Kind, _: &Object) -> bool {
        kind.view.is_none()
    }

    fn stored_version<'k>(&'k self, kind: &'k Kind) -> GroupVersion<'k> {
        kind.group_version()
    }

    fn check_type(&self, _: &Kind, _: &Map) -> Result<(), Status> {
        Ok(())
    }

    fn field_schema<'k>(&'k self, kind: &'k Kind) -> FieldSchema<'k> {
        kind.schema.map_or(FieldSchema::Unknown, FieldSchema::Type)
    }

    fn member_names<'k>(&'k self, kind: &'k Kind) -> Vec<&'k str> {
        kind.members().iter().map(|member| member.name).collect()
    }
}

/// Reads the body of a request (W132, W133).
fn read_body(kind: &Arc<Kind>, body: &[u8]) -> Result<Draft, Status> {
    tracing::trace!(target: "tidings::walk", "reads the body into a draft, by the table of types");
    let (members, duplicates) =
        document_with_duplicates(body).map_err(|why| unrecognized(&kind.kind, why))?;
    let read = read_members(kind, members, &Touched::Whole);
    let read = read.map(|(mut draft, unknown)| {
        if !(duplicates.is_empty() && unknown.is_empty()) {
            draft.odd = odd_in_order(body, &duplicates, &unknown);
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
        let said_kind = named("kind", &kind.kind);
        let said_version = named("apiVersion", &kind.group_version().to_string());
        unhandled(&said_kind, &said_version, &kind.kind, why)
    })
}

/// The completed draft of an object that a client sends, and its unknown fields. Checks kind and apiVersion.
fn read_members(
    kind: &Arc<Kind>,
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
    let said_kind = name("kind", kind.kind.to_string());
    let said_version = name("apiVersion", api_version.clone());
    if said_kind != kind.kind || said_version != api_version {
        let (group, version) = said_version.split_once('/').unwrap_or(("", &said_version));
        return Err(match tidings_schema::find(group, version, &said_kind) {
            Some(known) => format!(
                "converting ({}.{}) to ({}.{}): unknown conversion",
                known.version, known.name, kind.go_package, kind.kind
            ),
            None => unregistered(&said_kind, &said_version),
        });
    }
    let (draft, unknown) = from_members(kind, members, touched)?;
    let mut draft = to_stored(draft);
    complete::complete(&mut draft, touched);
    Ok((draft, unknown))
}

/// Converts the draft of a view to a draft of the stored kind.
fn to_stored(mut draft: Draft) -> Draft {
    let kind = draft.kind.clone();
    let Some(view) = &kind.view else {
        return draft;
    };
    let annotations = std::mem::take(&mut draft.meta.annotations);
    let metadata = json!({ "annotations": annotations });
    draft.members.insert("metadata".into(), metadata);
    (view.store)(&mut draft.members);
    if let Some(metadata) = draft.members.remove("metadata") {
        draft.meta.annotations = texts(metadata["annotations"].clone());
    }
    draft.kind = view.stored.clone();
    draft
}

/// Makes a draft from a stored object. The types are checked in `touched` only.
fn read_stored(kind: &Arc<Kind>, object: StoredObject, touched: &Touched) -> Result<Draft, Status> {
    let StoredObject {
        mut members,
        managed,
    } = object;
    members.remove("kind");
    members.remove("apiVersion");
    let read = from_members(kind, members, touched);
    let (mut draft, _) = read.map_err(Status::internal)?;
    draft.meta.managed_fields = managed;
    Ok(draft)
}

/// The draft of an object without kind and apiVersion, and its unknown fields.
fn from_members(
    kind: &Arc<Kind>,
    mut members: Map,
    touched: &Touched,
) -> Result<(Draft, Vec<String>), String> {
    let mut unknown = Vec::new();
    let meta = match members.remove("metadata") {
        None | Some(Value::Null) => Meta::default(),
        Some(Value::Object(meta)) => {
            let path = FieldPath::Member(&FieldPath::Top, "metadata");
            let nothing = Touched::NOTHING;
            let touched = touched.member("metadata").unwrap_or(&nothing);
            Meta::read(meta, &path, touched, &mut unknown)?
        }
        Some(other) => {
            let field = format!("{}.metadata", kind.kind);
            return Err(mismatch(&other, &field, "v1.ObjectMeta"));
        }
    };
    let mut known = Map::new();
    for member in kind.members() {
        let name = member.name;
        let Some(mut value) = members.remove(name).filter(|value| !value.is_null()) else {
            continue;
        };
        if let Some(owner) = kind.schema
            && let Some(touched) = touched.member(name)
        {
            let path = FieldPath::Member(&FieldPath::Top, name);
            fit(
                &mut value,
                member.field,
                owner,
                &path,
                touched,
                &mut unknown,
            )?;
        }
        if let Some(value) = in_form(member.field, value) {
            known.insert(name.to_owned(), value);
        }
    }
    unknown.extend(members.into_iter().map(|(name, _)| name));
    Ok((Draft::new(kind.clone(), meta, known), unknown))
}

/// A top-level member in the form in which it is stored; `None` if it is empty and left out.
fn in_form(field: &Field, value: Value) -> Option<Value> {
    let is_kept = match (&value, field.kind) {
        (Value::Array(values), FieldKind::List(_)) => !values.is_empty(),
        (Value::Object(_), FieldKind::Map(_)) => return map_in_form(value),
        (Value::Number(number), FieldKind::One(ItemType::Int32 | ItemType::Int64)) => {
            field.pointer || number.as_i64() != Some(0)
        }
        (Value::Bool(flag), FieldKind::One(ItemType::Bool)) => field.pointer || *flag,
        (Value::String(text), FieldKind::One(ItemType::String)) => !text.is_empty(),
        _ => true,
    };
    is_kept.then_some(value)
}

/// A map of texts, sorted by name; `None` if it is empty.
fn map_in_form(mut value: Value) -> Option<Value> {
    let members = value.as_object_mut()?;
    for value in members.values_mut() {
        if value.is_null() {
            *value = "".into();
        }
    }
    members.sort_keys();
    (!members.is_empty()).then_some(value)
}

/// True if both drafts would be stored as the same bytes.
fn is_same(one: &Draft, other: &Draft) -> bool {
    let same =
        |member: &Member| match (one.members.get(member.name), other.members.get(member.name)) {
            (Some(one), Some(two)) => one == two,
            (None, None) => true,
            (Some(only), None) | (None, Some(only)) => {
                serde_json::from_str(&member.absent).is_ok_and(|absent: Value| absent == *only)
            }
        };
    one.meta == other.meta && one.kind.members().iter().all(same)
}

/// The JSON that is stored for a draft.
fn write(draft: &Draft) -> Result<UnstampedObject, Status> {
    // The size of managedFields is a rough measure of the size of the object.
    let owners = draft.meta.managed_fields.0.iter();
    let owned: usize = owners.map(|owner| owner.fields.json().len()).sum();
    let mut bytes = Vec::with_capacity(1024 + owned * 5 / 2);
    bytes.extend_from_slice(draft.kind.object_head().as_bytes());
    bytes.extend_from_slice(b"\"metadata\":");
    tidings_go::write_json(&mut bytes, &draft.meta).map_err(Status::internal)?;
    // The spans are computed here, while the JSON is short, and not from the whole object.
    bytes.push(b'}');
    let mut spans = Spans::of(&bytes).map_err(Status::internal)?;
    bytes.pop();
    draft.meta.write_owners(&mut bytes);
    spans.metadata.end = u32::try_from(bytes.len()).map_err(Status::internal)?;
    for member in draft.kind.members() {
        let value = draft.members.get(member.name);
        if value.is_none() && member.absent.is_empty() {
            continue;
        }
        for part in [",\"", member.name, "\":"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        match value {
            Some(value) => value.write(&mut bytes),
            None => bytes.extend_from_slice(member.absent.as_bytes()),
        }
    }
    bytes.push(b'}');
    Ok(UnstampedObject::new(bytes, spans))
}

/// The JSON of a stored object as a view shows it, beginning with [`Kind::object_head`].
fn shown_by_view(kind: &Kind, view: &KindView, object: &Object) -> Vec<u8> {
    let mut members: Map = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
    (view.show)(&mut members);
    let mut json = kind.object_head().into_bytes();
    json.extend_from_slice(b"\"metadata\":");
    json.extend(tidings_go::json(&members.get("metadata")).unwrap_or_default());
    for member in kind.members() {
        let value = match members.get(member.name).filter(|value| **value != "") {
            Some(value) => tidings_go::json(value).unwrap_or_default(),
            None => match &member.unset {
                Some(unset) => unset.to_string().into_bytes(),
                None => continue,
            },
        };
        json.extend_from_slice(format!(",\"{}\":", member.name).as_bytes());
        json.extend(value);
    }
    json.push(b'}');
    json
}
