//! Metrics for Prometheus: B107, K18.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tidings_informer::metrics::InformerMetrics;
use tidings_informer::*;

use crate::support::server::Server;
use crate::support::*;

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

/// The value of a sample.
fn figure(text: &str, sample: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{sample} ")));
    let line = line.unwrap_or_else(|| panic!("no {sample} in\n{text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn k18_lists_watches_relists_lags_queues_and_versions_have_figures() {
    let metrics = InformerMetrics::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let server = Server::new();
    server.put("a");
    let factory = SharedInformerFactory::new().with_metrics(metrics.clone());
    let informer = factory.informer(&InformerKey::new("v1/configmaps"), || {
        SharedInformer::builder(server.source(), Decode::bytes())
    });
    let gate = Arc::new(tokio::sync::Semaphore::new(2));
    let slow = Arc::clone(&gate);
    let options = HandlerOptions::default().name("slow");
    let wait = move |_| {
        let slow = Arc::clone(&slow);
        async move { slow.acquire().await.unwrap().forget() }
    };
    informer.for_each(wait, &options).unwrap();
    informer.start();
    informer.wait_synced().await.unwrap();
    server.put("b");
    informer.wait_for(ServerVersion::new("2")).await.unwrap();
    server.tick();
    server.compact(); // ends the watch and causes a relist
    informer.wait_for(ServerVersion::new("3")).await.unwrap();
    server.put("c");
    server.put("d");
    informer.wait_for(ServerVersion::new("5")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(7)).await;

    let queue: WorkQueue<String> = WorkQueue::new();
    assert!(metrics.observe_queue("reconcile", &queue));
    assert!(
        !metrics.observe_queue("reconcile", &queue),
        "names are unique"
    );
    queue.add("x".into());
    queue.add("y".into());
    let lease = queue.get().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;

    let text = scrape(&registry);
    let name = r#"{name="v1/configmaps"}"#;
    let expected = [
        (
            r#"informer_lists_total{name="v1/configmaps",reason="first"}"#.to_owned(),
            1.0,
        ),
        (
            r#"informer_lists_total{name="v1/configmaps",reason="expired"}"#.to_owned(),
            1.0,
        ),
        (
            r#"informer_lists_total{name="v1/configmaps",reason="stuck"}"#.to_owned(),
            0.0,
        ),
        (
            r#"informer_watch_ends_total{name="v1/configmaps",reason="error"}"#.to_owned(),
            1.0,
        ),
        (format!("informer_objects{name}"), 4.0),
        (format!("informer_queued_items{name}"), 0.0),
        (format!("informer_handlers{name}"), 1.0),
        (format!("informer_store_resource_version{name}"), 5.0),
        (format!("informer_seconds_since_progress{name}"), 10.0),
        (r#"workqueue_depth{name="reconcile"}"#.to_owned(), 1.0),
        (r#"workqueue_adds_total{name="reconcile"}"#.to_owned(), 2.0),
        (
            r#"workqueue_unfinished_work_seconds{name="reconcile"}"#.to_owned(),
            3.0,
        ),
    ];
    for (sample, value) in expected {
        let found = figure(&text, &sample);
        assert!(
            (found - value).abs() < 0.1,
            "{sample}: {found}, expected {value}"
        );
    }
    let handler = r#"{name="v1/configmaps",handler="slow"}"#;
    assert!(figure(&text, &format!("informer_handler_lag_events{handler}")) >= 1.0);
    assert!(figure(&text, &format!("informer_handler_lag_seconds{handler}")) >= 10.0);
    let unbounded = r#"workqueue_queue_duration_seconds_bucket{le="+Inf",name="reconcile"}"#;
    assert!((figure(&text, unbounded) - 1.0).abs() < 0.1, "{text}");
    assert!(figure(&text, &format!("informer_received_bytes_total{name}")) > 500.0);
    assert!(figure(&text, &format!("informer_object_bytes{name}")) > 500.0);
    drop((lease, queue));

    // The metrics of a dropped informer and queue end with it.
    gate.add_permits(1000); // `stop` waits for the running call
    informer.stop().await;
    drop(informer);
    eventually("gone", || !scrape(&registry).contains("configmaps")).await;
    assert!(!scrape(&registry).contains("reconcile"));
}

#[tokio::test(start_paused = true)]
async fn b107_the_name_of_an_informer_is_free_again_when_it_is_gone() {
    let metrics = InformerMetrics::new();
    let server = Server::new();
    let make = || {
        SharedInformer::builder(server.source(), Decode::bytes())
            .name("pods")
            .build()
    };
    let first = make();
    assert!(metrics.observe(&first));
    assert!(
        !metrics.observe(&make()),
        "the second of a name has no figures"
    );
    drop(first);
    assert!(metrics.observe(&make()));
}

#[tokio::test(start_paused = true)]
async fn equal_names_of_several_clusters_are_told_apart() {
    let metrics = InformerMetrics::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let (east, west) = (metrics.of_cluster("east"), metrics.of_cluster("west"));
    let servers = [Server::new(), Server::new()];
    servers[1].put("a");
    let [here, there] = servers.each_ref().map(|server| {
        SharedInformer::builder(server.source(), Decode::bytes())
            .name("pods")
            .start()
    });
    assert!(east.observe(&here) && west.observe(&there));
    assert!(!east.observe(&there), "names are unique in a cluster");
    let queues: [WorkQueue<String>; 3] = [WorkQueue::new(), WorkQueue::new(), WorkQueue::new()];
    assert!(east.observe_queue("q", &queues[0]) && west.observe_queue("q", &queues[1]));
    assert!(metrics.observe_queue("q", &queues[2]), "and without one");
    queues[1].add("x".into());
    for informer in [&here, &there] {
        informer.wait_synced().await.unwrap();
    }
    let text = scrape(&registry);
    for (sample, value) in [
        (r#"informer_objects{name="pods",cluster="east"}"#, 0.0),
        (r#"informer_objects{name="pods",cluster="west"}"#, 1.0),
        (
            r#"informer_lists_total{name="pods",cluster="west",reason="first"}"#,
            1.0,
        ),
        (r#"workqueue_depth{name="q",cluster="east"}"#, 0.0),
        (r#"workqueue_depth{name="q",cluster="west"}"#, 1.0),
        (r#"workqueue_depth{name="q"}"#, 0.0),
        (
            r#"workqueue_work_duration_seconds_count{name="q",cluster="west"}"#,
            0.0,
        ),
    ] {
        assert!((figure(&text, sample) - value).abs() < 0.1, "{sample}");
    }
}
