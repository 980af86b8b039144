//! Priority and fairness: the objects that every server has, what is refused, and whose requests wait.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_server::{ApiOptions, Authentication, AuthorizationMode, Credentials};

use crate::support::{TestResponse, TestServer};

const TOKENS: &str = "root,root,0,system:masters\nann,ann,1\nbob,bob,2\n";
const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

async fn server() -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, TOKENS).unwrap();
    let credentials = Credentials::default().token_file(&path).unwrap();
    let mut options = ApiOptions::default();
    options.authentication = Authentication::Credentials(credentials);
    options.authorization = vec![AuthorizationMode::AlwaysAllow];
    TestServer::with(options).await
}

async fn ask(
    server: &TestServer,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> TestResponse {
    let bearer = format!("Bearer {token}");
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let headers = [("authorization", &*bearer), ("content-type", kind)];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    server
        .request_with_headers(method, path, &headers, body)
        .await
}

async fn get(server: &TestServer, token: &str, path: &str) -> TestResponse {
    ask(server, token, "GET", path, &Value::Null).await
}

/// Asks until an answer is as it should be: the server follows the objects behind their writes.
async fn until(
    server: &TestServer,
    token: &str,
    path: &str,
    is_right: impl Fn(&TestResponse) -> bool,
) -> TestResponse {
    for _ in 0..500 {
        let answer = get(server, token, path).await;
        if is_right(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{path} never is as it should be");
}

fn names(list: &TestResponse) -> Vec<String> {
    let items = list.json()["items"].as_array().cloned().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn every_server_has_the_objects_of_kube_apiserver_and_the_fixed_ones_stay() {
    let server = server().await;
    let levels = get(
        &server,
        "root",
        &format!("{GROUP}/prioritylevelconfigurations"),
    )
    .await;
    let all = [
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    assert_eq!(names(&levels), all);
    let schemas = get(&server, "root", &format!("{GROUP}/flowschemas")).await;
    assert_eq!(names(&schemas).len(), 11);
    let path = format!("{GROUP}/flowschemas/catch-all");
    let catch_all = until(&server, "root", &path, |answer| {
        answer.json()["status"]["conditions"].is_array()
    })
    .await
    .json();
    let condition = &catch_all["status"]["conditions"][0];
    assert_eq!(
        (condition["type"].as_str(), condition["status"].as_str()),
        (Some("Dangling"), Some("False"))
    );
    let message = r#"This FlowSchema references the PriorityLevelConfiguration object named "catch-all" and it exists"#;
    assert_eq!(condition["message"], message);

    let refused = ask(
        &server,
        "root",
        "PATCH",
        &path,
        &json!({"spec": {"matchingPrecedence": 9}}),
    )
    .await;
    assert_eq!(refused.code, 422);
    assert!(
        refused
            .text
            .contains("spec of 'catch-all' must equal the fixed value"),
        "{}",
        refused.text
    );
    assert_eq!(
        ask(&server, "root", "DELETE", &path, &Value::Null)
            .await
            .code,
        200
    );
    until(&server, "root", &path, |answer| answer.code == 200).await;
    // The others may be changed.
    let path = format!("{GROUP}/flowschemas/global-default");
    let changed = ask(
        &server,
        "root",
        "PATCH",
        &path,
        &json!({"spec": {"matchingPrecedence": 9000}}),
    )
    .await;
    assert_eq!(changed.code, 200, "{}", changed.text);
    assert_eq!(changed.json()["metadata"]["generation"], 2);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let server = server().await;
    let schema = |spec: Value| {
        let mut whole = json!({"metadata": {"name": "x"}, "spec": {
            "priorityLevelConfiguration": {"name": "global-default"},
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "ann"}}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}],
        }});
        for (name, value) in spec.as_object().unwrap() {
            whole["spec"][name] = value.clone();
        }
        whole
    };
    let rule = |rule: Value| json!({"rules": [rule]});
    let on_paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}]);
    let ann = json!([{"kind": "User", "user": {"name": "ann"}}]);
    for (spec, expected) in [
        (
            json!({"matchingPrecedence": 1}),
            "only the schema named 'exempt' may have matchingPrecedence 1",
        ),
        (
            json!({"matchingPrecedence": 10001}),
            "must not be greater than 10000",
        ),
        (
            json!({"distinguisherMethod": {"type": "ByMood"}}),
            "supported values: \"ByNamespace\", \"ByUser\"",
        ),
        (
            json!({"priorityLevelConfiguration": {"name": ""}}),
            "must reference a priority level",
        ),
        (
            rule(json!({"subjects": [], "nonResourceRules": on_paths})),
            "subjects must contain at least one value",
        ),
        (
            rule(json!({"subjects": ann})),
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        ),
        (
            rule(json!({"subjects": [{"kind": "User"}], "nonResourceRules": on_paths})),
            "user is required when subject kind is 'User'",
        ),
        (
            rule(
                json!({"subjects": ann, "nonResourceRules": [{"verbs": ["look"], "nonResourceURLs": ["/x"]}]}),
            ),
            "supported values: \"create\"",
        ),
        (
            rule(
                json!({"subjects": ann, "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["x"]}]}),
            ),
            "must start with slash",
        ),
        (
            rule(
                json!({"subjects": ann, "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            ),
            "resource rules that are not cluster scoped must supply at least one namespace",
        ),
    ] {
        let answer = ask(
            &server,
            "root",
            "POST",
            &format!("{GROUP}/flowschemas"),
            &schema(spec),
        )
        .await;
        assert_eq!(answer.code, 422, "{}", answer.text);
        let text = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(text.contains(expected), "{text}");
    }
    let level = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
    let queuing = |queuing: Value| json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}});
    for (spec, expected) in [
        (json!({}), "spec.type: Required value"),
        (
            json!({"type": "Exempt"}),
            "must be 'Exempt' if and only if `name` is 'exempt'",
        ),
        (
            json!({"type": "Limited"}),
            "must not be empty when type is Limited",
        ),
        (
            queuing(json!({"queues": 3, "handSize": 4})),
            "should not be greater than queues (3)",
        ),
        (
            queuing(json!({"queues": 1024, "handSize": 10})),
            "required entropy bits of deckSize 1024 and handSize 10 should not be greater than 60",
        ),
        (
            json!({"type": "Limited", "limited": {"lendablePercent": 101, "limitResponse": {"type": "Reject"}}}),
            "must be between 0 and 100, inclusive",
        ),
    ] {
        let answer = ask(
            &server,
            "root",
            "POST",
            &format!("{GROUP}/prioritylevelconfigurations"),
            &level(spec),
        )
        .await;
        assert_eq!(answer.code, 422, "{}", answer.text);
        let text = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(text.contains(expected), "{text}");
    }
    let made = ask(
        &server,
        "root",
        "POST",
        &format!("{GROUP}/prioritylevelconfigurations"),
        &level(queuing(json!({}))),
    )
    .await;
    let limited = made.json()["spec"]["limited"].clone();
    assert_eq!(
        limited,
        json!({
            "nominalConcurrencyShares": 30, "lendablePercent": 0,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}},
        })
    );
    assert_eq!(
        ask(
            &server,
            "root",
            "POST",
            &format!("{GROUP}/flowschemas"),
            &schema(json!({}))
        )
        .await
        .json()["spec"]["matchingPrecedence"],
        1000
    );
}

