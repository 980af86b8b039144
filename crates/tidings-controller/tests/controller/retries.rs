//! Failures: retried, given up, contained, timed out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tidings_controller::{Action, Cached, Context, Controller, ControllerMetrics, ErrorPolicy};
use tidings_informer::workqueue::ItemExponential;
use tidings_kube::Scope;

use crate::server::{Server, config_maps, eventually, idle};

const HOUR: Duration = Duration::from_secs(3600);

/// The error of the tests.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("it may work later")]
    Passing,
    #[error("it will not work")]
    Lasting,
}

fn maps(server: &Server) -> Controller<ConfigMap> {
    Controller::<ConfigMap>::new(&server.cluster()).scope(Scope::namespace("default"))
}

#[tokio::test(flavor = "multi_thread")]
async fn kr11_a_key_that_always_fails_does_not_starve_the_rest() {
    let server = Server::start().await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<AtomicU64>| {
        if map.name() == "bad" {
            return Err(Trouble::Passing);
        }
        ctx.fetch_add(1, SeqCst);
        Ok(Action::AwaitChange)
    };
    let controller = maps(&server)
        .concurrency(1)
        .backoff(ItemExponential::new(
            Duration::from_millis(1),
            Duration::from_millis(20),
        ))
        .start(reconcile, AtomicU64::new(0));
    server.create(json!({"metadata": {"name": "bad"}})).await;
    eventually("it fails again and again", async || {
        controller.stats().failed > 5
    })
    .await;
    for number in 0..100 {
        server
            .create(json!({"metadata": {"name": format!("good-{number}")}}))
            .await;
    }
    eventually("the others are done", async || {
        controller.stats().succeeded == 100
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr9_the_policy_decides_per_error_and_attempts_are_counted() {
    let server = Server::start().await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| match map.name() {
        "passing" if ctx.attempt() < 4 => Err(Trouble::Passing),
        "lasting" if map.data.is_none() => Err(Trouble::Lasting),
        _ => Ok(Action::AwaitChange),
    };
    let controller = maps(&server)
        .error_policy(|error: &Trouble| match error {
            Trouble::Passing => ErrorPolicy::Retry,
            Trouble::Lasting => ErrorPolicy::Terminal,
        })
        .start(reconcile, ());
    server
        .create(json!({"metadata": {"name": "passing"}}))
        .await;
    server
        .create(json!({"metadata": {"name": "lasting"}}))
        .await;
    let counts = || {
        let stats = controller.stats();
        (stats.failed, stats.terminal, stats.succeeded)
    };
    eventually("one succeeds at the fourth try", async || {
        counts() == (4, 1, 1)
    })
    .await;
    // A terminal error waits for a change.
    server.apply("lasting", json!({"k": "v"})).await;
    eventually("a change helps", async || counts() == (4, 1, 2)).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr1_cr3_panics_and_endless_reconciles_are_contained() {
    let server = Server::start().await;
    let reconcile =
        async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| match (map.name(), ctx.attempt()) {
            ("panics", 1..3) => panic!("as the test wants it"),
            ("hangs", 1..3) => std::future::pending().await,
            _ => Ok::<_, Trouble>(Action::AwaitChange),
        };
    let controller = maps(&server)
        .timeout(Duration::from_millis(100))
        .start(reconcile, ());
    for name in ["panics", "hangs", "good"] {
        server.create(json!({"metadata": {"name": name}})).await;
    }
    eventually("all succeed", async || controller.stats().succeeded == 3).await;
    let stats = controller.stats();
    assert_eq!((stats.panicked, stats.timed_out, stats.failed), (2, 2, 4));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cr12_cr86_a_delayed_key_does_not_outlive_its_object_and_a_new_result_replaces_the_delay() {
    let server = Server::start().await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<AtomicU64>| {
        ctx.fetch_add(1, SeqCst);
        match map.data.is_some() {
            true => Ok::<_, Trouble>(Action::RequeueAfter(Duration::from_millis(300))),
            false => Ok(Action::AwaitChange),
        }
    };
    let controller = maps(&server).start(reconcile, AtomicU64::new(0));
    let count = || controller.stats().reconciles();
    server.apply("a", json!({"k": "v"})).await;
    eventually("it runs again after a while", async || {
        controller.stats().requeued >= 2
    })
    .await;
    server.apply("a", json!({})).await;
    eventually("it wants no delay any more", async || {
        controller.stats().succeeded == 1
    })
    .await;
    let before = count();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(count(), before, "the earlier delay is gone");

    server.apply("b", json!({"k": "v"})).await;
    eventually("it is delayed", async || count() > before).await;
    server.delete(&config_maps(), "b").await;
    idle(&controller).await;
    let gone = count();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(count(), gone);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_has_its_metrics() {
    let server = Server::start().await;
    for name in ["good", "later", "passing", "lasting", "panics", "hangs"] {
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let reconcile = async |map: Arc<Cached<ConfigMap>>, _: Context<()>| match map.name() {
        "good" => Ok(Action::AwaitChange),
        "later" => Ok(Action::RequeueAfter(HOUR)),
        "passing" => Err(Trouble::Passing),
        "lasting" => Err(Trouble::Lasting),
        "panics" => panic!("on purpose"),
        _ => std::future::pending().await,
    };
    let metrics = ControllerMetrics::new();
    let controller = maps(&server)
        .with_metrics(&metrics)
        .timeout(Duration::from_millis(50))
        .backoff(ItemExponential::new(HOUR, HOUR))
        .error_policy(|error: &Trouble| match error {
            Trouble::Passing => ErrorPolicy::Retry,
            Trouble::Lasting => ErrorPolicy::Terminal,
        })
        .start(reconcile, ());
    eventually("all have ended", async || {
        controller.stats().reconciles() == 6
    })
    .await;
    idle(&controller).await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for (sample, value) in [
        (
            "reconcile_total{controller=\"configmap\",result=\"success\"}",
            1,
        ),
        (
            "reconcile_total{controller=\"configmap\",result=\"requeue_after\"}",
            1,
        ),
        (
            "reconcile_total{controller=\"configmap\",result=\"error\"}",
            4,
        ),
        ("reconcile_errors_total{controller=\"configmap\"}", 4),
        (
            "terminal_reconcile_errors_total{controller=\"configmap\"}",
            1,
        ),
        ("reconcile_panics_total{controller=\"configmap\"}", 1),
        ("reconcile_timeouts_total{controller=\"configmap\"}", 1),
    ] {
        let line = format!("controller_runtime_{sample} {value}\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
    controller.stop().await;
}
