//! `Status`, the form of every failure on the wire (W45–W62).

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::field_error::FieldErrors;
use crate::resource::{GroupResource, GroupVersionKind};
use tidings_go as go;

/// Why a request failed, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)] // the names say it
pub enum Reason {
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    ServerTimeout,
    ServiceUnavailable,
    StorageReadError,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    /// A reason that this library does not know.
    #[serde(other)]
    Unknown,
}

/// The outcome of a request, as an object of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    metadata: StatusMetadata,
    /// `Success` or `Failure`.
    pub status: String,
    /// The message, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The reason, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The object of the failure, and its causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<StatusDetails>>,
    /// The HTTP status code; zero on success.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StatusMetadata {
    #[serde(rename = "continue", default, skip_serializing_if = "String::is_empty")]
    continue_token: String,
}

/// The object of a failure, and its causes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its resource, or its kind where the failure is `Invalid` or a precondition of a deletion.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// After how many seconds to try again.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl Default for Status {
    fn default() -> Status {
        Status {
            kind: "Status".into(),
            api_version: "v1".into(),
            metadata: StatusMetadata::default(),
            status: "Failure".into(),
            message: String::new(),
            reason: None,
            details: None,
            code: 0,
        }
    }
}

/// The cause by which clients recognise a resource version that the server has not reached.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

impl Status {
    /// A failure.
    pub fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Status {
        Status {
            code,
            reason: Some(reason),
            message: message.into(),
            ..Status::default()
        }
    }

    /// A success, with the object it is about.
    pub fn success(details: StatusDetails) -> Status {
        Status {
            status: "Success".into(),
            details: Some(Box::new(details)),
            ..Status::default()
        }
    }

    fn about(self, resource: GroupResource<'_>, name: &str) -> Status {
        let details = StatusDetails {
            name: name.into(),
            group: resource.group.into(),
            kind: resource.resource.into(),
            ..StatusDetails::default()
        };
        Status {
            details: Some(Box::new(details)),
            ..self
        }
    }

    /// Adds `details: {}`, which failures of upstream's router have.
    pub fn with_empty_details(self) -> Status {
        Status {
            details: Some(Box::new(StatusDetails::default())),
            ..self
        }
    }

    /// 404: there is no such object (W49).
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Status {
        Status::failure(
            404,
            Reason::NotFound,
            format!("{resource} {} not found", go::quote(name)),
        )
        .about(resource, name)
    }

    /// 409: the object exists already (W50).
    pub fn already_exists(resource: GroupResource<'_>, name: &str, terminating: bool) -> Status {
        let prefix = if terminating {
            "object is being deleted: "
        } else {
            ""
        };
        let message = format!("{prefix}{resource} {} already exists", go::quote(name));
        Status::failure(409, Reason::AlreadyExists, message).about(resource, name)
    }

