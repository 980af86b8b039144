//! Reviews: questions about who a user is and what they may do. They are answered, not stored.

use serde_json::{Value, json};

use crate::support::{TestResponse, TestServer};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const TOKEN: &str = "correct-horse";

impl TestServer {
    async fn review(&self, path: &str, body: Value) -> TestResponse {
        let headers = [
            ("authorization", "Bearer correct-horse"),
            ("user-agent", "x"),
        ];
        self.request_with_headers("POST", path, &headers, body)
            .await
    }

    /// Posts a review and returns the status of the answer.
    async fn review_status(&self, path: &str, body: Value) -> Value {
        let answer = self.review(path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        answer.json()["status"].clone()
    }
}

#[tokio::test]
async fn the_administrator_may_do_everything() {
    let server = TestServer::with_token(TOKEN).await;
    let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    let asked = json!({"resource": "pods", "verb": "create", "namespace": "default"});
    let answer = server
        .review(&path, json!({"spec": {"resourceAttributes": &asked}}))
        .await;
    assert_eq!(answer.code, 201);
    let mut object = answer.json();
    object["metadata"]["managedFields"][0]["time"] = "now".into();
    let of = json!({".": {}, "f:namespace": {}, "f:resource": {}, "f:verb": {}});
    let managed = json!({
        "manager": "x",
        "operation": "Update",
        "apiVersion": "authorization.k8s.io/v1",
        "time": "now",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:resourceAttributes": of}},
    });
    assert_eq!(
        object,
        json!({
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {"managedFields": [managed]},
            "spec": {"resourceAttributes": asked},
            "status": {"allowed": true},
        })
    );
    let rules = server
        .review(
            &format!("{AUTHORIZATION}/selfsubjectrulesreviews"),
            json!({"spec": {"namespace": "default"}}),
        )
        .await;
    let status = &rules.json()["status"];
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let resources = status["resourceRules"].as_array().unwrap();
    assert!(resources.contains(&everything), "{status}");
    let paths = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    let urls = status["nonResourceRules"].as_array().unwrap();
    assert!(urls.contains(&paths), "{status}");
    assert_eq!(status["incomplete"], false);
    assert_eq!(rules.json()["spec"], json!({}));
}

#[tokio::test]
async fn access_reviews_agree_with_the_authorizer() {
    let server = TestServer::with_token(TOKEN).await;
    let path = format!("{AUTHORIZATION}/subjectaccessreviews");
    let pods = json!({"resource": "pods", "verb": "create", "namespace": "default"});
    let joe = json!({"user": "joe", "resourceAttributes": pods});
    assert_eq!(
        server.review_status(&path, json!({ "spec": joe })).await,
        json!({"allowed": false})
    );
    let master = json!({"groups": ["a", "system:masters"], "resourceAttributes": pods});
    assert_eq!(
        server.review_status(&path, json!({ "spec": master })).await,
        json!({"allowed": true})
    );
    // The review of an anonymous user agrees with what an anonymous request gets.
    for url in ["/version", "/healthz", "/metrics", "/api"] {
        let asked = json!({"verb": "get", "path": url});
        let anonymous = json!({"user": "system:anonymous", "groups": ["system:unauthenticated"],
            "nonResourceAttributes": asked});
        let status = server
            .review_status(&path, json!({ "spec": anonymous }))
            .await;
        let done = server.get(url).await.code == 200;
        assert_eq!(status["allowed"], done, "{url}");
    }
    let local = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    let answer = server.review(&local, json!({ "spec": joe })).await;
    assert_eq!(
        (
            answer.code,
            &answer.json()["metadata"]["namespace"],
            &answer.json()["status"]
        ),
        (201, &json!("default"), &json!({"allowed": false}))
    );
}

#[tokio::test]
async fn invalid_reviews_are_refused() {
    let server = TestServer::with_token(TOKEN).await;
    let own = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    let local = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    let pods = json!({"resource": "pods", "verb": "get"});
    let path = json!({"path": "/a"});
    let selecting = |name: &str, selector: Value| {
        let mut asked = pods.clone();
        asked[name] = selector;
        json!({"spec": {"resourceAttributes": asked}})
    };
    for (url, body, wrong) in [
        (
            &own,
            json!({}),
            r#"spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#,
        ),
        (
            &own,
            json!({"spec": {"resourceAttributes": pods, "nonResourceAttributes": path}}),
            r#"spec.nonResourceAttributes: Invalid value: {"Path":"/a","Verb":""}: cannot be specified in combination with resourceAttributes"#,
        ),
        (
            &format!("{AUTHORIZATION}/subjectaccessreviews"),
            json!({"spec": {"resourceAttributes": pods}}),
            r#"spec.user: Invalid value: "": at least one of user or group must be specified"#,
        ),
        (
            &local,
            json!({"spec": {"user": "joe", "resourceAttributes": pods}}),
            r#"spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace"#,
        ),
        (
            &local,
            json!({"spec": {"user": "joe", "nonResourceAttributes": path}}),
            r#"spec.nonResourceAttributes: Invalid value: {"Path":"/a","Verb":""}: disallowed on this kind of request"#,
        ),
        (
            &own,
            json!({"metadata": {"name": "x", "managedFields": [{}]}, "spec": {"resourceAttributes": pods}}),
            r#"must be empty"#,
        ),
        (
            &own,
            selecting("fieldSelector", json!({})),
            "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
        ),
        (
            &own,
            selecting(
                "labelSelector",
                json!({"requirements": [{"key": "a", "operator": "In"}]}),
            ),
            "spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            &own,
            selecting(
                "fieldSelector",
                json!({"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}),
            ),
            r#"spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements"#,
        ),
    ] {
        let answer = server.review(url, body).await;
        assert_eq!(answer.code, 422, "{}", answer.text);
        let message = answer.message();
        assert!(
            message.starts_with(".authorization.k8s.io \"\" is invalid: "),
            "{message}"
        );
        assert!(message.ends_with(wrong), "{message}");
        assert_eq!(answer.json()["details"].get("kind"), None);
    }
    let rules = server
        .review(
            &format!("{AUTHORIZATION}/selfsubjectrulesreviews"),
            json!({}),
        )
        .await;
    assert_eq!(
        (rules.code, rules.message().as_str()),
        (400, "no namespace on request")
    );
    let strange = json!({"spec": {"resourceAttributes": pods, "nosuch": 1}});
    let strict = server
        .review(&format!("{own}?fieldValidation=Strict"), strange)
        .await;
    assert_eq!(strict.code, 400, "{}", strict.text);
}

#[tokio::test]
async fn self_subject_reviews_and_token_reviews() {
    let server = TestServer::with_token(TOKEN).await;
    let admin = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    let path = format!("{AUTHENTICATION}/selfsubjectreviews");
    let answer = server.review(&path, json!({})).await.json();
    assert_eq!(answer["status"], json!({ "userInfo": admin }));
    assert!(answer["metadata"]["creationTimestamp"].is_string());
    assert_eq!(answer["metadata"].as_object().unwrap().len(), 1);

    let path = format!("{AUTHENTICATION}/tokenreviews");
    let spec = |spec: Value| json!({ "spec": spec });
    let right = server
        .review_status(&path, spec(json!({"token": TOKEN})))
        .await;
    assert_eq!(
        right,
        json!({"authenticated": true, "user": admin, "audiences": ["https://kubernetes.default.svc"]})
    );
    let wrong = json!({"user": {}, "error": "invalid bearer token"});
    for other in [
        json!({"token": "correct-horsf"}),
        json!({"token": "correct"}),
        json!({"token": TOKEN, "audiences": ["elsewhere"]}),
    ] {
        assert_eq!(server.review_status(&path, spec(other)).await, wrong);
    }
    let none = server.review(&path, json!({})).await;
    assert_eq!(
        (none.code, none.message().as_str()),
        (400, "token is required for TokenReview in authentication")
    );
    // A server without authentication knows no token.
    let trusting = TestServer::start().await;
    let any = trusting
        .review_status(&path, spec(json!({"token": "any"})))
        .await;
    assert_eq!(any, wrong);
}

#[tokio::test]
async fn w20_w24_reviews_can_only_be_posted_to_their_own_paths() {
    let server = TestServer::start().await;
    let all = format!("{AUTHORIZATION}/subjectaccessreviews");
    for (method, path, code) in [
        ("GET", all.clone(), 405),
        ("GET", format!("{all}?watch=1"), 405),
        ("DELETE", all.clone(), 405),
        ("GET", format!("{all}/x"), 404),
        ("POST", format!("{all}/x"), 404),
        (
            "POST",
            format!("{AUTHORIZATION}/localsubjectaccessreviews"),
            404,
        ),
        (
            "POST",
            format!("{AUTHORIZATION}/namespaces/default/subjectaccessreviews"),
            404,
        ),
        (
            "GET",
            format!("{AUTHORIZATION}/watch/subjectaccessreviews"),
            404,
        ),
    ] {
        let answer = server.request(method, &path, "{}").await;
        assert_eq!(answer.code, code, "{method} {path}: {}", answer.text);
    }
    let anonymouss = TestServer::with_token(TOKEN).await;
    let refused = anonymouss.request("POST", &all, "{}").await;
    assert_eq!(refused.code, 403, "anonymous users may not post reviews");
}

#[tokio::test]
async fn w27_w30_reviews_in_discovery() {
    let server = TestServer::start().await;
    let list = server.get(AUTHORIZATION).await;
    assert_eq!(
        list.text.trim_end(),
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"authorization.k8s.io/v1","resources":[{"name":"localsubjectaccessreviews","singularName":"localsubjectaccessreview","namespaced":true,"kind":"LocalSubjectAccessReview","verbs":["create"]},{"name":"selfsubjectaccessreviews","singularName":"selfsubjectaccessreview","namespaced":false,"kind":"SelfSubjectAccessReview","verbs":["create"]},{"name":"selfsubjectrulesreviews","singularName":"selfsubjectrulesreview","namespaced":false,"kind":"SelfSubjectRulesReview","verbs":["create"]},{"name":"subjectaccessreviews","singularName":"subjectaccessreview","namespaced":false,"kind":"SubjectAccessReview","verbs":["create"]}]}"#
    );
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = server.get_as("/apis", aggregated).await.json();
    let items = groups["items"].as_array().unwrap().iter();
    let group = items
        .clone()
        .find(|item| item["metadata"]["name"] == "authentication.k8s.io")
        .unwrap();
    assert_eq!(
        group["versions"][0]["resources"],
        json!([
            {"resource": "selfsubjectreviews", "responseKind": {"group": "", "version": "", "kind": "SelfSubjectReview"}, "scope": "Cluster", "singularResource": "selfsubjectreview", "verbs": ["create"]},
            {"resource": "tokenreviews", "responseKind": {"group": "", "version": "", "kind": "TokenReview"}, "scope": "Cluster", "singularResource": "tokenreview", "verbs": ["create"]},
        ])
    );
    let names: Vec<&str> = items
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .take(5)
        .collect();
    assert_eq!(
        names,
        [
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling"
        ]
    );
    let document = server.get("/openapi/v3/apis/authorization.k8s.io/v1").await;
    let document = document.json();
    let path = &document["paths"]["/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"];
    let methods: Vec<&String> = path.as_object().unwrap().keys().collect();
    assert_eq!(methods, ["post", "parameters"]);
    assert!(
        document["components"]["schemas"]
            .get("io.k8s.api.authorization.v1.SubjectAccessReview")
            .is_some()
    );
}

#[tokio::test]
async fn w42_reviews_in_protobuf() {
    let server = TestServer::start().await;
    // runtime.Unknown { typeMeta { apiVersion, kind }, raw: SelfSubjectAccessReview { spec { resourceAttributes { verb } } } }
    let field = |number: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    };
    let meta = [
        field(1, b"authorization.k8s.io/v1"),
        field(2, b"SelfSubjectAccessReview"),
    ]
    .concat();
    let spec = field(2, &field(1, &field(2, b"get")));
    let body = [b"k8s\0".to_vec(), field(1, &meta), field(2, &spec)].concat();
    let request = http::Request::post(format!("{AUTHORIZATION}/selfsubjectaccessreviews"))
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .body(http_body_util::Full::new(bytes::Bytes::from(body)))
        .unwrap();
    let answer = server.send(request).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    assert_eq!(
        (
            &answer.json()["spec"]["resourceAttributes"],
            &answer.json()["status"]["allowed"]
        ),
        (&json!({"verb": "get"}), &json!(true))
    );
}
