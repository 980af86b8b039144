//! Paths, methods, authentication, limits, and the form of failures.

use http::Request;
use serde_json::json;

use crate::support::{CONFIGMAPS, TestServer};

#[tokio::test]
async fn w2_every_answer_has_an_audit_id_and_is_not_cached() {
    let server = TestServer::start().await;
    for path in [
        "/api/v1/configmaps",
        "/nosuch",
        "/healthz",
        "/api/v1/nosuch",
    ] {
        let answer = server.get(path).await;
        assert_eq!(
            answer.headers["cache-control"], "no-cache, private",
            "{path}"
        );
        assert_eq!(answer.headers["audit-id"].len(), 36, "{path}");
    }
    let request = Request::get("/healthz")
        .header("Audit-ID", "mine")
        .body(String::new())
        .unwrap();
    assert_eq!(server.send(request).await.headers["audit-id"], "mine");
}

#[tokio::test]
async fn w3_authenticated_responses_have_flow_headers() {
    let server = TestServer::with_token("secret").await;
    let authorized = |token: &str| {
        Request::get("/api/v1/pods")
            .header("authorization", format!("Bearer {token}"))
            .body(String::new())
            .unwrap()
    };
    let answer = server.send(authorized("secret")).await;
    assert!(
        answer
            .headers
            .contains_key("x-kubernetes-pf-flowschema-uid")
    );
    assert!(
        answer
            .headers
            .contains_key("x-kubernetes-pf-prioritylevel-uid")
    );
    let refused = server.send(authorized("wrong")).await;
    assert!(
        !refused
            .headers
            .contains_key("x-kubernetes-pf-flowschema-uid")
    );
}

#[tokio::test]
async fn w4_w5_bodies_are_json_and_end_with_a_newline() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    for path in [
        "/api/v1/configmaps",
        "/api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces/default/configmaps/b",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.headers["content-type"], "application/json", "{path}");
        assert!(answer.text.ends_with("}\n"), "{path}");
    }
}

#[tokio::test]
async fn w9_w54_w55_anonymous_users_see_health_and_version_only() {
    let server = TestServer::with_token("secret").await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(server.get(path).await.code, 200, "{path}");
    }
    let check = async |path: &str, message: &str| {
        let answer = server.get(path).await;
        assert_eq!(answer.code, 403, "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.message(), message);
    };
    let who = "User \"system:anonymous\" cannot";
    check(
        "/api/v1/pods",
        &format!(
            "pods is forbidden: {who} list resource \"pods\" in API group \"\" at the cluster scope"
        ),
    )
    .await;
    check(
        "/apis/apps/v1/namespaces/a/deployments/x/status",
        &format!(
            "deployments.apps \"x\" is forbidden: {who} get resource \"deployments/status\" in API group \"apps\" in the namespace \"a\""
        ),
    )
    .await;
    check("/nosuch", &format!("forbidden: {who} get path \"/nosuch\"")).await;
    check(
        "/metrics",
        &format!("forbidden: {who} get path \"/metrics\""),
    )
    .await;
    let wrong = Request::get("/healthz")
        .header("authorization", "Bearer wrong")
        .body(String::new())
        .unwrap();
    let answer = server.send(wrong).await;
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (401, "Unauthorized")
    );
    let right = Request::get("/api/v1/pods")
        .header("authorization", "bearer secret")
        .body(String::new())
        .unwrap();
    assert_eq!(server.send(right).await.code, 200);
}

#[tokio::test]
async fn w11_w16_w17_w61_unsupported_methods_get_405() {
    let server = TestServer::start().await;
    for (method, path) in [
        ("HEAD", CONFIGMAPS),
        ("OPTIONS", CONFIGMAPS),
        ("TRACE", CONFIGMAPS),
        ("BREW", CONFIGMAPS),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("POST", "/api/v1/namespaces/default/configmaps/x"),
    ] {
        let answer = server.request(method, path, "{}").await;
        assert_eq!(answer.code, 405, "{method} {path}");
        if method == "HEAD" {
            assert_eq!(answer.text, "", "an answer to HEAD has no body");
            continue;
        }
        assert_eq!(
            answer.message(),
            "the server does not allow this method on the requested resource"
        );
        assert_eq!(answer.json()["details"], json!({}));
    }
}

#[tokio::test]
async fn w12_w18_w24_w60_unknown_paths_get_404() {
    let server = TestServer::start().await;
    for path in [
        "/api/v1/nosuch",
        "/apis/apps/v9/deployments",
        "/api/v1//configmaps",
        "/api/v1/namespaces/a/configmaps/x/nosuch",
    ] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.code, answer.message().as_str()),
            (404, "the server could not find the requested resource"),
            "{path}"
        );
        assert_eq!(answer.json()["details"], json!({}));
    }
    for path in ["/nosuch", "/apis/nosuch.example.com/v1/things"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.code, answer.text.as_str()),
            (404, "404 page not found\n"),
            "{path}"
        );
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    assert_eq!(
        server.get(&format!("{CONFIGMAPS}/")).await.code,
        200,
        "a trailing slash is accepted"
    );
}

#[tokio::test]
async fn w14_w59_bodies_beyond_the_limit_are_refused() {
    let server = TestServer::start().await;
    let body = "x".repeat(3_145_729);
    let answer = server.request("POST", CONFIGMAPS, body).await;
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (413, "Request entity too large: limit is 3145728")
    );
    assert_eq!(answer.json()["reason"], "RequestEntityTooLarge");
}

