//! The question to a webhook that decides who may do what, a `SubjectAccessReview`, and its answer.

use tidings_api::{FieldSelector, LabelSelector};
use tidings_json::{Map, Value, json};

use crate::attributes::{Attributes, ResourceAttributes, ResourceOrPath};
use crate::authorizer::{Decision, Verdict};

/// Questions with more text than this in what the client names are not remembered: somebody may want to fill the memory.
const REMEMBERED_BYTES_MAX: usize = 10_000;

/// The version of the reviews that a webhook understands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`, where groups have another name.
    #[default]
    V1Beta1,
}

/// A question to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessQuestion {
    /// The spec of the review in JSON, in version v1: equal questions have equal texts.
    spec: String,
    /// The answer may be remembered.
    is_small: bool,
}

fn put(members: &mut Map, name: &str, text: &str) {
    if !text.is_empty() {
        members.insert(name.to_owned(), text.into());
    }
}

impl AccessQuestion {
    /// The question whether a user may do what is asked for.
    pub fn new(asked: &Attributes<'_>) -> AccessQuestion {
        let mut spec = Map::new();
        let named = match &asked.on {
            ResourceOrPath::Resource(on) => {
                spec.insert(
                    "resourceAttributes".into(),
                    resource(on, &asked.verb).into(),
                );
                let parts = [
                    &on.namespace,
                    &on.group,
                    &on.version,
                    &on.resource,
                    &on.subresource,
                    &on.name,
                ];
                parts.iter().map(|part| part.len()).sum()
            }
            ResourceOrPath::Path(path) => {
                let mut on = Map::new();
                put(&mut on, "path", path);
                put(&mut on, "verb", &asked.verb);
                spec.insert("nonResourceAttributes".into(), on.into());
                path.len()
            }
        };
        let user = asked.user;
        put(&mut spec, "user", &user.name);
        if !user.groups.is_empty() {
            spec.insert("groups".into(), user.groups.clone().into());
        }
        if !user.extra.is_empty() {
            let extra = user.extra.iter();
            let extra: Map = extra
                .map(|(name, values)| (name.clone(), values.clone().into()))
                .collect();
            spec.insert("extra".into(), extra.into());
        }
        put(&mut spec, "uid", &user.uid);
        AccessQuestion {
            spec: Value::Object(spec).to_string(),
            is_small: named + asked.verb.len() < REMEMBERED_BYTES_MAX,
        }
    }

    /// True if the answer may be remembered.
    pub fn is_small(&self) -> bool {
        self.is_small
    }

    /// The review to send, in JSON.
    pub fn review(&self, version: ReviewVersion) -> String {
        let (version, spec) = match version {
            ReviewVersion::V1 => ("v1", self.spec.clone()),
            ReviewVersion::V1Beta1 => ("v1beta1", renamed_groups(&self.spec)),
        };
        format!(
            r#"{{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/{version}","metadata":{{}},"spec":{spec},"status":{{"allowed":false}}}}"#
        )
    }
}

fn renamed_groups(spec: &str) -> String {
    let Ok(Value::Object(members)) = serde_json::from_str(spec) else {
        return spec.to_owned();
    };
    let renamed = |(name, value): (String, Value)| match name.as_str() {
        "groups" => ("group".to_owned(), value),
        _ => (name, value),
    };
    Value::Object(members.into_iter().map(renamed).collect()).to_string()
}

fn resource(on: &ResourceAttributes<'_>, verb: &str) -> Map {
    let mut members = Map::new();
    for (name, text) in [
        ("namespace", &*on.namespace),
        ("verb", verb),
        ("group", &*on.group),
        ("version", &*on.version),
        ("resource", &*on.resource),
        ("subresource", &*on.subresource),
        ("name", &*on.name),
    ] {
        put(&mut members, name, text);
    }
    // What cannot be read is left out, which asks for more than is meant.
    let fields = FieldSelector::parse(&on.field_selector).unwrap_or_default();
    let labels = LabelSelector::parse(&on.label_selector).unwrap_or_default();
    let fields = fields.terms().iter().map(|term| {
        let operator = if term.negated { "NotIn" } else { "In" };
        requirement(&term.field, operator, std::slice::from_ref(&term.value))
    });
    let labels = labels.requirements();
    let labels = labels.map(|(key, operator, values)| requirement(key, operator, values));
    for (name, requirements) in [
        ("fieldSelector", fields.collect::<Vec<Value>>()),
        ("labelSelector", labels.collect()),
    ] {
        if !requirements.is_empty() {
            members.insert(name.into(), json!({ "requirements": requirements }));
        }
    }
    members
}

