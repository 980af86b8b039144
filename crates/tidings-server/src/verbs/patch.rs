//! PATCH: JSON patch, merge patch, strategic merge patch (W149–W153).

use bytes::Bytes;
use json_patch::{Patch, PatchOperation};
use serde_json::Value;
use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Object, Reason, Status, go};
use tidings_schema::Type;

use super::create::settle_namespace;
use super::scale::{self, Wanted};
use super::update::{change, check_name};
use super::{Ask, FieldValidation, WriteOptions, invalid_options};
use crate::api::Inner;
use crate::negotiate;
use crate::registry::draft::Draft;
use crate::registry::strategic;
use crate::respond::Answer;

/// A JSON patch may have this many operations.
const OPERATIONS_MAX: usize = 10_000;
/// What the `copy` operations of one patch may add.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// A patch, read.
#[derive(Debug)]
enum Change {
    Json(Patch),
    Merge(Value),
    Strategic(Value),
}

pub(crate) async fn patch(api: &Inner, ask: &mut Ask<'_>) -> Result<Answer, Status> {
    let media_type = negotiate::content_type(ask.headers).to_ascii_lowercase();
    let read = reader(&media_type)?;
    let options = WriteOptions::from_query(ask.query, "PatchOptions")?;
    if ask.query.get("force").is_some() {
        let mut errors = FieldErrors::new();
        errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
        return Err(invalid_options("PatchOptions", &errors));
    }
    let patch = read(&ask.body)?;
    // What the client is warned of is found while the patch is applied, perhaps more than once.
    let warnings = std::sync::Mutex::new(Vec::new());
    let answer = change(api, ask, options, &|existing| {
        let (draft, found) = patched(ask, &patch, existing, options)?;
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
fn reader(media_type: &str) -> Result<Read, Status> {
    match media_type {
        "application/json-patch+json" => Ok(|body| json_patch(body).map(Change::Json)),
        "application/merge-patch+json" => Ok(|body| {
            serde_json::from_slice(body)
                .map(Change::Merge)
                .map_err(undecodable)
        }),
        "application/strategic-merge-patch+json" => Ok(|body| {
            serde_json::from_slice(body)
                .map(Change::Strategic)
                .map_err(undecodable)
        }),
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
    Status::bad_request(format!("error decoding patch: {error}"))
}

fn json_patch(body: &Bytes) -> Result<Patch, Status> {
    let operations: Vec<Value> = serde_json::from_slice(body).map_err(undecodable)?;
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Status::failure(413, Reason::RequestEntityTooLarge, message));
    }
    // An operation that does not exist is an error of the request, not of its form (W150).
    serde_json::from_value(operations.into()).map_err(|_| unprocessable())
}

/// W150.
fn unprocessable() -> Status {
    let message = "the server rejected our request due to an error in our request";
    Status::failure(422, Reason::Invalid, message).with_empty_details()
}

/// The object with the patch applied, and what the client is to be warned of.
fn patched(
    ask: &Ask<'_>,
    patch: &Change,
    existing: &Object,
    options: WriteOptions,
) -> Result<(Draft, Vec<String>), Status> {
    let kind = ask.kind();
    if let (Some("scale"), Some(own)) = (ask.target.subresource.as_deref(), &kind.scale) {
        let before = scale::of(existing, own)?.to_json()?;
        let scale = tidings_schema::find("autoscaling", "v1", "Scale");
        let after = apply(patch, &before, scale)?;
        let wanted = Wanted::read(after.to_string().as_bytes(), &ask.key)?;
        check_name(&wanted.name, ask.key.name())?;
        let mut draft = Draft::of(kind, existing)?;
        wanted.apply(&mut draft);
        return Ok((draft, Vec::new()));
    }
    let after = match kind.stored_as {
        None => apply(patch, existing.as_bytes(), kind.schema())?,
        Some(_) => apply(patch, &kind.converted(existing), kind.schema())?,
    };
    let undecoded = |why: &str| {
        let text = go::json(&after).unwrap_or_default();
        let wrong = FieldError::invalid("patch", &String::from_utf8_lossy(&text), why);
        let unnamed = GroupVersionKind {
            group: "",
            version: "",
            kind: "",
        };
        Status::invalid(unnamed, "", &wrong.into())
    };
    let mut draft = Draft::read_value(kind, after.clone()).map_err(|why| undecoded(&why))?;
    let mut warnings = match options.validation {
        FieldValidation::Strict if !draft.odd.is_empty() => {
            return Err(undecoded(&format!(
                "strict decoding error: {}",
                draft.odd.join(", ")
            )));
        }
        FieldValidation::Warn => std::mem::take(&mut draft.odd),
        _ => Vec::new(),
    };
    check_name(&draft.meta.name, ask.key.name())?;
    settle_namespace(&mut draft, ask.target)?;
    warnings.extend(draft.meta.deduplicate_owners());
    Ok((draft, warnings))
}

fn apply(patch: &Change, before: &[u8], schema: Option<&'static Type>) -> Result<Value, Status> {
    let mut document: Value = serde_json::from_slice(before).map_err(Status::internal)?;
    match patch {
        Change::Json(patch) => {
            check_copies(patch, &document)?;
            json_patch::patch(&mut document, patch).map_err(|_| unprocessable())?;
        }
        Change::Merge(patch) => json_patch::merge(&mut document, patch),
        Change::Strategic(patch) => {
            strategic::merge(&mut document, patch, schema).map_err(Status::bad_request)?;
        }
    }
    Ok(document)
}

/// A patch that copies what it has copied would grow beyond any bound.
fn check_copies(patch: &Patch, document: &Value) -> Result<(), Status> {
    let copies = patch
        .0
        .iter()
        .any(|operation| matches!(operation, PatchOperation::Copy(_)));
    if !copies {
        return Ok(());
    }
    let mut document = document.clone();
    let mut copied = 0;
    for operation in &patch.0 {
        if let PatchOperation::Copy(copy) = operation {
            let source = copy.from.resolve(&document).map_err(|_| unprocessable())?;
            copied += source.to_string().len();
            if copied > COPIED_BYTES_MAX {
                return Err(unprocessable());
            }
        }
        json_patch::patch(&mut document, std::slice::from_ref(operation))
            .map_err(|_| unprocessable())?;
    }
    Ok(())
}
