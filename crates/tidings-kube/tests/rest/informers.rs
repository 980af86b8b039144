//! Informers over a scripted server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::core::{ApiResource, PartialObjectMeta};
use serde::Deserialize;
use tidings_api::Object;
use tidings_informer::{ServerVersion, SharedInformer};
use tidings_kube::{
    CachedMetadata, KubeInformerFactory, Scope, dynamic, informer, lazy, metadata, projected,
};

use crate::script::{Logs, Server, answer, event, open, pods};

const LONGEST: Duration = Duration::from_secs(30);

/// Serves a list of one object, then a watch with events that stays open.
fn server(item: &str, events: &str) -> Server {
    let list = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{item}]}}"#
    );
    let events = Bytes::copy_from_slice(events.as_bytes());
    let watches = Mutex::new(Vec::new());
    Server::new(move |asked| {
        if !asked.is_watch() {
            return answer(200, list.clone());
        }
        let (sender, step) = open(200);
        sender.send(Ok(Frame::data(events.clone()))).unwrap();
        watches.lock().unwrap().push(sender);
        step
    })
}

const ITEM: &str = r#"{"metadata":{"name":"a","namespace":"default","resourceVersion":"5","uid":"u"},"spec":{"nodeName":"n","containers":[]}}"#;

async fn synced<K: Send + Sync + 'static>(informer: &SharedInformer<K>) {
    informer.start();
    informer.wait_synced_within(LONGEST).await.unwrap();
}

async fn reached<K: Send + Sync + 'static>(informer: &SharedInformer<K>, version: &str) {
    let reached = informer.wait_for(ServerVersion::new(version));
    tokio::time::timeout(LONGEST, reached)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_typed_informer_lists_and_follows() {
    let server = server(ITEM, &event("b", 8));
    let scope = Scope::namespace("default")
        .labels("app=a")
        .fields("spec.nodeName=n");
    let pods = informer::<Pod>(&server.client(), &scope).start();
    reached(&pods, "8").await;
    let a = pods.store().get("default", "a").unwrap();
    assert_eq!(a.spec.as_ref().unwrap().node_name.as_deref(), Some("n"));
    assert!(pods.store().get("default", "b").is_some());

    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    for asked in &asked {
        assert_eq!(asked.uri.path(), "/api/v1/namespaces/default/pods");
        let selectors = "labelSelector=app%3Da&fieldSelector=spec.nodeName%3Dn";
        assert!(asked.query().contains(selectors), "{}", asked.query());
    }
    assert!(asked[0].query().contains("resourceVersion=0"));
    assert!(asked[1].query().contains("resourceVersion=7"));
}

