//! Lets volumes and claims go that are deleted and not in use: removes the finalizers by which they are protected.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidings_api::{Object, Status};
use tidings_json::Value;

use super::client;
use crate::core::{Core, Resource};

/// How often those that are being deleted are looked at: a Pod that uses one may have ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

struct Resources {
    claims: Arc<Resource>,
    volumes: Arc<Resource>,
    pods: Arc<Resource>,
}

/// Removes finalizers until the server stops.
pub(super) async fn run(core: Weak<Core>) {
    let find = |core: Arc<Core>| {
        let served = core.served();
        let find = |plural: &str| served.find("", "v1", plural)?.1;
        Some(Resources {
            claims: find("persistentvolumeclaims")?,
            volumes: find("persistentvolumes")?,
            pods: find("pods")?,
        })
    };
    let Some(resources) = core.upgrade().and_then(find) else {
        return std::future::pending().await;
    };
    let Resources {
        claims,
        volumes,
        pods,
    } = &resources;
    loop {
        {
            let Some(core) = core.upgrade() else { return };
            let leaving = terminating(claims, CLAIM);
            // The cache of Pods may be behind that of claims.
            if !leaving.is_empty() && pods.refresh().await.is_ok() {
                let mut used: HashMap<String, HashSet<String>> = HashMap::new();
                for claim in leaving {
                    let namespace = claim.namespace().into_owned();
                    let in_use = used.entry(namespace);
                    let in_use =
                        in_use.or_insert_with_key(|namespace| claims_in_use(pods, namespace));
                    if !in_use.contains(&*claim.name()) {
                        release(&core, claims, &claim, CLAIM).await;
                    }
                    tokio::task::yield_now().await;
                }
            }
            for volume in terminating(volumes, VOLUME) {
                if tree(&volume)["status"]["phase"] != "Bound" {
                    release(&core, volumes, &volume, VOLUME).await;
                }
            }
        }
        let marked = async {
            tokio::select! {
                () = claims.marked() => {}
                () = volumes.marked() => {}
            }
        };
        if tokio::time::timeout(LOOK_EVERY, marked).await.is_ok() {
            // The mark is in the store, and the cache may not have it yet. If it cannot be reached, the next look is in a second.
            let _ = claims.refresh().await;
            let _ = volumes.refresh().await;
        }
    }
}

fn tree(object: &Object) -> Value {
    serde_json::from_slice(object.as_bytes()).unwrap_or_default()
}

/// The objects that are being deleted and have a finalizer.
fn terminating(resource: &Resource, finalizer: &str) -> Vec<Object> {
    let mut all = resource.list_in("");
    all.retain(|object| {
        object.is_terminating() && {
            let finalizers = &tree(object)["metadata"]["finalizers"];
            let mut finalizers = finalizers.as_array().into_iter().flatten();
            finalizers.any(|known| known == finalizer)
        }
    });
    all
}

/// The names of the claims that Pods use which are on a node and have not ended.
fn claims_in_use(pods: &Resource, namespace: &str) -> HashSet<String> {
    let mut used = HashSet::new();
    for pod in pods.list_in(namespace) {
        let pod = tree(&pod);
        let has_ended = matches!(
            pod["status"]["phase"].as_str(),
            Some("Failed" | "Succeeded")
        );
        if has_ended || pod["spec"]["nodeName"].is_null() {
            continue;
        }
        let own = pod["metadata"]["name"].as_str().unwrap_or_default();
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
            used.extend(claim.map(ToOwned::to_owned));
            // An ephemeral volume has a claim with the names of both.
            if let (false, Some(name)) = (volume["ephemeral"].is_null(), volume["name"].as_str()) {
                used.insert(format!("{own}-{name}"));
            }
        }
    }
    used
}

async fn release(core: &Core, resource: &Arc<Resource>, object: &Object, finalizer: &str) {
    let same = |existing: &Object| existing.uid() == object.uid();
    let key = object.key();
    let released = client::edit(core, resource, &key, same, None, |draft| {
        draft.meta.finalizers.retain(|known| known != finalizer);
    });
    match released.await {
        Ok(()) => {}
        Err(Status { code: 404, .. }) => {}
        Err(status) => {
            tracing::warn!(object = %key, %status, "cannot remove a protection finalizer; will retry");
        }
    }
}
