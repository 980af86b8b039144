//! Patches: JSON patch, merge patch, strategic merge patch (W149-W153).

mod json_patch;
mod strategic;

use std::sync::Arc;

use bytes::Bytes;
use tidings_api::{FieldError, GroupVersionKind, Object, ObjectKey, Reason, Status};
use tidings_json::{Map, Value};
use tidings_schema::Type;

use crate::model::{Draft, Kind, SCALE, Subresource};
use crate::options::FieldValidation;
use crate::reading::{self, OddField, odd_in_order};
use crate::scale::{self, ScaleRequest};
use crate::stored::StoredObject;
use json_patch::{JsonPatchOperation, JsonPointer};

/// The most operations in a JSON patch.
const OPERATIONS_MAX: usize = 10_000;
/// The most unknown members of operations that are reported.
const ODD_OPERATIONS_MAX: usize = 100;

/// The format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A JSON patch: a list of operations (RFC 6902).
    Json,
    /// A JSON merge patch: an object that is merged into the other one (RFC 7396).
    Merge,
    /// A strategic merge patch: the Go types say which lists are merged.
    Strategic,
}

/// The object that a patch changes, from the URL.
#[derive(Debug)]
pub struct PatchTarget<'a> {
    /// The kind in the URL, to whose form the patch applies.
    pub kind: &'a Arc<Kind>,
    /// The namespace and name.
    pub key: &'a ObjectKey,
    /// The subresource.
    pub subresource: Option<Subresource>,
}

/// A patch that has been read.
#[derive(Debug)]
pub struct Patch {
    body: PatchBody,
    /// Messages about unknown and duplicate fields in the text of the patch.
    odd: Vec<String>,
    validation: FieldValidation,
}

/// The parsed body of a patch.
#[derive(Debug)]
enum PatchBody {
    Json(Vec<JsonPatchOperation>),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// If it is not a patch of the type.
    pub fn read(
        patch_type: PatchType,
        body: &Bytes,
        validation: FieldValidation,
    ) -> Result<Patch, Status> {
        let parsed = match patch_type {
            PatchType::Json => PatchBody::Json(json_patch(body)?),
            PatchType::Merge => PatchBody::Merge(object(body)?),
            PatchType::Strategic => PatchBody::Strategic(object(body)?),
        };
        let odd = match validation {
            FieldValidation::Ignore => Vec::new(),
            _ => odd_in(&parsed, body),
        };
        Ok(Patch {
            body: parsed,
            odd,
            validation,
        })
    }

    /// True if it is a JSON patch without operations.
    pub fn is_empty(&self) -> bool {
        matches!(&self.body, PatchBody::Json(operations) if operations.is_empty())
    }

    /// A document with the patch applied, which must not be a strategic one.
    ///
    /// # Errors
    /// With the operation that does not fit, in the words of upstream's library.
    pub fn apply_to(&self, mut document: Value) -> Result<Value, String> {
        match &self.body {
            PatchBody::Json(patch) => {
                for operation in patch {
                    let one = std::slice::from_ref(operation);
                    json_patch::apply_operations(&mut document, one)
                        .map_err(|_| operation.refusal())?;
                }
            }
            PatchBody::Merge(patch) => json_patch::merge(&mut document, patch),
            PatchBody::Strategic(_) => return Err("a strategic patch needs a type".to_owned()),
        }
        Ok(document)
    }

    /// The object with the patch applied, and warnings for the client.
    ///
    /// # Errors
    /// If the patch does not fit the object, or the result is not a valid object.
    pub fn apply(
        &self,
        target: &PatchTarget<'_>,
        existing: &Object,
    ) -> Result<(Draft, Vec<String>), Status> {
        if target.subresource == Some(Subresource::Scale) {
            return Ok((self.apply_to_scale(target, existing)?, Vec::new()));
        }
        self.apply_to_object(target, existing)
    }

    fn apply_to_scale(&self, target: &PatchTarget<'_>, existing: &Object) -> Result<Draft, Status> {
        let before = scale::ScaleView::before_patch(existing, target.kind)?.to_json()?;
        let schema = tidings_schema::find(SCALE.group, SCALE.version, SCALE.kind);
        let before = serde_json::from_slice(&before).map_err(Status::internal)?;
        let after = apply(&self.body, before, schema)?;
        let wanted = ScaleRequest::read(after.to_string().as_bytes(), target.key)?;
        Draft::check_name(&wanted.name, target.key.name())?;
        let mut draft = Draft::of(target.kind, existing)?;
        wanted.apply(&mut draft);
        Ok(draft)
    }

