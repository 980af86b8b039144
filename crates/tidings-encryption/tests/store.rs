//! Encrypted stores: values of kube-apiserver's code, keys that change, plugins that come and go.

#![allow(clippy::unwrap_used)]

mod plugin;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use plugin::Plugin;
use serde_json::Value;
use tidings_config::ConfigFile;
use tidings_encryption::{EncryptedStore, EncryptionConfig, StoredResource};
use tidings_storage::{Change, Embedded, EmbeddedOptions, Error, Range, Revision, Storage, Write};

fn engine() -> Arc<dyn Storage> {
    Arc::new(Embedded::ephemeral(EmbeddedOptions::default()))
}

fn resources() -> Vec<StoredResource> {
    let stored = |prefix: &str, group: &str, resource: &str| StoredResource {
        prefix: prefix.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
    };
    vec![
        stored("secrets/", "", "secrets"),
        stored("services/specs/", "", "services"),
        stored("deployments/", "apps", "deployments"),
    ]
}

/// A configuration of rules: resources, and their providers in YAML.
fn config(rules: &[(&str, &[String])]) -> EncryptionConfig {
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            .to_owned();
    for (resources, providers) in rules {
        text += &format!("- resources: [{resources}]\n  providers:\n");
        for provider in *providers {
            text += &format!("  - {provider}\n");
        }
    }
    EncryptionConfig::read(&ConfigFile::new("e.yaml", text.as_bytes()).unwrap()).unwrap()
}

fn keys(scheme: &str, keys: &[(&str, &[u8])]) -> String {
    let keys: Vec<String> = keys
        .iter()
        .map(|(name, secret)| format!("{{name: {name}, secret: {}}}", STANDARD.encode(secret)))
        .collect();
    format!("{scheme}: {{keys: [{}]}}", keys.join(", "))
}

fn identity() -> String {
    "identity: {}".to_owned()
}

async fn open(engine: &Arc<dyn Storage>, config: EncryptionConfig) -> EncryptedStore {
    EncryptedStore::open(engine.clone(), config, resources())
        .await
        .unwrap()
}

async fn read(store: &impl Storage, prefix: &'static str) -> Result<Vec<(String, String)>, Error> {
    let range = Range {
        prefix: prefix.into(),
        ..Range::default()
    };
    let read = store.range(range).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entries = read.entries.iter();
    Ok(entries
        .map(|entry| (text(&entry.key), text(&entry.value)))
        .collect())
}

async fn stored(engine: &Arc<dyn Storage>, key: &str) -> Vec<u8> {
    let range = Range {
        prefix: key.to_owned().into(),
        ..Range::default()
    };
    engine.range(range).await.unwrap().entries[0].value.to_vec()
}

#[tokio::test]
async fn what_the_code_of_kube_apiserver_has_encrypted_is_read() {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("vectors.json")).unwrap();
    assert!(vectors.len() >= 20);
    let seed = [9; 32];
    let plugin = Plugin::start("id1").await;
    plugin.knows(b"sealed-by-kms", &seed);
    for vector in vectors {
        let bytes = |name: &str| STANDARD.decode(vector[name].as_str().unwrap()).unwrap();
        let scheme = vector["scheme"].as_str().unwrap();
        let provider = match scheme {
            "kms" => plugin.provider("key1"),
            scheme => keys(scheme, &[("key1", &bytes("key"))]),
        };
        let engine = engine();
        let key = vector["path"]
            .as_str()
            .unwrap()
            .strip_prefix("/registry/")
            .unwrap();
        let write = Write::create(key.to_owned(), bytes("stored"));
        engine.write(write).await.unwrap();
        // Behind one that writes, because aescbc is only for reading.
        let store = open(&engine, config(&[("secrets", &[identity(), provider])])).await;
        let read = store.range(Range::default()).await.unwrap();
        assert_eq!(read.entries[0].value, bytes("clear"), "{scheme}");
    }
}