#[tokio::test]
async fn w23_the_timeout_of_a_request_is_checked() {
    let server = TestServer::start().await;
    let answer = server.get(&format!("{CONFIGMAPS}?timeout=abc")).await;
    let expected = "invalid timeout specified in the request URL - time: invalid duration \"abc\"";
    assert_eq!((answer.code, answer.message().as_str()), (400, expected));
    assert_eq!(
        server.get(&format!("{CONFIGMAPS}?timeout=5s")).await.code,
        200
    );
    let mut watch = server
        .watch(&format!(
            "{CONFIGMAPS}?watch=1&timeout=abc&timeoutSeconds=-1"
        ))
        .await;
    assert!(watch.next().await.is_none(), "a watch ignores `timeout`");
}

#[tokio::test]
async fn w35_w36_health_and_version() {
    let server = TestServer::start().await;
    for path in [
        "/healthz",
        "/livez",
        "/readyz",
        "/livez/ping",
        "/readyz/watch-cache",
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.text.as_str()), (200, "ok"), "{path}");
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    assert_eq!(server.get("/livez/nosuch").await.code, 404);
    let verbose = server.get("/healthz?verbose").await.text;
    assert!(
        verbose.starts_with("[+]ping ok\n") && verbose.ends_with("healthz check passed\n"),
        "{verbose}"
    );
    assert_eq!(
        server.request("HEAD", "/healthz", "").await.code,
        200,
        "W11"
    );
    let version = server.get("/version").await.json();
    assert_eq!(
        (version["major"].as_str(), version["gitVersion"].as_str()),
        (Some("1"), Some("v1.36.4"))
    );
}

#[tokio::test]
async fn w37_w40_unsupported_media_types_are_refused() {
    let server = TestServer::start().await;
    let accepting = |accept: &str| {
        Request::get(CONFIGMAPS)
            .header("accept", accept)
            .body(String::new())
            .unwrap()
    };
    for accept in [
        "",
        "*/*",
        "application/json;foo=bar",
        "application/vnd.kubernetes.protobuf,application/json",
    ] {
        assert_eq!(server.send(accepting(accept)).await.code, 200, "{accept}");
    }
    for accept in [
        "text/html",
        "application/cbor",
        "application/json;as=Nonsense",
    ] {
        let answer = server.send(accepting(accept)).await;
        assert_eq!(
            (answer.code, answer.json()["reason"].as_str()),
            (406, Some("NotAcceptable")),
            "{accept}"
        );
    }
    let post = Request::post(CONFIGMAPS)
        .header("content-type", "text/plain")
        .body("x".to_owned())
        .unwrap();
    let answer = server.send(post).await;
    assert_eq!(
        (answer.code, answer.json()["reason"].as_str()),
        (415, Some("UnsupportedMediaType"))
    );
}

#[tokio::test]
async fn w58_w189_requests_in_flight_are_bounded() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    // A request for a future version waits for three seconds.
    let path = format!("{CONFIGMAPS}/a?resourceVersion=999999");
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..400 {
        let (api, path) = (server.api.clone(), path.clone());
        waiting.spawn(async move {
            api.handle(Request::get(path).body(String::new()).unwrap())
                .await
                .status()
        });
    }
    let refused = loop {
        let answer = server.get(&path.replace("999999", "0")).await;
        if answer.code == 429 {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(
        refused
            .text
            .starts_with("Too many requests, please try again later.")
    );
    waiting.abort_all();
    while waiting.join_next().await.is_some() {}
    assert_eq!(
        server.get(CONFIGMAPS).await.code,
        200,
        "permits are returned"
    );
}

#[tokio::test]
async fn metrics_have_the_names_of_kube_apiserver() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    let _watch = server.watch("/api/v1/configmaps?watch=1").await;
    let text = server.get("/metrics").await.text;
    for line in [
        "apiserver_request_total{verb=\"POST\",group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\",scope=\"namespace\",component=\"apiserver\",code=\"201\"} 1",
        "apiserver_longrunning_requests{group=\"\",resource=\"configmaps\"} 1",
        "apiserver_resource_objects{group=\"\",resource=\"configmaps\"} 1",
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

#[tokio::test]
async fn w57_w188_a_request_beyond_its_timeout_gets_504() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    let path = format!("{CONFIGMAPS}/a?resourceVersion=999999&timeout=100ms");
    let answer = server.get(&path).await;
    let expected = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within the allotted \
                    timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";
    assert_eq!(
        (answer.code, answer.text.as_str()),
        (504, expected),
        "without kind and apiVersion"
    );
}

#[tokio::test]
async fn w48_w53_names_in_texts_and_details() {
    let server = TestServer::start().await;
    let answer = server
        .get("/apis/apps/v1/namespaces/default/deployments/x")
        .await;
    assert_eq!(answer.message(), "deployments.apps \"x\" not found");
    let details = json!({"name": "x", "group": "apps", "kind": "deployments"});
    assert_eq!(answer.json()["details"], details);
    let bad = server.get(&format!("{CONFIGMAPS}?limit=abc")).await.json();
    assert!(
        bad.get("details").is_none() && bad["reason"] == "BadRequest",
        "{bad}"
    );
}

#[tokio::test]
async fn the_server_is_a_tower_service() {
    let mut server = TestServer::start().await;
    let request = Request::get("/healthz").body(String::new()).unwrap();
    let response = tower_service::Service::call(&mut server.api, request)
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}
