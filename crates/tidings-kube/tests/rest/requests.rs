//! The requests that lists and watches send.

use bytes::Bytes;
use http::Request;
use tidings_api::{ListOptions, ResourceVersionMatch};
use tidings_informer::{ListWatch, Lister, Watcher};
use tidings_kube::{Compression, ListWatchExt as _, RestListWatch};

use crate::script::{EMPTY, Server, answer, list, list_error, pods, watch};

#[tokio::test(start_paused = true)]
async fn k6_resource_version_zero_is_sent() {
    let server = Server::new(|_| answer(200, EMPTY));
    let options = ListOptions {
        resource_version: "0".into(),
        ..ListOptions::default()
    };
    list(&server.pods(), options.clone()).await.1.unwrap();
    assert!(server.pods().watch(options).await.is_ok());
    let asked = server.asked();
    assert_eq!(asked[0].uri, "/api/v1/pods?resourceVersion=0");
    assert_eq!(asked[1].uri, "/api/v1/pods?watch=true&resourceVersion=0");
}

#[tokio::test(start_paused = true)]
async fn options_survive_the_way_to_the_server() {
    let server = Server::new(|_| answer(200, EMPTY));
    let options = ListOptions {
        label_selector: "app in (a, b),x!=1&2".into(),
        field_selector: "metadata.name=ä+b".into(),
        shard_selector:
            "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')".into(),
        resource_version: "5".into(),
        resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
        limit: 500,
        continue_token: "a=/+b".into(),
        timeout_seconds: Some(300),
        allow_watch_bookmarks: true,
        send_initial_events: Some(true),
        watch: true,
    };
    assert!(server.pods().watch(options.clone()).await.is_ok());
    let asked = server.asked();
    let pairs: Vec<_> = form_urlencoded::parse(asked[0].query().as_bytes()).collect();
    let value = |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| &**value)
    };
    assert_eq!(ListOptions::from_query(value), Ok(options));
}

#[tokio::test(start_paused = true)]
async fn everybody_says_who_he_is() {
    let server = Server::new(|_| answer(200, EMPTY));
    list(&server.pods(), ListOptions::default())
        .await
        .1
        .unwrap();
    let named = server.client().user_agent("my-controller/1.0 (ö\n)");
    let named = RestListWatch::new(&named, &pods(), "");
    list(&named, ListOptions::default()).await.1.unwrap();
    let asked = server.asked();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(asked[0].header("user-agent"), format!("tidings/{version}"));
    assert_eq!(asked[1].header("user-agent"), "my-controller/1.0 (??)");
}

#[tokio::test(start_paused = true)]
async fn metadata_is_asked_for_by_accept() {
    let server = Server::new(|_| answer(200, EMPTY));
    let pods = server.pods().metadata_only().json_only();
    list(&pods, ListOptions::default()).await.1.unwrap();
    assert!(pods.watch(ListOptions::default()).await.is_ok());
    let asked = server.asked();
    assert_eq!(
        asked[0].header("accept"),
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    );
    assert_eq!(
        asked[1].header("accept"),
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    );
}

#[tokio::test(start_paused = true)]
async fn b131_json_is_always_offered_and_415_does_not_loop() {
    let server = Server::new(|_| answer(200, EMPTY));
    let gzip = server.client().compression(Compression::Gzip);
    list(&server.pods(), ListOptions::default())
        .await
        .1
        .unwrap();
    let zipped = RestListWatch::new(&gzip, &pods(), "");
    assert!(zipped.watch(ListOptions::default()).await.is_ok());
    let post = Request::post("/api/v1/pods").body(Bytes::from_static(b"{}"));
    server.client().request(post.unwrap()).await.unwrap();
    let asked = server.asked();
    let header = |name| {
        asked
            .iter()
            .map(|asked| asked.header(name))
            .collect::<Vec<_>>()
    };
    for accept in header("accept") {
        let last = accept.split(',').next_back();
        assert_eq!(last, Some("application/json"));
    }
    assert_eq!(header("content-type"), ["", "", "application/json"]);
    assert_eq!(header("accept-encoding"), ["identity", "gzip", "identity"]);

    let server = Server::new(|_| answer(415, ""));
    assert_eq!(list_error(&server.pods()).await.code(), Some(415));
    assert_eq!(watch(&server.pods()).await.1.unwrap_err().code(), Some(415));
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn list_watches_read_as_in_client_go() {
    let server = Server::new(|_| answer(200, EMPTY));
    let client = server.client();
    let fields = ListWatch::from_client(&client, &pods(), "default", "spec.nodeName=a");
    assert!(fields.list(ListOptions::default()).await.is_ok());
    let labels = ListWatch::filtered_from_client(&client, &pods(), "", |options| {
        options.label_selector = "app=a".into();
    });
    assert!(labels.watch(ListOptions::default()).await.is_ok());
    let asked = server.asked();
    assert_eq!(
        asked[0].uri,
        "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3Da"
    );
    assert_eq!(
        asked[1].uri,
        "/api/v1/pods?labelSelector=app%3Da&watch=true"
    );
}
