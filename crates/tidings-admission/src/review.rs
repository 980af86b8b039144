//! `AdmissionReview`: what a webhook gets, and what it answers.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidings_api::{Reason, Status};
use tidings_go::quote;
use tidings_json::{Map, Value};

use crate::form::or_default;
use crate::request::{AdmissionRequest, ResourceKind};

/// A version of the review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`.
    V1Beta1,
}

impl ReviewVersion {
    pub(crate) fn named(name: &str) -> Option<ReviewVersion> {
        match name {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1Beta1),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "admission.k8s.io/v1",
            ReviewVersion::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// A question to a webhook.
#[derive(Debug)]
pub struct Review<'a> {
    /// The id of the question, which the answer must repeat.
    pub uid: &'a str,
    /// The version that the webhook understands.
    pub version: ReviewVersion,
    /// The request.
    pub request: &'a AdmissionRequest<'a>,
    /// The resource that the webhook is asked about; the objects are of its kind.
    pub about: &'a ResourceKind,
    /// The object as JSON, if there is one after the request.
    pub object: Option<&'a [u8]>,
    /// The object before it.
    pub old_object: Option<&'a [u8]>,
}

/// What a webhook has answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReviewAnswer {
    /// The request may go on.
    pub allowed: bool,
    /// A JSON patch of the object; empty if there is none.
    pub patch: Vec<u8>,
    /// The form of the patch.
    pub patch_type: String,
    /// Why the request may not go on.
    pub status: Option<Status>,
    /// The reason in it as the webhook wrote it: it may be one that nobody else has.
    pub reason: String,
    /// What the audit log gets: name and text.
    pub audit_annotations: BTreeMap<String, String>,
    /// What the client is warned of.
    pub warnings: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AnsweredReview {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    api_version: String,
    response: Option<Response>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    #[serde(deserialize_with = "or_default")]
    uid: String,
    allowed: bool,
    status: Option<ResponseStatus>,
    #[serde(deserialize_with = "or_default")]
    patch: String,
    patch_type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    audit_annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    warnings: Vec<String>,
}

/// A `Status` as programs write it, with members left out.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResponseStatus {
    #[serde(deserialize_with = "or_default")]
    message: String,
    #[serde(deserialize_with = "or_default")]
    reason: String,
    details: Option<Box<tidings_api::StatusDetails>>,
    #[serde(deserialize_with = "or_default")]
    code: u16,
}

