//! Which objects are reconciled for an event: owners, mapped keys, causes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use tidings_controller::{
    Action, Cached, CauseKind, Context, Controller, Finalizing, Predicate, Watches,
};
use tidings_kube::{ObjectPath, PatchKind, Scope, SourceError};

use crate::server::{Server, config_maps, eventually, idle, secrets};

/// The names that were reconciled since it was last cleared.
type Seen = Arc<Mutex<BTreeSet<String>>>;

async fn note(map: Arc<Cached<ConfigMap>>, ctx: Context<Seen>) -> Result<Action, SourceError> {
    ctx.lock().unwrap().insert(map.name().to_owned());
    Ok(Action::AwaitChange)
}

fn maps(server: &Server) -> Controller<ConfigMap> {
    Controller::<ConfigMap>::new(&server.cluster()).scope(Scope::namespace("default"))
}

fn owner(map: &Value, is_controller: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": map["metadata"]["name"],
        "uid": map["metadata"]["uid"], "controller": is_controller})
}

async fn create_secret(server: &Server, secret: Value) {
    let user = server.user();
    user.create_object(&secrets(), "default", &secret)
        .await
        .unwrap();
}

async fn patch_secret(server: &Server, name: &str, patch: Value) {
    let (user, resource) = (server.user(), secrets());
    let path = ObjectPath::new(&resource, "default", name);
    user.patch_object(&path, PatchKind::Merge, &patch)
        .await
        .unwrap();
}