    /// 409: a precondition of the request does not hold for the stored object (W51, W144, W163).
    pub fn conflict(resource: GroupResource<'_>, name: &str, why: &str) -> Status {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {why}",
            go::quote(name)
        );
        Status::failure(409, Reason::Conflict, message).about(resource, name)
    }

    /// 409: the object has changed since the client read it (W51).
    pub fn modified(resource: GroupResource<'_>, name: &str) -> Status {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(resource, name, why)
    }

    /// 422: the object is invalid; one cause for each wrong field (W52).
    pub fn invalid(kind: GroupVersionKind<'_>, name: &str, errors: &FieldErrors) -> Status {
        let message = format!("{kind} {} is invalid: {errors}", go::quote(name));
        let details = StatusDetails {
            name: name.into(),
            group: kind.group.into(),
            kind: kind.kind.into(),
            causes: errors.causes(),
            ..StatusDetails::default()
        };
        Status {
            details: Some(Box::new(details)),
            ..Status::failure(422, Reason::Invalid, message)
        }
    }

    /// 400: the request cannot be understood (W53).
    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::failure(400, Reason::BadRequest, message)
    }

    /// 403: the request is not allowed (W54).
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: &str) -> Status {
        let named = if name.is_empty() {
            String::new()
        } else {
            format!(" {}", go::quote(name))
        };
        Status::failure(
            403,
            Reason::Forbidden,
            format!("{resource}{named} is forbidden: {why}"),
        )
        .about(resource, name)
    }

    /// 403 for paths that are not resources (W54).
    pub fn forbidden_path(why: &str) -> Status {
        Status::failure(403, Reason::Forbidden, format!("forbidden: {why}")).with_empty_details()
    }

    /// 401: the client is not known (W55).
    pub fn unauthorized() -> Status {
        Status::failure(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 410: the requested revision is no longer in the history (W56, W75, W104).
    pub fn expired(message: impl Into<String>) -> Status {
        Status::failure(410, Reason::Expired, message)
    }

    /// 410: the continue token is too old. `fresh_token` continues the list at the latest state (W90).
    pub fn continue_expired(fresh_token: String) -> Status {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                       list without the continue parameter, or use the continue token in this response to retrieve the \
                       remainder of the results. Continuing with the provided token results in an inconsistent list - \
                       objects that were created, modified, or deleted between the time the first chunk was returned and \
                       now may show up in the list.";
        Status {
            metadata: StatusMetadata {
                continue_token: fresh_token,
            },
            ..Status::expired(message)
        }
    }

    /// 504: the server did not finish in time (W57).
    pub fn timeout(message: &str) -> Status {
        Status::failure(504, Reason::Timeout, format!("Timeout: {message}")).with_empty_details()
    }

    /// 504: the request took longer than the limit for all requests. As upstream's, it has no kind (W57).
    pub fn request_timeout() -> Status {
        let message = "request did not complete within the allotted timeout";
        Status {
            kind: String::new(),
            api_version: String::new(),
            ..Status::timeout(message)
        }
    }

    /// 504: the requested resource version is newer than the server's (W77).
    pub fn too_large_resource_version(requested: u64, current: u64) -> Status {
        let mut status = Status::timeout(&format!(
            "Too large resource version: {requested}, current: {current}"
        ));
        let cause = Cause {
            reason: TOO_LARGE.into(),
            message: "Too large resource version".into(),
            ..Cause::default()
        };
        status.details = Some(Box::new(StatusDetails {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..StatusDetails::default()
        }));
        status
    }

    /// 429: too many requests; the client tries again later (W58).
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Status {
        let details = StatusDetails {
            retry_after_seconds,
            ..StatusDetails::default()
        };
        Status {
            details: Some(Box::new(details)),
            ..Status::failure(429, Reason::TooManyRequests, message)
        }
    }

    /// 500: the server failed (W59).
    pub fn internal(message: impl std::fmt::Display) -> Status {
        let text = message.to_string();
        let cause = Cause {
            message: text.clone(),
            ..Cause::default()
        };
        let details = StatusDetails {
            causes: vec![cause],
            ..StatusDetails::default()
        };
        Status {
            details: Some(Box::new(details)),
            ..Status::failure(
                500,
                Reason::InternalError,
                format!("Internal error occurred: {text}"),
            )
        }
    }

    /// 413: the body is too large (W14).
    pub fn entity_too_large(bytes_max: usize) -> Status {
        let message = format!("Request entity too large: limit is {bytes_max}");
        Status::failure(413, Reason::RequestEntityTooLarge, message)
    }

    /// 404: there is no such resource or path (W60).
    pub fn no_such_resource() -> Status {
        Status::failure(
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        )
        .with_empty_details()
    }

    /// 406: the server has no representation that the client accepts (W38).
    pub fn not_produced(spoken: &str) -> Status {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {spoken}");
        Status::failure(406, Reason::NotAcceptable, message).with_empty_details()
    }

    /// 405: the resource does not have this verb (W61).
    pub fn method_not_allowed() -> Status {
        let message = "the server does not allow this method on the requested resource";
        Status::failure(405, Reason::MethodNotAllowed, message).with_empty_details()
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Status {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// When a client should try again, in seconds; zero if the failure says nothing about it.
    pub fn retry_after_seconds(&self) -> u32 {
        self.details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds)
    }

    /// The fresh continue token of an expired list (W90), or empty.
    pub fn continue_token(&self) -> &str {
        &self.metadata.continue_token
    }

    /// True if the resource version of the request is no longer served.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason, Some(Reason::Expired | Reason::Gone)) || self.code == 410
    }

    /// True if the resource version of the request is not reached yet. Servers have said so in three ways: by a cause, by
    /// the text of a cause, and (before 1.17) by the message alone (B42).
    pub fn is_too_large_resource_version(&self) -> bool {
        const TEXT: &str = "Too large resource version";
        let causes = self.details.iter().flat_map(|details| &details.causes);
        let timed_out = self.reason == Some(Reason::Timeout) || self.code == 504;
        causes.clone().any(|cause| cause.reason == TOO_LARGE)
            || timed_out
                && (self.message.contains(TEXT)
                    || causes.into_iter().any(|cause| cause.message == TEXT))
    }

    /// The Status as compact JSON without a newline.
    pub fn to_json(&self) -> Vec<u8> {
        go::json(self).unwrap_or_default()
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.message.is_empty() {
            write!(f, "{} {}", self.status, self.code)
        } else {
            f.write_str(&self.message)
        }
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: GroupResource<'static> = GroupResource {
        group: "",
        resource: "pods",
    };

    fn check(status: &Status, expected: &str) {
        assert_eq!(String::from_utf8(status.to_json()).unwrap(), expected);
    }

    #[test]
    fn w45_w49_shape_and_order() {
        check(
            &Status::not_found(PODS, "x"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"#,
        );
    }

    #[test]
    fn w60_router_errors_have_empty_details() {
        check(
            &Status::no_such_resource(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
        );
    }

    #[test]
    fn w77_too_large_names_its_cause_and_when_to_retry() {
        let status = Status::too_large_resource_version(999_999, 218);
        check(
            &status,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 999999, current: 218","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        );
        assert!(status.is_too_large_resource_version());
    }

    #[test]
    fn w90_the_fresh_token_stands_in_the_metadata() {
        let status = Status::continue_expired("abc".into());
        assert!(
            String::from_utf8(status.to_json())
                .unwrap()
                .contains(r#""metadata":{"continue":"abc"}"#)
        );
        assert!(status.message.starts_with(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response"
        ));
    }

    #[test]
    fn w160_success_has_no_code() {
        let details = StatusDetails {
            name: "a".into(),
            kind: "pods".into(),
            uid: "u".into(),
            ..Default::default()
        };
        check(
            &Status::success(details),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","kind":"pods","uid":"u"}}"#,
        );
    }

    #[test]
    fn statuses_read_back() {
        let status = Status::invalid(
            GroupVersionKind {
                group: "",
                version: "v1",
                kind: "ConfigMap",
            },
            "n",
            &FieldErrors::from(crate::FieldError::required(
                "metadata.name",
                "name or generateName is required",
            )),
        );
        assert_eq!(
            serde_json::from_slice::<Status>(&status.to_json()).unwrap(),
            status
        );
    }
}
