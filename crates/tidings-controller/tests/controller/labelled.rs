//! Children that cannot have an owner belong to an object by their labels.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::{Value, json};
use tidings_controller::{Action, Cached, Context, Controller, Finalizing};
use tidings_kube::{ApiResource, ObjectPath, Scope, SourceError, resource_of};

use crate::server::{Server, config_maps, eventually, idle, secrets};

/// Each map has a Namespace, a Secret in it, and a Secret beside the map.
async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
    ctx.finalizer(&map, "example.com/spaces", async |finalizing| {
        let mut children = ctx.children(&map);
        if finalizing == Finalizing::Apply && map.data.is_none() {
            let space = format!("space-{}", map.name());
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(space.clone());
            children.add(&namespace)?;
            let mut secret = Secret::default();
            secret.metadata.name = Some("there".into());
            secret.metadata.namespace = Some(space);
            children.add(&secret)?;
            secret.metadata.name = Some(map.name().into());
            secret.metadata.namespace = None;
            children.add(&secret)?;
        }
        children.apply().await?;
        Ok(Action::AwaitChange)
    })
    .await
}

async fn get(server: &Server, resource: &ApiResource, place: &str, name: &str) -> Option<Value> {
    let path = ObjectPath::new(resource, place, name);
    let object = server.user().get_object(&path).await.unwrap()?;
    let object: Value = serde_json::from_slice(object.as_bytes()).unwrap();
    // A namespace goes when it is empty.
    Some(object).filter(|object| object["metadata"]["deletionTimestamp"].is_null())
}

#[tokio::test(flavor = "multi_thread")]
async fn children_without_an_owner_come_back_are_pruned_and_leave_no_garbage() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .name("spaces")
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .owns_labelled::<Secret>()
        .owns_labelled::<Namespace>()
        .start(reconcile, ());
    let namespaces = resource_of::<Namespace>();
    let there = async |name: &str| {
        let space = format!("space-{name}");
        [
            get(&server, &namespaces, "", &space).await.is_some(),
            get(&server, &secrets(), &space, "there").await.is_some(),
            get(&server, &secrets(), "default", name).await.is_some(),
        ]
    };
    eventually("all are made", async || {
        there("a").await == [true; 3] && there("b").await == [true; 3]
    })
    .await;
    idle(&controller).await;
    let secret = get(&server, &secrets(), "space-a", "there").await.unwrap();
    let owner = server.get(&config_maps(), "a").await.unwrap();
    let metadata = &secret["metadata"];
    assert_eq!(metadata["labels"]["tidings.dev/controller"], "spaces");
    assert_eq!(
        metadata["labels"]["tidings.dev/owner-uid"],
        owner["metadata"]["uid"]
    );
    assert_eq!(metadata["annotations"]["tidings.dev/owner"], "default/a");
    assert!(metadata["ownerReferences"].is_null());
    let beside = server.get(&secrets(), "a").await.unwrap();
    assert_eq!(beside["metadata"]["ownerReferences"][0]["name"], "a");
    assert!(beside["metadata"]["labels"].is_null());

    let resource = secrets();
    let path = ObjectPath::new(&resource, "space-a", "there");
    server.user().delete_object(&path, None).await.unwrap();
    eventually("it comes back", async || there("a").await == [true; 3]).await;

    // What is not wanted any more goes, and nothing of the other object.
    server.apply("a", json!({"k": "nothing wanted"})).await;
    eventually("all of one are pruned", async || {
        there("a").await == [false; 3]
    })
    .await;
    assert_eq!(there("b").await, [true; 3]);

    server.delete(&config_maps(), "b").await;
    eventually("the clean-up leaves nothing", async || {
        server.get(&config_maps(), "b").await.is_none() && there("b").await == [false; 3]
    })
    .await;
    assert_eq!(controller.stats().failed, 0);
    controller.stop().await;
}
