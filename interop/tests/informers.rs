//! Tidings' informers end to end: against the built server, and against another one where `TIDINGS_TEST_KUBECONFIG` names its
//! kubeconfig. The same tests for both. Each works in a namespace of its own and removes it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::json;
use tidings_informer::*;
use tidings_kube::*;

const LONG: Duration = Duration::from_secs(30);

/// A namespace on a server.
#[derive(Clone)]
struct TestedServer {
    client: RestClient,
    namespace: String,
    maps: Api<ConfigMap>,
}

impl TestedServer {
    fn scope(&self) -> Scope {
        Scope::namespace(&self.namespace)
    }

    /// Creates or changes a ConfigMap; returns its version.
    async fn put(&self, name: &str, value: &str) -> ServerVersion {
        let patch = Patch::Merge(
            json!({"metadata": {"labels": {"value": value}}, "data": {"value": value}}),
        );
        let written = match self.maps.patch(name, &PatchParams::default(), &patch).await {
            Ok(written) => written,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let map = json!({"metadata": {"name": name, "labels": {"value": value}}, "data": {"value": value}});
                let map = serde_json::from_value(map).unwrap();
                self.maps
                    .create(&PostParams::default(), &map)
                    .await
                    .unwrap()
            }
            Err(error) => panic!("{error}"),
        };
        ServerVersion::new(&written.metadata.resource_version.unwrap())
    }

    async fn delete(&self, name: &str) {
        self.maps
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Deletes what a cache showed: it may be gone already.
    async fn delete_if_there(&self, name: &str) {
        match self.maps.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.unwrap()),
        }
    }
}

/// Runs a test on every server.
async fn everywhere<F: Future<Output = ()>>(name: &str, test: impl Fn(TestedServer) -> F) {
    let own = interop::Server::start().await.unwrap();
    on(&own.kubeconfig(), name, &test).await;
    if let Some(other) = std::env::var_os("TIDINGS_TEST_KUBECONFIG") {
        on(Path::new(&other), name, &test).await;
    }
}

async fn on<F: Future<Output = ()>>(
    kubeconfig: &Path,
    name: &str,
    test: impl Fn(TestedServer) -> F,
) {
    let connection = connect(Some(kubeconfig), None).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(connection.client.kube().clone());
    let wanted = json!({"metadata": {"generateName": format!("tidings-{name}-")}});
    let made = namespaces
        .create(
            &PostParams::default(),
            &serde_json::from_value(wanted).unwrap(),
        )
        .await
        .unwrap();
    let namespace = made.metadata.name.unwrap();
    let place = TestedServer {
        maps: Api::namespaced(connection.client.kube().clone(), &namespace),
        namespace: namespace.clone(),
        client: connection.client,
    };
    tokio::time::timeout(Duration::from_secs(120), test(place))
        .await
        .unwrap();
    namespaces
        .delete(&namespace, &DeleteParams::default())
        .await
        .unwrap();
}

fn streamed() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.initial_state = InitialState::Streamed;
    options
}

