//! Garbage collection: objects whose owners are gone are deleted.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tidings_server::{Api, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions, Storage, Write};

use crate::support::{CONFIGMAPS, TestResponse, TestServer, job_of, pods_of};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const NODES: &str = "/api/v1/nodes";

/// An owner reference to an object.
fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    })
}

/// An owner reference with `blockOwnerDeletion`.
fn blocking(owner: &Value) -> Value {
    let mut reference = reference(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

impl TestServer {
    /// Creates an object with owners and finalizers.
    async fn create_owned(
        &self,
        path: &str,
        name: &str,
        owners: &[Value],
        finalizers: &[&str],
    ) -> Value {
        let metadata = json!({"name": name, "ownerReferences": owners, "finalizers": finalizers});
        let mut body = json!({ "metadata": metadata });
        if path.contains("/apis/apps/") {
            body["spec"] = pods_of(json!({}));
        } else if path.ends_with("/jobs") {
            body["spec"] = job_of(json!({}));
        } else if path.ends_with("/cronjobs") {
            body["spec"] = json!({"jobTemplate": {"spec": job_of(json!({}))}});
        } else if path.ends_with("/replicationcontrollers") {
            body["spec"] = pods_of(json!({"selector": {"app": "x"}}));
        }
        let created = self.request("POST", path, body).await;
        assert_eq!(created.code, 201, "{}", created.text);
        created.json()
    }

    async fn create_plain(&self, name: &str) -> Value {
        self.create_owned(CONFIGMAPS, name, &[], &[]).await
    }

    async fn remove(&self, item: &str, policy: &str) -> TestResponse {
        let options = json!({ "propagationPolicy": policy });
        let deleted = self.request("DELETE", item, options).await;
        assert_eq!(deleted.code, 200, "{}", deleted.text);
        deleted
    }

    /// Waits until an object meets a condition. The object is `null` once it is gone.
    async fn until(&self, path: &str, name: &str, reached: impl Fn(&Value) -> bool) -> Value {
        let selected = format!("{path}?fieldSelector=metadata.name%3D{name}");
        let list = self.get(&selected).await;
        let mut state = list.json()["items"][0].clone();
        let from = list.version();
        let mut watch = self
            .watch(&format!("{selected}&watch=1&resourceVersion={from}"))
            .await;
        while !reached(&state) {
            let event = watch.next().await.expect("a watch that goes on");
            state = match event["type"].as_str() {
                Some("DELETED") => Value::Null,
                _ => event["object"].clone(),
            };
        }
        state
    }

    async fn until_gone(&self, path: &str, name: &str) {
        self.until(path, name, Value::is_null).await;
    }

    /// Waits until the collector has finished all its pending work: creates an object whose owner is absent and waits until it is collected,
    /// which may happen in the round of that work, and then a second one, which is collected in a later round.
    async fn until_collected(&self) {
        for _ in 0..2 {
            let owner =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"});
            self.create_owned(SECRETS, "canary", &[owner], &[]).await;
            self.until_gone(SECRETS, "canary").await;
        }
    }

    async fn exists(&self, item: &str) -> bool {
        self.get(item).await.code == 200
    }
}

fn item(name: &str) -> String {
    format!("{CONFIGMAPS}/{name}")
}

#[tokio::test]
async fn background_dependents_are_deleted_after_their_owner() {
    let server = TestServer::start().await;
    let owner = server.create_plain("owner").await;
    let child = server
        .create_owned(CONFIGMAPS, "child", &[reference(&owner)], &[])
        .await;
    // A dependent of the dependent, of another kind.
    server
        .create_owned(SECRETS, "grandchild", &[reference(&child)], &[])
        .await;
    server.until_collected().await;
    assert!(server.exists(&item("child")).await, "its owner exists");
    server.remove(&item("owner"), "Background").await;
    assert!(!server.exists(&item("owner")).await, "deleted at once");
    server.until_gone(CONFIGMAPS, "child").await;
    server.until_gone(SECRETS, "grandchild").await;
}

#[tokio::test]
async fn w161_foreground_blocking_dependents_are_deleted_first() {
    let server = TestServer::start().await;
    let owner = server.create_plain("owner").await;
    server
        .create_owned(CONFIGMAPS, "free", &[reference(&owner)], &["a/free"])
        .await;
    server
        .create_owned(CONFIGMAPS, "held", &[blocking(&owner)], &["a/held"])
        .await;
    let held = server.remove(&item("owner"), "Foreground").await.json();
    assert_eq!(
        held["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    let leaving = |state: &Value| state["metadata"].get("deletionTimestamp").is_some();
    server.until(CONFIGMAPS, "free", leaving).await;
    server.until(CONFIGMAPS, "held", leaving).await;
    server.until_collected().await;
    assert!(server.exists(&item("owner")).await, "a dependent blocks it");
    let let_go = json!({"metadata": {"finalizers": null}});
    server.patch(&item("held"), "merge", let_go).await;
    server.until_gone(CONFIGMAPS, "owner").await;
    assert!(
        server.exists(&item("free")).await,
        "the owner does not wait for a dependent that does not block"
    );
}

#[tokio::test]
async fn w161_foreground_includes_dependents_of_dependents() {
    let server = TestServer::start().await;
    let owner = server.create_plain("owner").await;
    let child = server
        .create_owned(CONFIGMAPS, "child", &[blocking(&owner)], &[])
        .await;
    server
        .create_owned(CONFIGMAPS, "grandchild", &[blocking(&child)], &["a/b"])
        .await;
    server.remove(&item("owner"), "Foreground").await;
    let child = server
        .until(CONFIGMAPS, "child", |state| {
            state["metadata"]["finalizers"] == json!(["foregroundDeletion"])
        })
        .await;
    assert!(child["metadata"].get("deletionTimestamp").is_some());
    let let_go = json!({"metadata": {"finalizers": null}});
    server.patch(&item("grandchild"), "merge", let_go).await;
    server.until_gone(CONFIGMAPS, "owner").await;
    assert!(
        !server.exists(&item("child")).await,
        "deleted before its owner"
    );
    assert!(!server.exists(&item("grandchild")).await);
}

#[tokio::test]
async fn w161_orphans_stay() {
    let server = TestServer::start().await;
    let owner = server.create_plain("owner").await;
    let other = server.create_plain("other").await;
    let owners = [reference(&owner), reference(&other)];
    server.create_owned(CONFIGMAPS, "two", &owners, &[]).await;
    server
        .create_owned(CONFIGMAPS, "one", &[blocking(&owner)], &[])
        .await;
    let held = server.remove(&item("owner"), "Orphan").await.json();
    assert_eq!(held["metadata"]["finalizers"], json!(["orphan"]));
    server.until_gone(CONFIGMAPS, "owner").await;
    server.until_collected().await;
    let owners = async |name: &str| {
        let object = server.get(&item(name)).await.json();
        object["metadata"]["ownerReferences"].clone()
    };
    assert_eq!(owners("one").await, Value::Null);
    assert_eq!(owners("two").await, json!([reference(&other)]));
}

#[tokio::test]
async fn jobs_and_replication_controllers_orphan_by_default_and_others_do_not() {
    let server = TestServer::start().await;
    for (path, kind, stays) in [
        ("/apis/batch/v1/namespaces/default/jobs", "Job", true),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "ReplicationController",
            true,
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets",
            "ReplicaSet",
            false,
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "Deployment",
            false,
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            "CronJob",
            false,
        ),
    ] {
        let owner = server.create_owned(path, "owner", &[], &[]).await;
        let name = kind.to_lowercase();
        server
            .create_owned(CONFIGMAPS, &name, &[reference(&owner)], &[])
            .await;
        let deleted = server.request("DELETE", &format!("{path}/owner"), "").await;
        assert_eq!(deleted.code, 200, "{kind}");
        server.until_gone(path, "owner").await;
        if stays {
            server.until_collected().await;
            assert!(server.exists(&item(&name)).await, "{kind}");
        } else {
            server.until_gone(CONFIGMAPS, &name).await;
        }
    }
}

#[tokio::test]
async fn absent_owners_do_not_keep_an_object() {
    let server = TestServer::start().await;
    let there = server.create_plain("there").await;
    let changed = |member: &str, value: &str| {
        let mut reference = reference(&there);
        reference[member] = value.into();
        reference
    };
    // References with the wrong uid, name or kind.
    for (name, owner) in [
        (
            "uid",
            changed("uid", "11111111-2222-3333-4444-555555555555"),
        ),
        ("name", changed("name", "elsewhere")),
        ("kind", changed("kind", "Secret")),
    ] {
        server.create_owned(CONFIGMAPS, name, &[owner], &[]).await;
        server.until_gone(CONFIGMAPS, name).await;
    }
    // One existing owner is enough; the references to absent owners are removed.
    let owners = [changed("uid", "gone"), reference(&there)];
    server.create_owned(CONFIGMAPS, "kept", &owners, &[]).await;
    let kept = server
        .until(CONFIGMAPS, "kept", |state| {
            state["metadata"]["ownerReferences"]
                .as_array()
                .map(Vec::len)
                == Some(1)
        })
        .await;
    assert_eq!(
        kept["metadata"]["ownerReferences"],
        json!([reference(&there)])
    );
}

#[tokio::test]
async fn owners_are_in_the_same_namespace_or_cluster_scoped() {
    let server = TestServer::start().await;
    let namespace = json!({"metadata": {"name": "other"}});
    server
        .request("POST", "/api/v1/namespaces", namespace)
        .await;
    let elsewhere = server
        .create_owned("/api/v1/namespaces/other/configmaps", "owner", &[], &[])
        .await;
    server
        .create_owned(CONFIGMAPS, "across", &[reference(&elsewhere)], &[])
        .await;
    server.until_gone(CONFIGMAPS, "across").await;

    let node = server.create_owned(NODES, "node", &[], &[]).await;
    server
        .create_owned(CONFIGMAPS, "below", &[reference(&node)], &[])
        .await;
    server.until_collected().await;
    assert!(server.exists(&item("below")).await);
    server.remove(&format!("{NODES}/node"), "Background").await;
    server.until_gone(CONFIGMAPS, "below").await;

    // A cluster-scoped object with a namespaced owner: the namespace of the owner is unknown, so the object is kept.
    server
        .create_owned(NODES, "odd", &[reference(&elsewhere)], &[])
        .await;
    // An owner of an unknown kind cannot be looked up, so the object is kept.
    let unknown = json!({"apiVersion": "a.example/v1", "kind": "A", "name": "a", "uid": "a"});
    server
        .create_owned(CONFIGMAPS, "unknown", &[unknown], &[])
        .await;
    server.until_collected().await;
    assert!(server.exists(&format!("{NODES}/odd")).await);
    assert!(server.exists(&item("unknown")).await);
}

#[tokio::test]
async fn objects_that_own_each_other_are_deleted_together() {
    for policy in ["Foreground", "Background"] {
        let server = TestServer::start().await;
        let a = server.create_plain("a").await;
        let b = server
            .create_owned(CONFIGMAPS, "b", &[blocking(&a)], &[])
            .await;
        let c = server
            .create_owned(CONFIGMAPS, "c", &[blocking(&b)], &[])
            .await;
        let closes = json!({"metadata": {"ownerReferences": [blocking(&c)]}});
        server.patch(&item("a"), "merge", closes).await;
        server.until_collected().await;
        assert!(server.exists(&item("a")).await, "all of them have owners");
        server.remove(&item("a"), policy).await;
        // A second object of the cycle is deleted too.
        server
            .request("DELETE", &item("b"), json!({ "propagationPolicy": policy }))
            .await;
        for name in ["a", "b", "c"] {
            server.until_gone(CONFIGMAPS, name).await;
        }
    }
}

#[tokio::test]
async fn an_owner_held_by_a_finalizer_keeps_its_dependents() {
    let server = TestServer::start().await;
    let owner = server
        .create_owned(CONFIGMAPS, "owner", &[], &["a/b"])
        .await;
    server
        .create_owned(CONFIGMAPS, "child", &[reference(&owner)], &[])
        .await;
    server.remove(&item("owner"), "Background").await;
    server.until_collected().await;
    assert!(server.exists(&item("child")).await);
    let let_go = json!({"metadata": {"finalizers": null}});
    server.patch(&item("owner"), "merge", let_go).await;
    server.until_gone(CONFIGMAPS, "child").await;
}

#[tokio::test]
async fn a_view_of_a_stored_kind_is_an_owner_too() {
    let server = TestServer::start().await;
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let owner = server.create_owned(path, "owner", &[], &[]).await;
    assert_eq!(owner["apiVersion"], "autoscaling/v1");
    server
        .create_owned(CONFIGMAPS, "child", &[reference(&owner)], &[])
        .await;
    server.until_collected().await;
    assert!(server.exists(&item("child")).await);
    server.remove(&format!("{path}/owner"), "Background").await;
    server.until_gone(CONFIGMAPS, "child").await;
}

#[tokio::test]
async fn owners_can_be_changed() {
    let server = TestServer::start().await;
    let (a, b) = (
        server.create_plain("a").await,
        server.create_plain("b").await,
    );
    server
        .create_owned(CONFIGMAPS, "child", &[reference(&a)], &[])
        .await;
    let moved = json!({"metadata": {"ownerReferences": [reference(&b)]}});
    server.patch(&item("child"), "merge", moved).await;
    server.remove(&item("a"), "Background").await;
    server.until_collected().await;
    assert!(server.exists(&item("child")).await);
    server.remove(&item("b"), "Background").await;
    server.until_gone(CONFIGMAPS, "child").await;
}

#[tokio::test]
async fn metrics_count_known_and_deleted_objects() {
    let server = TestServer::start().await;
    let figure = async |name: &str| {
        let text = server.get("/metrics").await.text;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(found, _)| *found == name);
        found.expect("a figure").1.parse::<u64>().unwrap()
    };
    let owner = server.create_plain("owner").await;
    server
        .create_owned(CONFIGMAPS, "child", &[reference(&owner)], &[])
        .await;
    server.until_collected().await;
    // The collector updates its metrics at the end of a round, so the last canary may not be counted yet.
    let deleted = figure("tidings_garbage_deleted_objects_total").await;
    assert!((1..=2).contains(&deleted), "the canaries: {deleted}");
    let known = figure("tidings_garbage_known_objects").await;
    assert!((1..=2).contains(&known), "the child: {known}");
}

#[tokio::test]
async fn two_servers_collect_from_one_store() {
    let store: Arc<dyn Storage> = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let start = async || TestServer {
        api: Api::start(store.clone(), ApiOptions::default())
            .await
            .unwrap(),
    };
    let (one, other) = (start().await, start().await);
    for (owner, policy, stay) in [
        ("a", "Background", false),
        ("b", "Foreground", false),
        ("c", "Orphan", true),
    ] {
        let object = one.create_plain(owner).await;
        for number in 0..40 {
            let name = format!("{owner}{number}");
            one.create_owned(SECRETS, &name, &[blocking(&object)], &[])
                .await;
        }
        one.remove(&item(owner), policy).await;
        for server in [&one, &other] {
            server.until_gone(CONFIGMAPS, owner).await;
            for number in 0..40 {
                let name = format!("{owner}{number}");
                if stay {
                    let secret = server.get(&format!("{SECRETS}/{name}")).await.json();
                    assert_eq!(secret["metadata"].get("ownerReferences"), None, "{name}");
                } else {
                    server.until_gone(SECRETS, &name).await;
                }
            }
        }
    }
    one.until_collected().await;
    other.until_collected().await;
    assert_eq!(other.get(SECRETS).await.names().len(), 40, "the orphans");
}

/// The collector deletes with the command that clients use, and the command refuses it.
#[tokio::test]
async fn a_protected_namespace_is_not_collected() {
    let server = TestServer::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "u"});
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    let namespace = "/api/v1/namespaces/default";
    let patched = server.patch(namespace, "merge", owned).await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    server.until_collected().await;
    let metadata = &server.get(namespace).await.json()["metadata"];
    assert_eq!(metadata["deletionTimestamp"], Value::Null);
}

