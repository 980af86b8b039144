//! A server that does not answer: noticed once, waited for, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use tidings_controller::{Action, Cached, Context, Controller};
use tidings_kube::{Scope, SourceError};

use crate::server::{Server, eventually, idle, secrets};

async fn mirror(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.name().to_owned());
    ctx.apply(&map, &secret).await?;
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_is_noticed_once_and_no_key_pays_for_it() {
    const OBJECTS: usize = 1000;
    let server = Server::start().await;
    for number in 0..OBJECTS {
        server
            .create(json!({"metadata": {"name": format!("m{number}")}}))
            .await;
    }
    let cluster = server.cluster();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(mirror, ());
    let made = || controller.stats().succeeded as usize;
    // The tenth write is the last that is answered.
    server.switch().cut_after(10);
    eventually("the controller notices", async || !cluster.is_reachable()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stats = controller.stats();
    // At most the reconciles that were running have met the dead server; the rest waited.
    assert!(stats.given_back <= 8, "{stats:?}");
    assert_eq!(stats.failed, 0);
    let asked = server.switch().refused.load(SeqCst);
    assert!(asked < 60, "{asked} requests to a dead server in a second");

    let mended = Instant::now();
    server.switch().mend();
    eventually("all are made", async || made() >= OBJECTS).await;
    let took = mended.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    idle(&controller).await;
    for number in [0, 500, 999] {
        assert!(
            server
                .get(&secrets(), &format!("m{number}"))
                .await
                .is_some()
        );
    }
    assert_eq!(controller.stats().failed, 0, "no key was penalised");
    let summary = controller.stop().await;
    assert_eq!((summary.errors, summary.panics), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_just_started_is_waited_for_until_it_is_ready() {
    const OBJECTS: usize = 300;
    let server = Server::start().await;
    for number in 0..OBJECTS {
        server
            .create(json!({"metadata": {"name": format!("m{number}")}}))
            .await;
    }
    let cluster = server.cluster();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(mirror, ());
    server.switch().cut_after(10);
    eventually("the controller notices", async || !cluster.is_reachable()).await;
    server.switch().starting(true);
    server.switch().mend();
    let asked = server.switch().refused.load(SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!cluster.is_reachable(), "it answers, but serves nothing");
    let asked = server.switch().refused.load(SeqCst) - asked;
    assert!(asked < 60, "{asked} requests in two seconds");

    let ready = Instant::now();
    server.switch().starting(false);
    let made = || controller.stats().succeeded as usize;
    eventually("all are made", async || made() >= OBJECTS).await;
    let took = ready.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    idle(&controller).await;
    let stats = controller.stats();
    assert_eq!(stats.failed, 0, "no key was penalised: {stats:?}");
    assert_eq!(stats.stale_starts, 0, "the caches were fresh again");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_stops_during_an_outage_ends_at_once() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let cluster = server.cluster();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(mirror, ());
    idle(&controller).await;
    server.switch().cut();
    cluster
        .client()
        .create_object(&secrets(), "default", &json!({}))
        .await
        .unwrap_err();
    assert!(!cluster.is_reachable());
    let stopped = tokio::time::timeout(Duration::from_secs(5), controller.stop()).await;
    assert_eq!(stopped.unwrap().abandoned, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_fails_alone_backs_off_and_pauses_nobody_for_long() {
    let server = Server::start().await;
    *server.switch().poisoned.lock().unwrap() = Some("/secrets/bad");
    for name in ["bad", "good-1", "good-2"] {
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let cluster = server.cluster();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .start(mirror, ());
    let made = async |name: &str| server.get(&secrets(), name).await.is_some();
    eventually("the others are made", async || {
        made("good-1").await && made("good-2").await
    })
    .await;
    eventually("the bad one is a failure of its own", async || {
        controller.stats().failed >= 3
    })
    .await;
    let stats = controller.stats();
    assert_eq!(stats.given_back, 0, "the server was never dead");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let more = controller.stats().failed - stats.failed;
    assert!(
        more < 12,
        "{more} failures in a second: it does not back off"
    );
    *server.switch().poisoned.lock().unwrap() = None;
    eventually("it succeeds in the end", async || made("bad").await).await;
    controller.stop().await;
}