/// The next events about ConfigMaps that are the test's own: a cluster puts some into every namespace.
async fn told(events: &mut Subscription<ConfigMap>, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    while told.len() < count {
        let event = tokio::time::timeout(LONG, events.next())
            .await
            .unwrap()
            .unwrap();
        let value = |object: &Cached<ConfigMap>| {
            object
                .data
                .as_ref()
                .and_then(|data| data.get("value").cloned())
                .unwrap_or_default()
        };
        if event
            .object()
            .is_some_and(|object| object.name() == "kube-root-ca.crt")
        {
            continue;
        }
        told.push(match &event {
            Event::Added { object, initial } => format!(
                "+{}={}{}",
                object.name(),
                value(object),
                if *initial { "!" } else { "" }
            ),
            Event::Updated { old, new } => format!("~{}={}>{}", new.name(), value(old), value(new)),
            Event::Deleted {
                last,
                final_state_known,
            } => format!(
                "-{}={}{}",
                last.name(),
                value(last),
                if *final_state_known { "" } else { "?" }
            ),
            Event::Synced => "synced".into(),
            other => format!("{other:?}"),
        });
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn k19_states_and_changes_are_told_listed_and_streamed() {
    everywhere("changes", |place| async move {
        place.put("a", "1").await;
        for options in [ReflectorOptions::default(), streamed()] {
            let informer = informer::<ConfigMap>(&place.client, &place.scope())
                .reflector(options)
                .build();
            let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
            informer.start();
            assert_eq!(told(&mut events, 2).await, ["+a=1!", "synced"]);
            place.put("b", "1").await;
            place.put("b", "2").await;
            place.delete("b").await;
            assert_eq!(told(&mut events, 3).await, ["+b=1", "~b=1>2", "-b=2"]);
            let mut late = informer.subscribe(&HandlerOptions::default()).unwrap();
            assert_eq!(told(&mut late, 2).await, ["+a=1!", "synced"]);
            let lists: u64 = RelistReason::ALL
                .into_iter()
                .map(|reason| informer.reflector_stats().lists(reason))
                .sum();
            assert_eq!(lists, 1, "one state was asked for");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_sees_what_it_wrote() {
    everywhere("writes", |place| async move {
        let informer = informer::<ConfigMap>(&place.client, &place.scope()).start();
        informer.wait_synced_within(LONG).await.unwrap();
        for round in 0..50 {
            let version = place.put("counter", &round.to_string()).await;
            tokio::time::timeout(LONG, informer.wait_for(version))
                .await
                .unwrap()
                .unwrap();
            let seen = informer.store().get(&place.namespace, "counter").unwrap();
            assert_eq!(seen.data.as_ref().unwrap()["value"], round.to_string());
        }
        let written = place.maps.get("counter").await.unwrap();
        wrote(&informer, &written).unwrap();
        assert!(informer.overlay().is_empty(), "the watch has it already");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_namespaces_and_forms_share_one_factory() {
    everywhere("forms", |place| async move {
        for (name, value) in [("a", "x"), ("b", "y"), ("c", "x")] {
            place.put(name, value).await;
        }
        #[derive(serde::Deserialize)]
        struct Slim {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }
        let resource = ApiResource::erase::<ConfigMap>(&());
        let factory = KubeInformerFactory::new(place.client.clone());
        let by_label = factory.informer::<ConfigMap>(&place.scope().labels("value=x"));
        let by_field = factory.dynamic(&resource, &place.scope().fields("metadata.name=b"));
        let slim = factory.projected::<Slim>(&resource, &place.scope().labels("value"));
        let metadata = factory.metadata(&resource, &place.scope().labels("value"));
        let everything = factory.metadata(&resource, &Scope::all());
        factory.start();
        factory.wait_synced(LONG).await.unwrap();
        let names = |keys: Vec<tidings_api::ObjectKey>| {
            keys.iter()
                .map(|key| key.name().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(by_label.store().list_keys()), ["a", "c"]);
        assert_eq!(names(by_field.store().list_keys()), ["b"]);
        let found = by_field.store().get(&place.namespace, "b").unwrap();
        assert_eq!(
            (found.kind().as_ref(), found.api_version().as_ref()),
            ("ConfigMap", "v1")
        );
        let managed = found.field(&["metadata", "managedFields"]);
        assert!(
            managed.is_none()
                && !found
                    .as_bytes()
                    .windows(13)
                    .any(|part| part == b"managedFields")
        );
        assert_eq!(
            slim.store().get(&place.namespace, "a").unwrap().data["value"],
            "x"
        );
        assert_eq!(names(metadata.store().list_keys()), ["a", "b", "c"]);
        assert!(everything.store().get(&place.namespace, "a").is_some());
        // What leaves a selection is deleted from its informer.
        let version = place.put("a", "z").await;
        by_label.wait_for(version.clone()).await.unwrap();
        assert_eq!(names(by_label.store().list_keys()), ["c"]);
        metadata.wait_for(version).await.unwrap();
        assert_eq!(
            metadata
                .store()
                .get(&place.namespace, "a")
                .unwrap()
                .labels()
                .get("value"),
            Some("z")
        );
        factory.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_states_come_page_by_page_and_streamed_alike() {
    everywhere("large", |place| async move {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let place = place.clone();
                tokio::spawn(async move {
                    for index in 0..40 {
                        place.put(&format!("n{writer}-{index:02}"), "x").await;
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let resource = ApiResource::erase::<ConfigMap>(&());
        let source = RestListWatch::new(&place.client, &resource, &place.namespace);
        // Straight from the store, in pages of 17.
        let mut paged = Vec::new();
        let pager = Pager::new(&source).page_size(17);
        let listed = pager.list(tidings_api::ListOptions::default(), |part| {
            if let Paged::Items(items) = part {
                paged.extend(
                    items
                        .iter()
                        .map(|item| format!("{}@{}", item.name(), item.revision())),
                );
            }
        });
        assert!(listed.await.unwrap().paginated);
        paged.sort();
        for options in [ReflectorOptions::default(), streamed()] {
            let informer = dynamic(&place.client, &resource, &place.scope())
                .reflector(options)
                .start();
            informer.wait_synced_within(LONG).await.unwrap();
            let mut state: Vec<String> = informer
                .store()
                .list()
                .iter()
                .map(|object| format!("{}@{}", object.name(), object.version()))
                .collect();
            state.sort();
            assert_eq!(state, paged);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b144_what_does_not_exist_is_said_or_waited_for() {
    everywhere("missing", |place| async move {
        let nothing = ApiResource {
            group: "nothing.example.com".into(),
            version: "v1".into(),
            api_version: "nothing.example.com/v1".into(),
            kind: "Nothing".into(),
            plural: "nothings".into(),
        };
        let mut fail_fast = ReflectorOptions::default();
        fail_fast.on_refusal = OnRefusal::Stop;
        let stops = dynamic(&place.client, &nothing, &place.scope())
            .name("nothings")
            .reflector(fail_fast)
            .start();
        let error = stops
            .wait_synced_within(LONG)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("could not find the requested resource")
                || error.contains("page not found"),
            "{error}"
        );
        let waits = dynamic(&place.client, &nothing, &place.scope())
            .name("nothings")
            .start();
        let error = waits
            .wait_synced_within(Duration::from_secs(3))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the informer nothings has not synced: degraded after"),
            "{error}"
        );
        assert!(resolve(&place.client, "nothings").await.is_err());
        let pods = resolve(&place.client, "po").await.unwrap();
        assert_eq!(
            (pods.resource.plural.as_str(), pods.namespaced),
            ("pods", true)
        );
        assert_eq!(pods.resource.kind, ApiResource::erase::<Pod>(&()).kind);
        assert_eq!(
            resolve(&place.client, "deployments.v1.apps")
                .await
                .unwrap()
                .resource
                .group,
            "apps"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_keeps_a_promise() {
    everywhere("controller", |place| async move {
        // Every ConfigMap with a value has a copy.
        let informer = informer::<ConfigMap>(&place.client, &place.scope().labels("value")).start();
        informer.wait_synced_within(LONG).await.unwrap();
        let queue: WorkQueue<String> = WorkQueue::new();
        let original = |map: &Cached<ConfigMap>| [map.name().trim_end_matches("-copy").to_owned()];
        informer
            .enqueue(&queue, original, &HandlerOptions::default())
            .unwrap();
        let (store, worker) = (informer.store(), place.clone());
        let reconcile = move |name: String| {
            let (store, worker) = (store.clone(), worker.clone());
            async move {
                let copy = format!("{name}-copy");
                match (
                    store.get(&worker.namespace, &name),
                    store.get(&worker.namespace, &copy),
                ) {
                    (Some(map), None) => {
                        worker
                            .put(&copy, &map.data.as_ref().unwrap()["value"])
                            .await;
                    }
                    (None, Some(_)) => worker.delete_if_there(&copy).await,
                    _ => {}
                }
                Ok::<_, std::convert::Infallible>(Action::AwaitChange)
            }
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(run_controller(
            queue,
            RunOptions::default(),
            reconcile,
            async { drop(stopped.await) },
        ));
        let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
        place.put("a", "1").await;
        assert_eq!(told(&mut events, 3).await, ["synced", "+a=1", "+a-copy=1"]);
        place.delete("a-copy").await;
        assert_eq!(told(&mut events, 2).await, ["-a-copy=1", "+a-copy=1"]);
        place.delete("a").await;
        assert_eq!(told(&mut events, 2).await, ["-a=1", "-a-copy=1"]);
        stop.send(()).unwrap();
        assert_eq!(running.await.unwrap().panics, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b132_one_of_several_programs_leads() {
    use tidings_informer::leader::{
        ElectionEnd, ElectionOptions, LeaderCallbacks, LeaderElector, StopSignal,
    };

    struct Noted(&'static str, std::sync::Arc<std::sync::Mutex<Vec<String>>>);
    impl LeaderCallbacks for Noted {
        fn on_started_leading(&mut self, stop: StopSignal) -> BoxFuture<'static, ()> {
            self.1.lock().unwrap().push(format!("{} leads", self.0));
            Box::pin(stop.wait())
        }
        fn on_stopped_leading(&mut self) {
            self.1.lock().unwrap().push(format!("{} stopped", self.0));
        }
    }
    everywhere("leader", |place| async move {
        let noted: std::sync::Arc<std::sync::Mutex<Vec<String>>> = std::sync::Arc::default();
        let options = || {
            ElectionOptions::default().times(
                Duration::from_secs(3),
                Duration::from_secs(2),
                Duration::from_millis(200),
            )
        };
        let stand = |name: &'static str, stop: tokio::sync::oneshot::Receiver<()>| {
            let lock = KubeLeaseLock::new(&place.client, &place.namespace, "leader", name);
            let elector = LeaderElector::new(std::sync::Arc::new(lock), options()).unwrap();
            let callbacks = Noted(name, std::sync::Arc::clone(&noted));
            tokio::spawn(elector.run(callbacks, async { drop(stop.await) }))
        };
        let until = |wanted: usize| {
            let noted = std::sync::Arc::clone(&noted);
            async move {
                while noted.lock().unwrap().len() < wanted {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let (stop_a, stopped_a) = tokio::sync::oneshot::channel();
        let (stop_b, stopped_b) = tokio::sync::oneshot::channel();
        let a = stand("a", stopped_a);
        until(1).await;
        let b = stand("b", stopped_b);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*noted.lock().unwrap(), ["a leads"], "only one");
        stop_a.send(()).unwrap();
        assert_eq!(a.await.unwrap(), ElectionEnd::Stopped);
        until(3).await;
        assert_eq!(*noted.lock().unwrap(), ["a leads", "a stopped", "b leads"]);
        stop_b.send(()).unwrap();
        b.await.unwrap();
    })
    .await;
}
