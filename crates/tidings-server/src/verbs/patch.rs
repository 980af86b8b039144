//! PATCH: JSON patch, merge patch, strategic merge patch (W149–W153).

use bytes::Bytes;
use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Object, Reason, Status, go};
use tidings_json::{Map, Value};
use tidings_schema::Type;

use super::create::settle_namespace;
use super::json_patch::{self, Operation, Pointer};
use super::scale::{self, Wanted};
use super::update::{change, check_name};
use super::{Ask, FieldValidation, WriteOptions, invalid_options};
use crate::api::Inner;
use crate::custom;
use crate::negotiate;
use crate::registry::Kind;
use crate::registry::draft::{Draft, odd};
use crate::registry::meta::go_kind;
use crate::registry::reading;
use crate::registry::stored::Stored;
use crate::registry::strategic;
use crate::respond::Answer;

/// A JSON patch may have this many operations.
const OPERATIONS_MAX: usize = 10_000;

/// A patch, read.
#[derive(Debug)]
enum Change {
    Json(Vec<Operation>),
    Merge(Value),
    Strategic(Value),
}

impl Change {
    /// True if it may depend on `metadata.managedFields`, or say something about them.
    fn speaks_of_owners(&self) -> bool {
        const OWNERS: &str = "managedFields";
        let around = |path: &Pointer| {
            let mut steps = path.steps();
            match (steps.next(), steps.next()) {
                (Some("metadata"), Some(member)) => member == OWNERS,
                (Some("metadata") | None, _) => true,
                _ => false,
            }
        };
        match self {
            Change::Json(patch) => patch.iter().flat_map(Operation::places).any(around),
            // Directives have the name at their end.
            Change::Merge(patch) | Change::Strategic(patch) => patch
                .get("metadata")
                .and_then(Value::as_object)
                .is_some_and(|metadata| metadata.keys().any(|name| name.ends_with(OWNERS))),
        }
    }
}

pub(crate) async fn patch(api: &Inner, ask: &mut Ask<'_>) -> Result<Answer, Status> {
    let media_type = negotiate::content_type(ask.headers).to_ascii_lowercase();
    if media_type == super::apply::MEDIA_TYPE {
        return super::apply::apply(api, ask).await;
    }
    let read = reader(&media_type, ask.kind())?;
    let options = WriteOptions::from_query(ask.query, "PatchOptions")?;
    if ask.query.get("force").is_some() {
        let mut errors = FieldErrors::new();
        errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
        return Err(invalid_options("PatchOptions", &errors));
    }
    // A patch of what does not exist is not looked at.
    if api.current(ask.kind(), &ask.key).await?.is_none() {
        let resource = ask.kind().group_resource();
        return Err(Status::not_found(resource, ask.key.name()));
    }
    let patch = read(&ask.body)?;
    let odd = match options.validation {
        FieldValidation::Ignore => Vec::new(),
        _ => odd_in(&patch, &ask.body),
    };
    // What the client is warned of is found while the patch is applied, perhaps more than once.
    let warnings = std::sync::Mutex::new(Vec::new());
    let answer = change(api, ask, options, &|existing| {
        let (draft, found) = patched(ask, (&patch, &odd), existing, options)?;
        if let Ok(mut warnings) = warnings.lock() {
            *warnings = found;
        }
        Ok(draft)
    })
    .await;
    ask.warnings
        .extend(warnings.into_inner().unwrap_or_default());
    answer
}

type Read = fn(&Bytes) -> Result<Change, Status>;