#[tokio::test(start_paused = true)]
async fn a_lazy_informer_keeps_bytes_and_what_does_not_fit_stays_out() {
    let misfit = event("c", 9).replace("\"metadata\"", "\"spec\":7,\"metadata\"");
    let server = server(ITEM, &(event("b", 8) + &misfit));
    let pods = lazy::<Pod>(&server.client(), &Scope::all()).start();
    reached(&pods, "9").await;
    let a = pods.store().get("default", "a").unwrap();
    let spec = a.get().unwrap().spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("n"));
    assert_eq!(
        a.object().field(&["spec", "nodeName"]).as_deref(),
        Some("n")
    );
    assert!(pods.store().get("default", "b").is_some());
    assert!(pods.store().get("default", "c").is_none());
    assert_eq!(pods.quarantined().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn types_know_their_paths() {
    let server = server(ITEM, "");
    let client = server.client();
    synced(&informer::<Namespace>(&client, &Scope::all()).build()).await;
    synced(&informer::<Deployment>(&client, &Scope::namespace("x")).build()).await;
    let asked = server.asked();
    let mut paths: Vec<_> = asked.iter().map(|asked| asked.uri.path()).collect();
    paths.dedup();
    assert_eq!(
        paths,
        [
            "/api/v1/namespaces",
            "/apis/apps/v1/namespaces/x/deployments"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_informers_ask_for_metadata() {
    let server = server(ITEM, "");
    let client = server.client();
    let typed = informer::<PartialObjectMeta<Pod>>(&client, &Scope::all()).build();
    synced(&typed).await;
    let untyped = metadata(&client, &pods(), &Scope::all()).build();
    synced(&untyped).await;
    let uid = |uid: Option<&String>| uid.cloned();
    let kept = typed.store().get("default", "a").unwrap();
    assert_eq!(uid(kept.metadata.uid.as_ref()).as_deref(), Some("u"));
    let kept = untyped.store().get("default", "a").unwrap();
    assert_eq!(kept.value().uid(), "u");
    assert_eq!(kept.object_meta().namespace.as_deref(), Some("default"));
    for asked in server.asked() {
        let accept = asked.header("accept");
        assert!(accept.contains("as=PartialObjectMetadata"), "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn dynamic_objects_have_a_kind_wherever_they_come_from() {
    let server = server(ITEM, &event("b", 8));
    let pods = dynamic(&server.client(), &pods(), &Scope::all()).start();
    reached(&pods, "8").await;
    for name in ["a", "b"] {
        let object = pods.store().get("default", name).unwrap();
        assert_eq!((&*object.kind(), &*object.api_version()), ("Pod", "v1"));
        assert_eq!(Object::name(&object), name);
    }
    let a = pods.store().get("default", "a").unwrap();
    let expected = ITEM.replacen('{', r#"{"apiVersion":"v1","kind":"Pod","#, 1);
    assert_eq!(a.as_bytes(), expected.as_bytes());
}

#[derive(Deserialize)]
struct Placed {
    spec: Placement,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    node_name: String,
}

#[tokio::test(start_paused = true)]
async fn projections_keep_the_fields_that_matter() {
    let server = server(ITEM, "");
    let placed = projected::<Placed>(&server.client(), &pods(), &Scope::all()).build();
    synced(&placed).await;
    let a = placed.store().get("default", "a").unwrap();
    assert_eq!(a.spec.node_name, "n");
}

#[tokio::test(start_paused = true)]
async fn the_factory_shares_what_is_the_same() {
    let server = server(ITEM, "");
    let factory = KubeInformerFactory::new(server.client());
    let all = Scope::all();
    let one = factory.informer::<Pod>(&all);
    let same = factory.informer::<Pod>(&all);
    assert_eq!(factory.informers().len(), 1);
    let other = factory.informer::<Pod>(&Scope::namespace("x"));
    let labelled = factory.informer::<Pod>(&Scope::all().labels("a=b"));
    let bytes = factory.dynamic(&pods(), &all);
    let slim = factory.metadata(&pods(), &all);
    let placed = factory.projected::<Placed>(&pods(), &all);
    let nodeless = factory.informer_with::<Pod>(&all, "nodeless", |builder| {
        builder.transform(|mut pod: Pod| {
            pod.spec = None;
            Ok(pod)
        })
    });
    factory.informer_with::<Pod>(&all, "nodeless", |_| unreachable!("it is there"));
    assert_eq!(factory.informers().len(), 7);
    factory.start();
    factory.wait_synced(LONGEST).await.unwrap();
    assert!(Arc::ptr_eq(
        &one.store().get("default", "a").unwrap(),
        &same.store().get("default", "a").unwrap()
    ));
    let pod = nodeless.store().get("default", "a").unwrap();
    assert_eq!(pod.spec, None);
    assert_eq!(other.name(), "v1/pods in x");
    assert_eq!(labelled.name(), "v1/pods with a=b");
    assert_eq!(slim.name(), "v1/pods as metadata");
    assert_eq!((bytes.store().len(), placed.store().len()), (1, 1));
    factory.shut_down().await;
    assert!(one.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn k20_no_payload_is_logged() {
    let logs = Logs::capture();
    // Values of the wrong type, in a list and in an event; then a stream that is not JSON; then errors with bodies.
    let bad =
        r#"{"metadata":{"name":"a","namespace":"default","resourceVersion":"5"},"data":"hunter2"}"#;
    let typed = r#"{"metadata":{"name":"b","namespace":"default","resourceVersion":"8"},"data":{"k":"hunter2 is not base64"},"type":5}"#;
    let events = format!(
        r#"{{"type":"ADDED","object":{typed}}}{{"type":"ADDED","object":{{"data":hunter2}}}}"#
    );
    let secrets = ApiResource::erase::<Secret>(&());
    let server = server(bad, &events);
    let quarantined = informer::<Secret>(&server.client(), &Scope::all()).start();
    synced(&quarantined).await;
    tokio::time::sleep(LONGEST).await;
    let left_out = quarantined.quarantined();
    assert_eq!(left_out.len(), 2, "{left_out:?}");

    let bodies = [
        (500, "hunter2"),
        (200, "hunter2"),
        (200, r#"{"kind":"Secret","data":"hunter2""#),
        (200, r#"{"items":["hunter2"]}"#),
        (410, r#"{"kind":"Secret","data":"hunter2"}"#),
    ];
    for (code, body) in bodies {
        let server = Server::new(move |_| answer(code, body));
        let informer = dynamic(&server.client(), &secrets, &Scope::all()).start();
        tokio::time::sleep(LONGEST).await;
        assert!(!informer.has_synced());
        assert!(!format!("{:?}", informer.state()).contains("hunter2"));
    }

    let logs = logs.text();
    assert!(logs.contains("is left out of the store"), "{logs}");
    assert!(
        logs.contains("the server's answer cannot be read"),
        "{logs}"
    );
    let said = logs.lines().find(|line| line.contains("hunter2"));
    assert_eq!(said, None);
}
