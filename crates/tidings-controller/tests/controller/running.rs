//! The loop of a controller: when reconciles start, how many run, and how they end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use tidings_api::{Object, ObjectKey};
use tidings_controller::{Action, Cached, Context, Controller, ErrorPolicy, Trigger};
use tidings_informer::workqueue::ItemExponential;
use tidings_kube::{ApiResource, Scope, SourceError};
use tokio::sync::Semaphore;

use crate::server::{Server, eventually, idle};

fn maps(server: &Server) -> Controller<ConfigMap> {
    Controller::<ConfigMap>::new(&server.cluster()).scope(Scope::namespace("default"))
}

async fn create_many(server: &Server, count: usize) {
    for number in 0..count {
        let name = format!("map-{number:02}");
        server.create(json!({"metadata": {"name": name}})).await;
    }
}

async fn done(_: Arc<Cached<ConfigMap>>, _: Context<()>) -> Result<Action, SourceError> {
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn cr7_kr3_no_reconcile_starts_before_all_caches_have_their_state() {
    let server = Server::start().await;
    create_many(&server, 3).await;
    server.switch().hold(Some("/secrets"));
    let trigger = Trigger::new();
    let cluster = server.cluster();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .triggered_by(&trigger)
        .start(done, ());
    let informer = cluster
        .informers()
        .informer::<ConfigMap>(&Scope::namespace("default"));
    eventually("the main cache is filled", async || informer.has_synced()).await;
    // CR7: what the program asks for meanwhile is not lost.
    trigger.reconcile(&ObjectKey::new("default", "map-01"));
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!controller.has_synced());
    assert_eq!(controller.stats().reconciles(), 0);
    server.switch().hold(None);
    eventually("then all are reconciled", async || {
        controller.stats().succeeded == 3
    })
    .await;
    controller.stop().await;
}

