//! Predicates and what is reconciled without a change.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tidings_controller::{Action, Cached, Context, Controller, Predicate};
use tidings_kube::{Scope, SourceError};

use crate::server::{Server, eventually, idle};

#[tokio::test(flavor = "multi_thread")]
async fn only_events_that_count_are_reconciled_and_nothing_spins() {
    let server = Server::start().await;
    let reconcile =
        async |_: Arc<Cached<ConfigMap>>, _: Context<()>| Ok::<_, SourceError>(Action::AwaitChange);
    let data = Predicate::changed(|map: &Cached<ConfigMap>| map.data.clone());
    let controller = Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .with_predicate(data.or(Predicate::labels_changed()))
        .start(reconcile, ());
    let count = || controller.stats().reconciles();
    server.apply("a", json!({"k": "1"})).await;
    eventually("an addition counts", async || count() == 1).await;
    server.apply("a", json!({"k": "2"})).await;
    eventually("a change of data counts", async || count() == 2).await;
    let resource = crate::server::config_maps();
    let path = tidings_kube::ObjectPath::new(&resource, "default", "a");
    let patch = |patch: serde_json::Value| {
        let (user, path) = (server.user(), path.clone());
        async move {
            user.patch_object(&path, tidings_kube::PatchKind::Merge, &patch)
                .await
                .unwrap()
        }
    };
    patch(json!({"metadata": {"annotations": {"note": "x"}}})).await;
    patch(json!({"metadata": {"labels": {"l": "x"}}})).await;
    eventually("a label counts, an annotation does not", async || {
        count() == 3
    })
    .await;
    idle(&controller).await;
    assert_eq!(count(), 3);
    assert_eq!(server.switch().writes.load(SeqCst), 0);
    controller.stop().await;
}