#[tokio::test]
async fn objects_left_by_an_earlier_server_are_collected() {
    let store: Arc<dyn Storage> = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"});
    let object = |metadata: Value| {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
        Bytes::from(object.to_string())
    };
    let left = object(
        json!({"name": "left", "namespace": "default", "uid": "1", "ownerReferences": [owner]}),
    );
    let waits = object(json!({
        "name": "waits", "namespace": "default", "uid": "2",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        "finalizers": ["foregroundDeletion"],
    }));
    for (key, value) in [("left", left), ("waits", waits)] {
        let key = format!("configmaps/default/{key}");
        store.write(Write::create(key, value)).await.unwrap();
    }
    let api = Api::start(store, ApiOptions::default()).await.unwrap();
    let server = TestServer { api };
    server.until_gone(CONFIGMAPS, "left").await;
    server.until_gone(CONFIGMAPS, "waits").await;
}

#[tokio::test]
async fn volumes_and_claims_go_when_nothing_uses_them() {
    let server = TestServer::start().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["used", "free"] {
        let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(server.request("POST", claims, claim).await.code, 201);
    }
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "used"}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "volumes": [volume], "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(server.request("POST", pods, pod).await.code, 201);
    let delete =
        async |path: String| assert_eq!(server.request("DELETE", &path, "").await.code, 200);
    let is_there = async |name: &str| server.get(&format!("{claims}/{name}")).await.code == 200;
    let goes = async |name: &str| {
        let gone = async {
            while is_there(name).await {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let gone = tokio::time::timeout(std::time::Duration::from_secs(10), gone).await;
        assert!(gone.is_ok(), "nothing uses {name}");
    };
    delete(format!("{claims}/used")).await;
    delete(format!("{claims}/free")).await;
    goes("free").await;
    assert!(is_there("used").await, "a Pod uses it");
    delete(format!("{pods}/p?gracePeriodSeconds=0")).await;
    goes("used").await;
}
