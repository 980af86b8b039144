//! GET and LIST: resource versions, pages, selectors.

use base64::Engine;
use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, PROTOBUF, TestServer};

fn token(value: &Value) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string())
}

async fn with_three_objects() -> (TestServer, [u64; 3]) {
    let server = TestServer::start().await;
    let versions = [
        server.create("a", json!({"x": "1"})).await,
        server.create("b", json!({"x": "2"})).await,
        server.create("c", json!({})).await,
    ];
    (server, versions)
}

#[tokio::test]
async fn w13_w66_w67_selectors() {
    let (server, _) = with_three_objects().await;
    let names = async |query: &str| server.get(&format!("{CONFIGMAPS}?{query}")).await.names();
    assert_eq!(names("labelSelector=x").await, ["a", "b"]);
    assert_eq!(names("labelSelector=x%21%3D1").await, ["b", "c"]);
    assert_eq!(
        names("labelSelector=x%3D2&labelSelector=x%3D1").await,
        ["b"],
        "the first value counts"
    );
    assert_eq!(names("fieldSelector=metadata.name%3Db").await, ["b"]);
    assert_eq!(names("fieldSelector=metadata.name!%3Db").await, ["a", "c"]);
    assert_eq!(
        names("fieldSelector=metadata.name%3Dnosuch").await,
        [] as [&str; 0]
    );
    assert_eq!(
        names("nosuch=1").await,
        ["a", "b", "c"],
        "unknown parameters are ignored"
    );
    let all = server
        .get("/api/v1/configmaps?fieldSelector=metadata.namespace%3Ddefault")
        .await;
    assert_eq!(all.names(), ["a", "b", "c"]);
    for (query, message) in [
        (
            "labelSelector=a%3Db%3Dc",
            "found '=', expected: ',' or 'end of string'",
        ),
        (
            "fieldSelector=foo",
            "invalid selector: 'foo'; can't understand 'foo'",
        ),
        (
            "fieldSelector=foo%3D1",
            "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        let answer = server.get(&format!("{CONFIGMAPS}?{query}")).await;
        assert!(
            answer.code == 400 && answer.message().ends_with(message),
            "{query}: {}",
            answer.text
        );
    }
    let answer = server.get("/api/v1/pods?fieldSelector=spec.size%3D1").await;
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (400, "field label not supported: spec.size")
    );
}

#[tokio::test]
async fn w81_w82_a_page_that_is_not_full_is_the_last_one() {
    let (server, _) = with_three_objects().await;
    for query in [
        "limit=3",
        "limit=4",
        "limit=500",
        "limit=500&labelSelector=x",
        "limit=2&labelSelector=x",
    ] {
        let page = server.get(&format!("{CONFIGMAPS}?{query}")).await.json();
        let metadata = &page["metadata"];
        assert_eq!(metadata.get("continue"), None, "{query}: {metadata}");
        assert_eq!(metadata.get("remainingItemCount"), None, "{query}");
    }
    let first = server.get(&format!("{CONFIGMAPS}?limit=2")).await.json();
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let path = format!("{CONFIGMAPS}?limit=2&continue={token}");
    let last = server.get(&path).await;
    assert_eq!(last.names(), ["c"]);
    let metadata = &last.json()["metadata"];
    assert_eq!(metadata.get("continue"), None, "{metadata}");
    assert_eq!(metadata.get("remainingItemCount"), None, "{metadata}");
}

#[tokio::test]
async fn w67_fields_of_kinds() {
    let server = TestServer::start().await;
    for (name, node) in [("p1", "n1"), ("p2", "")] {
        let body = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(
            server
                .request("POST", "/api/v1/namespaces/default/pods", body)
                .await
                .code,
            201
        );
    }
    let names = async |query: &str| {
        server
            .get(&format!("/api/v1/pods?fieldSelector={query}"))
            .await
            .names()
    };
    assert_eq!(names("spec.nodeName%3Dn1").await, ["p1"]);
    assert_eq!(names("spec.nodeName%3D").await, ["p2"]);
    assert_eq!(
        names("status.phase%3DPending,spec.hostNetwork%3Dfalse").await,
        ["p1", "p2"]
    );
}

