//! Lists and watches of parts of a resource: by values of labels and fields, with an index, and by shard.

use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, PROTOBUF, TestServer};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, node: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    })
}

#[tokio::test]
async fn w67_w100_each_watch_is_told_of_its_part() {
    let server = TestServer::start().await;
    let watch = async |selector: &str| {
        let path = format!("/api/v1/pods?watch=1&resourceVersion=0&{selector}");
        server.watch(&path).await
    };
    let mut by_node = watch("fieldSelector=spec.nodeName%3Dn1").await;
    let mut other_node = watch("fieldSelector=spec.nodeName%3Dn2").await;
    let mut unscheduled = watch("fieldSelector=spec.nodeName%3D").await;
    let mut by_label = watch("labelSelector=app%3Dweb").await;
    let mut both = watch("labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn1").await;
    let mut not_equal = watch("labelSelector=app%21%3Dweb").await;
    let mut elsewhere = server
        .watch("/api/v1/namespaces/other/pods?watch=1&resourceVersion=0&labelSelector=app%3Dweb")
        .await;
    let mut named = server
        .watch(&format!(
            "{PODS}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dp1"
        ))
        .await;
    let created = server
        .request("POST", PODS, pod("p1", "n1", &json!({"app": "web"})))
        .await;
    assert_eq!(created.code, 201, "{}", created.text);
    let at = created.version();
    let added = format!("ADDED p1@{at}");
    for watch in [&mut by_node, &mut by_label, &mut both, &mut named] {
        assert_eq!(watch.brief().await, added);
    }
    let patch = json!({"metadata": {"labels": {"app": "db"}}});
    let changed = server.patch(&format!("{PODS}/p1"), "merge", patch).await;
    let at = changed.version();
    assert_eq!(by_node.brief().await, format!("MODIFIED p1@{at}"));
    assert_eq!(named.brief().await, format!("MODIFIED p1@{at}"));
    assert_eq!(by_label.brief().await, format!("DELETED p1@{at}"));
    assert_eq!(both.brief().await, format!("DELETED p1@{at}"));
    assert_eq!(not_equal.brief().await, format!("ADDED p1@{at}"));
    let created = server
        .request("POST", PODS, pod("p2", "", &json!({})))
        .await;
    let added = format!("ADDED p2@{}", created.version());
    assert_eq!(unscheduled.brief().await, added);
    assert_eq!(not_equal.brief().await, added);
    for watch in [
        &mut by_node,
        &mut other_node,
        &mut by_label,
        &mut both,
        &mut elsewhere,
        &mut named,
    ] {
        assert!(watch.is_quiet().await);
    }
}

#[tokio::test]
async fn w67_w110_a_watch_of_a_quiet_part_gets_bookmarks_of_the_whole() {
    let server = TestServer::start().await;
    let path = format!(
        "{CONFIGMAPS}?watch=1&resourceVersion=0&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=a%3D1&timeoutSeconds=3"
    );
    let mut watch = server.watch(&path).await;
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    let last = server.create("b", json!({"a": "2"})).await;
    // The last bookmark comes before the end.
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        bookmark["object"]["metadata"]["resourceVersion"],
        last.to_string()
    );
}

