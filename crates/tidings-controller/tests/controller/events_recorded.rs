//! Events about objects: what is on the server, series, outages, limits, the end of a controller.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tidings_api::Object;
use tidings_controller::{
    Action, Cached, Context, Controller, ControllerMetrics, EventOptions, EventRecorder, NewEvent,
    ObjectReference,
};
use tidings_kube::{ApiResource, ObjectPath, Scope, SourceError, resource_of};

use crate::server::{Server, config_maps, eventually, idle};

async fn events(server: &Server) -> Vec<Event> {
    let api: Api<Event> = Api::all(server.user().kube().clone());
    api.list(&ListParams::default()).await.unwrap().items
}

fn about(name: &str) -> ObjectReference {
    ObjectReference::new("v1", "ConfigMap", "default", name)
}

fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
}

fn small() -> EventOptions {
    let mut options = EventOptions::default();
    options.finish_after = Duration::from_millis(300);
    options
}

/// Says that it saw the object, each time.
async fn see(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
    ctx.event(
        &map,
        NewEvent::normal("Seen", "looked at it").action("Look"),
    );
    Ok(Action::AwaitChange)
}

fn maps(server: &Server) -> Controller<ConfigMap> {
    Controller::<ConfigMap>::new(&server.cluster()).scope(Scope::namespace("default"))
}