#[tokio::test]
async fn w68_w69_get() {
    let (server, [a, _, c]) = with_three_objects().await;
    let path = format!("{CONFIGMAPS}/a");
    for query in [
        "".to_owned(),
        "?resourceVersion=0".to_owned(),
        format!("?resourceVersion={c}"),
        "?watch=true".to_owned(),
    ] {
        assert_eq!(
            server.get(&format!("{path}{query}")).await.version(),
            a,
            "{query}: always the latest object"
        );
    }
    let missing = server.get(&format!("{CONFIGMAPS}/x")).await;
    assert_eq!(
        (missing.code, missing.message().as_str()),
        (404, "configmaps \"x\" not found")
    );
    assert_eq!(
        missing.json()["details"],
        json!({"name": "x", "kind": "configmaps"})
    );
    let export = server.get(&format!("{path}?export=true")).await;
    assert_eq!(
        export.message(),
        "the export parameter, deprecated since v1.14, is no longer supported"
    );
    let garbage = server.get(&format!("{path}?resourceVersion=abc")).await;
    // Deviation W62: 400 with the same text for a version of a GET or WATCH that is not a number
    assert_eq!(
        garbage.code, 400,
        "W62: upstream says 500, but it is the client's mistake"
    );
}

#[tokio::test]
async fn w70_w71_the_shape_of_a_list() {
    let server = TestServer::start().await;
    let empty = server.get("/api/v1/namespaces/nosuch/pods").await;
    let version = empty.version();
    assert_eq!(
        empty.text,
        format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[]}}\n"
        )
    );
    server.create("a", json!({})).await;
    let list = server.get(CONFIGMAPS).await.json();
    assert!(list["items"][0].get("kind").is_none() && list["items"][0].get("apiVersion").is_none());
}

#[tokio::test]
async fn w25_order_is_bytewise_on_namespace_and_name() {
    let server = TestServer::start().await;
    for namespace in ["ns", "ns-a"] {
        server
            .request(
                "POST",
                "/api/v1/namespaces",
                json!({"metadata": {"name": namespace}}),
            )
            .await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        server
            .request(
                "POST",
                &path,
                json!({"metadata": {"name": format!("of-{namespace}")}}),
            )
            .await;
    }
    assert_eq!(
        server.get("/api/v1/configmaps").await.names(),
        ["of-ns-a", "of-ns"]
    );
    assert_eq!(
        server.get("/api/v1/namespaces/ns/configmaps").await.names(),
        ["of-ns"]
    );
}

#[tokio::test]
async fn w72_w73_w74_resource_versions_of_lists() {
    let (server, [a, b, c]) = with_three_objects().await;
    let list = async |query: String| server.get(&format!("{CONFIGMAPS}?{query}")).await;
    assert_eq!(list(String::new()).await.version(), c, "consistent");
    assert!(
        list(format!("resourceVersion={a}")).await.version() >= c,
        "not older than"
    );
    assert_eq!(
        list(format!("resourceVersion={a}&limit=10")).await.names(),
        ["a"],
        "with a limit the version is exact"
    );
    assert_eq!(
        list("resourceVersion=0&limit=1".into()).await.names().len(),
        3,
        "version 0 ignores the limit"
    );
    let exact = list(format!("resourceVersion={b}&resourceVersionMatch=Exact")).await;
    assert_eq!(
        (exact.version(), exact.names()),
        (b, vec!["a".to_owned(), "b".to_owned()])
    );
    server.delete("a").await;
    let again = list(format!("resourceVersion={b}&resourceVersionMatch=Exact")).await;
    assert_eq!(
        again.text, exact.text,
        "a list at an exact version does not change"
    );
    assert!(
        list(format!(
            "resourceVersion={b}&resourceVersionMatch=NotOlderThan"
        ))
        .await
        .version()
            >= b
    );
}

#[tokio::test]
async fn w72_a_consistent_list_has_every_acknowledged_write() {
    let server = TestServer::start().await;
    for number in 0..200 {
        server.create(&format!("n{number}"), json!({})).await;
        assert_eq!(server.get(CONFIGMAPS).await.names().len(), number + 1);
        // A write to another resource changes the revision of the store, but not this list.
        let lease = json!({"metadata": {"name": format!("l{number}")}});
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        let version = server.request("POST", path, lease).await.version();
        assert_eq!(
            server.get(CONFIGMAPS).await.version(),
            version,
            "W78: one revision for everything"
        );
    }
}

#[tokio::test]
async fn w76_w79_malformed_versions_and_limits() {
    let (server, _) = with_three_objects().await;
    for version in ["abc", "-1"] {
        let answer = server
            .get(&format!("{CONFIGMAPS}?resourceVersion={version}"))
            .await;
        let expected = format!(
            "invalid resource version: resourceVersion: Invalid value: \"{version}\": strconv.ParseUint: parsing \"{version}\": invalid syntax"
        );
        assert_eq!((answer.code, answer.message()), (400, expected));
    }
    assert_eq!(
        server
            .get(&format!("{CONFIGMAPS}?limit=-1"))
            .await
            .names()
            .len(),
        3
    );
    let bad = server.get(&format!("{CONFIGMAPS}?limit=abc")).await;
    assert_eq!(
        bad.message(),
        "strconv.ParseInt: parsing \"abc\": invalid syntax",
        "W22"
    );
}

