//! A Lease as the lock of a leader election.

use std::time::{Duration, SystemTime};

use http::Method;
use serde_json::{Value, json};
use tidings_informer::leader::{LeaseLock as _, LeaseRecord, LockError};
use tidings_kube::KubeLeaseLock;

use crate::script::{Server, answer};

/// A Lease with more than the record of the election.
fn lease(version: u32) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "leader", "namespace": "default", "resourceVersion": version.to_string(), "uid": "u",
            "labels": {"team": "a"}, "annotations": {"note": "b"}, "finalizers": ["example.com/keep"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o"}],
        },
        "spec": {"holderIdentity": "other", "leaseTransitions": 3, "strategy": "OldestEmulationVersion", "new": {"field": 1}},
        "status": {"new": true},
    })
}

fn record() -> LeaseRecord {
    LeaseRecord {
        holder: "me".into(),
        lease_duration_seconds: 15,
        acquire_time: SystemTime::UNIX_EPOCH,
        renew_time: SystemTime::UNIX_EPOCH + Duration::from_secs(60),
        transitions: 4,
    }
}

/// [`lease`] with [`record`].
fn held(version: u32) -> Value {
    let mut lease = lease(version);
    let spec = &mut lease["spec"];
    spec["holderIdentity"] = "me".into();
    spec["leaseDurationSeconds"] = 15.into();
    spec["acquireTime"] = "1970-01-01T00:00:00.000000Z".into();
    spec["renewTime"] = "1970-01-01T00:01:00.000000Z".into();
    spec["leaseTransitions"] = 4.into();
    lease
}

fn lock(server: &Server) -> KubeLeaseLock {
    KubeLeaseLock::new(&server.client(), "default", "leader", "me")
}

fn said(lease: &Value) -> crate::script::ScriptStep {
    answer(200, lease.to_string())
}

/// The bodies of the PUTs.
fn written(server: &Server) -> Vec<Value> {
    let asked = server.asked().into_iter();
    asked
        .filter(|asked| asked.method == Method::PUT)
        .map(|asked| serde_json::from_slice(&asked.body).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_update_changes_only_the_record_of_the_election() {
    let server = Server::script([said(&lease(7)), said(&held(8)), said(&held(9))]);
    let lock = lock(&server);
    let (read, version) = lock.get().await.unwrap().unwrap();
    assert_eq!((&*read.holder, read.transitions), ("other", 3));
    // A renewal updates what the last update returned.
    let version = lock.update(record(), version).await.unwrap();
    assert_eq!(lock.update(record(), version).await.unwrap(), "9");
    assert_eq!(written(&server), [held(7), held(8)]);
}

#[tokio::test(start_paused = true)]
async fn a_new_lease_has_the_record_and_what_the_server_adds_stays() {
    let mut created = held(7);
    created["metadata"]["labels"] = json!({"added-by": "admission"});
    let server = Server::script([said(&created), said(&created)]);
    let lock = lock(&server);
    let version = lock.create(record()).await.unwrap();
    lock.update(record(), version).await.unwrap();
    let first: Value = serde_json::from_slice(&server.asked()[0].body).unwrap();
    assert_eq!(
        first["metadata"],
        json!({"name": "leader", "namespace": "default"})
    );
    assert_eq!(first["spec"]["holderIdentity"], "me");
    assert_eq!(written(&server), [created]);
}

#[tokio::test(start_paused = true)]
async fn an_update_of_a_version_that_is_not_known_reads_the_lease() {
    let server = Server::script([said(&lease(7)), said(&held(8)), said(&lease(9))]);
    let lock = lock(&server);
    assert_eq!(lock.update(record(), "7".into()).await.unwrap(), "8");
    assert_eq!(written(&server), [held(7)]);
    let conflict = lock.update(record(), "7".into()).await;
    assert!(matches!(conflict, Err(LockError::Conflict)), "{conflict:?}");
    assert_eq!(written(&server).len(), 1, "it is not overwritten");
}
