//! Settles quotas: writes their limits into their status when they are new or changed, and counts the objects again from time to time.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

use tidings_api::{Object, ObjectKey, ResourceVersion, Status};
use tidings_plugins::{Quota, QuotaCount};
use tokio::time::Instant;

use crate::core::{Core, Quotas, Recounted};

/// How often quotas are looked at if none changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long is waited after a look: every write that is counted changes a quota.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// A quota that has not changed for this long belongs to no write that is under way, at no server.
const QUIET: Duration = Duration::from_secs(10);
/// How often objects are counted again, whether quotas change or not.
const RECOUNT_EVERY: Duration = Duration::from_secs(60);

/// What is known of a quota.
struct Seen {
    revision: ResourceVersion,
    is_unsettled: bool,
    /// When it got this revision, or a lower count was found.
    quiet_since: Instant,
    /// The objects were counted in this revision.
    is_counted: bool,
    last_counted: Instant,
    /// A count that is lower than the status, found a while ago. It is written if it is still the count.
    lower: Option<QuotaCount>,
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
            seen.retain(|key, _| quotas.resource().get(key).is_some());
            for object in quotas.resource().list_in("") {
                let key = object.key();
                let known = note(&mut seen, &key, &object);
                if let Err(status) = look(&core, quotas, &key, known).await {
                    tracing::warn!(quota = %key, %status, "cannot count the objects of a quota; will retry");
                }
            }
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        if let Ok(Err(_)) = tokio::time::timeout(LOOK_EVERY, changes.changed()).await {
            return; // the caches are gone, and the server with them
        }
    }
}

/// What is known of a quota in its current revision.
fn note<'s>(
    seen: &'s mut HashMap<ObjectKey, Seen>,
    key: &ObjectKey,
    object: &Object,
) -> &'s mut Seen {
    let (revision, now) = (object.revision(), Instant::now());
    let is_unsettled = || Quota::read(object).is_unsettled();
    let known = seen.entry(key.clone()).or_insert_with(|| Seen {
        revision,
        is_unsettled: is_unsettled(),
        quiet_since: now,
        is_counted: false,
        last_counted: now,
        lower: None,
    });
    if known.revision != revision {
        known.revision = revision;
        known.is_unsettled = is_unsettled();
        (known.quiet_since, known.is_counted, known.lower) = (now, false, None);
    }
    known
}

/// Counts the objects of a quota, if that is due.
async fn look(
    core: &Core,
    quotas: &Quotas,
    key: &ObjectKey,
    known: &mut Seen,
) -> Result<(), Status> {
    let now = Instant::now();
    let is_quiet = now - known.quiet_since >= QUIET;
    let is_due = known.is_unsettled
        || (is_quiet && !known.is_counted)
        || now - known.last_counted >= RECOUNT_EVERY;
    if !is_due {
        return Ok(());
    }
    // Where another server may be about to write what is counted, no less is written.
    let keeps = known.is_unsettled || !is_quiet;
    let served = core.served();
    let recounted = quotas.recount(&served, key, keeps, known.lower.as_ref());
    match recounted.await? {
        Recounted::Busy => return Ok(()),
        Recounted::Done => known.is_counted = is_quiet,
        Recounted::Less(count) => (known.quiet_since, known.lower) = (now, Some(count)),
    }
    known.last_counted = now;
    Ok(())
}
