//! Parses the query of a request into typed options.

use bytes::Bytes;
use serde::Deserialize;
use tidings_api::validate::{self, FIELD_MANAGER_BYTES_MAX};
use tidings_api::{FieldError, FieldErrors, GroupVersionKind, ListOptions, Status};
use tidings_go::{parse_duration, parse_int, query_bool, quote};
use tidings_json::Value;
use tidings_registry::{FieldValidation, WriteOptions, document, unregistered};

use std::time::Duration;

use super::request::{Query, ResourceRequest};
use crate::core::{DeleteOptions, ListCommand, Preconditions, PropagationPolicy, SentOptions};

/// How long a request may take, unless it is a watch (W188).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// 422 for invalid options of a request.
fn invalid_options(kind: &str, errors: &FieldErrors) -> Status {
    let kind = GroupVersionKind {
        group: "meta.k8s.io",
        version: "v1",
        kind,
    };
    Status::invalid(kind, "", errors)
}

fn checked<T>(options: T, kind: &str, errors: &FieldErrors) -> Result<T, Status> {
    match errors.is_empty() {
        true => Ok(options),
        false => Err(invalid_options(kind, errors)),
    }
}

/// The options of a write; `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`.
pub(super) fn write_options(query: &Query, kind: &str) -> Result<WriteOptions, Status> {
    tracing::trace!(target: "tidings::walk", "reads the options of the query");
    let mut errors = FieldErrors::new();
    let manager = query.get("fieldManager").unwrap_or_default();
    errors.extend(validate::field_manager("fieldManager", manager));
    let dry_run = dry_run(&query.all("dryRun"), &mut errors);
    let validation = match query.get("fieldValidation").unwrap_or_default() {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let supported = ["", "Ignore", "Strict", "Warn"];
            let path = "fieldValidation";
            errors.push(FieldError::not_supported(path, quote(other), &supported));
            FieldValidation::Warn
        }
    };
    let options = WriteOptions {
        dry_run,
        validation,
    };
    checked(options, kind, &errors)
}

/// The options of a patch that is not an apply. It may not set `force`.
pub(super) fn patch_options(query: &Query) -> Result<WriteOptions, Status> {
    let options = write_options(query, "PatchOptions")?;
    if query.get("force").is_some() {
        let mut errors = FieldErrors::new();
        errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
        return Err(invalid_options("PatchOptions", &errors));
    }
    Ok(options)
}

/// The options of an apply, and the value of `force`. An apply must name its field manager.
pub(super) fn apply_options(query: &Query) -> Result<(WriteOptions, bool), Status> {
    let options = write_options(query, "PatchOptions")?;
    if query.get("fieldManager").unwrap_or_default().is_empty() {
        let mut errors = FieldErrors::new();
        errors.push(FieldError::required(
            "fieldManager",
            "is required for apply patch",
        ));
        return Err(invalid_options("PatchOptions", &errors));
    }
    let force = query.get("force").unwrap_or("false");
    let force = !matches!(force.to_ascii_lowercase().as_str(), "false" | "0" | "");
    Ok((options, force))
}

/// Parses `dryRun`, which is `All` or absent (W139).
fn dry_run(values: &[&str], errors: &mut FieldErrors) -> bool {
    if values.iter().any(|value| *value != "All") {
        let quoted: Vec<String> = values.iter().map(|value| quote(value)).collect();
        let shown = format!("[{}]", quoted.join(","));
        errors.push(FieldError::not_supported("dryRun", shown, &["All"]));
    }
    !values.is_empty()
}

/// The name of the field manager (W157): `fieldManager` of the query, or the first part of the user agent.
pub(super) fn manager(query: &Query, user_agent: &str) -> String {
    let given = query.get("fieldManager").unwrap_or_default();
    let agent = user_agent.split('/').next().unwrap_or_default();
    let name: String = match given.is_empty() {
        true => agent.chars().take(FIELD_MANAGER_BYTES_MAX).collect(),
        false => given.to_owned(),
    };
    match name.is_empty() {
        true => "unknown".into(),
        false => name,
    }
}

