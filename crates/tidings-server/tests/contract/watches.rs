//! WATCH: start, events, bookmarks, end.

use serde_json::json;

use crate::support::{CONFIGMAPS, TestServer};

const STREAM: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test]
async fn w92_w99_changes_after_a_version_come_in_order() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let b = server.create("b", json!({})).await;
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={a}"))
        .await;
    let updated = server.update("a", json!({}), "1").await;
    server.delete("a").await;
    assert_eq!(watch.brief().await, format!("ADDED b@{b}"));
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(
        (&event["object"]["kind"], &event["object"]["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        updated.to_string()
    );
    assert_eq!(
        watch.brief().await,
        format!("DELETED a@{}", updated + 1),
        "W101: the revision of the deletion"
    );
    assert!(watch.is_quiet().await);
}

#[tokio::test]
async fn w93_w63_a_watch_without_a_version_starts_with_the_state() {
    let server = TestServer::start().await;
    let b = server.create("b", json!({})).await;
    let a = server.create("a", json!({})).await;
    for query in ["watch=1", "watch=", "watch=1&resourceVersion=0"] {
        let mut watch = server.watch(&format!("{CONFIGMAPS}?{query}")).await;
        assert_eq!(
            [watch.brief().await, watch.brief().await],
            [format!("ADDED a@{a}"), format!("ADDED b@{b}")],
            "{query}: in key order"
        );
        assert!(watch.is_quiet().await);
    }
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=1"))
        .await;
    watch.brief().await;
    watch.brief().await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true",
        "W63"
    );
}

#[tokio::test]
async fn w94_a_watch_from_a_future_version_is_silent_until_then() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", a + 2))
        .await;
    server.create("b", json!({})).await;
    server.create("c", json!({})).await;
    let d = server.create("d", json!({})).await;
    assert_eq!(watch.brief().await, format!("ADDED d@{d}"));
}

#[tokio::test]
async fn w95_invalid_options_are_refused_before_the_stream() {
    let server = TestServer::start().await;
    for (query, code) in [
        ("watch=1&resourceVersion=abc", 400),
        ("watch=1&labelSelector=a%3Db%3Dc", 400),
        ("watch=1&fieldSelector=foo%3D1", 400),
        ("watch=1&sendInitialEvents=true", 422),
    ] {
        assert_eq!(
            server.get(&format!("{CONFIGMAPS}?{query}")).await.code,
            code,
            "{query}"
        );
    }
}

#[tokio::test]
async fn w97_w98_w110_the_end_of_a_watch() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let negative = server
        .get(&format!(
            "{CONFIGMAPS}?watch=1&timeoutSeconds=-1&resourceVersion={a}"
        ))
        .await;
    assert_eq!(
        (negative.code, negative.text.as_str()),
        (200, ""),
        "a negative timeout ends the watch at once"
    );
    let started = std::time::Instant::now();
    let timed = server
        .get(&format!(
            "{CONFIGMAPS}?watch=1&timeoutSeconds=3&allowWatchBookmarks=1&resourceVersion={a}"
        ))
        .await;
    assert!((2.9..8.0).contains(&started.elapsed().as_secs_f64()));
    let expected = format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{a}\"}}}}}}\n"
    );
    assert_eq!(
        timed.text, expected,
        "W109, W110: one bookmark two seconds before the end"
    );
}

#[tokio::test]
async fn w100_objects_enter_and_leave_a_selection() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let mut watch = server
        .watch(&format!(
            "{CONFIGMAPS}?watch=1&labelSelector=on%3D1&resourceVersion={a}"
        ))
        .await;
    let on = server.update("a", json!({"on": "1"}), "1").await;
    let changed = server.update("a", json!({"on": "1"}), "2").await;
    let off = server.update("a", json!({}), "3").await;
    server.update("a", json!({}), "4").await;
    let on_again = server.update("a", json!({"on": "1"}), "5").await;
    server.delete("a").await;
    assert_eq!(watch.brief().await, format!("ADDED a@{on}"));
    assert_eq!(watch.brief().await, format!("MODIFIED a@{changed}"));
    let left = watch.next().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    assert_eq!(
        left["object"]["metadata"]["resourceVersion"],
        off.to_string(),
        "DELETED has the revision of the change"
    );
    assert_eq!(
        left["object"]["data"]["k"], "2",
        "DELETED has the old content"
    );
    assert_eq!(watch.brief().await, format!("ADDED a@{on_again}"));
    assert_eq!(watch.brief().await, format!("DELETED a@{}", on_again + 1));
    assert!(watch.is_quiet().await);
}