    fn apply_to_object(
        &self,
        target: &PatchTarget<'_>,
        existing: &Object,
    ) -> Result<(Draft, Vec<String>), Status> {
        let (kind, name) = (target.kind, target.key.name());
        let shown = kind.shown(existing);
        let whole = || {
            let before = serde_json::from_slice(&shown).map_err(Status::internal)?;
            apply(&self.body, before, kind.schema)
        };
        let after = match &kind.view {
            // managedFields are half of an object: a patch that does not mention them is applied without them.
            None if !self.body.mentions_owners() => {
                let before = StoredObject::read(&shown).map_err(Status::internal)?;
                apply(&self.body, Value::Object(before.members), kind.schema)?
            }
            _ => whole()?,
        };
        if let Value::Object(members) = &after {
            kind.check_type(members)?;
        }
        let undecoded = |why: &str| {
            // The message contains a strategic patch itself; for other patches it contains the object that results from them.
            let text = match &self.body {
                PatchBody::Strategic(patch) => tidings_go::print(patch),
                _ => {
                    let json = whole().ok().and_then(|after| tidings_go::json(&after).ok());
                    String::from_utf8_lossy(&json.unwrap_or_default()).into_owned()
                }
            };
            let wrong = FieldError::invalid("patch", &text, why);
            let unnamed = GroupVersionKind {
                group: "",
                version: "",
                kind: "",
            };
            Status::invalid(unnamed, "", &wrong.into())
        };
        let mut draft = Draft::read_value(kind, after).map_err(|why| undecoded(&why))?;
        if draft.meta.uid != existing.uid() && !draft.meta.uid.is_empty() {
            let wrong = FieldError::invalid("metadata.uid", &draft.meta.uid, "field is immutable");
            let named = kind.group_version_kind();
            return Err(Status::invalid(named, name, &wrong.into()));
        }
        let mut found = self.odd.clone();
        let mut odd: Vec<String> = draft.odd.iter().map(ToString::to_string).collect();
        odd.sort_unstable();
        found.append(&mut odd);
        let mut warnings = match self.validation {
            FieldValidation::Strict if !found.is_empty() => {
                let found = found.join(", ");
                return Err(undecoded(&format!("strict decoding error: {found}")));
            }
            FieldValidation::Warn => found,
            _ => Vec::new(),
        };
        Draft::check_name(&draft.meta.name, name)?;
        draft.settle_namespace(kind, target.key.namespace())?;
        warnings.extend(draft.meta.deduplicate_owners(true));
        Ok((draft, warnings))
    }
}

impl PatchBody {
    /// True if the patch may depend on `metadata.managedFields`, or change them.
    fn mentions_owners(&self) -> bool {
        const OWNERS: &str = "managedFields";
        let mentions = |path: &JsonPointer| {
            let mut steps = path.steps();
            match (steps.next(), steps.next()) {
                (Some("metadata"), Some(member)) => member == OWNERS,
                (Some("metadata") | None, _) => true,
                _ => false,
            }
        };
        match self {
            PatchBody::Json(patch) => patch
                .iter()
                .flat_map(JsonPatchOperation::pointers)
                .any(mentions),
            // Names of directives end with the name of the member.
            PatchBody::Merge(patch) | PatchBody::Strategic(patch) => patch
                .get("metadata")
                .and_then(Value::as_object)
                .is_some_and(|metadata| metadata.keys().any(|name| name.ends_with(OWNERS))),
        }
    }
}

/// The error 400 for a body that is not JSON.
#[allow(clippy::needless_pass_by_value)] // the signature that `map_err` needs
fn undecodable(error: serde_json::Error) -> Status {
    let why = if error.is_eof() {
        "unexpected end of JSON input".to_owned()
    } else {
        error.to_string()
    };
    Status::bad_request(format!("error decoding patch: {why}"))
}

/// The body as JSON. It is refused unless it `fits`; `go_type` is the type that the message names.
fn decoded(body: &Bytes, go_type: &str, fits: fn(&Value) -> bool) -> Result<Value, Status> {
    let value: Value = serde_json::from_slice(body).map_err(undecodable)?;
    if fits(&value) {
        return Ok(value);
    }
    let why = tidings_go::mismatch_value(&value, go_type);
    Err(Status::bad_request(format!("error decoding patch: {why}")))
}

fn object(body: &Bytes) -> Result<Value, Status> {
    decoded(body, "map[string]interface {}", Value::is_object)
}

fn json_patch(body: &Bytes) -> Result<Vec<JsonPatchOperation>, Status> {
    let operations = decoded(body, "[]handlers.jsonPatchOp", Value::is_array)?;
    let operations = operations.as_array().cloned().unwrap_or_default();
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Status::failure(413, Reason::RequestEntityTooLarge, message));
    }
    // An unknown operation is 422, not 400 (W150).
    tidings_json::from_value(operations.into()).map_err(|_| unprocessable())
}

/// Messages about the text of a patch (W173): members that occur twice, and unknown members of operations.
fn odd_in(patch: &PatchBody, body: &[u8]) -> Vec<String> {
    // The body has been parsed already, so this does not fail.
    let Ok((value, duplicates)) = reading::read(body) else {
        return Vec::new();
    };
    if !matches!(patch, PatchBody::Json(_)) {
        let twice = duplicates.into_iter().map(OddField::Duplicate);
        return twice.map(|field| field.to_string()).collect();
    }
    let operations = value.as_array().into_iter().flatten().enumerate();
    let unknown = operations.flat_map(|(at, operation)| {
        let names = operation.as_object().into_iter().flat_map(Map::keys);
        names
            .filter(|name| !["op", "path", "from", "value"].contains(&name.as_str()))
            .map(move |name| format!("[{at}].{name}"))
    });
    let unknown: Vec<String> = unknown.take(ODD_OPERATIONS_MAX).collect();
    let found = odd_in_order(body, &duplicates, &unknown);
    let found = found.iter();
    found.map(|field| format!("json patch {field}")).collect()
}

/// The error 422 for operations that fail (W150).
fn unprocessable() -> Status {
    let message = "the server rejected our request due to an error in our request";
    Status::failure(422, Reason::Invalid, message).with_empty_details()
}

/// Applies a patch to a document.
fn apply(
    patch: &PatchBody,
    mut document: Value,
    schema: Option<&'static Type>,
) -> Result<Value, Status> {
    match patch {
        PatchBody::Json(patch) => {
            json_patch::apply_operations(&mut document, patch).map_err(|_| unprocessable())?;
        }
        PatchBody::Merge(patch) => json_patch::merge(&mut document, patch),
        PatchBody::Strategic(patch) => {
            let named = ["kind", "apiVersion"].map(|name| (name, document[name].clone()));
            strategic::merge(&mut document, patch, schema)?;
            // A strategic merge patch cannot change kind and apiVersion.
            for (name, value) in named {
                document[name] = value;
            }
        }
    }
    Ok(document)
}