fn taken(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut *seen.lock().unwrap())
        .into_iter()
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn cr24_cr27_both_owners_of_a_child_that_changes_hands_are_reconciled() {
    let server = Server::start().await;
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        made.push(server.create(json!({"metadata": {"name": name}})).await);
    }
    // `c` owns it too, but does not control it.
    let owners = json!([owner(&made[0], true), owner(&made[2], false)]);
    create_secret(
        &server,
        json!({"metadata": {"name": "s", "ownerReferences": owners}}),
    )
    .await;
    let seen = Seen::default();
    let controller = maps(&server)
        .owns::<Secret>()
        .start(note, Arc::clone(&seen));
    idle(&controller).await;
    assert_eq!(taken(&seen), ["a", "b", "c"]);
    let owners = json!([owner(&made[1], true), owner(&made[2], false)]);
    patch_secret(
        &server,
        "s",
        json!({"metadata": {"ownerReferences": owners}}),
    )
    .await;
    eventually("both are reconciled", async || {
        seen.lock().unwrap().len() == 2
    })
    .await;
    idle(&controller).await;
    assert_eq!(taken(&seen), ["a", "b"]);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr28_cr31_keys_of_both_states_by_function_label_and_annotation() {
    let server = Server::start().await;
    for name in ["a", "b", "c", "d"] {
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let seen = Seen::default();
    let controller = maps(&server)
        .watches_labelled::<Secret>("for")
        .watches_annotated::<Secret>("for")
        .start(note, Arc::clone(&seen));
    idle(&controller).await;
    taken(&seen);
    let changes = [
        (json!({"labels": {"for": "a"}}), vec!["a"]),
        (json!({"labels": {"for": "b"}}), vec!["a", "b"]),
        (json!({"labels": {"for": null}}), vec!["b"]),
        (json!({"annotations": {"for": "c"}}), vec!["c"]),
        (json!({"annotations": {"for": "default/d"}}), vec!["c", "d"]),
        // Another namespace has none of the controller's objects.
        (json!({"annotations": {"for": "other/a"}}), vec!["d"]),
    ];
    create_secret(&server, json!({"metadata": {"name": "s"}})).await;
    for (change, expected) in changes {
        patch_secret(&server, "s", json!({"metadata": change})).await;
        eventually("all are reconciled", async || {
            seen.lock().unwrap().len() >= expected.len()
        })
        .await;
        idle(&controller).await;
        assert_eq!(taken(&seen), expected, "{change}");
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr35_a_predicate_of_a_watched_type_concerns_that_type_only() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let labelled = Watches::all().predicate(Predicate::labels_changed());
    let seen = Seen::default();
    let controller = maps(&server)
        .watches_with::<Secret, _>(labelled, |_: &Cached<Secret>| {
            [tidings_api::ObjectKey::new("default", "a")]
        })
        .start(note, Arc::clone(&seen));
    create_secret(&server, json!({"metadata": {"name": "s"}})).await;
    idle(&controller).await;
    let before = controller.stats().reconciles();
    patch_secret(&server, "s", json!({"data": {"k": "dg=="}})).await;
    patch_secret(&server, "s", json!({"metadata": {"labels": {"l": "v"}}})).await;
    eventually("a label counts", async || {
        controller.stats().reconciles() > before
    })
    .await;
    idle(&controller).await;
    assert_eq!(controller.stats().reconciles(), before + 1);
    server.apply("a", json!({"k": "v"})).await;
    eventually("the main type has another predicate", async || {
        controller.stats().reconciles() > before + 1
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr36_the_main_type_may_be_metadata_only() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    type MapMeta = PartialObjectMeta<ConfigMap>;
    let reconcile = async |map: Arc<Cached<MapMeta>>, ctx: Context<()>| {
        ctx.finalizer(&map, "example.com/clean", async |finalizing| {
            if finalizing == Finalizing::Apply {
                let mut secret = Secret::default();
                secret.metadata.name = Some(map.name().to_owned());
                ctx.apply(&map, &secret).await?;
            }
            Ok::<_, SourceError>(Action::AwaitChange)
        })
        .await
    };
    let controller = Controller::<MapMeta>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(reconcile, ());
    eventually("the child is made", async || {
        server.get(&secrets(), "a").await.is_some()
    })
    .await;
    let secret = server.get(&secrets(), "a").await.unwrap();
    assert_eq!(
        secret["metadata"]["ownerReferences"][0]["kind"],
        "ConfigMap"
    );
    idle(&controller).await;
    assert_eq!(controller.stats().failed, 0);
    server.delete(&config_maps(), "a").await;
    eventually("it is cleaned up", async || {
        server.get(&config_maps(), "a").await.is_none()
    })
    .await;
    controller.stop().await;
}

/// The causes that were told.
type Causes = Arc<Mutex<Vec<String>>>;

#[tokio::test(flavor = "multi_thread")]
async fn kr15_the_cause_is_the_first_event_and_says_who_wrote() {
    let server = Server::start().await;
    server.apply("a", json!({"k": "1"})).await;
    let held = Arc::new(tokio::sync::Semaphore::new(0));
    let reconcile =
        async |map: Arc<Cached<ConfigMap>>, ctx: Context<(Causes, Arc<tokio::sync::Semaphore>)>| {
            let (causes, held) = &**ctx.state();
            causes.lock().unwrap().push(ctx.cause().to_string());
            if ctx.cause().what == CauseKind::Initial {
                // What happens meanwhile is reconciled after it.
                let _permit = held.acquire().await;
            }
            let mut secret = Secret::default();
            secret.metadata.name = Some(map.name().to_owned());
            ctx.apply(&map, &secret).await?;
            Ok::<_, SourceError>(Action::AwaitChange)
        };
    let causes = Causes::default();
    let cluster = server.cluster();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .name("mirror")
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(reconcile, (Arc::clone(&causes), Arc::clone(&held)));
    eventually("it has begun", async || !causes.lock().unwrap().is_empty()).await;
    // Two events while it runs: the first of them is the cause.
    let (user, resource) = (server.user(), config_maps());
    let path = ObjectPath::new(&resource, "default", "a");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "2"}});
    user.apply_object(&path, "somebody", true, &map)
        .await
        .unwrap();
    server.delete(&config_maps(), "a").await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let informer = cluster
        .informers()
        .informer::<ConfigMap>(&Scope::namespace("default"));
    let is_new = |object: Arc<Cached<ConfigMap>>| object.data.is_none();
    eventually("the cache has all of it", async || {
        informer.store().get("default", "a").is_some_and(is_new)
    })
    .await;
    held.add_permits(1);
    eventually("the child is made for the new object", async || {
        let secret = server.get(&secrets(), "a").await;
        let created = server.get(&config_maps(), "a").await.unwrap();
        secret.is_some_and(|secret| {
            secret["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
        })
    })
    .await;
    idle(&controller).await;
    // The next event after a deletion is the controller's own write: its name tells.
    server.delete(&secrets(), "a").await;
    eventually("the child comes back", async || {
        server.get(&secrets(), "a").await.is_some()
    })
    .await;
    idle(&controller).await;
    controller.stop().await;
    let causes = causes.lock().unwrap();
    let name = informer.name();
    assert_eq!(causes[0], format!("initial {name} default/a by user"));
    assert_eq!(causes[1], format!("updated {name} default/a by somebody"));
    let last = causes.last().unwrap();
    assert!(
        last.starts_with("added") && last.ends_with("default/a by mirror"),
        "{causes:?}"
    );
}