/// How the body of a media type is read, or 415 (W149).
fn reader(media_type: &str, kind: &Kind) -> Result<Read, Status> {
    match media_type {
        "application/json-patch+json" => Ok(|body| json_patch(body).map(Change::Json)),
        "application/merge-patch+json" => Ok(|body| object(body).map(Change::Merge)),
        "application/strategic-merge-patch+json" if kind.custom.is_none() => {
            Ok(|body| object(body).map(Change::Strategic))
        }
        _ if kind.custom.is_some() => Err(Status::failure(
            415,
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
             application/merge-patch+json, application/apply-patch+yaml",
        )),
        _ => Err(Status::failure(
            415,
            Reason::UnsupportedMediaType,
            "415: Unsupported Media Type",
        )
        .with_empty_details()),
    }
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` wants it
fn undecodable(error: serde_json::Error) -> Status {
    let why = if error.is_eof() {
        "unexpected end of JSON input".to_owned()
    } else {
        error.to_string()
    };
    Status::bad_request(format!("error decoding patch: {why}"))
}

/// The body as JSON of the form that a kind of patch has.
fn decoded(body: &Bytes, go_type: &str, fits: fn(&Value) -> bool) -> Result<Value, Status> {
    let value: Value = serde_json::from_slice(body).map_err(undecodable)?;
    if fits(&value) {
        return Ok(value);
    }
    Err(Status::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {} into Go value of type {go_type}",
        go_kind(&value)
    )))
}

fn object(body: &Bytes) -> Result<Value, Status> {
    decoded(body, "map[string]interface {}", Value::is_object)
}

fn json_patch(body: &Bytes) -> Result<Vec<Operation>, Status> {
    let operations = decoded(body, "[]handlers.jsonPatchOp", Value::is_array)?;
    let operations = operations.as_array().cloned().unwrap_or_default();
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Status::failure(413, Reason::RequestEntityTooLarge, message));
    }
    // An operation that does not exist is an error of the request, not of its form (W150).
    tidings_json::from_value(operations.into()).map_err(|_| unprocessable())
}

/// What is odd about the text of a patch (W173): members that occur twice, and those that operations do not have.
fn odd_in(patch: &Change, body: &[u8]) -> Vec<String> {
    // What can be read as JSON can be read again.
    let Ok((value, duplicates)) = reading::read(body) else {
        return Vec::new();
    };
    if !matches!(patch, Change::Json(_)) {
        let twice = duplicates.iter();
        return twice.map(|field| odd("duplicate", field)).collect();
    }
    let operations = value.as_array().into_iter().flatten().enumerate();
    let unknown = operations.flat_map(|(at, operation)| {
        let names = operation.as_object().into_iter().flat_map(Map::keys);
        names
            .filter(|name| !["op", "path", "from", "value"].contains(&name.as_str()))
            .map(move |name| format!("[{at}].{name}"))
    });
    let unknown: Vec<String> = unknown.take(ODD_OPERATIONS_MAX).collect();
    let found = reading::odd_in_order(body, &duplicates, &unknown).into_iter();
    found
        .map(|(what, field)| format!("json patch {}", odd(what, &field)))
        .collect()
}

/// Members of operations that are told not to exist.
const ODD_OPERATIONS_MAX: usize = 100;

/// W150.
fn unprocessable() -> Status {
    let message = "the server rejected our request due to an error in our request";
    Status::failure(422, Reason::Invalid, message).with_empty_details()
}

/// The object with the patch applied, and what the client is to be warned of.
fn patched(
    ask: &Ask<'_>,
    (patch, odd): (&Change, &[String]),
    existing: &Object,
    options: WriteOptions,
) -> Result<(Draft, Vec<String>), Status> {
    let kind = ask.kind();
    if ask.target.subresource.as_deref() == Some("scale") {
        let before = scale::before_patch(existing, kind)?.to_json()?;
        let scale = tidings_schema::find("autoscaling", "v1", "Scale");
        let before = serde_json::from_slice(&before).map_err(Status::internal)?;
        let after = apply(patch, before, scale)?;
        let wanted = Wanted::read(after.to_string().as_bytes(), &ask.key)?;
        check_name(&wanted.name, ask.key.name())?;
        let mut draft = Draft::of(kind, existing)?;
        wanted.apply(&mut draft);
        return Ok((draft, Vec::new()));
    }
    let shown = kind.shown(existing);
    let whole = || {
        let before = serde_json::from_slice(&shown).map_err(Status::internal)?;
        apply(patch, before, kind.schema())
    };
    let after = match kind.stored_as {
        // The owners of fields are half of an object: who does not speak of them has not sent any.
        None if !patch.speaks_of_owners() => {
            let before = Stored::read(&shown).map_err(Status::internal)?;
            apply(patch, Value::Object(before.members), kind.schema())?
        }
        _ => whole()?,
    };
    if let (Some(_), Value::Object(members)) = (kind.custom, &after) {
        custom::check_type(kind, members)?;
    }
    let undecoded = |why: &str| {
        // Of a strategic patch upstream shows the patch, of the others what they would have made of the object.
        let text = match patch {
            Change::Strategic(patch) => go::print(patch),
            _ => {
                let json = whole().ok().and_then(|after| go::json(&after).ok());
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
        return Err(Status::invalid(named, ask.key.name(), &wrong.into()));
    }
    let mut found = odd.to_vec();
    draft.odd.sort_unstable();
    found.append(&mut draft.odd);
    let mut warnings = match options.validation {
        FieldValidation::Strict if !found.is_empty() => {
            let found = found.join(", ");
            return Err(undecoded(&format!("strict decoding error: {found}")));
        }
        FieldValidation::Warn => found,
        _ => Vec::new(),
    };
    check_name(&draft.meta.name, ask.key.name())?;
    settle_namespace(&mut draft, ask.target)?;
    warnings.extend(draft.meta.deduplicate_owners(true));
    Ok((draft, warnings))
}

fn apply(
    patch: &Change,
    mut document: Value,
    schema: Option<&'static Type>,
) -> Result<Value, Status> {
    match patch {
        Change::Json(patch) => {
            json_patch::operate(&mut document, patch).map_err(|_| unprocessable())?;
        }
        Change::Merge(patch) => json_patch::merge(&mut document, patch),
        Change::Strategic(patch) => {
            let named = ["kind", "apiVersion"].map(|name| (name, document[name].clone()));
            strategic::merge(&mut document, patch, schema)?;
            // It cannot make something else of an object.
            for (name, value) in named {
                document[name] = value;
            }
        }
    }
    Ok(document)
}