#[tokio::test]
async fn w102_w107_each_scope_sees_its_part_of_one_sequence() {
    let server = TestServer::start().await;
    let start = server.create("seed", json!({})).await;
    let paths = [
        "/api/v1/configmaps?watch=1".to_owned(),
        format!("{CONFIGMAPS}?watch=1"),
        "/api/v1/configmaps?watch=1&fieldSelector=metadata.namespace%3Ddefault".to_owned(),
        format!("{CONFIGMAPS}?watch=1&fieldSelector=metadata.name%3Da"),
        "/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Da".to_owned(),
        "/api/v1/watch/namespaces/default/configmaps/a?".to_owned(),
    ];
    let mut watches = Vec::new();
    for path in &paths {
        watches.push(
            server
                .watch(&format!("{path}&resourceVersion={start}"))
                .await,
        );
    }
    let elsewhere = json!({"metadata": {"name": "x"}});
    let x = server
        .request(
            "POST",
            "/api/v1/namespaces/kube-system/configmaps",
            elsewhere,
        )
        .await
        .version();
    let a = server.create("a", json!({})).await;
    let b = server.create("b", json!({})).await;
    let [x, a, b] = [
        format!("ADDED x@{x}"),
        format!("ADDED a@{a}"),
        format!("ADDED b@{b}"),
    ];
    let expected = [
        vec![x, a.clone(), b.clone()],
        vec![a.clone(), b.clone()],
        vec![a.clone(), b],
        vec![a.clone()],
        vec![a.clone()],
        vec![a],
    ];
    for ((watch, path), expected) in watches.iter_mut().zip(&paths).zip(expected) {
        for event in expected {
            assert_eq!(watch.brief().await, event, "{path}");
        }
        assert!(watch.is_quiet().await, "{path}");
    }
}

#[tokio::test]
async fn w103_a_write_that_changes_nothing_gives_no_event() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    let first = server.update("a", json!({}), "1").await;
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={first}"))
        .await;
    assert_eq!(server.update("a", json!({}), "1").await, first);
    assert!(watch.is_quiet().await);
}

#[tokio::test]
async fn w109_w112_w113_initial_events() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let mut watch = server.watch(&format!("{CONFIGMAPS}?{STREAM}")).await;
    assert_eq!(watch.brief().await, format!("ADDED a@{a}"));
    let end = watch.next().await.unwrap();
    assert_eq!(
        end,
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": a.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}}})
    );
    let b = server.create("b", json!({})).await;
    assert_eq!(watch.brief().await, format!("ADDED b@{b}"));

    let mut unmarked = server
        .watch(&format!(
            "{CONFIGMAPS}?{}",
            STREAM.replace("&allowWatchBookmarks=true", "")
        ))
        .await;
    unmarked.brief().await;
    unmarked.brief().await;
    assert!(
        unmarked.is_quiet().await,
        "W113: no end marker without bookmarks"
    );

    let from_now = STREAM.replace("sendInitialEvents=true", "sendInitialEvents=false");
    let mut watch = server.watch(&format!("{CONFIGMAPS}?{from_now}")).await;
    assert!(watch.is_quiet().await, "W113: no initial events");
    let c = server.create("c", json!({})).await;
    assert_eq!(watch.brief().await, format!("ADDED c@{c}"));
    let mut later = server
        .watch(&format!("{CONFIGMAPS}?{STREAM}&resourceVersion={a}"))
        .await;
    for _ in 0..3 {
        assert!(later.brief().await.starts_with("ADDED"));
    }
    assert_eq!(
        later.brief().await,
        format!("BOOKMARK @{c}"),
        "W112: not older than what was asked for"
    );
}

#[tokio::test]
async fn w114_initial_events_at_a_future_version_fail_in_the_stream() {
    let server = TestServer::start().await;
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?{STREAM}&resourceVersion=999999"))
        .await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (
            &event["type"],
            &event["object"]["code"],
            &event["object"]["reason"]
        ),
        (&json!("ERROR"), &json!(504), &json!("Timeout"))
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn w111_bookmarks_advance_with_other_resources() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let mut watch = server
        .watch(&format!(
            "/api/v1/secrets?watch=1&allowWatchBookmarks=1&timeoutSeconds=4&resourceVersion={a}"
        ))
        .await;
    let b = server.create("b", json!({})).await;
    assert_eq!(watch.brief().await, format!("BOOKMARK @{b}"));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn w19_legacy_watches() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    server.create("b", json!({})).await;
    let mut watch = server
        .watch("/api/v1/watch/namespaces/default/configmaps/a")
        .await;
    assert_eq!(watch.brief().await, format!("ADDED a@{a}"));
    assert!(watch.is_quiet().await);
    let other = server
        .get("/api/v1/watch/namespaces/default/configmaps/a?fieldSelector=metadata.name%3Db")
        .await;
    assert_eq!(
        (other.code, other.message().as_str()),
        (
            400,
            "fieldSelector metadata.name doesn't match requested name"
        )
    );
    let mut namespace = server.watch("/api/v1/watch/namespaces/default").await;
    assert!(namespace.brief().await.starts_with("ADDED default@"));
}

