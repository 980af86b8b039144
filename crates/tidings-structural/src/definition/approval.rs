//! Checks the approval annotation that groups under `k8s.io` and `kubernetes.io` need.

use tidings_api::FieldError;
use tidings_go::Url;
use tidings_json::Value;

use super::member::{at, text};

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The state of the approval annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApprovalState {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

impl ApprovalState {
    /// The reason in the condition `KubernetesAPIApprovalPolicyConformant`.
    pub(super) fn reason(self) -> &'static str {
        match self {
            ApprovalState::Invalid => "InvalidAnnotation",
            ApprovalState::Approved => "ApprovedAnnotation",
            ApprovalState::Bypassed => "UnapprovedAnnotation",
            ApprovalState::Missing => "MissingAnnotation",
        }
    }
}

/// True if a group needs the annotation.
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

/// The state of the annotation, with the message for conditions and errors.
pub(super) fn of(crd: &Value) -> (ApprovalState, String) {
    let value = annotation(crd);
    let is_url = || {
        let url = Url::parse_request(value).unwrap_or_default();
        !url.scheme.is_empty() && !url.host.is_empty()
    };
    if value.is_empty() {
        let why = format!("protected groups must have approval annotation \"{ANNOTATION}\", {SEE}");
        (ApprovalState::Missing, why)
    } else if value.starts_with("unapproved") {
        let why = format!("not approved: {}", tidings_go::quote(value));
        (ApprovalState::Bypassed, why)
    } else if is_url() {
        (ApprovalState::Approved, format!("approved in {value}"))
    } else {
        let why = format!(
            "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {SEE}"
        );
        (ApprovalState::Invalid, why)
    }
}

/// The error of a missing or invalid annotation. An update that does not change the state is never refused.
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
        ApprovalState::Approved | ApprovalState::Bypassed => None,
        ApprovalState::Missing => Some(FieldError::required(path, why)),
        ApprovalState::Invalid => Some(FieldError::invalid(path, annotation(new), why)),
    }
}
