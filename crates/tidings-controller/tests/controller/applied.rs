//! When a child or a status is applied, and when nothing is sent.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use serde_json::{Value, json};
use tidings_controller::{
    Action, Cached, Cluster, Context, Controller, ControllerHandle, OwnerKind, Watches,
};
use tidings_kube::{ObjectPath, PatchKind, Scope, SourceError, resource_of};

use crate::server::{Server, config_maps, eventually, idle, secrets};

/// The members of a map's data that its Secret gets.
type Kept = Vec<&'static str>;

/// Makes a Secret for each ConfigMap, with some of its data.
async fn mirror(map: Arc<Cached<ConfigMap>>, ctx: Context<Kept>) -> Result<Action, SourceError> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.name().to_owned());
    let data = map.data.iter().flatten();
    let kept = data.filter(|(name, _)| ctx.contains(&&***name));
    // The server stores these as `data`: what is cached never looks like what was applied.
    secret.string_data = Some(
        kept.map(|(name, text)| (name.clone(), text.clone()))
            .collect(),
    );
    ctx.apply(&map, &secret).await?;
    Ok(Action::AwaitChange)
}

fn start_mirror(cluster: &Cluster, kept: Kept) -> ControllerHandle {
    Controller::<ConfigMap>::new(cluster)
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(mirror, kept)
}

async fn patch(server: &Server, resource: &tidings_kube::ApiResource, name: &str, patch: Value) {
    let (user, path) = (server.user(), ObjectPath::new(resource, "default", name));
    user.patch_object(&path, PatchKind::Merge, &patch)
        .await
        .unwrap();
}

fn writes(server: &Server) -> u64 {
    server.switch().writes.load(SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn cr51_a_child_is_sent_once_though_the_server_stores_it_in_another_form() {
    let server = Server::start().await;
    server.apply("a", json!({"k": "one"})).await;
    let controller = start_mirror(&server.cluster(), vec!["k"]);
    idle(&controller).await;
    assert_eq!(writes(&server), 1);
    let before = controller.stats().reconciles();
    let labels = json!({"metadata": {"labels": {"l": "x"}}});
    patch(&server, &config_maps(), "a", labels).await;
    eventually("it is reconciled", async || {
        controller.stats().reconciles() > before
    })
    .await;
    idle(&controller).await;
    assert_eq!(writes(&server), 1);
    controller.stop().await;
}

/// Like `mirror`, but what is cached looks like what was applied.
async fn mirror_data(
    map: Arc<Cached<ConfigMap>>,
    ctx: Context<Kept>,
) -> Result<Action, SourceError> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.name().to_owned());
    let data = map.data.iter().flatten();
    let kept = data.filter(|(name, _)| ctx.contains(&&***name));
    let bytes = |text: &String| k8s_openapi::ByteString(text.clone().into_bytes());
    let kept = kept.map(|(name, text)| (name.clone(), bytes(text)));
    secret.data = Some(kept.collect());
    ctx.apply(&map, &secret).await?;
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn cr6_cr51_a_new_process_reconciles_each_object_once_and_sends_only_what_differs() {
    let server = Server::start().await;
    for number in 0..20 {
        let name = format!("map-{number}");
        server.apply(&name, json!({"k": "1", "l": "2"})).await;
    }
    let start = |kept: Kept| {
        Controller::<ConfigMap>::new(&server.cluster())
            .scope(Scope::namespace("default"))
            .owns::<Secret>()
            .start(mirror_data, kept)
    };
    let first = start(vec!["k", "l"]);
    idle(&first).await;
    first.stop().await;
    assert_eq!(writes(&server), 20);

    let second = start(vec!["l", "k"]);
    idle(&second).await;
    assert_eq!(second.stats().succeeded, 20);
    second.stop().await;
    assert_eq!(writes(&server), 20, "everything is there already");

    // The cached Secrets contain all of the smaller configuration: only the hash tells that it is another one.
    let third = start(vec!["k"]);
    idle(&third).await;
    third.stop().await;
    assert_eq!(writes(&server), 40);
    let secret = server.get(&secrets(), "map-7").await.unwrap();
    assert_eq!(secret["data"], json!({"k": "MQ=="}));
}

#[tokio::test(flavor = "multi_thread")]
async fn cr52_a_child_that_somebody_changed_is_set_right() {
    let server = Server::start().await;
    server.apply("a", json!({"k": "one"})).await;
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(mirror_data, vec!["k"]);
    idle(&controller).await;
    let stray = json!({"data": {"k": "c3RyYXk=", "more": "bW9yZQ=="}});
    patch(&server, &secrets(), "a", stray).await;
    eventually("it is set right", async || {
        let secret = server.get(&secrets(), "a").await.unwrap();
        secret["data"]["k"] == "b25l"
    })
    .await;
    idle(&controller).await;
    // What nobody applied is somebody else's.
    let secret = server.get(&secrets(), "a").await.unwrap();
    assert_eq!(secret["data"]["more"], "bW9yZQ==");
    assert_eq!(writes(&server), 2);
    controller.stop().await;
}

async fn secret_of(server: &Server, name: &str, owners: Value) {
    let secret = json!({"metadata": {"name": name, "ownerReferences": owners}});
    let user = server.user();
    user.create_object(&secrets(), "default", &secret)
        .await
        .unwrap();
}

fn owner(map: &Value, is_controller: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": map["metadata"]["name"],
        "uid": map["metadata"]["uid"], "controller": is_controller})
}