#[tokio::test]
async fn watches_end_with_a_bookmark_when_the_server_stops() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let mut bookmarked = server
        .watch(&format!(
            "{CONFIGMAPS}?watch=1&allowWatchBookmarks=1&resourceVersion={a}"
        ))
        .await;
    let mut silent = server
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={a}"))
        .await;
    assert!(bookmarked.is_quiet().await && silent.is_quiet().await);
    server.api.stop_watches();
    assert_eq!(bookmarked.brief().await, format!("BOOKMARK @{a}"));
    assert!(bookmarked.next().await.is_none());
    assert!(silent.next().await.is_none());
    assert_eq!(server.get("/readyz").await.code, 500, "/readyz fails");
}

#[tokio::test]
async fn w116_a_watch_gets_every_event_once_under_load() {
    let server = TestServer::start().await;
    let start = server.create("seed", json!({})).await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(
            server
                .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={start}"))
                .await,
        );
    }
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let server = TestServer {
                api: server.api.clone(),
            };
            tokio::spawn(async move {
                for number in 0..100 {
                    server
                        .create(&format!("w{writer}-{number}"), json!({}))
                        .await;
                }
            })
        })
        .collect();
    let mut sequences = Vec::new();
    for mut watch in watches {
        let mut sequence = Vec::new();
        for _ in 0..800 {
            sequence.push(watch.brief().await);
        }
        sequences.push(sequence);
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let versions: Vec<u64> = sequences[0]
        .iter()
        .map(|event| event.rsplit_once('@').unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(
        versions,
        (start + 1..=start + 800).collect::<Vec<_>>(),
        "W102: no gap, no repetition, in order"
    );
    assert!(
        sequences.iter().all(|sequence| *sequence == sequences[0]),
        "W102: all watches see the same"
    );
}

#[tokio::test]
async fn w115_the_initial_events_are_the_state_at_the_version_of_the_end_bookmark() {
    let server = TestServer::start().await;
    for number in 0..500 {
        server.create(&format!("n{number}"), json!({})).await;
    }
    let writer = {
        let server = TestServer {
            api: server.api.clone(),
        };
        tokio::spawn(async move {
            for number in 0..500 {
                match number % 3 {
                    0 => server.delete(&format!("n{number}")).await,
                    1 => drop(
                        server
                            .update(&format!("n{number}"), json!({}), "changed")
                            .await,
                    ),
                    _ => drop(server.create(&format!("m{number}"), json!({})).await),
                }
            }
        })
    };
    for round in 0..10 {
        let mut watch = server.watch(&format!("{CONFIGMAPS}?{STREAM}")).await;
        let mut state = std::collections::BTreeMap::new();
        let version = loop {
            let event = watch.next().await.unwrap();
            let meta = &event["object"]["metadata"];
            if event["type"] == "BOOKMARK" {
                break meta["resourceVersion"].as_str().unwrap().to_owned();
            }
            assert_eq!(event["type"], "ADDED");
            state.insert(
                meta["name"].clone().to_string(),
                event["object"]["metadata"]["resourceVersion"].clone(),
            );
        };
        let exact = format!("{CONFIGMAPS}?resourceVersionMatch=Exact&resourceVersion={version}");
        let list = server.get(&exact).await.json();
        let listed: std::collections::BTreeMap<_, _> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                (
                    item["metadata"]["name"].to_string(),
                    item["metadata"]["resourceVersion"].clone(),
                )
            })
            .collect();
        assert_eq!(state, listed);
        server.create(&format!("after{round}"), json!({})).await; // so that another event follows
        let next = watch.brief().await;
        let at: u64 = next.rsplit_once('@').unwrap().1.parse().unwrap();
        assert!(at > version.parse().unwrap(), "live events follow: {next}");
    }
    writer.await.unwrap();
}
