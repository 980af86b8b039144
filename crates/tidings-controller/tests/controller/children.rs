//! Children: applied, owned, pruned, cleaned up after; own writes are seen.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::core::PartialObjectMeta;
use serde_json::json;
use tidings_api::ObjectKey;
use tidings_controller::{
    Action, Cached, Context, Controller, Finalizing, OwnerKind, Predicate, Watches,
};
use tidings_informer::RelistReason;
use tidings_kube::{ObjectPath, PatchKind, Scope, SourceError};

use crate::server::{Server, config_maps, eventually, idle, make_three, secrets};

/// Makes a Secret for each ConfigMap, with its data.
async fn mirror(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.name().to_owned());
    secret.data = map.data.clone().map(|data| {
        let bytes =
            |(key, text): (String, String)| (key, k8s_openapi::ByteString(text.into_bytes()));
        data.into_iter().map(bytes).collect()
    });
    ctx.apply(&map, &secret).await?;
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn cr23_cr29_children_follow_their_owner_and_come_back_when_they_are_deleted() {
    let server = Server::start().await;
    server.apply("a", json!({"k": "one"})).await;
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(mirror, ());
    let data = async |name: &str| {
        let secret = server.get(&secrets(), name).await?;
        secret["data"]["k"].as_str().map(str::to_owned)
    };
    eventually("the child is made", async || {
        data("a").await.as_deref() == Some("b25l")
    })
    .await;
    let secret = server.get(&secrets(), "a").await.unwrap();
    let owner = &secret["metadata"]["ownerReferences"][0];
    assert_eq!(
        (owner["kind"].as_str(), owner["controller"].as_bool()),
        (Some("ConfigMap"), Some(true))
    );

    server.apply("a", json!({"k": "two"})).await;
    eventually("the child follows", async || {
        data("a").await.as_deref() == Some("dHdv")
    })
    .await;
    server.delete(&secrets(), "a").await;
    eventually("the child comes back", async || data("a").await.is_some()).await;

    // Nothing is sent when nothing changes for the child.
    idle(&controller).await;
    let writes = server.switch().writes.load(SeqCst);
    let reconciles = controller.stats().reconciles();
    let resource = config_maps();
    let path = ObjectPath::new(&resource, "default", "a");
    let labels = json!({"metadata": {"labels": {"l": "x"}}});
    let user = server.user();
    user.patch_object(&path, PatchKind::Merge, &labels)
        .await
        .unwrap();
    eventually("it is reconciled", async || {
        controller.stats().reconciles() > reconciles
    })
    .await;
    idle(&controller).await;
    assert_eq!(server.switch().writes.load(SeqCst), writes);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconcile_sees_what_the_one_before_wrote() {
    let server = Server::start().await;
    for number in 0..50 {
        server
            .create(json!({"metadata": {"name": format!("site-{number}")}}))
            .await;
    }
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .concurrency(16)
        .start(make_three, ());
    idle(&controller).await;
    let children = server.children_by_owner().await;
    assert_eq!(children.len(), 50);
    assert!(children.values().all(|count| *count == 3), "{children:?}");
    let stats = controller.stats();
    assert_eq!((stats.failed, stats.stale_starts), (0, 0));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_of_children_is_applied_and_what_is_not_in_it_is_deleted() {
    let server = Server::start().await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Mutex<Vec<[usize; 2]>>>| {
        let mut children = ctx.children(&map);
        for name in map.data.clone().unwrap_or_default().into_keys() {
            let metadata = kube::core::ObjectMeta {
                name: Some(format!("{}-{name}", map.name())),
                ..Default::default()
            };
            match name.starts_with("service") {
                true => children.add(&Service {
                    metadata,
                    spec: serde_json::from_value(json!({"ports": [{"port": 80}]})).unwrap(),
                    ..Service::default()
                })?,
                false => children.add(&Secret {
                    metadata,
                    ..Secret::default()
                })?,
            };
        }
        let applied = children.apply().await?;
        ctx.state()
            .lock()
            .unwrap()
            .push([applied.sent, applied.deleted]);
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let other = json!({"metadata": {"name": "site-other"}});
    let user = server.user();
    user.create_object(&secrets(), "default", &other)
        .await
        .unwrap();
    server
        .apply("site", json!({"a": "", "b": "", "service": ""}))
        .await;
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default").fields("metadata.name=site"))
        .owns::<Secret>()
        .owns::<Service>()
        .start(reconcile, Mutex::default());
    let services = tidings_kube::resource_of::<Service>();
    let has = async |name: &str| {
        let resource = match name.contains("service") {
            true => &services,
            false => &secrets(),
        };
        server
            .get(resource, &format!("site-{name}"))
            .await
            .is_some()
    };
    eventually("all are there", async || {
        has("a").await && has("b").await && has("service").await
    })
    .await;
    server.apply("site", json!({"b": ""})).await;
    eventually("one is left", async || {
        !has("a").await && has("b").await && !has("service").await
    })
    .await;
    assert!(has("other").await, "what it does not own stays");
    idle(&controller).await;
    let writes = server.switch().writes.load(SeqCst);
    let labels = json!({"metadata": {"labels": {"l": "x"}}});
    let resource = config_maps();
    let path = ObjectPath::new(&resource, "default", "site");
    let reconciles = controller.stats().reconciles();
    user.patch_object(&path, PatchKind::Merge, &labels)
        .await
        .unwrap();
    eventually("it is reconciled", async || {
        controller.stats().reconciles() > reconciles
    })
    .await;
    idle(&controller).await;
    assert_eq!(
        server.switch().writes.load(SeqCst),
        writes,
        "nothing is sent when nothing changes"
    );
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_waited_for() {
    let server = Server::start().await;
    let cluster = server.cluster();
    let key = ObjectKey::new("default", "late");
    let has_data = |map: Option<&Cached<ConfigMap>>| map.is_some_and(|map| map.data.is_some());
    let short = std::time::Duration::from_millis(50);
    let error = cluster.wait_until(&key, short, has_data).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("ConfigMap default/late is not as it should be"),
        "{error}"
    );
    let long = std::time::Duration::from_secs(20);
    let (found, ()) = tokio::join!(cluster.wait_until(&key, long, has_data), async {
        server.create(json!({"metadata": {"name": "late"}})).await;
        server.apply("late", json!({"k": "v"})).await;
    });
    assert_eq!(found.unwrap().unwrap().name(), "late");
    let is_gone = |map: Option<&Cached<ConfigMap>>| map.is_none();
    let maps = config_maps();
    let delete = server.delete(&maps, "late");
    let (gone, ()) = tokio::join!(cluster.wait_until(&key, long, is_gone), delete);
    assert!(gone.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_wanted_any_more_is_pruned() {
    let server = Server::start().await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| {
        let wanted = map.data.clone().unwrap_or_default();
        for name in wanted.keys() {
            let mut child = Secret::default();
            child.metadata.name = Some(format!("{}-{name}", map.name()));
            ctx.apply(&map, &child).await?;
        }
        let is_wanted = |child: &Cached<Secret>| {
            let name = child.name().strip_prefix(&format!("{}-", map.name()));
            name.is_some_and(|name| wanted.contains_key(name))
        };
        ctx.prune::<Secret>(&map, is_wanted).await?;
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    server
        .apply("site", json!({"a": "", "b": "", "c": ""}))
        .await;
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(reconcile, ());
    let has = async |name: &str| server.get(&secrets(), name).await.is_some();
    eventually("all three are there", async || {
        has("site-a").await && has("site-b").await && has("site-c").await
    })
    .await;
    server.apply("site", json!({"b": ""})).await;
    eventually("one is left", async || {
        !has("site-a").await && has("site-b").await && !has("site-c").await
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kr25_a_finalizer_is_added_cleaned_up_and_removed_beside_those_of_others() {
    const NAME: &str = "example.com/clean-up";
    type Calls = Arc<Mutex<Vec<(String, Finalizing)>>>;
    async fn reconcile(
        map: Arc<Cached<ConfigMap>>,
        ctx: Context<Calls>,
    ) -> Result<Action, SourceError> {
        ctx.finalizer(&map, NAME, async |finalizing| {
            ctx.lock()
                .unwrap()
                .push((map.name().to_owned(), finalizing));
            Ok(Action::AwaitChange)
        })
        .await
    }
    let server = Server::start().await;
    server
        .create(json!({"metadata": {"name": "a", "finalizers": ["example.com/other"]}}))
        .await;
    let calls = Calls::default();
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .start(reconcile, Arc::clone(&calls));
    let finalizers = async || {
        let map = server.get(&config_maps(), "a").await?;
        Some(map["metadata"]["finalizers"].clone())
    };
    let both = json!(["example.com/other", NAME]);
    eventually("it is added", async || {
        finalizers().await == Some(both.clone())
    })
    .await;
    let seen = |finalizing: Finalizing| {
        let calls = calls.lock().unwrap();
        calls.iter().filter(|(_, seen)| *seen == finalizing).count()
    };
    eventually("it is reconciled", async || seen(Finalizing::Apply) > 0).await;
    server.delete(&config_maps(), "a").await;
    let other = json!(["example.com/other"]);
    eventually("it is removed", async || {
        finalizers().await == Some(other.clone())
    })
    .await;
    idle(&controller).await;
    assert_eq!(seen(Finalizing::Cleanup), 1, "cleaned up once");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kr34_cr22_several_controllers_share_one_reflector_and_one_can_stop() {
    let server = Server::start().await;
    let cluster = server.cluster();
    let seen = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let start = |name: &str, seen: &Arc<AtomicU64>| {
        let count = async |_: Arc<Cached<ConfigMap>>, ctx: Context<Arc<AtomicU64>>| {
            ctx.fetch_add(1, SeqCst);
            Ok::<_, SourceError>(Action::AwaitChange)
        };
        Controller::<ConfigMap>::new(&cluster)
            .name(name)
            .scope(Scope::namespace("default"))
            .start(count, Arc::clone(seen))
    };
    let (first, second) = (start("first", &seen[0]), start("second", &seen[1]));
    server.create(json!({"metadata": {"name": "a"}})).await;
    let counts = || seen.each_ref().map(|seen| seen.load(SeqCst));
    eventually("both see it", async || counts() == [1, 1]).await;
    let informer = cluster
        .informers()
        .informer::<ConfigMap>(&Scope::namespace("default"));
    assert_eq!(informer.reflector_stats().lists(RelistReason::First), 1);
    assert_eq!(informer.registrations().len(), 2);
    first.stop().await;
    server.create(json!({"metadata": {"name": "b"}})).await;
    eventually("the second goes on", async || counts() == [1, 2]).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_of_any_kind_and_named_objects_are_mapped() {
    let server = Server::start().await;
    let owner = server.create(json!({"metadata": {"name": "owner"}})).await;
    server.create(json!({"metadata": {"name": "named"}})).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Arc<Mutex<Vec<String>>>>| {
        let cause = format!(
            "{} {:?} {}",
            map.name(),
            ctx.cause().what,
            ctx.cause().object
        );
        ctx.lock().unwrap().push(cause);
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let none = Predicate::new(|_| false);
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .with_predicate(none)
        .owns_with::<Secret>(
            OwnerKind::Any,
            Watches::all().scope(Scope::namespace("default")),
        )
        .watches_with::<Secret, _>(Watches::all(), |secret: &Cached<Secret>| {
            let named = secret.labels().get("for").map(str::to_owned);
            named.map(|name| ObjectKey::new(secret.namespace(), &name))
        })
        .start(note, Arc::clone(&seen));
    let secret = |name: &str, labels: serde_json::Value, owners: serde_json::Value| json!({"metadata": {"name": name, "labels": labels, "ownerReferences": owners}});
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    idle(&controller).await;
    for secret in [
        secret("s1", json!({}), reference),
        secret("s2", json!({"for": "named"}), json!([])),
    ] {
        server
            .user()
            .create_object(&secrets(), "default", &secret)
            .await
            .unwrap();
    }
    eventually("both are mapped", async || {
        let mut seen = seen.lock().unwrap().clone();
        seen.sort();
        seen == ["named Added default/s2", "owner Added default/s1"]
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr48_a_child_in_another_namespace_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| {
        let mut child = Secret::default();
        child.metadata.name = Some("child".to_owned());
        child.metadata.namespace = Some("kube-system".to_owned());
        ctx.apply(&map, &child).await?;
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(reconcile, ());
    eventually("it fails", async || controller.stats().failed > 0).await;
    assert_eq!(server.switch().writes.load(SeqCst), 0);
    drop(controller);
    // Nor can an owner in a namespace have a child without one.
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Mutex<String>>| {
        let mut child = k8s_openapi::api::core::v1::Namespace::default();
        child.metadata.name = Some("child".to_owned());
        let refused = ctx.apply(&map, &child).await.unwrap_err();
        *ctx.state().lock().unwrap() = refused.to_string();
        Err::<Action, _>(refused)
    };
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .start(reconcile, Mutex::default());
    eventually("it fails", async || controller.stats().failed > 0).await;
    assert_eq!(server.switch().writes.load(SeqCst), 0);
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn kr10_a_child_in_projected_form_is_applied_once() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| {
        let mut child = PartialObjectMeta::<Secret>::default();
        child.metadata.name = Some("child".to_owned());
        ctx.apply(&map, &child).await?;
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .owns::<PartialObjectMeta<Secret>>()
        .start(reconcile, ());
    eventually("its child is seen", async || {
        controller.stats().succeeded >= 2
    })
    .await;
    idle(&controller).await;
    assert_eq!(server.switch().writes.load(SeqCst), 1);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_is_dropped_ends_its_controller() {
    let server = Server::start().await;
    let cluster = server.cluster();
    let reconcile =
        async |_: Arc<Cached<ConfigMap>>, _: Context<()>| Ok::<_, SourceError>(Action::AwaitChange);
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .start(reconcile, ());
    idle(&controller).await;
    let informer = cluster
        .informers()
        .informer::<ConfigMap>(&Scope::namespace("default"));
    assert_eq!(informer.registrations().len(), 1);
    drop(controller);
    eventually("its handler is gone", async || {
        informer.registrations().is_empty()
    })
    .await;
}
