//! Finalizers: added first, removed after a clean-up that is done.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tidings_controller::{Action, Cached, Context, Controller, Finalizing};
use tidings_informer::workqueue::ItemExponential;
use tidings_kube::{ObjectPath, PatchKind, Scope, SourceError};

use crate::server::{Server, config_maps, eventually, idle};

const FINALIZER: &str = "example.com/clean";
const OTHER: &str = "example.com/other";

/// What was called, in order.
type Calls = Mutex<Vec<String>>;

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the clean-up did not work")]
    Cleanup,
    #[error(transparent)]
    Server(#[from] SourceError),
}

fn maps(server: &Server) -> Controller<ConfigMap> {
    let backoff = ItemExponential::new(Duration::from_millis(1), Duration::from_millis(10));
    Controller::<ConfigMap>::new(&server.cluster())
        .scope(Scope::namespace("default"))
        .backoff(backoff)
}

fn finalizers(map: &Value) -> Vec<&str> {
    let finalizers = map["metadata"]["finalizers"].as_array();
    let finalizers = finalizers.into_iter().flatten();
    finalizers.filter_map(Value::as_str).collect()
}

/// A reconcile whose clean-up succeeds at the third call; until then it fails, or asks to be called again.
async fn third_time(
    map: Arc<Cached<ConfigMap>>,
    ctx: Context<(Calls, bool)>,
) -> Result<Action, Trouble> {
    ctx.finalizer(&map, FINALIZER, async |finalizing| {
        let (calls, fails) = &**ctx.state();
        let mut calls = calls.lock().unwrap();
        calls.push(format!("{finalizing:?}"));
        let cleanups = calls.iter().filter(|call| *call == "Cleanup").count();
        match finalizing {
            Finalizing::Cleanup if cleanups < 3 && *fails => Err(Trouble::Cleanup),
            Finalizing::Cleanup if cleanups < 3 => Ok(Action::RequeueAfter(Duration::ZERO)),
            _ => Ok(Action::AwaitChange),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kr22_kr23_a_clean_up_that_fails_or_goes_on_keeps_the_finalizer() {
    for fails in [true, false] {
        let server = Server::start().await;
        server.create(json!({"metadata": {"name": "a"}})).await;
        let state = (Calls::default(), fails);
        let controller = maps(&server).start(third_time, state);
        idle(&controller).await;
        server.delete(&config_maps(), "a").await;
        eventually("it is gone", async || {
            server.get(&config_maps(), "a").await.is_none()
        })
        .await;
        idle(&controller).await;
        let stats = controller.stats();
        assert_eq!(stats.failed, if fails { 2 } else { 0 });
        assert_eq!(stats.requeued, if fails { 0 } else { 2 });
        controller.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kr21_the_finalizer_is_on_the_server_before_the_first_apply() {
    let server = Server::start().await;
    server
        .create(json!({"metadata": {"name": "a", "finalizers": [OTHER]}}))
        .await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<(Server, Arc<Calls>)>| {
        let (server, calls) = &**ctx.state();
        ctx.finalizer(&map, FINALIZER, async |_| {
            let stored = server.get(&config_maps(), "a").await.unwrap();
            calls.lock().unwrap().push(finalizers(&stored).join(" "));
            Ok::<_, SourceError>(Action::AwaitChange)
        })
        .await
    };
    let calls = Arc::new(Calls::default());
    let controller = maps(&server).start(reconcile, (server.clone(), Arc::clone(&calls)));
    idle(&controller).await;
    controller.stop().await;
    let calls = calls.lock().unwrap();
    assert_eq!(calls.first().unwrap(), &format!("{OTHER} {FINALIZER}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kr24_an_object_that_is_deleted_without_the_finalizer_is_left_alone() {
    let server = Server::start().await;
    server
        .create(json!({"metadata": {"name": "a", "finalizers": [OTHER]}}))
        .await;
    server.delete(&config_maps(), "a").await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| {
        ctx.finalizer(&map, FINALIZER, async |_| Err(Trouble::Cleanup))
            .await
    };
    let controller = maps(&server).start(reconcile, ());
    idle(&controller).await;
    let stats = controller.stats();
    assert_eq!((stats.succeeded, stats.failed), (1, 0));
    let stored = server.get(&config_maps(), "a").await.unwrap();
    assert_eq!(finalizers(&stored), [OTHER]);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr55_cr56_finalizers_of_one_program_stand_beside_each_other() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    // The clean-up of the other one never works.
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Arc<Calls>>| {
        ctx.finalizer(&map, FINALIZER, async |finalizing| {
            ctx.lock().unwrap().push(format!("{finalizing:?}"));
            Ok::<_, Trouble>(Action::AwaitChange)
        })
        .await?;
        ctx.finalizer(&map, OTHER, async |finalizing| match finalizing {
            Finalizing::Apply => Ok(Action::AwaitChange),
            Finalizing::Cleanup => Err(Trouble::Cleanup),
        })
        .await
    };
    let calls = Arc::new(Calls::default());
    let controller = maps(&server).start(reconcile, Arc::clone(&calls));
    idle(&controller).await;
    let stored = server.get(&config_maps(), "a").await.unwrap();
    assert_eq!(finalizers(&stored), [FINALIZER, OTHER], "each once");
    // A name that stands there twice goes with one clean-up.
    let twice = json!({"metadata": {"finalizers": [FINALIZER, OTHER, FINALIZER]}});
    let (user, resource) = (server.user(), config_maps());
    let path = ObjectPath::new(&resource, "default", "a");
    user.patch_object(&path, PatchKind::Merge, &twice)
        .await
        .unwrap();
    server.delete(&config_maps(), "a").await;
    eventually("what works is done", async || {
        let stored = server.get(&config_maps(), "a").await.unwrap();
        finalizers(&stored) == [OTHER]
    })
    .await;
    controller.stop().await;
    let calls = calls.lock().unwrap();
    let cleanups = calls.iter().filter(|call| *call == "Cleanup").count();
    assert_eq!(cleanups, 1, "{calls:?}");
}
