//! `ConversionReview`: what the conversion webhook of a definition gets, and what it answers.

use std::fmt;

use serde::Deserialize;
use tidings_api::{FieldErrors, validate};
use tidings_go::quote;
use tidings_json::{Map, Value};

use crate::form::{NotReadable, or_default, read};
use crate::review::{Answered, ReviewVersion, decoded};
use crate::webhook::{ClientConfig, ClientForm};

/// The webhook that converts the objects of a definition between its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConversion {
    /// How it is reached.
    pub client: ClientConfig,
    /// The first version that it understands and this crate speaks; `None` if there is none.
    pub version: Option<ReviewVersion>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConversionForm {
    #[serde(deserialize_with = "or_default")]
    webhook: WebhookForm,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WebhookForm {
    #[serde(deserialize_with = "or_default")]
    client_config: ClientForm,
    #[serde(deserialize_with = "or_default")]
    conversion_review_versions: Vec<String>,
}

impl WebhookConversion {
    /// Reads `spec.conversion` of a definition whose strategy is `Webhook`.
    ///
    /// # Errors
    /// If it does not have the form of one.
    pub fn read(conversion: &Value) -> Result<WebhookConversion, NotReadable> {
        let WebhookForm {
            client_config,
            conversion_review_versions,
        } = read::<ConversionForm>(conversion)?.webhook;
        let mut versions = conversion_review_versions.iter();
        Ok(WebhookConversion {
            client: client_config.config()?,
            version: versions.find_map(|version| ReviewVersion::named(version)),
        })
    }
}

/// What went wrong in a conversion, as metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConversionProblem {
    /// There is no answer.
    Call,
    /// The answer is none to this question, or says that it failed.
    Malformed,
    /// The answer has another number of objects.
    Partial,
    /// An object in the answer is not the one that was sent, in the version that was asked for.
    InvalidObject,
}

impl ConversionProblem {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ConversionProblem::Call => "conversion_webhook_call_failure",
            ConversionProblem::Malformed => "conversion_webhook_malformed_response_failure",
            ConversionProblem::Partial => "conversion_webhook_partial_response_failure",
            ConversionProblem::InvalidObject => {
                "conversion_webhook_invalid_converted_object_failure"
            }
        }
    }
}

/// Why objects could not be converted, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionFailure {
    /// What went wrong, for metrics.
    pub problem: ConversionProblem,
    message: String,
}

impl fmt::Display for ConversionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConversionFailure {}

/// A question to a conversion webhook: objects that it shall write in another version.
#[derive(Debug)]
pub struct ConversionReview<'a> {
    /// The id of the question, which the answer must repeat.
    pub uid: &'a str,
    /// The version of the review that the webhook understands.
    pub version: ReviewVersion,
    /// The apiVersion that the objects shall have.
    pub desired: &'a str,
    /// The objects, which have another apiVersion.
    pub objects: &'a [Value],
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

impl Answered for AnsweredReview {
    const KIND: (&str, &str) = ("ConversionReview", "apiextensions.k8s.io");