#[tokio::test]
async fn a_response_names_its_flow_and_a_level_without_seats_refuses() {
    let server = server().await;
    let uid = |answer: &TestResponse, name: &str| answer.headers[name].to_str().unwrap().to_owned();
    let schema_of = |answer: &TestResponse| uid(answer, "x-kubernetes-pf-flowschema-uid");
    let made = |path: &str| {
        let path = format!("{GROUP}/{path}");
        let server = &server;
        async move {
            get(server, "root", &path).await.json()["metadata"]["uid"]
                .as_str()
                .unwrap()
                .to_owned()
        }
    };
    let answer = get(&server, "root", "/api/v1/pods").await;
    assert_eq!(schema_of(&answer), made("flowschemas/exempt").await);
    let answer = get(&server, "ann", "/api/v1/pods").await;
    assert_eq!(schema_of(&answer), made("flowschemas/global-default").await);
    assert_eq!(
        uid(&answer, "x-kubernetes-pf-prioritylevel-uid"),
        made("prioritylevelconfigurations/global-default").await
    );
    let answer = get(&server, "ann", "/healthz").await;
    assert_eq!(schema_of(&answer), made("flowschemas/probes").await);

    // A level of one seat for bob, and nobody else's.
    let level = json!({"metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
    }}});
    assert_eq!(
        ask(
            &server,
            "root",
            "POST",
            &format!("{GROUP}/prioritylevelconfigurations"),
            &level
        )
        .await
        .code,
        201
    );
    let schema = json!({"metadata": {"name": "bob"}, "spec": {
        "priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 50,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "bob"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]}],
    }});
    let made = ask(
        &server,
        "root",
        "POST",
        &format!("{GROUP}/flowschemas"),
        &schema,
    )
    .await;
    let own = made.json()["metadata"]["uid"].as_str().unwrap().to_owned();
    until(&server, "bob", "/api/v1/pods", |answer| {
        schema_of(answer) == own
    })
    .await;
    let all =
        futures_util::future::join_all((0..50).map(|_| get(&server, "bob", "/api/v1/pods"))).await;
    let served = all.iter().filter(|answer| answer.code == 200).count();
    let refused: Vec<&TestResponse> = all.iter().filter(|answer| answer.code == 429).collect();
    assert!(
        served >= 1 && served + refused.len() == 50,
        "{served} {}",
        refused.len()
    );
    if let Some(refused) = refused.first() {
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(refused.text, "Too many requests, please try again later.\n");
    }
    assert_eq!(get(&server, "ann", "/api/v1/pods").await.code, 200);
    let metrics = get(&server, "root", "/metrics").await.text;
    for line in [
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"workload-low\"} ",
        "apiserver_flowcontrol_current_executing_seats{priority_level=\"narrow\"} 0",
        &format!(
            "apiserver_flowcontrol_rejected_requests_total{{reason=\"concurrency-limit\"}} {}",
            refused.len()
        ),
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test]
async fn watches_are_bounded_per_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, TOKENS).unwrap();
    let credentials = Credentials::default().token_file(&path).unwrap();
    let mut options = ApiOptions::default();
    options.authentication = Authentication::Credentials(credentials);
    options.authorization = vec![AuthorizationMode::AlwaysAllow];
    options.watch_limits.user = 2;
    let server = TestServer::with(options).await;
    let watch = |token: &'static str| {
        let bearer = format!("Bearer {token}");
        let request = http::Request::builder()
            .uri("/api/v1/pods?watch=1")
            .header("authorization", bearer)
            .body(String::new())
            .unwrap();
        server.api.handle(request)
    };
    let first = watch("ann").await;
    let second = watch("ann").await;
    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (200, 200)
    );
    let third = watch("ann").await;
    assert_eq!(third.status().as_u16(), 429);
    assert_eq!(third.headers()["retry-after"], "1");
    assert_eq!(watch("bob").await.status().as_u16(), 200);
    drop(first);
    assert_eq!(watch("ann").await.status().as_u16(), 200);
    let metrics = get(&server, "root", "/metrics").await.text;
    assert!(metrics.contains("tidings_refused_watches_total 1"));
}
