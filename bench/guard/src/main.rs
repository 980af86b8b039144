//! Runs one hot path a number of times. `scripts/guard` counts the instructions that it takes, and compares them with those of the last commit.
//!
//! usage: tidings-guard PATH TIMES

use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use tidings_access::{Attributes, Policy, User};
use tidings_api::{
    Facet, LabelSelector, ListSplitter, Object, ObjectKey, SplitOptions, UnstampedObject,
    WatchEvent, WatchSplitter,
};
use tidings_cache::{CacheOptions, Narrowing, StoreCache, WatchScope};
use tidings_informer::{Decode, Indexer, ReflectedStore, ReflectorStore as _, ServerVersion};
use tidings_merge::{Apply, Configuration, FieldSet, Managed, Manager, UnknownSchema};
use tidings_schema::protobuf;
use tidings_storage::{Embedded, EmbeddedOptions, Revision};

/// A Pod of usual size, with managedFields.
const POD: &str = include_str!("pod.json");
/// How many objects a list has, and events a watch.
const OBJECTS: usize = 100;
/// How many watches there are of which one is told of a write.
const WATCHES: usize = 500;
/// How many bindings there are beside the default ones.
const BINDINGS: usize = 10_000;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().context("which path?")?;
    let times = arguments.next().context("how often?")?.parse()?;
    let pod = serde_json::from_str::<serde_json::Value>(POD)?.to_string();
    match &*path {
        "list-split" => list_split(&pod, times),
        "watch-split" => watch_split(&pod, times),
        "object-parse" => object_parse(&pod, times),
        "json-tree" => json_tree(&pod, times),
        "protobuf-encode" => protobuf_encode(&pod, times),
        "protobuf-decode" => protobuf_decode(&pod, times),
        "apply" => apply(&pod, times),
        "select" => select(&pod, times),
        "relist" => relist(&pod, times),
        "write" => write(&pod, times),
        "authorize" => authorize(times),
        _ => bail!("there is no path {path:?}"),
    }
}

/// A decision about a user with a role in a namespace, among the default roles and ten thousand bindings of others.
fn authorize(times: usize) -> anyhow::Result<()> {
    let mut policy = Policy::default();
    for object in tidings_access::default_objects() {
        let json = object.to_json().to_string();
        match &*object.kind {
            "ClusterRole" => policy.put_cluster_role(&object.name, json.as_bytes()),
            "Role" => policy.put_role(&object.namespace, &object.name, json.as_bytes()),
            _ => policy.put_binding(&object.namespace, &object.name, json.as_bytes()),
        }
    }
    policy.put_cluster_role(
        "reader",
        br#"{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}"#,
    );
    for number in 0..BINDINGS {
        let binding = format!(
            r#"{{"roleRef":{{"kind":"ClusterRole","name":"reader"}},"subjects":[{{"kind":"User","name":"user-{number}"}}]}}"#
        );
        let namespace = format!("n{}", number % 100);
        policy.put_binding(&namespace, &format!("b{number}"), binding.as_bytes());
    }
    let user = User::new("user-4242", &["system:authenticated", "team"]);
    let asked = Attributes::resource(&user, "get", "", "pods")
        .in_namespace("n42")
        .named("web-0");
    for _ in 0..times {
        ensure!(black_box(&policy).allows(black_box(&asked)));
    }
    Ok(())
}

fn numbered(pod: &str, number: usize) -> String {
    let named = pod.replacen("web-0", &format!("web-{number}"), 1);
    named.replacen(
        r#""nodeName":"node-0""#,
        &format!(r#""nodeName":"node-{number}""#),
        1,
    )
}

fn list_split(pod: &str, times: usize) -> anyhow::Result<()> {
    let items: Vec<String> = (0..OBJECTS).map(|number| numbered(pod, number)).collect();
    let list = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
        items.join(",")
    );
    for _ in 0..times {
        let mut splitter = ListSplitter::new(SplitOptions::default().without_managed_fields());
        let mut found = 0;
        // As much as a record of TLS has.
        for chunk in list.as_bytes().chunks(16 << 10) {
            splitter.feed(chunk, |item| found += usize::from(!item.name().is_empty()))?;
        }
        splitter.finish()?;
        ensure!(found == OBJECTS);
    }
    Ok(())
}

fn watch_split(pod: &str, times: usize) -> anyhow::Result<()> {
    let events: String = (0..OBJECTS)
        .map(|number| {
            let pod = numbered(pod, number);
            format!("{{\"type\":\"MODIFIED\",\"object\":{pod}}}\n")
        })
        .collect();
    for _ in 0..times {
        let mut splitter = WatchSplitter::new(SplitOptions::default().without_managed_fields());
        let mut found = 0;
        for chunk in events.as_bytes().chunks(16 << 10) {
            splitter.feed(chunk, |_| found += 1)?;
        }
        ensure!(found == OBJECTS);
    }
    Ok(())
}