#[tokio::test]
async fn w66_w83_lists_by_a_value_are_the_same_with_an_index() {
    const PER_VALUE: usize = 20;
    let server = TestServer::start().await;
    for number in 0..1400 {
        let labels = json!({"group": (number % 70).to_string(), "odd": (number % 2).to_string()});
        server.create(&format!("c{number:04}"), labels).await;
    }
    let expected: Vec<String> = (0..PER_VALUE)
        .map(|at| format!("c{:04}", 7 + at * 70))
        .collect();
    let list = format!("{CONFIGMAPS}?labelSelector=group%3D7");
    let everywhere = "/api/v1/configmaps?labelSelector=group%3D7".to_owned();
    let indexes = async || {
        let metrics = server.get("/metrics").await.text;
        let of_configmaps = |line: &&str| {
            line.starts_with("tidings_watch_cache_indexes{") && line.contains("\"configmaps\"")
        };
        metrics.lines().find(of_configmaps).map(ToOwned::to_owned)
    };
    for round in 0..3 {
        for path in [&list, &everywhere] {
            assert_eq!(server.get(path).await.names(), expected, "{round}");
        }
        let pages = async |more: &str| {
            let mut names = Vec::new();
            let mut token = String::new();
            loop {
                let page = server
                    .get(&format!("{list}&limit=7{more}&continue={token}"))
                    .await;
                assert_eq!(page.code, 200, "{}", page.text);
                names.extend(page.names());
                assert_eq!(page.json()["metadata"].get("remainingItemCount"), None);
                token = page.json()["metadata"]["continue"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if token.is_empty() {
                    return names;
                }
                // A change after the first page is not on the others.
                server
                    .create(&format!("d{round}-{}", names.len()), json!({"group": "7"}))
                    .await;
                server.delete(&format!("d{round}-{}", names.len())).await;
            }
        };
        assert_eq!(pages("").await, expected);
        let nobody = server
            .get(&format!("{CONFIGMAPS}?labelSelector=group%3Dx"))
            .await;
        assert_eq!(nobody.names(), [] as [&str; 0]);
        let half = server
            .get(&format!("{CONFIGMAPS}?labelSelector=odd,group+in+(7,x)"))
            .await;
        assert_eq!(half.names(), expected);
    }
    let line = indexes().await.unwrap_or_default();
    assert!(
        line.ends_with(" 1"),
        "one index, of the label that few objects share: {line}"
    );
}

fn shard(index: u64) -> String {
    let bounds = [
        "0000000000000000",
        "5555555555555555",
        "aaaaaaaaaaaaaaaa",
        "10000000000000000",
    ];
    let [start, end] = [bounds[index as usize], bounds[index as usize + 1]];
    format!("shardRange(object.metadata.uid, '0x{start}', '0x{end}')")
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[tokio::test]
async fn shards_share_a_resource() {
    let server = TestServer::start().await;
    let mut watches = Vec::new();
    for index in 0..3 {
        let path = format!(
            "{CONFIGMAPS}?watch=1&resourceVersion=0&shardSelector={}",
            encoded(&shard(index))
        );
        watches.push(server.watch(&path).await);
    }
    for number in 0..30 {
        server.create(&format!("c{number:02}"), json!({})).await;
    }
    let mut all = Vec::new();
    for index in 0..3 {
        // Written in another way: the answer has the usual one.
        let selector = shard(index).replace('\'', "\"").replace(", ", ",");
        let path = format!("{CONFIGMAPS}?shardSelector=({})", encoded(&selector));
        let listed = server.get(&path).await;
        let names = listed.names();
        assert!(names.len() > 2, "{names:?}");
        assert_eq!(
            listed.json()["metadata"]["shardInfo"],
            json!({"selector": shard(index)})
        );
        let metadata = server
            .get_as(
                &path,
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            )
            .await;
        assert_eq!(
            metadata.json()["metadata"]["shardInfo"]["selector"],
            shard(index)
        );
        let packed = server.get_as(&path, PROTOBUF).await;
        assert!(packed.text.contains(&shard(index)), "{}", packed.text);
        // Pages: the client repeats the selector.
        let first = server.get(&format!("{path}&limit=2")).await;
        assert_eq!(first.names(), names[..2]);
        assert_eq!(first.json()["metadata"].get("remainingItemCount"), None);
        let token = first.json()["metadata"]["continue"]
            .as_str()
            .unwrap()
            .to_owned();
        let rest = server.get(&format!("{path}&continue={token}")).await;
        assert_eq!(rest.names(), names[2..]);
        for name in &names {
            let event = watches[index as usize].next().await.unwrap();
            assert_eq!(event["object"]["metadata"]["name"], **name);
        }
        all.extend(names);
    }
    for watch in &mut watches {
        assert!(watch.is_quiet().await, "nothing of other shards");
    }
    all.sort_unstable();
    let expected: Vec<String> = (0..30).map(|number| format!("c{number:02}")).collect();
    assert_eq!(all, expected);

    let first = format!("{CONFIGMAPS}?shardSelector={}", encoded(&shard(0)));
    let gone = server.get(&first).await.names();
    assert_eq!(
        server.request("DELETE", &first, Value::Null).await.code,
        200
    );
    let left = server.get(CONFIGMAPS).await;
    assert_eq!(
        left.names().len(),
        30 - gone.len(),
        "only the shard is deleted"
    );
    assert_eq!(left.json()["metadata"].get("shardInfo"), None);
}

#[tokio::test]
async fn a_shard_selector_that_cannot_be_read_is_refused() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    for (method, query) in [("GET", ""), ("GET", "watch=1&"), ("DELETE", "")] {
        let path = format!("{CONFIGMAPS}?{query}shardSelector=all");
        let refused = server.request(method, &path, Value::Null).await;
        let expected = "invalid shard selector: unsupported function \"all\"; only shardRange() and || are allowed";
        assert_eq!((refused.code, refused.message().as_str()), (400, expected));
    }
    assert_eq!(server.get(CONFIGMAPS).await.names(), ["a"]);
    let empty = server.get(&format!("{CONFIGMAPS}?shardSelector=")).await;
    assert_eq!(empty.names(), ["a"]);
}
