//! What admission plugins fill in, refuse and warn of, as in kube-apiserver. `tools/plugins/record` asked it.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{Question, server};
use crate::admission::settled;

const RECORDED: &str = include_str!("plugins.json");
/// The volume of a token has a random name.
const TOKEN_VOLUME: &str = "kube-api-access-";

#[derive(Deserialize)]
struct Recorded {
    tokens: String,
    questions: Vec<Value>,
}

/// Leaves out random names, the names of the servers, who owns what (which depends on seconds), and how Go structs differ.
fn unnamed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let varies = name.ends_with("controller-uid")
                    || name == "managedFields"
                    || name == "lastPhaseTransitionTime";
                let value = if varies { Value::Null } else { unnamed(value) };
                (name.clone(), value)
            };
            members.iter().map(member).collect()
        }
        Value::Array(values) => values.iter().map(unnamed).collect(),
        Value::String(text) if text.starts_with(TOKEN_VOLUME) => TOKEN_VOLUME.into(),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "…".into(),
        Value::String(text) => {
            let text = text.split("\n@@").next().unwrap_or_default();
            let uid = text.find("does not match the UID in record");
            text[..uid.unwrap_or(text.len())].into()
        }
        other => other.clone(),
    }
}

#[tokio::test]
async fn plugins_fill_in_and_refuse_as_those_of_kube_apiserver() {
    let recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    let server = server(&recorded.tokens).await;
    let mut wrong = Vec::new();
    for recorded in &recorded.questions {
        let question: Question = serde_json::from_value(recorded.clone()).unwrap();
        let answer = server.ask(&question).await;
        let (method, path) = (&question.method, &question.path);
        // This server makes the account by itself, and allows what it is told about it.
        if path.ends_with("/serviceaccounts") && answer.code == 409 {
            let mut again = recorded.clone();
            let name = again["body"]["metadata"]["name"].as_str().unwrap();
            again["path"] = format!("{path}/{name}").into();
            again["method"] = "PUT".into();
            let again: Question = serde_json::from_value(again).unwrap();
            let changed = server.ask(&again).await;
            assert_eq!(changed.code, 200, "{}", changed.text);
            continue;
        }
        let warnings = answer.headers.get_all("warning").iter();
        let warnings: Vec<&str> = warnings.filter_map(|value| value.to_str().ok()).collect();
        let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let is = json!({"code": answer.code, "body": body, "warnings": warnings});
        let shown = |answer: &Value| unnamed(&settled(answer)).to_string();
        let (is, should) = (shown(&is), shown(&recorded["answer"]));
        if is != should {
            let sent = question.body.as_ref().map(ToString::to_string);
            let sent = sent.unwrap_or_default();
            wrong.push(format!(
                "{method} {path} {sent}\n  is     {is}\n  should {should}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