#[tokio::test]
async fn w77_a_list_waits_for_a_future_version_and_then_fails() {
    let (server, [.., c]) = with_three_objects().await;
    let started = std::time::Instant::now();
    let answer = server
        .get(&format!("{CONFIGMAPS}?resourceVersion=999999"))
        .await;
    assert!(started.elapsed().as_secs_f64() > 2.9);
    assert_eq!(
        (answer.code, answer.message()),
        (
            504,
            format!("Timeout: Too large resource version: 999999, current: {c}")
        )
    );
    assert_eq!(answer.headers["retry-after"], "1", "W47");
    let cause = &answer.json()["details"]["causes"][0];
    assert_eq!(
        *cause,
        json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"})
    );
    let path = format!("{CONFIGMAPS}?resourceVersion={}", c + 1);
    let (answer, _) = tokio::join!(server.get(&path), server.create("d", json!({})));
    assert_eq!(answer.names().len(), 4, "the list waits for the version");
}

#[tokio::test]
async fn w81_w82_w83_all_pages_of_a_list_have_one_revision() {
    let (server, [.., c]) = with_three_objects().await;
    let first = server.get(&format!("{CONFIGMAPS}?limit=1")).await;
    assert_eq!(first.names(), ["a"]);
    let meta = &first.json()["metadata"];
    assert_eq!(meta["remainingItemCount"], 2);
    let keys: Vec<_> = meta.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        keys,
        ["resourceVersion", "continue", "remainingItemCount"],
        "W71"
    );
    server.update("b", json!({}), "changed").await;
    server.create("bb", json!({})).await;
    server.delete("c").await;
    let page = |token: &str, limit: &str| format!("{CONFIGMAPS}?continue={token}{limit}");
    let next = meta["continue"].as_str().unwrap();
    let second = server.get(&page(next, "&limit=1")).await;
    assert_eq!(
        (second.names(), second.version()),
        (vec!["b".to_owned()], c)
    );
    assert_eq!(second.json()["items"][0]["data"]["k"], "0", "the old state");
    let last = server
        .get(&page(
            second.json()["metadata"]["continue"].as_str().unwrap(),
            "&limit=1",
        ))
        .await;
    assert_eq!((last.names(), last.version()), (vec!["c".to_owned()], c));
    assert!(
        last.json()["metadata"].get("continue").is_none(),
        "no page after the last object"
    );
    assert_eq!(
        server.get(&page(next, "")).await.names(),
        ["b", "c"],
        "W84: without a limit, the rest"
    );
    assert_eq!(
        server
            .get(&page(next, "&limit=1&resourceVersion=0"))
            .await
            .names(),
        ["b", "c"],
        "W84"
    );
    let selected = server
        .get(&format!("{CONFIGMAPS}?limit=1&labelSelector=x!%3D9"))
        .await
        .json();
    assert!(
        selected["metadata"].get("continue").is_some()
            && selected["metadata"].get("remainingItemCount").is_none(),
        "W82"
    );
}

