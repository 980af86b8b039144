//! POST of a review: a question about who somebody is or what they may do. It is answered and not stored.

use http::StatusCode;
use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Object, Status, go, validate};
use tidings_json::{Map, Value, json};

use super::create::settle_namespace;
use super::{Ask, WriteOptions};
use crate::api::Inner;
use crate::registry::Review;
use crate::registry::draft::Draft;
use crate::registry::managed;
use crate::registry::meta::Meta;
use crate::respond::Answer;
use crate::{auth, clock};

pub(crate) fn review(api: &Inner, ask: &mut Ask<'_>, review: Review) -> Result<Answer, Status> {
    let options = WriteOptions::from_query(ask.query, "CreateOptions")?;
    let mut draft = Draft::read(ask.kind(), &ask.json()?)?;
    ask.warnings
        .extend(options.odd_fields(ask.kind(), &draft.odd)?);
    settle_namespace(&mut draft, ask.target)?;
    ask.warnings.extend(draft.meta.deduplicate_owners(false));
    draft.check_depth()?;
    managed::track_created(&mut draft, &ask.manager(), &clock::now());
    let status = match review {
        Review::SelfSubjectAccess => {
            valid(&draft, review)?;
            access(&draft, &auth::ADMIN_GROUPS)
        }
        Review::SubjectAccess | Review::LocalSubjectAccess => {
            valid(&draft, review)?;
            let groups = draft
                .members
                .get("spec")
                .and_then(|spec| spec.get("groups"));
            let groups = groups.and_then(Value::as_array).into_iter().flatten();
            let groups: Vec<&str> = groups.filter_map(Value::as_str).collect();
            access(&draft, &groups)
        }
        Review::SelfSubjectRules => {
            if draft.text(&["spec", "namespace"]).is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            // What was asked is not repeated.
            draft = Draft::empty(draft.kind);
            json!({
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
                "incomplete": false,
            })
        }
        Review::SelfSubject => {
            draft = Draft::empty(draft.kind);
            draft.meta.creation_timestamp = Some(clock::now());
            json!({ "userInfo": administrator() })
        }
        Review::Token => token(api, &draft)?,
    };
    draft.members.insert("status".into(), status);
    let object = Object::parse(draft.to_bytes()?).map_err(Status::internal)?;
    Ok(Answer::Object(StatusCode::CREATED, object))
}

fn administrator() -> Value {
    json!({ "username": auth::ADMIN, "groups": auth::ADMIN_GROUPS })
}

/// Whose a token is.
fn token(api: &Inner, draft: &Draft) -> Result<Value, Status> {
    let token = draft.text(&["spec", "token"]);
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication";
        return Err(Status::bad_request(message));
    }
    let spec = draft.members.get("spec");
    let audiences = spec.and_then(|spec| spec.get("audiences"));
    let audiences = audiences.and_then(Value::as_array);
    let meant = audiences.is_none_or(|audiences| {
        audiences.is_empty() || audiences.iter().any(|audience| audience == auth::AUDIENCE)
    });
    Ok(if meant && api.authentication().knows(token) {
        json!({ "authenticated": true, "user": administrator(), "audiences": [auth::AUDIENCE] })
    } else {
        json!({ "user": {}, "error": "invalid bearer token" })
    })
}

/// Whether somebody of these groups may do what is asked about.
fn access(draft: &Draft, groups: &[&str]) -> Value {
    let path = draft.members.get("spec");
    let path = path.and_then(|spec| spec.get("nonResourceAttributes"));
    let path = path.map(|_| {
        let of = |name: &str| draft.text(&["spec", "nonResourceAttributes", name]);
        (of("verb"), of("path"))
    });
    json!({ "allowed": auth::allows(groups, path) })
}

/// What is wrong with a question about access, in upstream's words; it does not name the kind.
fn valid(draft: &Draft, review: Review) -> Result<(), Status> {
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
        FieldError::invalid_value("spec.nonResourceAttributes", go_json(&shown), why)
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

/// As Go writes it.
fn go_json(value: &impl serde::Serialize) -> String {
    let mut bytes = Vec::new();
    let written = go::write_json(&mut bytes, value);
    written.map_or_else(
        |_| String::new(),
        |()| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// Selectors are written out or not, but not both.
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