/// What a write says of itself, as those see it who decide whether it may be.
pub(super) fn sent(query: &Query) -> Option<Box<SentOptions>> {
    let [manager, validation] =
        ["fieldManager", "fieldValidation"].map(|name| query.get(name).unwrap_or_default());
    let sent = || SentOptions {
        field_manager: manager.to_owned(),
        field_validation: validation.to_owned(),
    };
    // Most requests say neither.
    (!manager.is_empty() || !validation.is_empty()).then(|| Box::new(sent()))
}

/// The options of a LIST or WATCH.
pub(super) fn list_command(
    request: &ResourceRequest,
    query: &Query,
) -> Result<ListCommand, Status> {
    tracing::trace!(target: "tidings::walk", "reads the options of the query");
    let options = ListOptions::from_query(|name| query.get(name))?;
    ListCommand::new(&request.target, options, request.forced_watch)
}

/// `DeleteOptions` as the client sent them, in the body or in the query.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SentDeleteOptions {
    grace_period_seconds: Option<i64>,
    preconditions: Option<SentPreconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SentPreconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The options of a DELETE: from the JSON body, or from the query if there is no body (W159).
pub(super) fn delete_options(query: &Query, body: Option<&Bytes>) -> Result<DeleteOptions, Status> {
    let sent = match body {
        Some(body) => delete_options_of_body(body)?,
        None => delete_options_of_query(query)?,
    };
    let mut errors = FieldErrors::new();
    let propagation_policy = PropagationPolicy::read(
        sent.propagation_policy.as_deref(),
        sent.orphan_dependents,
        &mut errors,
    );
    let dry_runs: Vec<&str> = sent.dry_run.iter().flatten().map(String::as_str).collect();
    let dry_run = dry_run(&dry_runs, &mut errors);
    let SentPreconditions {
        uid,
        resource_version,
    } = sent.preconditions.unwrap_or_default();
    let options = DeleteOptions {
        grace_period_seconds: sent.grace_period_seconds,
        preconditions: Preconditions {
            uid,
            resource_version,
        },
        orphan_dependents: sent.orphan_dependents,
        propagation_policy,
        dry_run,
        from_cache: false,
    };
    checked(options, "DeleteOptions", &errors)
}

fn delete_options_of_query(query: &Query) -> Result<SentDeleteOptions, Status> {
    let text = |name: &str| query.get(name).map(ToOwned::to_owned);
    let grace = query.get("gracePeriodSeconds").map(parse_int).transpose();
    let dry_run = query.all("dryRun").into_iter().map(ToOwned::to_owned);
    Ok(SentDeleteOptions {
        grace_period_seconds: grace.map_err(|error| Status::bad_request(error.to_string()))?,
        preconditions: Some(SentPreconditions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        }),
        orphan_dependents: query.get("orphanDependents").map(query_bool),
        propagation_policy: text("propagationPolicy"),
        dry_run: Some(dry_run.collect()),
    })
}

/// Parses the body of a DELETE. Its `kind` must be `DeleteOptions` or absent; any `apiVersion` is accepted.
fn delete_options_of_body(body: &Bytes) -> Result<SentDeleteOptions, Status> {
    let members = document(body).map_err(Status::bad_request)?;
    let text = |name: &str| {
        let text = members.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    };
    if let Some(kind) = text("kind").filter(|kind| *kind != "DeleteOptions") {
        let version = text("apiVersion").unwrap_or("meta.k8s.io/v1");
        return Err(Status::bad_request(unregistered(kind, version)));
    }
    tidings_json::from_value(members.into()).map_err(|error| Status::bad_request(error.to_string()))
}

/// How long a request may take, unless it is a watch (W23, W188).
pub(super) fn request_timeout(query: &Query) -> Result<Duration, Status> {
    let asked = query
        .get("timeout")
        .filter(|text| !text.is_empty())
        .map(parse_duration)
        .transpose()
        .map_err(|why| {
            Status::bad_request(format!(
                "invalid timeout specified in the request URL - {why}"
            ))
        })?;
    let asked = asked.filter(|timeout| !timeout.is_zero());
    Ok(asked.unwrap_or(REQUEST_TIMEOUT).min(REQUEST_TIMEOUT))
}
