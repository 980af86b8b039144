//! Two handlers of different speed over one informer. The slow one misses no object, but gets the newest state instead of every
//! state in between; the quick one and the store do not wait for it.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tidings::informer::LogOptions;
use tidings::{Event, HandlerOptions, KubeInformerFactory, RestClient, Scope};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let factory = KubeInformerFactory::new(client);
    // A short log, to see the effect soon: beyond a hundred events the slow handler gets coalesced events.
    let maps =
        factory.informer_with::<ConfigMap>(&Scope::namespace("default"), "short log", |maps| {
            maps.log(LogOptions::new(100, 1 << 20))
        });

    let quick = |event: Event<ConfigMap>| async move { println!("quick: {event:?}") };
    maps.for_each(quick, &HandlerOptions::default().name("quick"))?;
    let slow = |event: Event<ConfigMap>| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("                                        slow: {event:?}");
    };
    let slow = maps.for_each(slow, &HandlerOptions::default().name("slow"))?;

    factory.start();
    factory.wait_synced(Duration::from_secs(30)).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            _ = ticks.tick() => println!("the slow handler is {} events behind", slow.lag().events),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}