/// How many reconciles run, and how many ever ran at once.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn kr6_as_many_reconciles_run_as_are_allowed_and_no_more() {
    let server = Server::start().await;
    create_many(&server, 12).await;
    let (crowd, held) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    let reconcile = async |_: Arc<Cached<ConfigMap>>,
                           ctx: Context<(Arc<Crowd>, Arc<Semaphore>)>| {
        let (crowd, held) = &**ctx.state();
        let now = crowd.now.fetch_add(1, SeqCst) + 1;
        crowd.most.fetch_max(now, SeqCst);
        held.acquire().await.unwrap().forget();
        crowd.now.fetch_sub(1, SeqCst);
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let state = (Arc::clone(&crowd), Arc::clone(&held));
    let controller = maps(&server).concurrency(3).start(reconcile, state);
    let running = || crowd.now.load(SeqCst);
    eventually("three run", async || running() == 3).await;
    held.add_permits(1);
    eventually("a free place is used", async || {
        controller.stats().succeeded == 1 && running() == 3
    })
    .await;
    held.add_permits(20);
    eventually("all end", async || controller.stats().succeeded == 12).await;
    assert_eq!(crowd.most.load(SeqCst), 3);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kr7_cr76_at_the_stop_running_reconciles_end_and_none_starts() {
    let server = Server::start().await;
    create_many(&server, 5).await;
    let held = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let reconcile = async |_: Arc<Cached<ConfigMap>>,
                           ctx: Context<(Arc<Semaphore>, Arc<AtomicUsize>)>| {
        let (held, started) = &**ctx.state();
        started.fetch_add(1, SeqCst);
        held.acquire().await.unwrap().forget();
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let (stopper, stop) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let controller = maps(&server).concurrency(2).stop_on(async {
            let _ = stop.await;
        });
        controller.run(reconcile, (Arc::clone(&held), Arc::clone(&started)))
    });
    eventually("two wait", async || started.load(SeqCst) == 2).await;
    stopper.send(()).unwrap();
    // They may end in their own time.
    held.add_permits(10);
    let summary = running.await.unwrap();
    assert_eq!(
        (summary.reconciles, summary.abandoned, summary.left),
        (2, 0, 3)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cr76_what_does_not_end_within_the_grace_is_aborted() {
    let server = Server::start().await;
    create_many(&server, 3).await;
    let dropped = Arc::new(AtomicUsize::new(0));
    /// Counts when it is dropped.
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let reconcile = async |_: Arc<Cached<ConfigMap>>,
                           ctx: Context<(Arc<AtomicUsize>, AtomicUsize)>| {
        let (dropped, started) = &**ctx.state();
        let _counted = Counted(Arc::clone(dropped));
        started.fetch_add(1, SeqCst);
        std::future::pending::<Result<Action, SourceError>>().await
    };
    let controller = maps(&server)
        .grace(Duration::from_millis(50))
        .start(reconcile, (Arc::clone(&dropped), AtomicUsize::new(0)));
    eventually("all hang", async || controller.stats().active == 3).await;
    let summary = controller.stop().await;
    assert_eq!((summary.reconciles, summary.abandoned), (0, 3));
    assert_eq!(dropped.load(SeqCst), 3, "nothing of them is left");
}

/// The error of the tests.
#[derive(Debug, thiserror::Error)]
#[error("it does not work")]
struct Trouble;

#[tokio::test(flavor = "multi_thread")]
async fn cr8_attempts_and_waits_start_over_after_a_success() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    // Fails twice for each state of the object.
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<Mutex<Vec<(u64, u32)>>>| {
        ctx.lock().unwrap().push((map.version(), ctx.attempt()));
        match ctx.attempt() {
            1 | 2 => Err(Trouble),
            _ => Ok(Action::AwaitChange),
        }
    };
    let wait = Duration::from_millis(100);
    let controller = maps(&server)
        .backoff(ItemExponential::new(wait, Duration::from_secs(60)))
        .start(reconcile, Mutex::default());
    eventually("it succeeds", async || controller.stats().succeeded == 1).await;
    let start = Instant::now();
    server.apply("a", json!({"k": "v"})).await;
    eventually("it succeeds again", async || {
        controller.stats().succeeded == 2
    })
    .await;
    assert_eq!(controller.stats().failed, 4);
    // 100 and 200 ms; had the waits gone on growing, 400 and 800 ms.
    assert!(
        start.elapsed() < Duration::from_millis(1_100),
        "{:?}",
        start.elapsed()
    );
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr10_errors_are_retried_after_a_fixed_wait_or_given_up_until_a_change() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "later"}})).await;
    server.create(json!({"metadata": {"name": "never"}})).await;
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Named(String);
    let reconcile = async |map: Arc<Cached<ConfigMap>>, _: Context<()>| match map.data {
        Some(_) => Ok(Action::AwaitChange),
        None => Err(Named(map.name().to_owned())),
    };
    let controller = maps(&server)
        .error_policy(|error: &Named| match &*error.0 {
            "later" => ErrorPolicy::RetryAfter(Duration::from_millis(1)),
            _ => ErrorPolicy::GiveUp,
        })
        .start(reconcile, ());
    // With the backoff the tenth failure would come after five seconds.
    let start = Instant::now();
    eventually("one is retried", async || controller.stats().failed > 50).await;
    assert!(start.elapsed() < Duration::from_secs(5));
    server.apply("later", json!({"k": "v"})).await;
    // Once or twice: a retry may see the change before its event queues the key.
    eventually("it works", async || controller.stats().succeeded >= 1).await;
    idle(&controller).await;
    let before = controller.stats();
    server.apply("never", json!({"k": "v"})).await;
    eventually("a change helps", async || {
        controller.stats().succeeded > before.succeeded
    })
    .await;
    let failed = before.failed;
    let stats = controller.stats();
    assert_eq!((stats.failed, stats.terminal), (failed, 0));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr13_a_key_comes_again_at_a_time_also_one_in_the_past() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let reconcile = async |_: Arc<Cached<ConfigMap>>, ctx: Context<AtomicUsize>| {
        let now = SystemTime::now();
        Ok::<_, SourceError>(match ctx.fetch_add(1, SeqCst) {
            0 => Action::RequeueAt(now - Duration::from_secs(3600)),
            1 => Action::RequeueAt(now + Duration::from_millis(50)),
            _ => Action::RequeueAt(now + Duration::from_secs(3600)),
        })
    };
    let controller = maps(&server).start(reconcile, AtomicUsize::new(0));
    eventually("it came three times", async || {
        controller.stats().requeued == 3
    })
    .await;
    idle(&controller).await;
    assert_eq!(controller.stats().reconciles(), 3);
    assert_eq!(controller.stop().await.left, 1, "one is still to come");
}

#[tokio::test(flavor = "multi_thread")]
async fn cr95_every_object_is_reconciled_again_from_time_to_time() {
    let server = Server::start().await;
    create_many(&server, 2).await;
    let every = Duration::from_millis(50);
    let controller = maps(&server).resync(every).start(done, ());
    eventually("again and again", async || {
        controller.stats().succeeded >= 8
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr94_a_controller_begins_when_its_kind_is_served() {
    let server = Server::start().await;
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Page".into(),
        plural: "pages".into(),
    };
    let is_seen = Arc::new(AtomicBool::new(false));
    let reconcile = async |_: Arc<Cached<Object>>, ctx: Context<Arc<AtomicBool>>| {
        ctx.state().store(true, SeqCst);
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let controller =
        Controller::dynamic(&server.cluster(), &resource).start(reconcile, Arc::clone(&is_seen));
    let definition = json!({"metadata": {"name": "pages.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "pages", "kind": "Page"}, "versions": [{"name": "v1",
            "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let user = server.user();
    user.create_object(&definitions, "", &definition)
        .await
        .unwrap();
    let page = json!({"apiVersion": "example.com/v1", "kind": "Page", "metadata": {"name": "a"}});
    eventually("its objects can be made", async || {
        let made = user.create_object(&resource, "default", &page).await;
        made.is_ok()
    })
    .await;
    eventually("it is reconciled", async || is_seen.load(SeqCst)).await;
    controller.stop().await;
}
