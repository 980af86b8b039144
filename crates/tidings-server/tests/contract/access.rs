//! Who may do what: the questions of many users, answered as kube-apiserver answers them. `tools/access/record` asked it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tidings_server::{ApiOptions, Authentication, AuthorizationMode, ControllerSet, Credentials};

use crate::support::{TestResponse, TestServer};

const RECORDED: &str = include_str!("access.json");
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";

#[derive(Deserialize)]
struct Recorded {
    tokens: String,
    setup: Vec<Question>,
    questions: Vec<Question>,
}

#[derive(Deserialize)]
pub(crate) struct Question {
    pub(crate) token: String,
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    pub(crate) body: Option<Value>,
    #[serde(default)]
    pub(crate) answer: Value,
}

impl Question {
    fn new(token: &str, method: &str, path: &str, body: Value) -> Question {
        Question {
            token: token.into(),
            method: method.into(),
            path: path.into(),
            headers: Vec::new(),
            body: Some(body),
            answer: Value::Null,
        }
    }
}

/// A server with RBAC and the users of a file of tokens.
pub(crate) async fn server(tokens: &str) -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, tokens).unwrap();
    let mut options = ApiOptions::default();
    let credentials = Credentials::default().token_file(&path).unwrap();
    options.authentication = Authentication::Credentials(credentials);
    options.authorization = vec![AuthorizationMode::Rbac];
    // The answers are those of a kube-apiserver alone: nothing deletes objects whose owners are not there.
    let controllers = ["*", "-garbage-collector-controller"].map(str::to_owned);
    options.controllers = ControllerSet::new(&controllers).unwrap();
    TestServer::with(options).await
}

impl TestServer {
    pub(crate) async fn ask(&self, question: &Question) -> TestResponse {
        let bearer = format!("Bearer {}", question.token);
        let mut headers: Vec<(&str, &str)> = Vec::new();
        let given = |name: &str| {
            question
                .headers
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        if !question.token.is_empty() {
            headers.push(("authorization", &bearer));
        }
        if question.body.is_some() && !given("content-type") {
            headers.push(("content-type", "application/json"));
        }
        headers.extend(
            question
                .headers
                .iter()
                .map(|(name, value)| (&**name, &**value)),
        );
        let body = question
            .body
            .as_ref()
            .map(Value::to_string)
            .unwrap_or_default();
        let asked = self.request_with_headers(&question.method, &question.path, &headers, body);
        tokio::time::timeout(Duration::from_secs(10), asked)
            .await
            .unwrap()
    }
}

/// The status of a review. The rules that a user has are listed in any order.
fn status(document: &Value) -> Value {
    let mut status = document["status"].clone();
    for name in ["resourceRules", "nonResourceRules"] {
        if let Some(rules) = status.get_mut(name).and_then(Value::as_array_mut) {
            rules.sort_by_key(Value::to_string);
        }
    }
    status
}

/// What is compared: refusals with their words, the status of reviews, and of the rest only that it was not refused.
fn brief(answer: &TestResponse) -> Value {
    let document: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    let is_of_roles = answer.code == 404 && answer.text.contains("rbac.authorization.k8s.io");
    if matches!(answer.code, 400 | 401 | 403) || is_of_roles {
        return json!({"code": answer.code, "message": document["message"]});
    }
    let kind = document["kind"].as_str().unwrap_or_default();
    match kind.ends_with("Review") {
        true => json!({"code": answer.code, "status": status(&document)}),
        false => json!({"allowed": true}),
    }
}

#[tokio::test]
async fn w54_decisions_and_their_words_are_those_of_kube_apiserver() {
    let recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    let server = server(&recorded.tokens).await;
    for question in &recorded.setup {
        let answer = server.ask(question).await;
        assert_eq!(answer.code, 201, "{}: {}", question.path, answer.text);
    }
    let mut wrong = Vec::new();
    for question in &recorded.questions {
        let answer = brief(&server.ask(question).await);
        let mut expected = question.answer.clone();
        if expected.get("status").is_some() {
            expected["status"] = status(&expected);
        }
        if answer != expected {
            let Question {
                token,
                method,
                path,
                headers,
                body,
                ..
            } = question;
            let body = body.as_ref().map(Value::to_string).unwrap_or_default();
            wrong.push(format!(
                "{token} {method} {path} {headers:?} {body}\n  here  {answer}\n  there {}",
                expected
            ));
        }
    }
    let count = recorded.questions.len();
    assert!(
        wrong.is_empty(),
        "{} of {count} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count > 700, "only {count} questions");
}

const TOKENS: &str = "root-token,root,0,system:masters\nann-token,ann,1\n";

fn binding(name: &str, role: &str) -> Value {
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let ann = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]);
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": ann})
}

