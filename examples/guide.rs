//! The code of docs/guide.md, chapter by chapter, as a program that runs. A test compares the two.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PostParams};
use kube::core::ApiResource;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tidings::api::LabelSelector;
use tidings::client::wrote;
use tidings::informer::Overflow;
use tidings::metrics::InformerMetrics;
use tidings::source::{OnRefusal, ReflectorOptions, ReflectorState};
use tidings::store::Cached;
use tidings::{
    Event, HandlerOptions, KubeInformerFactory, ResourceEventHandler, RestClient, Scope,
    SharedInformer,
};

#[derive(Deserialize)]
struct SlimPod {
    spec: Placed,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    node_name: Option<Box<str>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let factory = KubeInformerFactory::new(client);
    let maps = factory.informer::<ConfigMap>(&Scope::namespace("default"));
    factory.start();
    factory.wait_synced(Duration::from_secs(30)).await?;

    forms(&factory).await?;
    handlers(&maps).await?;
    reads(&maps)?;
    writes(factory.client(), &maps).await?;
    health(factory.client()).await?;
    metrics(factory.client())
}

async fn forms(factory: &KubeInformerFactory) -> anyhow::Result<()> {
    let pods = ApiResource::erase::<Pod>(&());
    let typed = factory.informer::<Pod>(&Scope::all());
    let lazy = factory.lazy::<Pod>(&Scope::all());
    let projected = factory.projected::<SlimPod>(&pods, &Scope::all());
    let metadata = factory.metadata(&pods, &Scope::all());
    let dynamic = factory.dynamic(&pods, &Scope::all());
    factory.start();
    factory.wait_synced(Duration::from_secs(30)).await?;

    let by_label = factory.informer_with::<Pod>(&Scope::all(), "by label", |pods| {
        pods.label_index().transform(|mut pod| {
            pod.metadata.annotations = None;
            Ok(pod)
        })
    });

    for pod in lazy.store().list() {
        println!("{:?}", pod.value().get()?.status);
    }
    for pod in projected.store().list() {
        println!("{:?}", pod.spec.node_name);
    }
    for pod in metadata.store().list() {
        println!("{} {:?}", pod.value().uid(), pod.labels());
    }
    println!("{}", dynamic.store().len() + typed.store().len());
    drop(by_label);
    Ok(())
}

struct Printer;

impl ResourceEventHandler<ConfigMap> for Printer {
    fn on_delete(&mut self, last: &Arc<Cached<ConfigMap>>, final_state_known: bool) {
        println!("{} went, seen: {final_state_known}", last.name());
    }
}

async fn handlers(maps: &SharedInformer<ConfigMap>) -> anyhow::Result<()> {
    let printing = maps.add_event_handler(Printer, &HandlerOptions::default())?;
    let slow = HandlerOptions::default()
        .name("slow")
        .resync(Duration::from_secs(600))
        .overflow(Overflow::DropToSnapshot);
    let slow = maps.for_each(|event| async move { println!("{event:?}") }, &slow)?;

    let mut events = maps.subscribe(&HandlerOptions::default())?;
    while let Some(event) = events.next().await {
        match event {
            Event::Added { object, initial } => println!("{} {initial}", object.name()),
            Event::Synced => break,
            other => println!("{other:?}"),
        }
    }
    printing.synced().await;
    slow.remove();
    Ok(())
}

fn reads(maps: &SharedInformer<ConfigMap>) -> anyhow::Result<()> {
    let store = maps.store();
    let one = store.get("default", "about");
    let state = store.snapshot();
    let here = state.namespace("default").count();
    println!("{one:?}, {here} of {} at {}", state.len(), state.version());

    let lister = maps.lister().by_namespace("default");
    let web = lister.list(&LabelSelector::parse("app=web")?);

    let by_key = maps.add_index("key", |map| {
        let keys = map.data.iter().flat_map(|data| data.keys().cloned());
        keys.collect::<Vec<String>>()
    })?;
    let with_key = maps.store().by_index(&by_key, &"namespace".to_owned())?;
    println!("{} {}", web.len(), with_key.len());
    Ok(())
}

async fn writes(client: &RestClient, maps: &SharedInformer<ConfigMap>) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.kube().clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some("written-".to_owned());
    let written = api.create(&PostParams::default(), &map).await?;
    let name = written.metadata.name.clone().unwrap_or_default();

    wrote(maps, &written)?;
    let seen = maps.overlay().get("default", &name);

    let version = written.metadata.resource_version.unwrap_or_default();
    maps.wait_for_within(version.as_str(), Duration::from_secs(90))
        .await?;
    println!("{seen:?} {:?}", maps.store().get("default", &name));
    api.delete(&name, &Default::default()).await?;
    Ok(())
}

async fn health(client: &RestClient) -> anyhow::Result<()> {
    let mut options = ReflectorOptions::default();
    options.on_refusal = OnRefusal::Stop;
    let factory = KubeInformerFactory::new(client.clone()).reflector(options);
    let maps = factory.informer_with::<ConfigMap>(&Scope::all(), "watched", |maps| {
        maps.on_problem(|problem| eprintln!("{}", problem.story()))
    });
    factory.start();

    let mut state = maps.watch_state();
    while !matches!(*state.borrow_and_update(), ReflectorState::Synced) {
        state.changed().await?;
        println!("{}", maps.state());
    }
    Ok(())
}

fn metrics(client: &RestClient) -> anyhow::Result<()> {
    let metrics = InformerMetrics::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let factory = KubeInformerFactory::new(client.clone()).with_metrics(metrics);

    let _maps = factory.informer::<ConfigMap>(&Scope::all());
    let mut text = String::new();
    encode(&mut text, &registry)?;
    print!("{text}");
    Ok(())
}
