//! The example `controller` with leader election: several replicas can run, and one of them works. It prints its metrics in the
//! format of Prometheus, logs problems on standard error, and finishes its reconciles before another replica leads. Run it twice,
//! and stop one.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tidings::leader::{ElectionOptions, KubeLeaseLock, LeaderElector, StopSignal};
use tidings::metrics::InformerMetrics;
use tidings::{
    Action, HandlerOptions, KubeInformerFactory, RestClient, RunOptions, Scope, WorkQueue,
    run_controller,
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Problems are logged through `tracing`, which needs a subscriber.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let metrics = InformerMetrics::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));

    // In a cluster the name of the Pod identifies the replica.
    let identity = std::env::var("POD_NAME");
    let identity = identity.unwrap_or_else(|_| format!("process-{}", std::process::id()));
    let lock = KubeLeaseLock::new(&client, "default", "about", &identity);
    let elector = LeaderElector::new(Arc::new(lock), ElectionOptions::default())?;

    let work = |stop: StopSignal| {
        println!("{identity} leads");
        let (client, metrics) = (client.clone(), metrics.clone());
        async move {
            // A leader that cannot work must not keep the lease: a panic releases it and ends the program.
            let worked = lead(client, metrics, stop).await;
            worked.expect("the informers do not start");
        }
    };
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let mut election = std::pin::pin!(elector.run_until_stopped(work, stop));
    loop {
        tokio::select! {
            () = &mut election => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(10)) => {
                let mut text = String::new();
                encode(&mut text, &registry)?;
                print!("{text}");
            }
        }
    }
}

/// The work of one term. It has its own informers and queue, which end with it even if it is aborted.
async fn lead(
    client: RestClient,
    metrics: InformerMetrics,
    stop: StopSignal,
) -> anyhow::Result<()> {
    let factory = KubeInformerFactory::new(client.clone()).with_metrics(metrics.clone());
    let namespaces = factory.informer::<Namespace>(&Scope::all());
    let about = factory.informer::<ConfigMap>(&Scope::all().fields("metadata.name=about"));
    let queue: WorkQueue<String> = WorkQueue::new();
    metrics.observe_queue("about", &queue);
    let options = HandlerOptions::default();
    namespaces.enqueue(&queue, |namespace| [namespace.name().to_owned()], &options)?;
    about.enqueue(&queue, |map| [map.namespace().to_owned()], &options)?;
    factory.start();
    tokio::select! {
        synced = factory.wait_synced(Duration::from_secs(30)) => synced?,
        () = stop.wait() => return Ok(()),
    }

    let reconcile = move |name: String| {
        let (namespaces, about) = (namespaces.store(), about.store());
        let maps: Api<ConfigMap> = Api::namespaced(client.kube().clone(), &name);
        async move {
            if namespaces.get("", &name).is_none() || about.get(&name, "about").is_some() {
                return Ok(Action::AwaitChange);
            }
            let mut map = ConfigMap::default();
            map.metadata.name = Some("about".to_owned());
            map.data = Some([("namespace".to_owned(), name.clone())].into());
            maps.create(&PostParams::default(), &map).await?;
            println!("{name}: made");
            Ok::<_, kube::Error>(Action::AwaitChange)
        }
    };
    let summary = run_controller(queue, RunOptions::default(), reconcile, stop.wait()).await;
    println!("{summary:?}");
    Ok(())
}
