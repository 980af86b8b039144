//! Random requests: each gets a response without a panic, and none leaks a watch or a permit.

use http::Request;
use proptest::prelude::*;

use crate::support::{CONFIGMAPS, TestServer};

/// A segment of a path: most are valid, some are random.
fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "api", "apis", "v1", "apps", "watch", "namespaces", "default", "kube-system", "configmaps", "pods", "deployments",
            "leases", "coordination.k8s.io", "status", "finalize", "a", "healthz", "readyz", "metrics", "version", "", "..", "%2F", "%zz",
        ]).prop_map(ToOwned::to_owned),
        1 => "[a-zA-Z0-9%._~-]{0,8}",
    ]
}

fn parameter() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "labelSelector",
        "fieldSelector",
        "timeoutSeconds",
        "timeout",
        "dryRun",
        "fieldValidation",
        "gracePeriodSeconds",
        "pretty",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "",
            "0",
            "1",
            "-1",
            "5",
            "99999999999999999999",
            "true",
            "false",
            "Exact",
            "NotOlderThan",
            "All",
            "Strict",
            "1s",
            "a%3Db",
            "a%20in%20(b)",
            "metadata.name%3Da",
            "metadata.name%3D%5C",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYSJ9",
        ])
        .prop_map(ToOwned::to_owned),
        "[a-zA-Z0-9%=+,!()-]{0,12}",
    ];
    (name, value).prop_map(|(name, value)| format!("{name}={value}"))
}

fn body() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(r#"{"metadata":{"name":"a"}}"#.to_owned()),
        Just(
            r#"{"metadata":{"generateName":"a","finalizers":["a/b"]},"data":{"k":"v"}}"#.to_owned()
        ),
        Just(r#"{"preconditions":{"uid":"x"},"propagationPolicy":"Orphan"}"#.to_owned()),
        r#"[{}\[\]":,a-z0-9\\]{0,40}"#,
        "\\PC{0,40}",
        (1..2000_usize).prop_map(|depth| "[".repeat(depth)),
    ]
}

fn request() -> impl Strategy<Value = Request<String>> {
    let method = prop::sample::select(vec![
        "GET", "GET", "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW",
    ]);
    let headers = prop::collection::vec(
        (
            prop::sample::select(vec![
                "accept",
                "content-type",
                "authorization",
                "audit-id",
                "user-agent",
            ]),
            "[ -~]{0,20}",
        ),
        0..3,
    );
    let path = prop_oneof![
        prop::collection::vec(segment(), 0..8)
            .prop_map(|segments| format!("/{}", segments.join("/"))),
        Just(CONFIGMAPS.to_owned()),
        Just(format!("{CONFIGMAPS}/a")),
        Just("/api/v1/watch/configmaps".to_owned()),
    ];
    (
        method,
        path,
        prop::collection::vec(parameter(), 0..5),
        headers,
        body(),
    )
        .prop_filter_map("a URI", |(method, path, parameters, headers, body)| {
            let uri = if parameters.is_empty() {
                path
            } else {
                format!("{path}?{}", parameters.join("&"))
            };
            let mut request = Request::builder().method(method).uri(uri);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            request.body(body).ok()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_request_gets_a_response_and_leaves_no_watch_or_permit(requests in prop::collection::vec(request(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let server = TestServer::start().await;
            for request in requests {
                let asked = format!("{} {}", request.method(), request.uri());
                // A request for a future version waits; the test does not.
                let answer = tokio::time::timeout(std::time::Duration::from_millis(50), server.api.handle(request)).await;
                let Ok(answer) = answer else { continue };
                let code = answer.status().as_u16();
                prop_assert!((200..500).contains(&code) || code == 504, "{asked}: {code}");
                let kind = answer.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
                prop_assert!(kind.is_some(), "{asked}: {code} without a content type");
                drop(answer); // also ends watches
            }
            let metrics = server.get("/metrics").await.text;
            for line in metrics.lines().filter(|line| {
                line.starts_with("apiserver_longrunning_requests{") || line.starts_with("tidings_watch_cache_watches{")
                    || line.starts_with("apiserver_current_inflight_requests{")
            }) {
                prop_assert!(line.ends_with(" 0"), "leaked: {line}");
            }
            prop_assert_eq!(server.get("/healthz").await.code, 200);
            Ok(())
        })?;
    }
}

/// The future is allocated and moved for every request.
#[tokio::test]
async fn the_future_of_a_request_is_small() {
    let server = TestServer::start().await;
    let answer = server.api.handle(Request::new(String::new()));
    let bytes = size_of_val(&answer);
    assert!(bytes < 5 * 1024, "{bytes} bytes");
}
