//! Groups of the Kubernetes community need an approval, or the word that there is none, in an annotation.

use tidings_api::FieldError;
use tidings_json::Value;

use super::member::{at, text};
use super::url;
use crate::format::is_request_uri;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approval {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

impl Approval {
    /// The reason in the condition.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Approval::Invalid => "InvalidAnnotation",
            Approval::Approved => "ApprovedAnnotation",
            Approval::Bypassed => "UnapprovedAnnotation",
            Approval::Missing => "MissingAnnotation",
        }
    }
}

pub(super) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

fn annotation(crd: &Value) -> &str {
    at(crd, &["metadata", "annotations"]).map_or("", |annotations| text(annotations, ANNOTATION))
}

/// What the annotation says, and what to say about it.
pub(super) fn of(crd: &Value) -> (Approval, String) {
    let value = annotation(crd);
    let is_url = || {
        let url = url::parse(value).unwrap_or_default();
        is_request_uri(value) && !url.scheme.is_empty() && !url.host.is_empty()
    };
    if value.is_empty() {
        let why = format!("protected groups must have approval annotation \"{ANNOTATION}\", {SEE}");
        (Approval::Missing, why)
    } else if value.starts_with("unapproved") {
        let why = format!("not approved: {}", tidings_api::go::quote(value));
        (Approval::Bypassed, why)
    } else if is_url() {
        (Approval::Approved, format!("approved in {value}"))
    } else {
        let why = format!(
            "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {SEE}"
        );
        (Approval::Invalid, why)
    }
}

/// A state that has not changed is never complained about.
pub(super) fn check(new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let group = new.get("spec").map_or("", |spec| text(spec, "group"));
    if !is_protected(group) {
        return None;
    }
    let (approval, why) = of(new);
    if old.is_some_and(|old| of(old).0 == approval) {
        return None;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    match approval {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(FieldError::required(path, why)),
        Approval::Invalid => Some(FieldError::invalid(path, annotation(new), why)),
    }
}