#[tokio::test(flavor = "multi_thread")]
async fn cr47_a_child_that_another_object_controls_is_neither_taken_nor_spun_on() {
    let server = Server::start().await;
    let other = server.create(json!({"metadata": {"name": "other"}})).await;
    secret_of(&server, "a", json!([owner(&other, true)])).await;
    server.apply("a", json!({"k": "one"})).await;
    let before = server.get(&secrets(), "a").await.unwrap();
    let is_mine = |map: &Cached<ConfigMap>| map.name() == "a";
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .with_predicate(tidings_controller::Predicate::of_object(is_mine))
        .owns::<Secret>()
        .start(mirror_data, vec!["k"]);
    eventually("it is refused", async || controller.stats().failed >= 3).await;
    assert_eq!(server.get(&secrets(), "a").await.unwrap(), before);
    controller.stop().await;
    // 5 ms, doubled each time: far fewer than a loop would make.
    assert!(writes(&server) < 20, "{}", writes(&server));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_object_owns_without_controlling_it_is_not_pruned() {
    for which in [OwnerKind::Controller, OwnerKind::Any] {
        let server = Server::start().await;
        let map = server.create(json!({"metadata": {"name": "a"}})).await;
        let other = server.create(json!({"metadata": {"name": "b"}})).await;
        let shared = json!([owner(&other, true), owner(&map, false)]);
        secret_of(&server, "shared", shared).await;
        secret_of(&server, "loose", json!([owner(&map, false)])).await;
        secret_of(&server, "own", json!([owner(&map, true)])).await;
        let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| {
            if map.name() == "a" {
                ctx.children(&map).apply().await?;
                ctx.prune::<Secret>(&map, |_| false).await?;
            }
            Ok::<_, SourceError>(Action::AwaitChange)
        };
        let controller = Controller::<ConfigMap>::new(&server.cluster())
            .scope(Scope::namespace("default"))
            .owns_with::<Secret>(which, Watches::all())
            .start(reconcile, ());
        idle(&controller).await;
        controller.stop().await;
        let mut left = Vec::new();
        for name in ["shared", "loose", "own"] {
            left.extend(server.get(&secrets(), name).await.map(|_| name));
        }
        let expected: &[&str] = match which {
            OwnerKind::Controller => &["shared", "loose"],
            OwnerKind::Any => &["shared"],
        };
        assert_eq!(left, expected, "{which:?}");
    }
}

/// A status that says which generation was seen.
async fn observe(site: Arc<Cached<Deployment>>, ctx: Context<()>) -> Result<Action, SourceError> {
    let status = json!({"observedGeneration": site.metadata.generation});
    ctx.apply_status(&site, &status).await?;
    // Once more in the same reconcile: the last write counts, though the cache need not have it yet.
    assert!(!ctx.apply_status(&site, &status).await?);
    Ok(Action::AwaitChange)
}

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn cr53_a_status_is_sent_only_if_it_differs() {
    let (server, deployments) = (Server::start().await, resource_of::<Deployment>());
    let user = server.user();
    user.create_object(&deployments, "default", &deployment("a"))
        .await
        .unwrap();
    let controller = Controller::<Deployment>::new(&server.cluster()).start(observe, ());
    idle(&controller).await;
    assert_eq!(
        (writes(&server), controller.stats().panicked),
        (1, 0),
        "one status"
    );
    let status = |object: Value| object["status"]["observedGeneration"].clone();
    assert_eq!(status(server.get(&deployments, "a").await.unwrap()), 1);
    let before = controller.stats().reconciles();
    let labels = json!({"metadata": {"labels": {"l": "x"}}});
    patch(&server, &deployments, "a", labels).await;
    eventually("it is reconciled", async || {
        controller.stats().reconciles() > before
    })
    .await;
    idle(&controller).await;
    assert_eq!(writes(&server), 1, "nothing has changed for the status");
    patch(&server, &deployments, "a", json!({"spec": {"replicas": 3}})).await;
    eventually("it follows", async || {
        status(server.get(&deployments, "a").await.unwrap()) == 2
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr53_the_status_of_an_object_that_was_made_again_stays_its_own() {
    let (server, deployments) = (Server::start().await, resource_of::<Deployment>());
    let user = server.user();
    user.create_object(&deployments, "default", &deployment("a"))
        .await
        .unwrap();
    let reconcile = {
        let (server, deployments) = (server.clone(), deployments.clone());
        move |site: Arc<Cached<Deployment>>, ctx: Context<()>| {
            let (server, deployments) = (server.clone(), deployments.clone());
            async move {
                if ctx.attempt() == 1 {
                    server.delete(&deployments, "a").await;
                    let again = deployment("a");
                    let made = server.user();
                    made.create_object(&deployments, "default", &again).await?;
                }
                let refused = ctx.apply_status(&site, &json!({"replicas": 7})).await;
                let code = refused.as_ref().err().and_then(SourceError::code);
                assert_eq!(code, Some(409), "{refused:?}");
                Ok::<_, SourceError>(Action::AwaitChange)
            }
        }
    };
    // Only the first object: the second one is reconciled by nobody.
    let is_first = tidings_controller::Predicate::new(|event| {
        matches!(event, tidings_informer::Event::Added { initial: true, .. })
    });
    let controller = Controller::<Deployment>::new(&server.cluster())
        .with_predicate(is_first)
        .start(reconcile, ());
    idle(&controller).await;
    let stats = controller.stats();
    assert_eq!((stats.succeeded, stats.panicked), (1, 0));
    let made_again = server.get(&deployments, "a").await.unwrap();
    assert!(made_again["status"]["replicas"].is_null(), "{made_again}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr26_a_cluster_scoped_owner_has_children_that_name_their_namespace() {
    use k8s_openapi::api::core::v1::Namespace;
    let server = Server::start().await;
    let reconcile = async |namespace: Arc<Cached<Namespace>>, ctx: Context<()>| {
        if namespace.name() != "default" {
            return Ok(Action::AwaitChange);
        }
        let mut secret = Secret::default();
        secret.metadata.name = Some("made".into());
        let refused = ctx.apply(&namespace, &secret).await.unwrap_err();
        assert!(
            refused.to_string().contains("must name its own"),
            "{refused}"
        );
        secret.metadata.namespace = Some("default".into());
        ctx.apply(&namespace, &secret).await?;
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let controller = Controller::<Namespace>::new(&server.cluster())
        .owns::<Secret>()
        .start(reconcile, ());
    let is_there = async || server.get(&secrets(), "made").await.is_some();
    eventually("it is made", is_there).await;
    server.delete(&secrets(), "made").await;
    eventually("its owner makes it again", is_there).await;
    assert_eq!(controller.stats().panicked, 0);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr90_a_type_that_is_not_watched_says_what_to_call() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| {
        let told = |work: &dyn Fn()| {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let payload = caught.unwrap_err();
            payload.downcast_ref::<String>().unwrap().clone()
        };
        let store = told(&|| drop(ctx.store::<Service>()));
        assert!(store.contains("call owns or watches for it"), "{store}");
        let owned = told(&|| drop(ctx.owned::<Service>(&map)));
        assert!(owned.contains("call owns for it"), "{owned}");
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let controller = Controller::<ConfigMap>::new(&server.cluster()).start(reconcile, ());
    idle(&controller).await;
    assert_eq!(controller.stats().panicked, 0);
    controller.stop().await;
}
