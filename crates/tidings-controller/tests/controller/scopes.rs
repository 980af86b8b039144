//! Several namespaces or selectors as one cache; objects without a type; reconciles that the program asks for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use tidings_api::{Object, ObjectKey};
use tidings_controller::{
    Action, Cached, CauseKind, Context, Controller, OwnerKind, Trigger, Watches,
};
use tidings_informer::RelistReason;
use tidings_kube::{Scope, SourceError};

use crate::server::{Server, config_maps, eventually, idle, secrets};

type Names = Arc<Mutex<BTreeSet<String>>>;

async fn create_in(server: &Server, namespace: &str, name: &str, labels: serde_json::Value) {
    let user = server.user();
    let namespaces = tidings_kube::resource_of::<k8s_openapi::api::core::v1::Namespace>();
    let _ = user
        .create_object(&namespaces, "", &json!({"metadata": {"name": namespace}}))
        .await;
    let map = json!({"metadata": {"name": name, "labels": labels}});
    user.create_object(&config_maps(), namespace, &map)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cr87_cr92_several_namespaces_are_one_cache_with_their_children() {
    let server = Server::start().await;
    for namespace in ["blue", "green", "red"] {
        create_in(&server, namespace, "site", json!({})).await;
    }
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Names>| {
        let mut child = Secret::default();
        child.metadata.name = Some("child".to_owned());
        ctx.apply(&map, &child).await?;
        let all = ctx.store::<ConfigMap>().list();
        let by_color: Vec<_> = ctx.by_index("color", &map.namespace().to_owned()).unwrap();
        let found: Vec<&str> = by_color
            .iter()
            .map(|map: &Arc<Cached<ConfigMap>>| map.key().as_str())
            .collect();
        ctx.lock().unwrap().insert(format!(
            "{} of {} in {}, {}",
            map.namespace(),
            all.iter().filter(|map| map.name() == "site").count(),
            ctx.store::<ConfigMap>().stores().len(),
            found.iter().filter(|key| key.ends_with("/site")).count(),
        ));
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let (cluster, names) = (server.cluster(), Names::default());
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scopes(["blue", "green"].map(Scope::namespace))
        .index("color", |map: &Cached<ConfigMap>| {
            [map.namespace().to_owned()]
        })
        .owns::<Secret>()
        .start(reconcile, Arc::clone(&names));
    let expected = ["blue of 2 in 2, 1", "green of 2 in 2, 1"].map(str::to_owned);
    eventually("both are reconciled", async || {
        *names.lock().unwrap() == BTreeSet::from(expected.clone())
    })
    .await;
    // A child comes back in its own namespace, and nothing is watched in the others.
    let (resource, user) = (secrets(), server.user());
    let child = tidings_kube::ObjectPath::new(&resource, "green", "child");
    eventually("the child is there", async || {
        user.get_object(&child).await.unwrap().is_some()
    })
    .await;
    idle(&controller).await;
    user.delete_object(&child, None).await.unwrap();
    eventually("the child comes back", async || {
        user.get_object(&child).await.unwrap().is_some()
    })
    .await;
    let red = tidings_kube::ObjectPath::new(&resource, "red", "child");
    assert!(user.get_object(&red).await.unwrap().is_none());
    for namespace in ["blue", "green"] {
        let informer = cluster
            .informers()
            .informer::<Secret>(&Scope::namespace(namespace));
        assert_eq!(informer.reflector_stats().lists(RelistReason::First), 1);
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_that_overlap_are_one_cache_and_an_object_that_changes_sides_stays() {
    let server = Server::start().await;
    create_in(&server, "default", "both", json!({"a": "1", "b": "1"})).await;
    create_in(&server, "default", "one", json!({"b": "1"})).await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Names>| {
        let names = ctx.store::<ConfigMap>().list();
        let names: Vec<&str> = names.iter().map(|map| map.name()).collect();
        ctx.lock()
            .unwrap()
            .insert(format!("{}: {}", map.name(), names.join(" ")));
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let names = Names::default();
    let selectors = ["a", "b"].map(|label| Scope::namespace("default").labels(label));
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scopes(selectors)
        .start(reconcile, Arc::clone(&names));
    let has = |text: &str| names.lock().unwrap().contains(text);
    eventually("both are there, each once", async || {
        has("both: both one") && has("one: both one")
    })
    .await;
    idle(&controller).await;
    let before = controller.stats().reconciles();
    let (resource, user) = (config_maps(), server.user());
    let path = tidings_kube::ObjectPath::new(&resource, "default", "one");
    let sides = json!({"metadata": {"labels": {"a": "1", "b": null}}});
    user.patch_object(&path, tidings_kube::PatchKind::Merge, &sides)
        .await
        .unwrap();
    eventually("it is reconciled", async || {
        controller.stats().reconciles() > before
    })
    .await;
    names.lock().unwrap().clear();
    user.patch_object(
        &path,
        tidings_kube::PatchKind::Merge,
        &json!({"data": {"k": "v"}}),
    )
    .await
    .unwrap();
    eventually("it is still there", async || has("one: both one")).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_without_a_type_are_reconciled_and_watched() {
    let server = Server::start().await;
    let owner = server.create(json!({"metadata": {"name": "owner"}})).await;
    let reconcile = async |map: Arc<Cached<Object>>, ctx: Context<Names>| {
        let owned = ctx.owned_dynamic(&secrets(), &map).len();
        let kind = map.kind().into_owned();
        let text = format!("{kind} {} owns {owned} {:?}", map.name(), ctx.cause().what);
        ctx.lock().unwrap().insert(text);
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let names = Names::default();
    let namespaces = tidings_kube::resource_of::<k8s_openapi::api::core::v1::Namespace>();
    let controller = Controller::dynamic(&server.cluster(), &config_maps())
        .scope(Scope::namespace("default"))
        .owns_dynamic(&secrets(), OwnerKind::Any, Watches::all())
        .watches_dynamic(&namespaces, Watches::all(), |namespace: &Cached<Object>| {
            let is_named = namespace.name() == "late";
            is_named.then(|| ObjectKey::new("default", "owner"))
        })
        .start(reconcile, Arc::clone(&names));
    let has = |text: &str| names.lock().unwrap().contains(text);
    eventually("it is reconciled", async || {
        has("ConfigMap owner owns 0 Initial")
    })
    .await;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let secret = json!({"metadata": {"name": "s", "ownerReferences": reference}});
    let user = server.user();
    user.create_object(&secrets(), "default", &secret)
        .await
        .unwrap();
    eventually("its child is mapped", async || {
        has("ConfigMap owner owns 1 Added")
    })
    .await;
    names.lock().unwrap().clear();
    let late = json!({"metadata": {"name": "late"}});
    user.create_object(&namespaces, "", &late).await.unwrap();
    eventually("a named object is mapped", async || {
        has("ConfigMap owner owns 1 Added")
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_asks_for_reconciles() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Names>| {
        if ctx.cause().what == CauseKind::Triggered {
            ctx.lock().unwrap().insert(map.name().to_owned());
        }
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let (names, trigger) = (Names::default(), Trigger::new());
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default").fields("metadata.name!=kube-root-ca.crt"))
        .triggered_by(&trigger)
        .start(reconcile, Arc::clone(&names));
    idle(&controller).await;
    let done = |expected: &[&str]| {
        let names = names.lock().unwrap();
        names
            .iter()
            .map(String::as_str)
            .eq(expected.iter().copied())
    };
    trigger.reconcile(&ObjectKey::new("default", "b"));
    trigger.reconcile(&ObjectKey::new("default", "unknown"));
    eventually("one is reconciled", async || done(&["b"])).await;
    trigger.reconcile_all();
    eventually("all are reconciled", async || done(&["a", "b"])).await;
    controller.stop().await;
    trigger.reconcile_all(); // nobody hears it
}