#[tokio::test]
async fn only_what_the_configuration_names_is_encrypted_and_watches_see_it_clear() {
    let engine = engine();
    let key = keys("aesgcm", &[("k1", &[1; 32])]);
    let rules: &[(&str, &[String])] = &[
        ("services", &[identity()]),
        (
            "secrets, pandas.bears.example, '*.apps'",
            &[key.clone(), identity()],
        ),
    ];
    let store = open(&engine, config(rules)).await;
    let mut watch = store.watch("".into(), Revision(0)).await.unwrap();
    for (key, is_encrypted) in [
        ("secrets/a/b", true),
        ("secretsandmore/a/b", false),
        ("services/specs/a/b", false),
        ("deployments/a/b", true),
        ("bears.example/pandas/a/b", true),
        ("bears.example/lions/a/b", false),
        ("configmaps/a/b", false),
    ] {
        store.write(Write::create(key, "clear text")).await.unwrap();
        let marked = stored(&engine, key)
            .await
            .starts_with(b"k8s:enc:aesgcm:v1:k1:");
        assert_eq!(marked, is_encrypted, "{key}");
        if is_encrypted {
            let stored = stored(&engine, key).await;
            assert!(!stored.windows(5).any(|part| part == b"clear"));
        }
        let mut events = watch.next().await.unwrap().unwrap().events;
        while events.is_empty() {
            events = watch.next().await.unwrap().unwrap().events;
        }
        assert_eq!(events[0].change, Change::Put("clear text".into()), "{key}");
    }
    assert_eq!(read(&store, "secrets/").await.unwrap()[0].1, "clear text");
    let counts = store.stats().encryption.unwrap();
    assert_eq!((counts.sealed, counts.failed), (3, 0));
    let backup = store.stored_range(Range::default()).await.unwrap();
    let clear = backup
        .entries
        .iter()
        .filter(|entry| entry.value == "clear text");
    assert_eq!(clear.count(), 4);
}

#[tokio::test]
async fn keys_are_changed_by_reload_and_say_when_they_are_no_longer_needed() {
    let engine = engine();
    let (first, second): (&[u8], &[u8]) = (&[1; 32], &[2; 32]);
    let store = open(&engine, config(&[("secrets", &[identity()])])).await;
    store
        .write(Write::create("secrets/a/b", "v"))
        .await
        .unwrap();

    // Encryption begins: what is there stays readable, and is outdated.
    let begun = config(&[("secrets", &[keys("aesgcm", &[("k1", first)]), identity()])]);
    store.reload(begun).await.unwrap();
    assert!(store.is_outdated("secrets/a/b".into()).await.unwrap());
    assert!(!store.is_outdated("configmaps/a/b".into()).await.unwrap());
    store
        .write(Write::update("secrets/a/b", Revision(1), "v"))
        .await
        .unwrap();
    assert!(!store.is_outdated("secrets/a/b".into()).await.unwrap());

    // A new key writes, the old one still reads.
    let both = config(&[(
        "secrets",
        &[keys("aesgcm", &[("k2", second), ("k1", first)])],
    )]);
    store.reload(both).await.unwrap();
    assert_eq!(read(&store, "secrets/").await.unwrap()[0].1, "v");
    assert!(store.is_outdated("secrets/a/b".into()).await.unwrap());

    // Without the old key, it is named; trouble lasts as long.
    let new = config(&[("secrets", &[keys("aesgcm", &[("k2", second)])])]);
    store.reload(new).await.unwrap();
    let error = read(&store, "secrets/").await.unwrap_err().to_string();
    assert!(error.starts_with("secrets/a/b cannot be decrypted: it was encrypted with aesgcm key k1, which no provider"), "{error}");
    assert_eq!(store.trouble().unwrap().what, error);
    assert_eq!(store.unreadable().await, error);
    let both = config(&[(
        "secrets",
        &[
            keys("secretbox", &[("k3", &[3; 32])]),
            keys("aesgcm", &[("k2", second), ("k1", first)]),
        ],
    )]);
    store.reload(both).await.unwrap();
    read(&store, "secrets/").await.unwrap();
    assert_eq!(store.trouble(), None);
    store
        .write(Write::update("secrets/a/b", Revision(2), "v"))
        .await
        .unwrap();
    assert!(
        stored(&engine, "secrets/a/b")
            .await
            .starts_with(b"k8s:enc:secretbox:v1:k3:")
    );
}