#[tokio::test]
async fn a_decision_sees_what_was_answered_before_it() {
    let server = server(TOKENS).await;
    let bindings = format!("{ROLES}/clusterrolebindings");
    let root = |method, path: &str, body| Question::new("root-token", method, path, body);
    let reads = Question::new("ann-token", "GET", "/api/v1/nodes", Value::Null);
    for round in 0..20 {
        assert_eq!(server.ask(&reads).await.code, 403, "round {round}");
        let granted = server
            .ask(&root(
                "POST",
                &bindings,
                binding("ann", "system:kube-scheduler"),
            ))
            .await;
        assert_eq!(granted.code, 201, "{}", granted.text);
        assert_eq!(server.ask(&reads).await.code, 200, "round {round}");
        let path = format!("{bindings}/ann");
        let taken = server.ask(&root("DELETE", &path, Value::Null)).await;
        assert_eq!(taken.code, 200, "{}", taken.text);
    }
}

#[tokio::test]
async fn roles_with_an_aggregation_have_the_rules_of_those_that_they_select() {
    let server = server(TOKENS).await;
    let root = |method, path: &str, body| Question::new("root-token", method, path, body);
    let rules = async |name: &str| {
        let role = server
            .ask(&root(
                "GET",
                &format!("{ROLES}/clusterroles/{name}"),
                Value::Null,
            ))
            .await;
        role.json()["rules"].as_array().map_or(0, Vec::len)
    };
    let before = rules("admin").await;
    assert!(before > rules("edit").await && rules("edit").await > rules("view").await);
    let labels = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let rule = json!({"verbs": ["list"], "apiGroups": ["example.com"], "resources": ["websites"]});
    let role = json!({"metadata": {"name": "websites", "labels": labels}, "rules": [rule]});
    let created = server
        .ask(&root("POST", &format!("{ROLES}/clusterroles"), role))
        .await;
    assert_eq!(created.code, 201, "{}", created.text);
    // It goes on to edit, and from there to admin.
    let grown = async {
        while rules("admin").await == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), grown)
        .await
        .unwrap();
    let path = "/apis/example.com/v1/namespaces/default/websites";
    let asked = Question::new("ann-token", "GET", path, Value::Null);
    assert_eq!(server.ask(&asked).await.code, 403);
    let bindings = format!("{ROLES}/clusterrolebindings");
    server
        .ask(&root("POST", &bindings, binding("ann", "admin")))
        .await;
    assert_eq!(server.ask(&asked).await.code, 404);
}

#[tokio::test]
async fn roles_that_select_each_other_come_to_rest() {
    let server = server(TOKENS).await;
    let roles = format!("{ROLES}/clusterroles");
    let root = |method, path: &str, body| Question::new("root-token", method, path, body);
    for (own, other, resource) in [("a", "b", "pods"), ("b", "a", "nodes")] {
        let select = json!({"clusterRoleSelectors": [{"matchLabels": {other: "true"}}]});
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]});
        let role = json!({"metadata": {"name": own, "labels": {own: "true"}}, "aggregationRule": select, "rules": [rule]});
        let created = server.ask(&root("POST", &roles, role)).await;
        assert_eq!(created.code, 201, "{}", created.text);
    }
    let read = async |name: &str| {
        let path = format!("{roles}/{name}");
        server.ask(&root("GET", &path, Value::Null)).await.json()
    };
    let rested = async {
        while read("a").await["rules"] != read("b").await["rules"] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), rested)
        .await
        .unwrap();
    let version = read("a").await["metadata"]["resourceVersion"].clone();
    // Another role wakes the controller once more; it has nothing to do.
    let other = json!({"metadata": {"name": "other"}, "rules": []});
    assert_eq!(server.ask(&root("POST", &roles, other)).await.code, 201);
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert_eq!(read("a").await["metadata"]["resourceVersion"], version);
    }
}

#[tokio::test]
async fn roles_and_bindings_that_grant_nothing_by_a_slip_are_refused() {
    let server = server(TOKENS).await;
    let check = async |path: &str, body: Value, message: &str| {
        let path = format!("{ROLES}/{path}");
        let answer = server
            .ask(&Question::new("root-token", "POST", &path, body))
            .await;
        assert_eq!((answer.code, answer.message().as_str()), (422, message));
    };
    let role = |rules: Value| json!({"metadata": {"name": "x"}, "rules": rules});
    check(
        "clusterroles",
        role(json!([{"apiGroups": [""], "resources": ["pods"]}])),
        r#"ClusterRole.rbac.authorization.k8s.io "x" is invalid: rules[0].verbs: Required value: verbs must contain at least one value"#,
    )
    .await;
    check(
        "namespaces/default/roles",
        role(json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}])),
        r#"Role.rbac.authorization.k8s.io "x" is invalid: rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
    )
    .await;
    let mut odd = binding("x", "view");
    odd["subjects"][0]["kind"] = "Person".into();
    check(
        "clusterrolebindings",
        odd,
        r#"ClusterRoleBinding.rbac.authorization.k8s.io "x" is invalid: subjects[0].kind: Unsupported value: "Person": supported values: "ServiceAccount", "User", "Group""#,
    )
    .await;
}