    fn api_version(&self) -> &str {
        &self.api_version
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    converted_objects: Vec<serde_json::Value>,
    #[serde(deserialize_with = "or_default")]
    result: ResponseResult,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseResult {
    #[serde(deserialize_with = "or_default")]
    status: String,
    #[serde(deserialize_with = "or_default")]
    message: String,
}

impl ConversionReview<'_> {
    /// The JSON that is sent, as upstream sends it: with an empty response.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = format!(
            "{{\"kind\":\"ConversionReview\",\"apiVersion\":\"{}\",\"request\":{{\"uid\":{},\"desiredAPIVersion\":{},\"objects\":[",
            self.api_version(),
            Value::from(self.uid),
            Value::from(self.desired),
        );
        for (at, object) in self.objects.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            json.push_str(&object.to_string());
        }
        json.push_str("]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}\n");
        json.into_bytes()
    }

    fn api_version(&self) -> String {
        format!("apiextensions.k8s.io/{}", self.version.name())
    }

    /// The kind of an object as Go prints it, for messages.
    fn kind_of(object: &Value) -> String {
        let api_version = text(object, "apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        format!("{group}/{version}, Kind={}", text(object, "kind"))
    }

    fn failed(&self, problem: ConversionProblem, why: impl fmt::Display) -> ConversionFailure {
        let of = self.objects.first().map(ConversionReview::kind_of);
        let of = of.unwrap_or_default();
        ConversionFailure {
            problem,
            message: format!("conversion webhook for {of} {why}"),
        }
    }

    /// The failure of a call that has no answer.
    pub fn not_answered(&self, why: &str) -> ConversionFailure {
        self.failed(ConversionProblem::Call, format_args!("failed: {why}"))
    }

    /// Reads the converted objects, in the order of the objects. Their metadata is that of the objects, but for labels and annotations.
    ///
    /// # Errors
    /// With upstream's reason why the answer is none.
    pub fn read(&self, body: &[u8]) -> Result<Vec<Value>, ConversionFailure> {
        let answered: AnsweredReview =
            decoded(body, self.version).map_err(|why| self.not_answered(&why))?;
        let failed =
            |why: String| self.failed(ConversionProblem::Malformed, format_args!("failed: {why}"));
        let converted = self.converted(answered).map_err(failed)?;
        if converted.len() != self.objects.len() {
            let (returned, expected) = (converted.len(), self.objects.len());
            let why = format_args!("returned {returned} objects, expected {expected}");
            return Err(self.failed(ConversionProblem::Partial, why));
        }
        let pairs = std::iter::zip(self.objects, converted).enumerate();
        let restored = pairs.map(|(at, (original, converted))| {
            self.restored(original, Value::from(converted))
                .map_err(|why| {
                    let why = why.told(at, self.objects.len() > 1);
                    self.failed(ConversionProblem::InvalidObject, why)
                })
        });
        restored.collect()
    }

    fn converted(&self, answered: AnsweredReview) -> Result<Vec<serde_json::Value>, String> {
        let is_v1 = self.version == ReviewVersion::V1;
        let expected = self.api_version();
        if is_v1 && (&*answered.kind, &*answered.api_version) != ("ConversionReview", &*expected) {
            let got = Value::from(Map::from_iter([
                ("apiVersion".to_owned(), Value::from(answered.api_version)),
                ("kind".to_owned(), Value::from(answered.kind)),
            ]));
            let got = ConversionReview::kind_of(&got);
            return Err(format!(
                "expected webhook response of {expected}, Kind=ConversionReview, got {got}"
            ));
        }
        let Some(response) = answered.response else {
            return Err("no response provided".to_owned());
        };
        if is_v1 && response.uid != self.uid {
            let (asked, said) = (quote(self.uid), quote(&response.uid));
            return Err(format!("expected response.uid={asked}, got {said}"));
        }
        if response.result.status != "Success" {
            let ResponseResult { status, message } = response.result;
            return Err(match message.is_empty() {
                true => format!("response.result.status was '{status}', not 'Success'"),
                false => message,
            });
        }
        Ok(response.converted_objects)
    }

    /// A converted object with the metadata that webhooks cannot change.
    fn restored(&self, original: &Value, mut converted: Value) -> Result<Value, Unfit> {
        let has_type = ["apiVersion", "kind"].map(|member| text(&converted, member));
        let [api_version, kind] = has_type;
        if !converted.is_object() || kind.is_empty() {
            let why = format!("Object 'Kind' is missing in '{converted}'");
            return Err(Unfit::Object(why));
        }
        if api_version != self.desired {
            return Err(Unfit::Object(format!(
                "invalid groupVersion (expected {}, received {api_version})",
                self.desired
            )));
        }
        let expected = text(original, "kind");
        if kind != expected {
            return Err(Unfit::Object(format!(
                "invalid kind (expected {expected}, received {kind})"
            )));
        }
        for (member, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
            let [was, is] = [original, &converted].map(|one| text(&one["metadata"], member));
            if was != is {
                let why = format!("must have the same {name}: {was} != {is}");
                return Err(Unfit::Object(why));
            }
        }
        let sent = converted
            .as_object_mut()
            .and_then(|all| all.remove("metadata"));
        let sent = match sent {
            Some(Value::Object(sent)) => sent,
            Some(other) => {
                let of = go_type(&other);
                let why = format!("invalid metadata of type {of} in converted object");
                return Err(Unfit::Metadata(why));
            }
            None => {
                let why = "missing metadata in converted object".to_owned();
                return Err(Unfit::Metadata(why));
            }
        };
        converted["metadata"] =
            restored_metadata(&original["metadata"], &sent).map_err(Unfit::Metadata)?;
        Ok(converted)
    }
}

/// Why an object in an answer cannot be used.
enum Unfit {
    Object(String),
    Metadata(String),
}

impl Unfit {
    /// In upstream's words: one object, or one of many.
    fn told(&self, at: usize, of_many: bool) -> String {
        match (self, of_many) {
            (Unfit::Object(why), true) => {
                format!("returned invalid converted object at index {at}: {why}")
            }
            (Unfit::Object(why), false) if why.starts_with("must have") => {
                format!("returned invalid object: {why}")
            }
            (Unfit::Object(why), false) => {
                format!("returned invalid object at index 0: {why}")
            }
            (Unfit::Metadata(why), true) => {
                format!("returned invalid metadata in object at index {at}: {why}")
            }
            (Unfit::Metadata(why), false) => format!("returned invalid metadata: {why}"),
        }
    }
}

/// The metadata of an object with the labels and annotations that a webhook has sent.
fn restored_metadata(original: &Value, sent: &Map) -> Result<Value, String> {
    let mut metadata = original.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let texts = match sent.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(texts)) => texts,
            Some(other) => {
                let of = go_type(other);
                return Err(format!(
                    "invalid metadata.{field} of type {of} in converted object"
                ));
            }
        };
        let mut pairs = Vec::new();
        for (name, value) in texts.iter() {
            let Some(value) = value.as_str() else {
                let of = go_type(value);
                return Err(format!(
                    "metadata.{field}[{name}] must be a string, but is {of} in converted object"
                ));
            };
            pairs.push((name.as_str(), value));
        }
        if metadata.get(field).and_then(Value::as_object) != Some(texts) {
            let mut errors = FieldErrors::default();
            errors.extend(match field {
                "labels" => validate::labels("metadata.labels", pairs),
                _ => validate::annotations("metadata.annotation", pairs),
            });
            if !errors.is_empty() {
                return Err(errors.to_string());
            }
        }
        metadata.insert(field.to_owned(), Value::Object(texts.clone()));
    }
    Ok(Value::Object(metadata))
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