#[tokio::test]
async fn what_cannot_be_decrypted_is_never_shown_and_never_left_out() {
    let engine = engine();
    let gcm = |key: u8| keys("aesgcm", &[("k", &[key; 16])]);
    let store = open(&engine, config(&[("secrets", &[gcm(1)])])).await;
    store
        .write(Write::create("secrets/a/b", "v"))
        .await
        .unwrap();
    let moved = stored(&engine, "secrets/a/b").await;
    for (config, part) in [
        (
            config(&[("secrets", &[gcm(2)])]),
            "another key that is named as aesgcm key k is",
        ),
        (
            EncryptionConfig::none(),
            "which no provider of its resource has",
        ),
        (
            config(&[("configmaps", &[gcm(1)])]),
            "which no provider of its resource has",
        ),
    ] {
        store.reload(config).await.unwrap();
        let error = read(&store, "secrets/").await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        // A watch ends with the error instead of leaving out the event.
        let mut watch = store.watch("secrets/".into(), Revision(0)).await.unwrap();
        assert!(watch.next().await.unwrap().is_err());
    }
    // Somebody who writes into the store puts a value at another place.
    store
        .reload(config(&[("secrets", &[gcm(1)])]))
        .await
        .unwrap();
    engine
        .write(Write::create("secrets/a/c", moved))
        .await
        .unwrap();
    let error = read(&store, "secrets/a/c").await.unwrap_err().to_string();
    assert!(error.contains("or was changed or moved since"), "{error}");
    // Or one that is not encrypted, where everything must be.
    engine
        .write(Write::create("secrets/a/d", "{}"))
        .await
        .unwrap();
    let error = read(&store, "secrets/a/d").await.unwrap_err().to_string();
    assert!(error.contains("add `- identity: {}`"), "{error}");
}

#[tokio::test]
async fn a_kms_plugin_encrypts_one_seed_for_many_values() {
    let plugin = Plugin::start("id1").await;
    let engine = engine();
    let rules = || config(&[("secrets", &[plugin.provider("mine"), identity()])]);
    let store = open(&engine, rules()).await;
    for name in ["a", "b", "c"] {
        let key = format!("secrets/n/{name}");
        store.write(Write::create(key.clone(), "v")).await.unwrap();
        assert!(
            stored(&engine, &key)
                .await
                .starts_with(b"k8s:enc:kms:v2:mine:")
        );
    }
    assert_eq!(read(&store, "secrets/").await.unwrap().len(), 3);
    assert_eq!(plugin.encrypted.load(Ordering::Relaxed), 1);
    assert_eq!(plugin.decrypted.load(Ordering::Relaxed), 0);

    // After a restart the plugin decrypts the seed once, for all values.
    let again = open(&engine, rules()).await;
    assert_eq!(read(&again, "secrets/").await.unwrap()[2].1, "v");
    assert_eq!(plugin.decrypted.load(Ordering::Relaxed), 1);
    assert!(!again.is_outdated("secrets/n/a".into()).await.unwrap());

    // Another key of the service: new values have it, and old ones are outdated.
    plugin.set_key("id2");
    again.reload(rules()).await.unwrap();
    assert!(again.is_outdated("secrets/n/a".into()).await.unwrap());
    assert_eq!(read(&again, "secrets/").await.unwrap().len(), 3);

    // A plugin that is not well, or gone, changes nothing until it is well again.
    plugin.set_health("the vault is sealed");
    let error = again.reload(rules()).await.unwrap_err().to_string();
    assert!(
        error.contains("it says that it is not well: the vault is sealed"),
        "{error}"
    );
    assert_eq!(read(&again, "secrets/").await.unwrap().len(), 3);
    let gone = config(&[(
        "secrets",
        &["kms: {apiVersion: v2, name: x, endpoint: 'unix:///nowhere/s', timeout: 1s}".to_owned()],
    )]);
    let error = again.reload(gone).await.unwrap_err().to_string();
    assert!(
        error.starts_with("the KMS plugin x at /nowhere/s: "),
        "{error}"
    );
}

#[tokio::test]
async fn a_plugin_is_asked_again_and_an_old_seed_writes_nothing() {
    let plugin = Plugin::start("id1").await;
    let engine = engine();
    let store = open(&engine, config(&[("secrets", &[plugin.provider("mine")])])).await;
    tokio::time::pause();
    // It is followed: a new key of the service is used within a minute.
    plugin.set_key("id2");
    while plugin.encrypted.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    plugin.set_health("gone");
    while store.trouble().is_none() {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!(
        store
            .trouble()
            .unwrap()
            .what
            .contains("it is not well: gone")
    );
    // The seed holds for three minutes after the plugin last confirmed its key.
    store
        .write(Write::create("secrets/n/a", "v"))
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(181)).await;
    let error = store
        .write(Write::create("secrets/n/b", "v"))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("has not said for 3 minutes"),
        "{error}"
    );
    assert_eq!(read(&store, "secrets/").await.unwrap().len(), 1);
    plugin.set_health("ok");
    while store.trouble().is_some() {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    store
        .write(Write::create("secrets/n/b", "v"))
        .await
        .unwrap();
}