fn object_parse(pod: &str, times: usize) -> anyhow::Result<()> {
    let bytes = bytes::Bytes::copy_from_slice(pod.as_bytes());
    for _ in 0..times {
        let object = Object::parse(black_box(bytes.clone()))?;
        ensure!(object.labels().get("app") == Some("web"));
    }
    Ok(())
}

fn json_tree(pod: &str, times: usize) -> anyhow::Result<()> {
    for _ in 0..times {
        let tree: tidings_json::Value = serde_json::from_str(black_box(pod))?;
        ensure!(tree.to_string().len() == pod.len());
    }
    Ok(())
}

fn protobuf_encode(pod: &str, times: usize) -> anyhow::Result<()> {
    for _ in 0..times {
        black_box(protobuf::encode_object(black_box(pod.as_bytes()))?);
    }
    Ok(())
}

fn protobuf_decode(pod: &str, times: usize) -> anyhow::Result<()> {
    let message = protobuf::encode_object(pod.as_bytes())?;
    for _ in 0..times {
        black_box(protobuf::decode_object(black_box(&message), None)?);
    }
    Ok(())
}

/// Applies a configuration again, with another value of one field each time.
fn apply(pod: &str, times: usize) -> anyhow::Result<()> {
    let mut config: tidings_json::Value = serde_json::from_str(pod)?;
    let metadata = config["metadata"].as_object_mut().context("no metadata")?;
    metadata.remove("managedFields");
    let manager = Manager {
        name: "guard".into(),
        api_version: "v1".into(),
        subresource: String::new(),
    };
    let (mut managed, mut live) = (Managed::default(), tidings_json::json!({}));
    for number in 0..times {
        config["spec"]["nodeName"] = format!("node-{number}").into();
        let nothing = FieldSet::default();
        let config = Configuration::new(&config, UnknownSchema, &nothing)?;
        let wish = Apply {
            config: &config,
            force: false,
            now: "2026-01-01T00:00:00Z",
        };
        managed.apply(&manager, &mut live, wish)?;
    }
    Ok(())
}

fn select(pod: &str, times: usize) -> anyhow::Result<()> {
    let selector: LabelSelector = "app=web,tier in (front,back),!canary".parse()?;
    let object = Object::parse(pod.as_bytes())?;
    for _ in 0..times * OBJECTS {
        ensure!(black_box(&selector).matches(black_box(&object).labels()));
    }
    Ok(())
}

/// Lists objects again that the store has: no handler is told.
fn relist(pod: &str, times: usize) -> anyhow::Result<()> {
    let objects = (0..OBJECTS).map(|number| {
        let object = Object::parse(numbered(pod, number))?;
        anyhow::Ok(WatchEvent::Added(object))
    });
    let objects: Vec<WatchEvent> = objects.collect::<anyhow::Result<_>>()?;
    let indexer: Arc<Indexer<Object>> = Arc::default();
    let mut store = ReflectedStore::new(indexer, Decode::bytes());
    for version in 1..=times {
        store.collect(objects.clone());
        store.replace(&ServerVersion::new(&version.to_string()));
    }
    ensure!(store.store().len() == OBJECTS);
    Ok(())
}

/// Writes an object through the cache into a store in memory. One of many watches waits for it.
fn write(pod: &str, times: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
        let cache = StoreCache::open(store, "/pods/", CacheOptions::default());
        cache.fill(Revision(0)).await;
        let facet = Facet::Label("app".into());
        let mut watches: Vec<_> = (0..WATCHES)
            .map(|number| {
                let value = if number == 0 {
                    "web".into()
                } else {
                    format!("other-{number}").into()
                };
                let narrowed = Narrowing::Value(facet.clone(), value);
                let namespace = None;
                cache
                    .cache()
                    .follow(WatchScope {
                        namespace,
                        narrowed,
                    })
                    .1
            })
            .collect();
        let key = ObjectKey::new("default", "web-0");
        let object = UnstampedObject::parse(pod.as_bytes().to_vec())?;
        let mut at = None;
        for _ in 0..times {
            let written = cache.put(&key, at, &object).await?.context("lost a race")?;
            at = Some(written.revision());
            cache.reach(written.revision()).await?;
            let read = cache
                .cache()
                .read(&watches[0])
                .map_err(|_| anyhow::anyhow!("fell behind"))?;
            ensure!(
                read.events().count() == 1,
                "one watch is told of each write"
            );
            watches[0].pass_all(&read);
        }
        Ok(())
    })
}