/// The type that Go decodes a value into.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    const UID: &str = "u-1";

    fn original() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Site",
            "metadata": {"name": "a", "namespace": "n", "uid": "x", "labels": {"app": "web"}, "finalizers": ["f/g"]},
            "spec": {"host": "h"},
        })
    }

    fn converted() -> Value {
        let mut converted = original();
        converted["apiVersion"] = "example.com/v2".into();
        converted["spec"] = json!({"hosts": ["h"]});
        converted
    }

    fn answer(objects: &[Value]) -> Value {
        json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": UID, "convertedObjects": objects, "result": {"status": "Success"}},
        })
    }

    fn read(objects: &[Value], answer: &Value) -> Result<Vec<Value>, String> {
        let review = ConversionReview {
            uid: UID,
            version: ReviewVersion::V1,
            desired: "example.com/v2",
            objects,
        };
        let read = review.read(answer.to_string().as_bytes());
        read.map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_review_has_upstreams_members_in_upstreams_order() {
        let review = ConversionReview {
            uid: UID,
            version: ReviewVersion::V1Beta1,
            desired: "example.com/v2",
            objects: &[json!({"kind": "Site"})],
        };
        let expected = concat!(
            r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1beta1","request":{"uid":"u-1","#,
            r#""desiredAPIVersion":"example.com/v2","objects":[{"kind":"Site"}]},"#,
            r#""response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(review.to_json()).unwrap(), expected);
    }

    #[test]
    fn webhooks_change_no_metadata_but_labels_and_annotations() {
        let mut sent = converted();
        sent["metadata"] = json!({
            "name": "a", "namespace": "n", "uid": "x", "finalizers": [], "generation": 7,
            "labels": {"app": "web", "tier": "front"}, "annotations": {"was": "v1"},
        });
        let read = read(&[original()], &answer(&[sent])).unwrap();
        assert_eq!(
            read[0]["metadata"],
            json!({
                "name": "a", "namespace": "n", "uid": "x", "finalizers": ["f/g"],
                "labels": {"app": "web", "tier": "front"}, "annotations": {"was": "v1"},
            })
        );
        assert_eq!(read[0]["spec"], json!({"hosts": ["h"]}));
    }

    #[test]
    fn answers_that_are_none_are_told_in_upstreams_words() {
        let with = |path: &str, value: Value| {
            let mut answer = answer(&[converted()]);
            *answer.pointer_mut(path).unwrap() = value;
            answer
        };
        let object = |path: &str, value: Value| {
            let mut converted = converted();
            *converted.pointer_mut(path).unwrap() = value;
            answer(&[converted])
        };
        for (answer, expected) in [
            (
                json!({"kind": "ConversionReview"}),
                "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=ConversionReview",
            ),
            (
                json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1"}),
                "failed: no response provided",
            ),
            (
                with("/response/uid", "y".into()),
                "failed: expected response.uid=\"u-1\", got \"y\"",
            ),
            (
                with("/response/result", json!({"status": "Failure"})),
                "failed: response.result.status was 'Failure', not 'Success'",
            ),
            (
                with("/response/result", json!({"message": "no way"})),
                "failed: no way",
            ),
            (
                with("/response/convertedObjects", json!([])),
                "returned 0 objects, expected 1",
            ),
            (
                object("/apiVersion", "example.com/v3".into()),
                "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            ),
            (
                object("/kind", "Page".into()),
                "returned invalid object at index 0: invalid kind (expected Site, received Page)",
            ),
            (
                object("/metadata/name", "b".into()),
                "returned invalid object: must have the same name: a != b",
            ),
            (
                object("/metadata/uid", "z".into()),
                "returned invalid object: must have the same UID: x != z",
            ),
            (
                object("/metadata/labels", "z".into()),
                "returned invalid metadata: invalid metadata.labels of type string in converted object",
            ),
            (
                object("/metadata/labels/app", 1.into()),
                "returned invalid metadata: metadata.labels[app] must be a string, but is int64 in converted object",
            ),
            (
                object("/metadata/labels/app", "a b".into()),
                "returned invalid metadata: metadata.labels: Invalid value: \"a b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
        ] {
            let told = read(&[original()], &answer).unwrap_err();
            assert_eq!(
                told,
                format!("conversion webhook for example.com/v1, Kind=Site {expected}")
            );
        }
        let mut wrong = converted();
        wrong["kind"] = "Page".into();
        let told = read(&[original(), original()], &answer(&[converted(), wrong])).unwrap_err();
        assert_eq!(
            told,
            "conversion webhook for example.com/v1, Kind=Site returned invalid converted object at index 1: invalid kind (expected Site, received Page)"
        );
    }
}