/// Names of RBAC objects may have any characters but `/` and `%`.
#[tokio::test]
async fn w81_pages_continue_after_names_with_any_character() {
    let server = TestServer::start().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let names = [
        "a\u{7}",
        "b\u{b}\u{7f}",
        "c\"",
        "d\"\"",
        "e\\",
        "f<&>",
        "g\u{2028}h",
    ];
    for name in names {
        let role = json!({"metadata": {"name": name}, "rules": []});
        let created = server.request("POST", path, role).await;
        assert_eq!(created.code, 201, "{}", created.text);
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = server
            .get(&format!("{path}?limit=1&continue={token}"))
            .await;
        assert_eq!(page.code, 200, "{}", page.text);
        seen.extend(page.names());
        match page.json()["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, names);
}

#[tokio::test]
async fn w81_continue_tokens_of_kube_apiserver_are_accepted() {
    let (server, [.., c]) = with_three_objects().await;
    for start in ["/a\0", "a\0"] {
        let token = token(&json!({"v": "meta.k8s.io/v1", "rv": c, "start": start}));
        assert_eq!(
            server
                .get(&format!("{CONFIGMAPS}?continue={token}"))
                .await
                .names(),
            ["b", "c"],
            "{start:?}"
        );
    }
}

#[tokio::test]
async fn w84_w85_w87_invalid_continue_tokens_are_refused() {
    let (server, [.., c]) = with_three_objects().await;
    let good = json!({"v": "meta.k8s.io/v1", "rv": c, "start": "a\0"});
    let changed = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        token(&changed)
    };
    for (token, message) in [
        (
            changed("rv", json!(0)),
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            changed("start", json!("")),
            "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)",
        ),
        (
            changed("v", json!("v9")),
            "continue key is not valid: server does not recognize this encoded version",
        ),
        (
            changed("start", json!("../a")),
            "continue key is not valid: ../a",
        ),
        ("%25%25".to_owned(), "continue key is not valid: "),
    ] {
        let answer = server.get(&format!("{CONFIGMAPS}?continue={token}")).await;
        assert_eq!(answer.code, 400, "{message}");
        assert!(
            answer
                .message()
                .starts_with(&format!("invalid continue token: {message}")),
            "{}",
            answer.message()
        );
    }
    let both = server
        .get(&format!(
            "{CONFIGMAPS}?continue={}&resourceVersion={c}",
            token(&good)
        ))
        .await;
    assert_eq!(
        (both.code, both.message().as_str()),
        (
            400,
            "specifying resource version is not allowed when using continue"
        )
    );
    let future = server
        .get(&format!(
            "{CONFIGMAPS}?continue={}",
            changed("rv", json!(999_999))
        ))
        .await;
    assert_eq!(future.code, 504, "W87");
}

#[tokio::test]
async fn w46_w88_w89_w90_an_expired_token_comes_with_one_for_the_latest_version() {
    let (server, [.., c]) = with_three_objects().await;
    let old = token(&json!({"v": "meta.k8s.io/v1", "rv": c, "start": "a\0", "t": 1}));
    let expired = server
        .get(&format!("{CONFIGMAPS}?limit=1&continue={old}"))
        .await;
    assert_eq!(
        (expired.code, expired.json()["reason"].as_str()),
        (410, Some("Expired"))
    );
    assert!(expired.message().starts_with(
        "The provided continue parameter is too old to display a consistent list result."
    ));
    server.create("d", json!({})).await;
    let status = expired.json();
    let fresh = status["metadata"]["continue"].as_str().unwrap();
    let rest = server
        .get(&format!("{CONFIGMAPS}?limit=2&continue={fresh}"))
        .await;
    assert_eq!(rest.names(), ["b", "c"]);
    let next = rest.json();
    let next = next["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        server
            .get(&format!("{CONFIGMAPS}?limit=2&continue={next}"))
            .await
            .names(),
        ["d"],
        "inconsistent with the first page, but complete"
    );
}

#[tokio::test]
async fn w56_w75_w104_compacted_versions_are_refused() {
    let mut options = tidings_storage::EmbeddedOptions::default();
    options.history_age = std::time::Duration::ZERO;
    options.history_revisions_min = 0;
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1_000_000));
    options.now = std::sync::Arc::new({
        let clock = clock.clone();
        move || std::time::Duration::from_millis(clock.load(std::sync::atomic::Ordering::Relaxed))
    });
    options.clock_step_max = std::time::Duration::MAX;
    let store = std::sync::Arc::new(tidings_storage::Embedded::ephemeral(options));
    let api = tidings_server::Api::start(store.clone(), tidings_server::ApiOptions::default())
        .await
        .unwrap();
    let server = TestServer { api };
    let a = server.create("a", json!({})).await;
    clock.fetch_add(60_000, std::sync::atomic::Ordering::Relaxed);
    server.create("b", json!({})).await;
    store.compact().await.unwrap();
    let path = format!(
        "{CONFIGMAPS}?resourceVersionMatch=Exact&resourceVersion={}",
        a - 1
    );
    let answer = loop {
        let answer = server.get(&path).await; // the cache is told within a second
        if answer.code != 200 {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (410, "The resourceVersion for the provided list is too old.")
    );
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={}", a - 1);
    for accept in ["application/json", PROTOBUF] {
        let mut watch = server.watch_as(&path, accept).await;
        let event = watch.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["code"]),
            (&json!("ERROR"), &json!(410)),
            "W96, W104"
        );
        assert!(
            event["object"]["message"]
                .as_str()
                .unwrap()
                .starts_with(&format!("too old resource version: {} (", a - 1))
        );
        assert!(watch.next().await.is_none());
    }
}

#[tokio::test]
async fn w86_pages_of_selected_objects_are_full_and_end() {
    let server = TestServer::start().await;
    for number in 0..20 {
        server
            .create(
                &format!("n{number:02}"),
                json!({"odd": (number % 2).to_string()}),
            )
            .await;
    }
    let (mut token, mut pages) = (String::new(), Vec::new());
    loop {
        let query = format!("{CONFIGMAPS}?limit=4&labelSelector=odd%3D1&continue={token}");
        let page = server.get(&query).await;
        pages.push(page.names());
        match page.json()["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(
        pages.concat(),
        (0..10)
            .map(|half| format!("n{:02}", half * 2 + 1))
            .collect::<Vec<_>>()
    );
}
