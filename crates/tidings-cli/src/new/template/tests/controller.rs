//! The operator on an API server inside the test: no cluster and no other program is needed.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidings::RestClient;
use tidings::controller::{Cluster, has_condition, install_definitions};
use tidings_server::{Api as Server, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions};

use template_name::controller::{controller, reconcile};
use template_name::types::{TemplateKind, TemplateKindSpec};

/// Waits until a condition holds; fails after twenty seconds.
async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> anyhow::Result<bool>) {
    let waited = async {
        while !matches!(condition().await, Ok(true)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waited).await;
    assert!(waited.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_follows_its_owner() -> anyhow::Result<()> {
    let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let server = Server::start(store, ApiOptions::default()).await?;
    let kube = kube::Client::new(server, "default");
    let client = RestClient::new(kube.clone());
    let longest = Duration::from_secs(10);
    install_definitions(&client, "test", [TemplateKind::crd()], longest).await?;
    let running = controller(&Cluster::new(&client)).start(reconcile, ());

    let objects: Api<TemplateKind> = Api::default_namespaced(kube.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(kube);
    let message = async || -> anyhow::Result<Option<String>> {
        let data = maps.get("first").await?.data.unwrap_or_default();
        Ok(data.get("message").cloned())
    };
    let spec = TemplateKindSpec {
        message: "hello".to_owned(),
    };
    let object = TemplateKind::new("first", spec);
    objects.create(&PostParams::default(), &object).await?;
    eventually("the ConfigMap is made", async || {
        Ok(message().await?.as_deref() == Some("hello"))
    })
    .await;
    eventually("the status says so", async || {
        let status = objects.get("first").await?.status.unwrap_or_default();
        Ok(has_condition(&status.conditions, "Ready"))
    })
    .await;

    let change = Patch::Merge(json!({"spec": {"message": "news"}}));
    let params = PatchParams::default();
    objects.patch("first", &params, &change).await?;
    eventually("the ConfigMap follows", async || {
        Ok(message().await?.as_deref() == Some("news"))
    })
    .await;

    maps.delete("first", &DeleteParams::default()).await?;
    eventually("the ConfigMap comes back", async || {
        Ok(message().await?.is_some())
    })
    .await;

    objects.delete("first", &DeleteParams::default()).await?;
    eventually("the ConfigMap goes with its owner", async || {
        Ok(maps.get_opt("first").await?.is_none())
    })
    .await;
    let summary = running.stop().await;
    assert_eq!((summary.errors, summary.panics), (0, 0));
    Ok(())
}