fn requirement(key: &str, operator: &str, values: &[String]) -> Value {
    match values.is_empty() {
        true => json!({"key": key, "operator": operator}),
        false => json!({"key": key, "operator": operator, "values": values}),
    }
}

/// What a webhook has answered.
///
/// # Errors
/// If it is no review.
pub fn read_answer(json: &[u8]) -> Result<Verdict, String> {
    let review: Value =
        serde_json::from_slice(json).map_err(|error| format!("its answer is no JSON: {error}"))?;
    if review["kind"] != "SubjectAccessReview" {
        return Err("its answer is no SubjectAccessReview".to_owned());
    }
    let status = &review["status"];
    let says = |name: &str| status[name].as_bool().unwrap_or_default();
    let (decision, error) = match (says("allowed"), says("denied")) {
        (true, true) => {
            let both = "webhook subject access review returned both allow and deny response";
            (Decision::Deny, both.to_owned())
        }
        (_, true) => (Decision::Deny, String::new()),
        (true, _) => (Decision::Allow, String::new()),
        _ => (Decision::NoOpinion, String::new()),
    };
    Ok(Verdict {
        decision,
        reason: status["reason"].as_str().unwrap_or_default().to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::User;

    #[test]
    fn a_question_says_who_asks_for_what() {
        let mut ann = User::new("ann", &["dev", "ops"]);
        ann.uid = "u1".to_owned();
        ann.extra.insert("k".to_owned(), vec!["v".to_owned()]);
        let asked = Attributes::resource(&ann, "list", "apps", "deployments")
            .in_namespace("blue")
            .with_version("v1")
            .with_selectors("metadata.name=a,spec.x!=b", "app in (x,y),!gone");
        let question = AccessQuestion::new(&asked);
        let spec = r#"{"resourceAttributes":{"namespace":"blue","verb":"list","group":"apps","version":"v1","resource":"deployments","fieldSelector":{"requirements":[{"key":"metadata.name","operator":"In","values":["a"]},{"key":"spec.x","operator":"NotIn","values":["b"]}]},"labelSelector":{"requirements":[{"key":"app","operator":"In","values":["x","y"]},{"key":"gone","operator":"DoesNotExist"}]}},"user":"ann","groups":["dev","ops"],"extra":{"k":["v"]},"uid":"u1"}"#;
        let review = question.review(ReviewVersion::V1);
        assert!(review.contains(spec), "{review}");
        let beta = question.review(ReviewVersion::V1Beta1);
        assert!(
            beta.contains(r#""group":["dev","ops"]"#) && beta.contains("/v1beta1"),
            "{beta}"
        );
        let path = AccessQuestion::new(&Attributes::path(&ann, "get", "/metrics"));
        let review = path.review(ReviewVersion::V1);
        assert!(review.contains(r#""nonResourceAttributes":{"path":"/metrics","verb":"get"}"#));
        assert!(path.is_small());
        let long = "x".repeat(10_000);
        assert!(!AccessQuestion::new(&Attributes::path(&ann, "get", &long)).is_small());
    }

    #[test]
    fn an_answer_allows_denies_or_does_neither() {
        let read = |status: &str| {
            let json = format!(r#"{{"kind":"SubjectAccessReview","status":{status}}}"#);
            let verdict = read_answer(json.as_bytes()).unwrap();
            (verdict.decision, verdict.reason, !verdict.error.is_empty())
        };
        assert_eq!(
            read(r#"{"allowed":true}"#),
            (Decision::Allow, String::new(), false)
        );
        assert_eq!(
            read(r#"{"allowed":false,"reason":"no"}"#),
            (Decision::NoOpinion, "no".to_owned(), false)
        );
        assert_eq!(
            read(r#"{"denied":true}"#),
            (Decision::Deny, String::new(), false)
        );
        assert_eq!(
            read(r#"{"allowed":true,"denied":true}"#),
            (Decision::Deny, String::new(), true)
        );
        assert!(read_answer(b"hm").is_err() && read_answer(b"{}").is_err());
    }
}