impl Review<'_> {
    /// The JSON that is sent, as upstream sends it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut head = Map::new();
        head.insert("uid".into(), self.uid.into());
        self.request.describe(self.about, &mut head);
        let head = Value::from(head).to_string();
        let mut json = format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"{}\",\"request\":",
            self.version.api_version()
        )
        .into_bytes();
        json.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
        for (member, object) in [("object", self.object), ("oldObject", self.old_object)] {
            json.extend_from_slice(format!(",\"{member}\":").as_bytes());
            json.extend_from_slice(object.unwrap_or(b"null").trim_ascii_end());
        }
        let rest = format!(
            ",\"dryRun\":{},\"options\":{}}}}}\n",
            self.request.dry_run, self.request.options
        );
        json.extend_from_slice(rest.as_bytes());
        json
    }

    /// Reads the answer. `mutates` is true if the webhook may change the object.
    ///
    /// # Errors
    /// With upstream's reason why it is none, after what upstream says was tried.
    pub fn read(&self, mutates: bool, body: &[u8]) -> Result<ReviewAnswer, String> {
        let answered =
            decoded(body, self.version).map_err(|why| format!("failed to call webhook: {why}"))?;
        let invalid = |why| format!("received invalid webhook response: {why}");
        self.checked(answered, mutates).map_err(invalid)
    }

    fn checked(&self, answered: AnsweredReview, mutates: bool) -> Result<ReviewAnswer, String> {
        let response = answered
            .response
            .ok_or_else(|| "webhook response was absent".to_owned())?;
        let is_v1 = self.version == ReviewVersion::V1;
        if is_v1 && response.uid != self.uid {
            let (asked, said) = (quote(self.uid), quote(&response.uid));
            return Err(format!("expected response.uid={asked}, got {said}"));
        }
        if is_v1
            && (&*answered.kind, &*answered.api_version)
                != ("AdmissionReview", "admission.k8s.io/v1")
        {
            let (group, version) = answered
                .api_version
                .split_once('/')
                .unwrap_or(("", &answered.api_version));
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={}",
                answered.kind
            ));
        }
        let patch = STANDARD
            .decode(&response.patch)
            .map_err(|error| format!("illegal base64 data in response.patch: {error}"))?;
        let patch_type = match (&response.patch_type, mutates, is_v1) {
            (_, false, true) if !patch.is_empty() => {
                return Err("validating webhook may not return response.patch".into());
            }
            (Some(_), false, true) => {
                return Err("validating webhook may not return response.patchType".into());
            }
            (None, true, true) if !patch.is_empty() => {
                return Err("webhook returned response.patch but not response.patchType".into());
            }
            (Some(_), true, true) if patch.is_empty() => {
                return Err("webhook returned response.patchType but not response.patch".into());
            }
            (Some(said), true, true) if said.is_empty() => {
                return Err("webhook returned invalid response.patchType of \"\"".into());
            }
            (said, true, true) => said.clone().unwrap_or_default(),
            // Not looked at in the older version.
            (_, true, false) if !patch.is_empty() => "JSONPatch".to_owned(),
            _ => String::new(),
        };
        Ok(ReviewAnswer {
            allowed: response.allowed,
            patch: if mutates { patch } else { Vec::new() },
            patch_type,
            reason: response
                .status
                .as_ref()
                .map(|status| status.reason.clone())
                .unwrap_or_default(),
            status: response.status.map(ResponseStatus::into_status),
            audit_annotations: response.audit_annotations,
            warnings: response.warnings,
        })
    }
}

/// A review as it was answered, whatever it says.
pub(crate) trait Answered: DeserializeOwned {
    /// The kind of the review, and its group.
    const KIND: (&str, &str);

    /// What the answer says that its apiVersion is.
    fn api_version(&self) -> &str;
}

impl Answered for AnsweredReview {
    const KIND: (&str, &str) = ("AdmissionReview", "admission.k8s.io");

    fn api_version(&self) -> &str {
        &self.api_version
    }
}

/// The answer as a document, whatever it says.
pub(crate) fn decoded<T: Answered>(body: &[u8], version: ReviewVersion) -> Result<T, String> {
    const WRONG: &str = "couldn't get version/kind; json parse error";
    let body = body.trim_ascii();
    if !matches!(body.first(), Some(b'{' | b'[') | None) {
        let text = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        return Err(format!(
            "{WRONG}: json: cannot unmarshal string into Go value of type {text}"
        ));
    }
    let answered: T = serde_json::from_slice(body).map_err(|error| format!("{WRONG}: {error}"))?;
    let (kind, group) = T::KIND;
    let said = answered.api_version().split_once('/');
    let said = said.filter(|(said, _)| *said == group);
    let meant = version.name();
    match said.filter(|(_, said)| matches!(*said, "v1" | "v1beta1") && *said != meant) {
        Some((_, said)) => Err(format!(
            "converting ({said}.{kind}) to ({meant}.{kind}): unknown conversion"
        )),
        None => Ok(answered),
    }
}

impl ResponseStatus {
    fn into_status(self) -> Status {
        let mut status = Status::default();
        status.message = self.message;
        let reason = serde_json::from_value::<Reason>(self.reason.into()).ok();
        status.reason = reason.filter(|reason| *reason != Reason::Unknown);
        status.details = self.details;
        status.code = self.code;
        status
    }
}

