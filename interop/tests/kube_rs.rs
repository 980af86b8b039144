//! kube-rs: Api, watcher with both strategies, reflector, Controller.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt};
use interop::Server;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Config, ResourceExt};
use serde_json::json;

async fn connect(server: &Server) -> Api<ConfigMap> {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Api::default_namespaced(Client::try_from(config).unwrap())
}

fn configmap(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("k".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

async fn create(api: &Api<ConfigMap>, name: &str) {
    api.create(&PostParams::default(), &configmap(name, "1"))
        .await
        .unwrap();
}

/// What should come soon.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("within 20 s")
}

#[tokio::test]
async fn an_api() {
    let server = Server::start().await.unwrap();
    let api = connect(&server).await;
    for name in ["a", "b", "c"] {
        create(&api, name).await;
    }
    let page = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(
        (page.items.len(), page.metadata.remaining_item_count),
        (2, Some(1))
    );
    let token = page.metadata.continue_.unwrap();
    let rest = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(rest.items[0].name_any(), "c");
    let merge = Patch::Merge(json!({"metadata": {"labels": {"l": "1"}}}));
    let patched = api
        .patch("a", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert_eq!(patched.labels()["l"], "1");
    let selected = api
        .list(&ListParams::default().labels("l=1"))
        .await
        .unwrap();
    assert_eq!(selected.items.len(), 1);
    let metadata = api.get_metadata("a").await.unwrap();
    assert_eq!(metadata.uid(), patched.uid());
    let mut emptied = patched.clone();
    emptied.data = None;
    let replaced = api.replace("a", &PostParams::default(), &emptied).await;
    assert_eq!(replaced.unwrap().data, None);
    let conflict = api
        .replace("a", &PostParams::default(), &patched)
        .await
        .unwrap_err();
    assert!(
        matches!(&conflict, kube::Error::Api(status) if status.is_conflict()),
        "{conflict}"
    );
    let since = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let deleted = api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(deleted.right().unwrap().is_success());
    let watch = api
        .watch(&WatchParams::default().timeout(5), &since)
        .await
        .unwrap();
    let first = soon(watch.boxed().try_next()).await.unwrap().unwrap();
    assert!(matches!(&first, WatchEvent::Deleted(object) if object.name_any() == "a"));
    assert!(api.get_opt("a").await.unwrap().is_none());
}

/// Reads what a watcher makes of a list, a creation, a change and a deletion.
async fn follow(api: &Api<ConfigMap>, config: watcher::Config) {
    create(api, "first").await;
    // A watcher that streams asks for any state: the cache may be a moment behind the answer to the write.
    let any = ListParams::default().match_any();
    while api.list(&any).await.unwrap().items.is_empty() {
        tokio::task::yield_now().await;
    }
    let mut events = Box::pin(watcher::watcher(api.clone(), config));
    let mut next = async || soon(events.try_next()).await.unwrap().unwrap();
    assert!(matches!(next().await, Event::Init));
    assert!(matches!(next().await, Event::InitApply(object) if object.name_any() == "first"));
    assert!(matches!(next().await, Event::InitDone));
    create(api, "second").await;
    assert!(matches!(next().await, Event::Apply(object) if object.name_any() == "second"));
    let merge = Patch::Merge(json!({"data": {"k": "2"}}));
    api.patch("first", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert!(
        matches!(next().await, Event::Apply(object) if object.data.clone().unwrap()["k"] == "2")
    );
    api.delete("second", &DeleteParams::default())
        .await
        .unwrap();
    assert!(matches!(next().await, Event::Delete(object) if object.name_any() == "second"));
}

#[tokio::test]
async fn a_watcher_that_lists() {
    let server = Server::start().await.unwrap();
    follow(&connect(&server).await, watcher::Config::default()).await;
}

#[tokio::test]
async fn a_watcher_that_streams_its_list() {
    let server = Server::start().await.unwrap();
    follow(
        &connect(&server).await,
        watcher::Config::default().streaming_lists(),
    )
    .await;
}

#[tokio::test]
async fn a_reflector() {
    let server = Server::start().await.unwrap();
    let api = connect(&server).await;
    create(&api, "a").await;
    let (store, writer) = reflector::store();
    let events = reflector::reflector(
        writer,
        watcher::watcher(api.clone(), watcher::Config::default()),
    );
    let mut applied = Box::pin(events.applied_objects());
    soon(applied.try_next()).await.unwrap();
    create(&api, "b").await;
    soon(applied.try_next()).await.unwrap();
    let names: Vec<_> = store
        .state()
        .iter()
        .map(|object| object.name_any())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(store.get(&ObjectRef::new("b").within("default")).is_some());
}

#[tokio::test]
async fn a_controller() {
    let server = Server::start().await.unwrap();
    let api = connect(&server).await;
    create(&api, "a").await;
    // It marks every object it sees, once.
    let reconcile =
        async |object: Arc<ConfigMap>, api: Arc<Api<ConfigMap>>| -> kube::Result<Action> {
            if !object.annotations().contains_key("seen") {
                let merge = Patch::Merge(json!({"metadata": {"annotations": {"seen": "yes"}}}));
                api.patch(&object.name_any(), &PatchParams::default(), &merge)
                    .await?;
            }
            Ok(Action::await_change())
        };
    let failed = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Api<ConfigMap>>| {
        Action::requeue(Duration::from_secs(1))
    };
    let controller = Controller::new(api.clone(), watcher::Config::default());
    let mut runs = Box::pin(controller.run(reconcile, failed, Arc::new(api.clone())));
    until_seen(&api, "a", &mut runs).await;
    create(&api, "b").await;
    until_seen(&api, "b", &mut runs).await;
}

async fn until_seen<E: std::fmt::Debug>(
    api: &Api<ConfigMap>,
    name: &str,
    runs: &mut (impl Stream<Item = Result<(ObjectRef<ConfigMap>, Action), E>> + Unpin),
) {
    soon(async {
        while !api
            .get(name)
            .await
            .unwrap()
            .annotations()
            .contains_key("seen")
        {
            runs.next().await.unwrap().unwrap();
        }
    })
    .await;
}
