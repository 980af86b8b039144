//! What admission plugins fill in, refuse and warn of, as in kube-apiserver. `tools/plugins/record` asked it.

use serde::Deserialize;
use serde_json::{Value, json};
use tidings_server::{ApiOptions, Authentication, Credentials, PluginSet};

use crate::access::{Question, server};
use crate::admission::settled;
use crate::support::TestServer;

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

/// A plugin that has to be enabled: owners are given by those who may.
#[tokio::test]
async fn owners_are_given_by_those_who_may() {
    const ADMIN: &str = "admin";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, "admin,admin,0,system:masters\nann,ann,1\n").unwrap();
    let mut options = ApiOptions::default();
    let credentials = Credentials::default().token_file(&path).unwrap();
    options.authentication = Authentication::Credentials(credentials);
    let enabled = ["OwnerReferencesPermissionEnforcement".to_owned()];
    options.plugins = PluginSet::new(&enabled, &[]).unwrap();
    let server = TestServer::with(options).await;
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        let headers = match method {
            "PATCH" => vec![["content-type", "application/merge-patch+json"]],
            _ => vec![],
        };
        let question = json!({"token": token, "method": method, "path": path, "headers": headers, "body": body});
        let question: Question = serde_json::from_value(question).unwrap();
        let answer = server.ask(&question).await;
        let body: Value = serde_json::from_str(&answer.text).unwrap();
        (
            answer.code,
            body["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rule = |verbs: &[&str], resources: &[&str]| json!({"verbs": verbs, "apiGroups": [""], "resources": resources});
    let role = json!({"metadata": {"name": "r"}, "rules": [
        rule(&["create", "get", "update", "patch"], &["configmaps"]),
        rule(&["update"], &["secrets/finalizers"]),
    ]});
    let bound = json!({"metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
    assert_eq!(
        ask(ADMIN, "POST", &format!("{rbac}/roles"), role).await.0,
        201
    );
    assert_eq!(
        ask(ADMIN, "POST", &format!("{rbac}/rolebindings"), bound)
            .await
            .0,
        201
    );
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = |kind: &str, version: &str, blocks: bool| json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "blockOwnerDeletion": blocks}]);
    let map =
        |name: &str, owners: Value| json!({"metadata": {"name": name, "ownerReferences": owners}});
    assert_eq!(
        ask("ann", "POST", maps, map("a", owner("Pod", "v1", false)))
            .await
            .0,
        201
    );
    assert_eq!(
        ask("ann", "POST", maps, map("b", owner("Secret", "v1", true)))
            .await
            .0,
        201
    );
    assert_eq!(
        ask("ann", "POST", maps, map("c", owner("Pod", "v1", true))).await,
        (403, "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>".into())
    );
    let unknown = ask("ann", "POST", maps, map("c", owner("Odd", "x/v1", true))).await;
    assert!(
        unknown
            .1
            .contains("cannot find RESTMapping for APIVersion x/v1 Kind Odd"),
        "{}",
        unknown.1
    );
    let none = json!({"metadata": {"ownerReferences": []}});
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    let path = format!("{maps}/a");
    assert_eq!(ask("ann", "PATCH", &path, labels).await.0, 200);
    assert_eq!(
        ask("ann", "PATCH", &path, none.clone()).await,
        (403, "configmaps \"a\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>".into())
    );
    assert_eq!(ask(ADMIN, "PATCH", &path, none).await.0, 200);
}
