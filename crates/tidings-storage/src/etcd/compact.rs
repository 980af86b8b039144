//! Compaction: one of all servers ends history for all of them.
//!
//! They agree on a key that holds the revision at which history starts, the one that kube-apiserver uses too. Who writes it,
//! by compare-and-swap, compacts; the others find it written and learn where history starts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::HISTORY_REVISIONS_MAX;
use super::Shared;
use super::client::Effect;
use super::proto::{
    CompactionRequest, Compare, Ignored, PutRequest, RangeRequest, RequestOp, TxnRequest,
    TxnResponse, request_op,
};
use crate::contract::{Error, Revision};

/// kube-apiserver's name for it, outside every prefix: compaction is of the whole store.
const KEY: Bytes = Bytes::from_static(b"compact_rev_key");
/// A tenth of the history, within these bounds.
const INTERVAL_LEAST: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

pub(super) async fn run(shared: std::sync::Arc<Shared>) {
    let interval = (shared.keep.age / 10).clamp(INTERVAL_LEAST, INTERVAL_MAX);
    loop {
        // Several servers do not all come at once.
        tokio::time::sleep(interval.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        if let Err(error) = round(&shared).await {
            shared.failed_compactions.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "history cannot be compacted now");
        }
    }
}

/// Compacts what is due, unless another server has.
pub(super) async fn round(shared: &Shared) -> Result<(), Error> {
    let current = shared.revision().await?;
    let now_ms = shared.now_ms();
    let due = match shared.holds.any() {
        true => Revision(0),
        false => shared.times().oldest(now_ms, current, shared.keep),
    };
    let request = RangeRequest {
        key: KEY,
        ..RangeRequest::default()
    };
    let found = shared.read(request).await?.kvs.into_iter().next();
    let said = found.as_ref().and_then(|entry| {
        let text = std::str::from_utf8(&entry.value).ok()?;
        text.parse().ok().map(Revision)
    });
    // A key that says more than etcd has is of another time.
    let said = said.filter(|said| *said <= current).unwrap_or_default();
    shared.starts_at_least(said);
    shared.times().start_at(said);
    // Compaction is a write itself: what it makes is not worth another.
    if due.0 <= said.0 + shared.keep.revisions_min / 10 {
        return Ok(());
    }
    let at = found.map_or(0, |entry| entry.mod_revision);
    if claim(shared, at, due).await? {
        compact(shared, due).await?;
        shared.starts_at_least(due);
        shared.times().start_at(due);
        tracing::debug!(oldest = %due, "compacted history");
    }
    Ok(())
}

/// True if this server is the one that compacts.
async fn claim(shared: &Shared, at: i64, due: Revision) -> Result<bool, Error> {
    let put = request_op::Request::Put(PutRequest {
        key: KEY,
        value: due.to_string().into(),
        lease: 0,
    });
    let request = TxnRequest {
        compare: vec![Compare::last_changed_at(KEY, at)],
        success: vec![RequestOp { request: Some(put) }],
        failure: Vec::new(),
    };
    let path = "/etcdserverpb.KV/Txn";
    let answer: TxnResponse = shared.client.call(path, request, Effect::Write).await?;
    Ok(answer.succeeded)
}

async fn compact(shared: &Shared, due: Revision) -> Result<(), Error> {
    let request = CompactionRequest {
        revision: due.0 as i64,
    };
    let path = "/etcdserverpb.KV/Compact";
    match shared
        .client
        .call::<_, Ignored>(path, request, Effect::None)
        .await
    {
        // Somebody has compacted further.
        Ok(_) | Err(Error::Compacted { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Where history starts. etcd does not say; whether it can be read there tells.
pub(super) async fn find_oldest(shared: &Shared, current: Revision) -> Result<Revision, Error> {
    let is_readable = async |revision: u64| {
        let request = RangeRequest {
            key: KEY,
            count_only: true,
            revision: revision as i64,
            ..RangeRequest::default()
        };
        match shared.read(request).await {
            Ok(_) => Ok(true),
            Err(Error::Compacted { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let first = current.0.saturating_sub(HISTORY_REVISIONS_MAX).max(1);
    if is_readable(first).await? {
        return Ok(Revision(first));
    }
    let (mut gone, mut there) = (first, current.0.max(1));
    while there - gone > 1 {
        let middle = gone + (there - gone) / 2;
        if is_readable(middle).await? {
            there = middle;
        } else {
            gone = middle;
        }
    }
    Ok(Revision(there))
}