impl ReviewAnswer {
    /// The refusal of the request, in upstream's words.
    pub fn refusal(&self, webhook: &str) -> Status {
        let mut status = self.status.clone().unwrap_or_default();
        status.status = "Failure".into();
        if status.code < 400 {
            status.code = 400;
        }
        let denied = format!("admission webhook {} denied the request", quote(webhook));
        status.message = match (&*status.message, &*self.reason) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        status
    }
}

#[cfg(test)]
mod tests {
    use tidings_access::User;
    use tidings_json::json;

    use super::*;
    use crate::request::Operation;

    fn ask(check: impl FnOnce(&Review<'_>)) {
        let user = User::new("ann", &["dev"]);
        let on = ResourceKind::new("apps", "v1", "deployments", "Deployment");
        let mut request = AdmissionRequest::new(Operation::Create, on.clone(), &user)
            .in_namespace("default")
            .named("web");
        request.options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"});
        check(&Review {
            uid: "u-1",
            version: ReviewVersion::V1,
            request: &request,
            about: &on,
            object: Some(b"{\"kind\":\"Deployment\"}\n"),
            old_object: None,
        });
    }

    #[test]
    fn a_review_has_upstreams_members_in_upstreams_order() {
        ask(|review| {
            let kind = r#"{"group":"apps","version":"v1","kind":"Deployment"}"#;
            let resource = r#"{"group":"apps","version":"v1","resource":"deployments"}"#;
            let expected = format!(
                concat!(
                    r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u-1","kind":{kind},"#,
                    r#""resource":{resource},"requestKind":{kind},"requestResource":{resource},"name":"web","namespace":"default","#,
                    r#""operation":"CREATE","userInfo":{{"username":"ann","groups":["dev"]}},"object":{{"kind":"Deployment"}},"#,
                    r#""oldObject":null,"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#,
                ),
                kind = kind,
                resource = resource,
            );
            assert_eq!(
                String::from_utf8(review.to_json()).unwrap(),
                expected + "\n"
            );
        });
    }

    #[test]
    fn answers_that_are_none_are_told_in_upstreams_words() {
        let answer = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        for (mutates, body, expected) in [
            (true, json!({}), "webhook response was absent"),
            (
                true,
                answer(json!({"uid": "x"})),
                "expected response.uid=\"u-1\", got \"x\"",
            ),
            (
                true,
                json!({"response": {"uid": "u-1"}}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (
                true,
                answer(json!({"uid": "u-1", "patch": "W10="})),
                "webhook returned response.patch but not response.patchType",
            ),
            (
                true,
                answer(json!({"uid": "u-1", "patchType": "JSONPatch"})),
                "webhook returned response.patchType but not response.patch",
            ),
            (
                false,
                answer(json!({"uid": "u-1", "patch": "W10="})),
                "validating webhook may not return response.patch",
            ),
        ] {
            ask(|review| {
                let found = review.read(mutates, body.to_string().as_bytes());
                let expected = format!("received invalid webhook response: {expected}");
                assert_eq!(found, Err(expected), "{body}");
            });
        }
    }

    #[test]
    fn a_refusal_names_the_webhook() {
        let refused = |status: Value| {
            let body = json!({
                "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                "response": {"uid": "u-1", "allowed": false, "status": status},
            });
            let mut told = Status::default();
            ask(|review| {
                let answer = review.read(false, body.to_string().as_bytes()).unwrap();
                told = answer.refusal("a.b.c");
            });
            (told.code, told.message)
        };
        let denied = |rest: &str| format!("admission webhook \"a.b.c\" denied the request{rest}");
        assert_eq!(refused(json!(null)), (400, denied(" without explanation")));
        assert_eq!(
            refused(json!({"code": 403, "message": "no"})),
            (403, denied(": no"))
        );
        assert_eq!(
            refused(json!({"code": 200, "reason": "Because"})),
            (400, denied(": Because"))
        );
    }
}
