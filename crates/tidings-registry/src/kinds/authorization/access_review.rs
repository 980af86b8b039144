//! Checks of access reviews (SubjectAccessReview and its relatives).

use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Status, validate};
use tidings_json::{Map, Value, json};

use crate::model::{Draft, Meta, Review};

/// Checks an access review.
///
/// # Errors
/// With 422 in upstream's words, which leave out the kind.
pub fn check_review(draft: &Draft, review: Review) -> Result<(), Status> {
    let mut errors = FieldErrors::new();
    let spec = draft.members.get("spec");
    let member = |name: &str| {
        let value = spec.and_then(|spec| spec.get(name));
        value.and_then(Value::as_object)
    };
    let (resource, path) = (
        member("resourceAttributes"),
        member("nonResourceAttributes"),
    );
    let wrong_path = |why: &str| {
        let of = |name: &str| draft.text(&["spec", "nonResourceAttributes", name]);
        let shown = json!({ "Path": of("path"), "Verb": of("verb") });
        FieldError::invalid_value(
            "spec.nonResourceAttributes",
            tidings_go::json_text(&shown),
            why,
        )
    };
    match (resource, path) {
        (Some(_), Some(_)) => errors.push(wrong_path(
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid_value(
            "spec.resourceAttributes",
            "null",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let groups = spec.and_then(|spec| spec.get("groups"));
    let nobody = draft.text(&["spec", "user"]).is_empty()
        && groups.and_then(Value::as_array).is_none_or(Vec::is_empty);
    if review != Review::SelfSubjectAccess && nobody {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", "", why));
    }
    for (name, labels) in [("fieldSelector", false), ("labelSelector", true)] {
        let selector = resource.and_then(|resource| resource.get(name));
        if let Some(selector) = selector.and_then(Value::as_object) {
            let path = format!("spec.resourceAttributes.{name}");
            check_selector(selector, &path, labels, &mut errors);
        }
    }
    let local = review == Review::LocalSubjectAccess;
    let mut meta = draft.meta.clone();
    meta.managed_fields.0.clear();
    meta.managed_sent.clear();
    meta.managed_reset = false;
    if local {
        meta.namespace.clear();
    }
    if meta != Meta::default() {
        let why = if local {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        let mut shown = Vec::new();
        draft.meta.write(&mut shown).map_err(Status::internal)?;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        errors.push(FieldError::invalid_value("metadata", shown, why));
    }
    let namespace = draft.text(&["spec", "resourceAttributes", "namespace"]);
    if local && resource.is_some() && namespace != draft.meta.namespace {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            namespace,
            "must match metadata.namespace",
        ));
    }
    if local && path.is_some() {
        errors.push(wrong_path("disallowed on this kind of request"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupVersionKind {
        kind: "",
        ..draft.kind.group_version_kind()
    };
    Err(Status::invalid(kind, "", &errors))
}

/// Refuses a selector with both `rawSelector` and `requirements` or with neither, and wrong requirements.
fn check_selector(selector: &Map, path: &str, labels: bool, errors: &mut FieldErrors) {
    let raw = selector.get("rawSelector").and_then(Value::as_str);
    let raw = raw.unwrap_or_default();
    let requirements = selector.get("requirements").and_then(Value::as_array);
    let requirements = requirements.map(Vec::as_slice).unwrap_or_default();
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => errors.push(FieldError::invalid(
            format!("{path}.rawSelector"),
            raw,
            "may not specified at the same time as requirements",
        )),
        (true, true) => errors.push(FieldError::required(
            format!("{path}.requirements"),
            format!("when {path} is specified, requirements or rawSelector is required"),
        )),
        _ => {}
    }
    for (at, requirement) in requirements.iter().enumerate() {
        let path = format!("{path}.requirements[{at}]");
        let text = |name: &str| {
            let text = requirement.get(name).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        let key = text("key");
        if !labels && key.is_empty() {
            errors.push(FieldError::required(
                format!("{path}.key"),
                "must be specified",
            ));
        }
        let values = requirement.get("values").and_then(Value::as_array);
        let values = values.map(Vec::as_slice).unwrap_or_default();
        match text("operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            // A newer client may know more operators.
            _ => {}
        }
        if labels {
            let wrong = validate::qualified_name(key).into_iter();
            errors.extend(wrong.map(|why| FieldError::invalid(format!("{path}.key"), key, why)));
            for (at, value) in values.iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                let wrong = validate::label_value(value).into_iter();
                errors
                    .extend(wrong.map(|why| {
                        FieldError::invalid(format!("{path}.values[{at}]"), value, why)
                    }));
            }
        }
    }
}
