//! Compaction of etcd: one server compacts for all servers.
//!
//! All servers share a key with the revision at which history starts; kube-apiserver uses the same key. The server that writes
//! it, by compare-and-swap, compacts. The others read it and learn where history starts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::EtcdShared;
use super::HISTORY_REVISIONS_MAX;
use super::client::CallEffect;
use super::proto::{
    CompactionRequest, Compare, IgnoredMessage, PutRequest, RangeRequest, RequestOp, TxnRequest,
    TxnResponse, request_op,
};
use crate::contract::{Error, Revision};

/// kube-apiserver's name of the key. It has no prefix, because compaction affects the whole etcd.
const KEY: Bytes = Bytes::from_static(b"compact_rev_key");
/// The shortest interval between rounds, which is a tenth of the history's age.
const INTERVAL_LEAST: Duration = Duration::from_secs(1);
/// The longest interval between rounds.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Runs rounds of compaction forever.
pub(super) async fn run(shared: std::sync::Arc<EtcdShared>) {
    let interval = (shared.keep.age / 10).clamp(INTERVAL_LEAST, INTERVAL_MAX);
    loop {
        // A random interval, so that several servers do not compact at the same time.
        tokio::time::sleep(interval.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        if let Err(error) = round(&shared).await {
            shared.failed_compactions.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "cannot compact history; will retry");
        }
    }
}

/// Compacts due history, unless another server has done so.
pub(super) async fn round(shared: &EtcdShared) -> Result<(), Error> {
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
    let stored = found.as_ref().and_then(|entry| {
        let text = std::str::from_utf8(&entry.value).ok()?;
        text.parse().ok().map(Revision)
    });
    // A value above the current revision is from before a restore of etcd.
    let stored = stored
        .filter(|stored| *stored <= current)
        .unwrap_or_default();
    shared.starts_at_least(stored);
    shared.times().start_at(stored);
    // Compaction itself writes a key: do not compact for the revisions of such writes alone.
    if due.0 <= stored.0 + shared.keep.revisions_min / 10 {
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

/// Writes the shared key. True if this server may compact.
async fn claim(shared: &EtcdShared, at: i64, due: Revision) -> Result<bool, Error> {
    let put = request_op::RequestOperation::Put(PutRequest {
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
    let answer: TxnResponse = shared.client.call(path, request, CallEffect::Write).await?;
    Ok(answer.succeeded)
}

async fn compact(shared: &EtcdShared, due: Revision) -> Result<(), Error> {
    let request = CompactionRequest {
        revision: due.0 as i64,
    };
    let path = "/etcdserverpb.KV/Compact";
    match shared
        .client
        .call::<_, IgnoredMessage>(path, request, CallEffect::None)
        .await
    {
        // Another server has compacted further.
        Ok(_) | Err(Error::Compacted { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The oldest readable revision. etcd has no call for it, so this is a binary search with reads.
pub(super) async fn find_oldest(shared: &EtcdShared, current: Revision) -> Result<Revision, Error> {
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
