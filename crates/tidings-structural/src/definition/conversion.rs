//! Checks `spec.conversion` of a definition.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::{self as go, Url};
use tidings_json::Value;

use super::member::{at, get, text, texts};
use crate::text::{FieldPath, json};

/// Versions of `ConversionReview` that upstream can send to a webhook.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The checks of a conversion that an update need not pass if the stored definition does not either.
#[derive(Clone, Copy)]
pub(super) struct ConversionDemands {
    /// The webhook must support a known version of `ConversionReview`.
    pub(super) known_review: bool,
    /// The authorities of the webhook must be certificates.
    pub(super) ca_bundle: bool,
}

/// Appends the errors of `spec.conversion`, by upstream's rules.
pub(super) fn check(
    conversion: &Value,
    demands: ConversionDemands,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let strategy = text(conversion, "strategy");
    let strategy_path = path.child("strategy");
    match strategy {
        "" => errors.push(FieldError::required(strategy_path, "")),
        "None" | "Webhook" => {}
        other => errors.push(FieldError::not_supported(
            strategy_path,
            go::quote(other),
            &["None", "Webhook"],
        )),
    }
    let webhook = get(conversion, "webhook").unwrap_or(&Value::Null);
    let client = get(webhook, "clientConfig");
    let reviews = texts(webhook, "conversionReviewVersions");
    let client_path = path.child("webhookClientConfig");
    let reviews_path = path.child("conversionReviewVersions");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.push(FieldError::forbidden(client_path, detail));
        }
        if !reviews.is_empty() {
            errors.push(FieldError::forbidden(reviews_path, detail));
        }
        return;
    }
    match client {
        None => {
            let detail = "required when strategy is set to Webhook";
            errors.push(FieldError::required(client_path, detail));
        }
        Some(client) => {
            check_client(client, &client_path, errors);
            if demands.ca_bundle && !is_ca_bundle(client) {
                let path = client_path.child("caBundle");
                let detail = format!("unable to load root certificates: {NO_CERTIFICATES}");
                errors.push(FieldError::invalid(path, text(client, "caBundle"), detail));
            }
        }
    }
    check_reviews(&reviews, demands.known_review, &reviews_path, errors);
}

/// Appends the errors of the `clientConfig` of a webhook, by upstream's rules.
pub fn check_webhook_client(client: &Value, path: &str, errors: &mut FieldErrors) {
    check_client(client, &FieldPath::new(path), errors);
}

fn check_client(client: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match (
        get(client, "url").and_then(Value::as_str),
        get(client, "service"),
    ) {
        (Some(url), None) => check_url(url, &path.child("url"), errors),
        (None, Some(service)) => check_service(service, &path.child("service"), errors),
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(FieldError::required(path.clone(), detail));
        }
    }
}

fn check_url(text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(why) => {
            let detail = format!("url must be a valid URL: {why}{FORM}");
            errors.push(FieldError::required(path.clone(), detail));
            return;
        }
    };
    let mut refuse = |value: &str, detail: String| {
        errors.push(FieldError::invalid(path.clone(), value, detail));
    };
    if url.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        refuse(&url.scheme, detail);
    }
    if url.host.is_empty() {
        refuse(url.host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        refuse(user, "user information is not permitted in the URL".into());
    }
    if !url.fragment.is_empty() {
        let detail = "fragments are not permitted in the URL";
        refuse(url.fragment, detail.into());
    }
    if !url.query.is_empty() {
        let detail = "query parameters are not permitted in the URL";
        refuse(url.query, detail.into());
    }
}

fn check_service(service: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for member in ["name", "namespace"] {
        if text(service, member).is_empty() {
            errors.push(FieldError::required(path.child(member), ""));
        }
    }
    let port = get(service, "port").and_then(Value::as_i64).unwrap_or(0);
    if !(1..=65_535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid_value(path.child("port"), port, detail));
    }
    let url_path = text(service, "path");
    let mut refuse = |detail: String| {
        errors.push(FieldError::invalid(path.child("path"), url_path, detail));
    };
    match url_path {
        "" | "/" => return,
        "//" => return refuse("segment[0] may not be empty".into()),
        other if !other.starts_with('/') => refuse("must start with a '/'".into()),
        _ => {}
    }
    // Upstream drops the first character, also if it is no slash.
    let mut chars = url_path.chars();
    chars.next();
    let rest = chars.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (index, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in validate::dns1123_subdomain(step) {
            refuse(format!("segment[{index}]: {why}"));
        }
    }
}

fn check_reviews(
    reviews: &[&str],
    requires_known: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if reviews.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return;
    }
    let mut seen = HashSet::new();
    for (index, version) in reviews.iter().enumerate() {
        let path = path.index(index);
        if !seen.insert(version) {
            errors.push(FieldError::invalid(path, version, "duplicate version"));
            continue;
        }
        for why in validate::dns1035_label(version) {
            errors.push(FieldError::invalid(path.clone(), version, why));
        }
    }
    if requires_known && !is_known(reviews) {
        let detail = format!(
            "must include at least one of {}",
            REVIEW_VERSIONS.join(", ")
        );
        let printed = json(&reviews.to_vec().into());
        errors.push(FieldError::invalid_value(path.clone(), printed, detail));
    }
}

fn is_known(reviews: &[&str]) -> bool {
    reviews
        .iter()
        .any(|version| REVIEW_VERSIONS.contains(version))
}

/// False if a definition names only unknown versions of `ConversionReview`. An update may keep them.
pub(super) fn has_known_review(conversion: Option<&Value>) -> bool {
    let webhook = conversion.and_then(|conversion| get(conversion, "webhook"));
    let reviews = webhook.map_or(Vec::new(), |webhook| {
        texts(webhook, "conversionReviewVersions")
    });
    reviews.is_empty() || is_known(&reviews)
}

/// True if the conversion strategy is `Webhook`.
pub(super) fn is_webhook(conversion: Option<&Value>) -> bool {
    conversion.is_some_and(|conversion| text(conversion, "strategy") == "Webhook")
}

/// What is wrong with a bundle that has no certificate.
const NO_CERTIFICATES: &str = "unable to parse bytes as PEM block";

/// False if a client of a webhook names authorities and none of them is a certificate in PEM.
fn is_ca_bundle(client: &Value) -> bool {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    // The first byte of every certificate.
    const SEQUENCE: u8 = 0x30;
    let bundle = text(client, "caBundle");
    if bundle.is_empty() {
        return true;
    }
    let Some(pem) = STANDARD.decode(bundle).ok() else {
        return false;
    };
    let pem = String::from_utf8_lossy(&pem);
    let mut blocks = pem.split(BEGIN).skip(1);
    blocks.any(|block| {
        let Some((body, _)) = block.split_once(END) else {
            return false;
        };
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).unwrap_or_default();
        der.first() == Some(&SEQUENCE)
    })
}

/// False if the webhook of a definition names authorities and none of them is a certificate.
pub(super) fn has_ca_bundle(conversion: Option<&Value>) -> bool {
    let client = conversion.and_then(|conversion| at(conversion, &["webhook", "clientConfig"]));
    client.is_none_or(is_ca_bundle)
}
