//! Quotas: what they count, what they refuse, and that many writers never take more than they allow.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::TestServer;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn pod(name: &str, cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}});
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

impl TestServer {
    async fn put_in(&self, path: &str, body: Value) -> Value {
        let answer = self.request("POST", path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        answer.json()
    }

    async fn used(&self, name: &str) -> Value {
        let quota = self.get(&format!("{QUOTAS}/{name}")).await.json();
        quota["status"]["used"].clone()
    }

    /// Waits until the status of a quota says that so much is used.
    async fn await_used(&self, name: &str, used: Value) {
        let settled = async {
            while self.used(name).await != used {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let settled = tokio::time::timeout(Duration::from_secs(20), settled).await;
        let is = self.used(name).await;
        assert!(settled.is_ok(), "is {is}, should {used}");
    }

    async fn quota(&self, name: &str, hard: Value, used: Value) {
        let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
        self.put_in(QUOTAS, quota).await;
        self.await_used(name, used).await;
    }
}

#[tokio::test]
async fn what_is_there_is_counted_and_more_is_refused() {
    let server = TestServer::start().await;
    server.put_in(MAPS, named("a")).await;
    server
        .quota(
            "maps",
            json!({"configmaps": "2", "count/configmaps": "3"}),
            json!({"configmaps": "1", "count/configmaps": "1"}),
        )
        .await;
    server.put_in(MAPS, named("b")).await;
    let dry = format!("{MAPS}?dryRun=All");
    for path in [MAPS, &dry] {
        let refused = server.request("POST", path, named("c")).await;
        assert_eq!(refused.code, 403);
        assert_eq!(
            refused.json()["message"],
            "configmaps \"c\" is forbidden: exceeded quota: maps, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
        );
    }
    // What exists already takes nothing, and what is gone gives its share back.
    let exists = server.request("POST", MAPS, named("b")).await;
    assert_eq!(exists.code, 403, "the quota is asked first");
    let path = format!("{MAPS}/a");
    assert_eq!(server.request("DELETE", &path, "").await.code, 200);
    assert_eq!(
        server.used("maps").await,
        json!({"configmaps": "1", "count/configmaps": "1"})
    );
    let exists = server.request("POST", MAPS, named("b")).await;
    assert_eq!(exists.code, 409);
    assert_eq!(
        server.used("maps").await,
        json!({"configmaps": "1", "count/configmaps": "1"})
    );
    server.put_in(MAPS, named("c")).await;
    // A limit that changes.
    let path = format!("{QUOTAS}/maps");
    let merge = [("content-type", "application/merge-patch+json")];
    let hard =
        json!({"spec": {"hard": {"configmaps": "3", "count/configmaps": null, "secrets": "1"}}});
    let patched = server
        .request_with_headers("PATCH", &path, &merge, hard.to_string())
        .await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    server
        .await_used("maps", json!({"configmaps": "2", "secrets": "0"}))
        .await;
    server.put_in(MAPS, named("d")).await;
}

#[tokio::test]
async fn pods_take_what_they_request_until_they_end() {
    let server = TestServer::start().await;
    server
        .quota(
            "pods",
            json!({"requests.cpu": "1", "pods": "5"}),
            json!({"requests.cpu": "0", "pods": "0"}),
        )
        .await;
    server.put_in(PODS, pod("a", "600m")).await;
    let refused = server.request("POST", PODS, pod("b", "500m")).await;
    assert_eq!(
        refused.json()["message"],
        "pods \"b\" is forbidden: exceeded quota: pods, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    let silent =
        json!({"metadata": {"name": "s"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refused = server.request("POST", PODS, silent).await;
    assert_eq!(
        refused.json()["message"],
        "pods \"s\" is forbidden: failed quota: pods: must specify requests.cpu for: c"
    );
    let path = format!("{PODS}/a/status");
    let merge = [("content-type", "application/merge-patch+json")];
    let ended = json!({"status": {"phase": "Succeeded"}}).to_string();
    let ended = server
        .request_with_headers("PATCH", &path, &merge, ended)
        .await;
    assert_eq!(ended.code, 200);
    assert_eq!(
        server.used("pods").await,
        json!({"requests.cpu": "0", "pods": "0"})
    );
    server.put_in(PODS, pod("b", "1")).await;
}

#[tokio::test]
async fn many_writers_never_take_more_than_a_quota_allows() {
    const WRITERS: usize = 64;
    let server = TestServer::start().await;
    server
        .quota(
            "maps",
            json!({"configmaps": "20"}),
            json!({"configmaps": "0"}),
        )
        .await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let server = server.clone();
        writers.spawn(async move {
            let mut refused = 0;
            for round in 0..4 {
                let name = format!("m{writer}-{round}");
                let code = server.request("POST", MAPS, named(&name)).await.code;
                assert!(matches!(code, 201 | 403), "{code}");
                refused += usize::from(code == 403);
                if code == 201 && round % 2 == 0 {
                    let path = format!("{MAPS}/{name}");
                    assert_eq!(server.request("DELETE", &path, "").await.code, 200);
                }
            }
            refused
        });
    }
    let watching = {
        let server = server.clone();
        tokio::spawn(async move {
            loop {
                let items = server.get(MAPS).await.json()["items"].clone();
                let count = items.as_array().unwrap().len();
                assert!(count <= 20, "{count} objects");
                tokio::task::yield_now().await;
            }
        })
    };
    let refused: usize = writers.join_all().await.into_iter().sum();
    assert!(!watching.is_finished(), "the quota was exceeded");
    watching.abort();
    assert!(refused > 0);
    let items = server.get(MAPS).await.json()["items"].clone();
    let count = items.as_array().unwrap().len();
    assert!(count <= 20);
    assert_eq!(
        server.used("maps").await,
        json!({"configmaps": count.to_string()}),
        "what is used is the sum, without counting again"
    );
}

/// A quota that says nothing is not written again and again.
#[tokio::test]
async fn a_quota_without_limits_comes_to_rest() {
    let server = TestServer::start().await;
    for (name, hard) in [
        ("none", json!({})),
        ("unknown", json!({"count/odd.example.com": "1"})),
    ] {
        server
            .put_in(
                QUOTAS,
                json!({"metadata": {"name": name}, "spec": {"hard": hard}}),
            )
            .await;
    }
    // Another quota is settled after both.
    server
        .quota(
            "maps",
            json!({"configmaps": "1"}),
            json!({"configmaps": "0"}),
        )
        .await;
    let versions = || async {
        let list = server.get(QUOTAS).await.json();
        let items = list["items"].as_array().unwrap().clone();
        let versions = items
            .iter()
            .map(|item| item["metadata"]["resourceVersion"].clone());
        versions.collect::<Vec<_>>()
    };
    let before = versions().await;
    server.put_in(MAPS, named("a")).await;
    server.await_used("maps", json!({"configmaps": "1"})).await;
    assert_eq!(versions().await[1..], before[1..]);
}

/// Objects that a controller lets go give back what they took.
#[tokio::test]
async fn claims_give_back_their_share_when_their_protection_ends() {
    let server = TestServer::start().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = || json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    server
        .quota(
            "claims",
            json!({"persistentvolumeclaims": "1", "requests.storage": "1Gi"}),
            json!({"persistentvolumeclaims": "0", "requests.storage": "0"}),
        )
        .await;
    server.put_in(claims, claim()).await;
    let path = format!("{claims}/c");
    assert_eq!(server.request("DELETE", &path, "").await.code, 200);
    server
        .await_used(
            "claims",
            json!({"persistentvolumeclaims": "0", "requests.storage": "0"}),
        )
        .await;
    server.put_in(claims, claim()).await;
}