#[tokio::test(flavor = "multi_thread")]
async fn kr26_an_event_has_what_kubectl_shows() {
    let server = Server::start().await;
    let map = server.create(json!({"metadata": {"name": "a"}})).await;
    let other = server.create(json!({"metadata": {"name": "b"}})).await;
    let reconcile = async |map: Arc<Cached<ConfigMap>>, ctx: Context<()>| {
        if map.name() == "a" {
            let other = ctx.store::<ConfigMap>().get("default", "b");
            let event = NewEvent::warning("Torn", "a and b do not fit").action("Compare");
            ctx.event(&map, event.related(&other.unwrap()));
        }
        Ok::<_, SourceError>(Action::AwaitChange)
    };
    let controller = maps(&server).name("fitter").start(reconcile, ());
    eventually("it is written", async || !events(&server).await.is_empty()).await;
    let summary = controller.stop().await;
    assert_eq!(summary.errors, 0);

    let resource = resource_of::<Event>();
    let event = events(&server).await.remove(0);
    let name = event.metadata.name.unwrap();
    assert_eq!(name.split_once('.').unwrap().0, "a");
    let stored: Value = server.get(&resource, &name).await.unwrap();
    let reference = |map: &Value| {
        json!({
            "kind": "ConfigMap", "apiVersion": "v1", "namespace": "default", "name": map["metadata"]["name"],
            "uid": map["metadata"]["uid"], "resourceVersion": map["metadata"]["resourceVersion"],
        })
    };
    for (member, expected) in [
        ("type", json!("Warning")),
        ("reason", json!("Torn")),
        ("action", json!("Compare")),
        ("note", json!("a and b do not fit")),
        ("reportingController", json!("fitter")),
        ("regarding", reference(&map)),
        ("related", reference(&other)),
        ("series", Value::Null),
    ] {
        assert_eq!(stored[member], expected, "{member}");
    }
    let instance = stored["reportingInstance"].as_str().unwrap();
    assert!(
        instance.starts_with("fitter-") && instance.len() > 7,
        "{instance}"
    );
    assert_eq!(
        stored["eventTime"].as_str().unwrap().len(),
        "2026-11-18T04:03:06.123456Z".len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kr26_many_reconciles_that_say_the_same_are_one_event_with_a_count() {
    const TIMES: u64 = 200;
    let server = Server::start().await;
    let metrics = ControllerMetrics::new();
    let controller = maps(&server).with_metrics(&metrics).start(see, ());
    for time in 1..=TIMES {
        server.apply("a", json!({"k": time.to_string()})).await;
        eventually("it is reconciled", async || {
            controller.stats().reconciles() == time
        })
        .await;
    }
    let writes = server.switch().writes.load(SeqCst);
    assert!(writes <= 3, "{writes} writes");
    let figures = controller.stats().events;
    assert_eq!((figures.created, figures.series), (1, TIMES - 1));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for (result, expected) in [("created", 1), ("series", TIMES - 1), ("failed", 0)] {
        let line = format!(
            "tidings_controller_events_total{{controller=\"configmap\",result=\"{result}\"}} {expected}\n"
        );
        assert!(text.contains(&line), "{line}{text}");
    }
    controller.stop().await;
    let events = events(&server).await;
    assert_eq!(events.len(), 1);
    assert_eq!(u64::try_from(count(&events[0])), Ok(TIMES));
}

#[tokio::test(flavor = "multi_thread")]
async fn kr28_the_last_count_is_written_when_the_series_has_ended() {
    let server = Server::start().await;
    let recorder = EventRecorder::with_options(&server.cluster(), "test", small());
    for _ in 0..50 {
        recorder.record_about(about("a"), NewEvent::normal("Seen", "again"));
    }
    recorder.flush().await;
    for _ in 0..50 {
        recorder.record_about(about("a"), NewEvent::normal("Seen", "and again"));
    }
    eventually("all are counted", async || {
        let events = events(&server).await;
        events.len() == 1 && count(&events[0]) == 100
    })
    .await;
    // What happens after the end is a new Event.
    eventually("there is a second Event", async || {
        recorder.record_about(about("a"), NewEvent::normal("Seen", "once more"));
        tokio::time::sleep(Duration::from_millis(400)).await;
        events(&server).await.len() > 1
    })
    .await;
    assert_eq!(recorder.stats().failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_delays_events_and_nobody_else() {
    const OBJECTS: usize = 100;
    let server = Server::start().await;
    let cluster = server.cluster();
    let recorder = EventRecorder::new(&cluster, "test");
    let record = |round: usize| {
        for number in 0..OBJECTS {
            let event = NewEvent::normal("Seen", format!("round {round}"));
            recorder.record_about(about(&format!("m{number}")), event);
        }
    };
    record(0);
    // In the middle of the first events.
    server.switch().cut_after(30);
    eventually("the recorder notices", async || !cluster.is_reachable()).await;
    let start = Instant::now();
    for round in 1..5 {
        record(round);
    }
    let took = start.elapsed();
    assert!(
        took < Duration::from_millis(500),
        "{took:?}: it must not block"
    );
    let refused = server.switch().refused.load(SeqCst);
    assert!(refused < 60, "{refused} requests to a dead server");
    server.switch().mend();
    recorder.flush().await;
    let events = events(&server).await;
    assert_eq!(events.len(), OBJECTS);
    let counted: i32 = events.iter().map(count).sum();
    assert_eq!(counted as usize, 5 * OBJECTS);
    let stats = recorder.stats();
    assert_eq!((stats.created, stats.dropped, stats.failed), (100, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn cr97_events_that_wait_are_written_when_the_controller_stops() {
    let server = Server::start().await;
    for number in 0..200 {
        let name = format!("m{number}");
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let controller = maps(&server).start(see, ());
    eventually("all are reconciled", async || {
        controller.stats().reconciles() == 200
    })
    .await;
    controller.stop().await;
    assert_eq!(events(&server).await.len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_stops_during_an_outage_does_not_wait_for_its_events() {
    let server = Server::start().await;
    let cluster = server.cluster();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .start(see, ());
    idle(&controller).await;
    // Reads go on, and bring the object: only events find no server.
    *server.switch().poisoned.lock().unwrap() = Some("/events");
    server.create(json!({"metadata": {"name": "a"}})).await;
    eventually("it is reconciled", async || {
        controller.stats().reconciles() == 1
    })
    .await;
    server.switch().cut();
    let resource = config_maps();
    let path = ObjectPath::new(&resource, "default", "a");
    cluster.client().get_object(&path).await.unwrap_err();
    eventually("the outage is noticed", async || !cluster.is_reachable()).await;
    let stopped = tokio::time::timeout(Duration::from_secs(8), controller.stop()).await;
    assert!(stopped.is_ok(), "it waits for a dead server");
    assert_eq!(events(&server).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_events_are_given_up_and_the_others_go_on() {
    let server = Server::start().await;
    let recorder = EventRecorder::new(&server.cluster(), "test");
    let nowhere = ObjectReference::new("v1", "ConfigMap", "nowhere", "a");
    recorder.record_about(
        nowhere,
        NewEvent::normal("Seen", "there is no such namespace"),
    );
    recorder.record_about(about("b"), NewEvent::normal("Seen", "here"));
    recorder.flush().await;
    let stats = recorder.stats();
    assert_eq!((stats.created, stats.failed), (1, 1));
    assert_eq!(
        events(&server).await[0]
            .regarding
            .as_ref()
            .unwrap()
            .name
            .as_deref(),
        Some("b")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_any_resource_have_events() {
    let server = Server::start().await;
    let resource = ApiResource {
        group: "rbac.authorization.k8s.io".into(),
        version: "v1".into(),
        api_version: "rbac.authorization.k8s.io/v1".into(),
        kind: "ClusterRole".into(),
        plural: "clusterroles".into(),
    };
    let role: Object = server
        .user()
        .create_object(
            &resource,
            "",
            &json!({"metadata": {"name": "system:Odd"}, "rules": []}),
        )
        .await
        .unwrap();
    let recorder = EventRecorder::new(&server.cluster(), "test");
    let reference = ObjectReference::dynamic(&resource, &role);
    recorder.record_about(reference, NewEvent::normal("Seen", "a role").action("Look"));
    recorder.flush().await;
    let event = events(&server).await.remove(0);
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    let regarding = event.regarding.unwrap();
    assert_eq!(
        (
            regarding.kind.as_deref(),
            regarding.name.as_deref(),
            regarding.uid
        ),
        (
            Some("ClusterRole"),
            Some("system:Odd"),
            Some(role.uid().into_owned())
        )
    );
}
