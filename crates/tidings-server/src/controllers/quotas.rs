//! Settles quotas: writes their limits into their status when they are new or changed, and counts the objects again once nothing is written any more.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

use tidings_api::{Object, ObjectKey, ResourceVersion};
use tidings_plugins::Quota;
use tokio::time::Instant;

use crate::core::Core;

/// How often quotas are looked at if none changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long is waited after a look: every write that is counted changes a quota.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// A quota that has not changed for this long belongs to no write that is under way, at no server.
const QUIET: Duration = Duration::from_secs(10);
/// How often objects are counted again where nothing changes. As kube-controller-manager does it.
const RECOUNT_EVERY: Duration = Duration::from_secs(300);

/// What is known of a quota.
struct Seen {
    revision: ResourceVersion,
    since: Instant,
    is_counted: bool,
}

/// Settles quotas until the server stops.
pub(super) async fn run(core: Weak<Core>) {
    let changes = core
        .upgrade()
        .and_then(|core| Some(core.quotas()?.resource().cache().changes()));
    let Some(mut changes) = changes else {
        return std::future::pending().await;
    };
    let mut seen: HashMap<ObjectKey, Seen> = HashMap::new();
    loop {
        {
            let Some(core) = core.upgrade() else { return };
            let Some(quotas) = core.quotas() else { return };
            let all = quotas.resource().list_in("");
            seen.retain(|key, _| quotas.resource().get(key).is_some());
            for object in all {
                let key = object.key();
                let Some(settles) = is_due(&mut seen, &key, &object) else {
                    continue;
                };
                let recounted = quotas.recount(&core.served(), &key, settles).await;
                if let Err(status) = recounted {
                    tracing::warn!(quota = %key, %status, "cannot count the objects of a quota; will retry");
                    seen.remove(&key);
                }
            }
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        if let Ok(Err(_)) = tokio::time::timeout(LOOK_EVERY, changes.changed()).await {
            return; // the caches are gone, and the server with them
        }
    }
}

/// Whether the objects of a quota are to be counted, and if so, whether somebody may be about to write some that are counted already.
fn is_due(seen: &mut HashMap<ObjectKey, Seen>, key: &ObjectKey, object: &Object) -> Option<bool> {
    let revision = object.revision();
    let now = Instant::now();
    let new = || Seen {
        revision,
        since: now,
        is_counted: false,
    };
    let known = seen.entry(key.clone()).or_insert_with(new);
    if known.revision != revision {
        *known = new();
    }
    if Quota::read(object).is_unsettled() {
        return Some(true);
    }
    let pause = match known.is_counted {
        true => RECOUNT_EVERY,
        false => QUIET,
    };
    if now - known.since < pause {
        return None;
    }
    (known.since, known.is_counted) = (now, true);
    Some(false)
}
