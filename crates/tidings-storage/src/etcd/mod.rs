//! The engine over etcd: revisions are etcd's revisions, writes are etcd transactions, and one etcd watch delivers all changes.
//!
//! The engine caches nothing: each read and write is a call. `client` makes calls with deadlines, `write` changes a key, `pump`
//! follows the etcd watch, `hub` distributes its events, `compact` compacts history for all servers, `lease` expires keys.

mod client;
mod compact;
mod hub;
mod lease;
mod options;
mod proto;
mod pump;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::RunningTime;
use crate::contract::{
    BoxFuture, Error, HistoryHold, HistoryHolds, KeyValue, Range, RangeResult, RemoteStats,
    Revision, Stats, Storage, Trouble, WatchStream, Write,
};
use crate::history::{HistoryLimits, RevisionTimes};
use client::{CallEffect, EtcdClient};
use hub::WatchHub;
use lease::Leases;
pub use options::{EtcdOpenError, EtcdOptions, EtcdTls};
use proto::{RangeRequest, RangeResponse};
use pump::EtcdWatch;

/// The maximum wait for etcd at the start.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of revisions of history that a server reads at the start.
const HISTORY_REVISIONS_MAX: u64 = 100_000;
/// The first bytes of values that kube-apiserver wrote as protobuf.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";
/// The number of values that are checked for kube-apiserver's format.
const SAMPLE: i64 = 20;

/// The state that calls, the pump and the compactor share.
struct EtcdShared {
    client: EtcdClient,
    /// The prefix of all keys; ends with a slash.
    prefix: Bytes,
    hub: Mutex<WatchHub>,
    /// Wakes the pump when the user watches have changed.
    pump: Notify,
    /// The newest revision that etcd is known to have.
    known: AtomicU64,
    oldest: AtomicU64,
    cluster: AtomicU64,
    asking: RevisionQueries,
    times: Mutex<RevisionTimes>,
    keep: HistoryLimits,
    leases: Leases,
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    time: Mutex<RunningTime>,
    value_bytes_max: usize,
    holds: HistoryHolds,
    failed_compactions: AtomicU64,
    writes: AtomicU64,
    queued: AtomicU64,
    opened: AtomicU64,
    went_back: AtomicU64,
}

/// Callers that ask for the current revision. Callers that arrive during a query share the next one.
#[derive(Default)]
struct RevisionQueries {
    /// The number of callers so far.
    came: AtomicU64,
    turn: tokio::sync::Mutex<RevisionAnswer>,
}

/// The answer of the last query.
struct RevisionAnswer {
    /// The answer is valid for callers up to this number.
    came: u64,
    answer: Result<Revision, Error>,
}

impl Default for RevisionAnswer {
    fn default() -> RevisionAnswer {
        RevisionAnswer {
            came: 0,
            answer: Ok(Revision(0)),
        }
    }
}

/// A store in etcd. Dropping it ends its watches.
pub struct Etcd {
    shared: Arc<EtcdShared>,
    /// The background tasks, each with a description.
    tasks: [(&'static str, JoinHandle<()>); 2],
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Connects to etcd. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If etcd does not answer, or kube-apiserver uses the prefix.
    pub async fn open(options: EtcdOptions) -> Result<Etcd, EtcdOpenError> {
        if !options.prefix.starts_with('/') || options.prefix.ends_with('/') {
            return Err(EtcdOpenError::BadPrefix(options.prefix));
        }
        let shared = Arc::new(EtcdShared {
            client: EtcdClient::new(&options)?,
            prefix: format!("{}/", options.prefix).into(),
            hub: Mutex::default(),
            pump: Notify::new(),
            known: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            cluster: AtomicU64::new(0),
            asking: RevisionQueries::default(),
            times: Mutex::default(),
            keep: HistoryLimits {
                age: options.history_age,
                revisions_min: options.history_revisions_min,
            },
            leases: Leases::new(options.lifetimes),
            now: options.now,
            time: Mutex::new(RunningTime::from(0, options.clock_step_max)),
            value_bytes_max: options.value_bytes_max,
            holds: HistoryHolds::default(),
            failed_compactions: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            went_back: AtomicU64::new(0),
        });
        let revision = shared.first_answer().await?;
        shared.check_owner().await?;
        let oldest = compact::find_oldest(&shared, revision).await;
        let oldest = oldest.map_err(EtcdOpenError::Unreachable)?;
        shared.oldest.store(oldest.0, Ordering::Relaxed);
        shared.note(revision);
        tracing::debug!(%revision, %oldest, "connected to etcd");
        let tasks = [
            ("follows etcd", tokio::spawn(pump::run(shared.clone()))),
            (
                "compacts history",
                tokio::spawn(compact::run(shared.clone())),
            ),
        ];
        Ok(Etcd { shared, tasks })
    }

    /// Compacts due history immediately, instead of within the next minute, and returns the oldest revision.
    ///
    /// # Errors
    /// If etcd does not answer.
    pub async fn compact(&self) -> Result<Revision, Error> {
        compact::round(&self.shared).await?;
        Ok(self.shared.oldest())
    }
}

impl EtcdShared {
    fn hub(&self) -> MutexGuard<'_, WatchHub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn times(&self) -> MutexGuard<'_, RevisionTimes> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Revision {
        Revision(self.known.load(Ordering::Relaxed))
    }

    fn oldest(&self) -> Revision {
        Revision(self.oldest.load(Ordering::Relaxed))
    }

    fn starts_at_least(&self, oldest: Revision) {
        self.oldest.fetch_max(oldest.0, Ordering::Relaxed);
    }

    /// Notes that etcd has this revision.
    fn note(&self, revision: Revision) {
        self.known.fetch_max(revision.0, Ordering::Relaxed);
        let now_ms = self.now_ms();
        self.times().note(now_ms, revision);
    }

    /// The running time of this server, which is its clock for the age of history.
    fn now_ms(&self) -> u64 {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        time.at((self.now)())
    }

    /// The age of the history, as far as this server knows.
    fn oldest_age(&self) -> Duration {
        let now_ms = self.now_ms();
        let since_ms = self.times().first_ms().unwrap_or(now_ms);
        Duration::from_millis(now_ms.saturating_sub(since_ms))
    }

    /// The key in etcd: with the prefix of the store.
    fn key(&self, key: &[u8]) -> Bytes {
        [&self.prefix, key].concat().into()
    }

    async fn first_answer(&self) -> Result<Revision, EtcdOpenError> {
        let deadline = Instant::now() + OPEN_PATIENCE;
        loop {
            match self.revision().await {
                Ok(revision) => return Ok(revision),
                Err(error) if Instant::now() >= deadline => {
                    return Err(EtcdOpenError::Unreachable(error));
                }
                Err(error) => tracing::warn!(%error, "waiting for etcd"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Checks some values and refuses a prefix that kube-apiserver uses.
    async fn check_owner(&self) -> Result<(), EtcdOpenError> {
        // Checks the first keys and the namespaces, which every Kubernetes cluster has.
        let is_theirs = |entry: &proto::ProtoKeyValue| entry.value.starts_with(PROTOBUF_MAGIC);
        for part in ["", "namespaces/"] {
            let mut request = self.range_of(part.as_bytes());
            request.limit = SAMPLE;
            let found: RangeResponse = self
                .read(request)
                .await
                .map_err(EtcdOpenError::Unreachable)?;
            // A single such value among others is allowed.
            if let Some(theirs) = found.kvs.first()
                && found.kvs.iter().all(is_theirs)
            {
                let key = String::from_utf8_lossy(&theirs.key).into_owned();
                return Err(EtcdOpenError::Foreign { key });
            }
        }
        Ok(())
    }

    fn range_of(&self, prefix: &[u8]) -> RangeRequest {
        let key = self.key(prefix);
        RangeRequest {
            range_end: end_of(&key),
            key,
            ..RangeRequest::default()
        }
    }

    /// The revision to read at, in etcd's encoding: zero is the current one.
    fn readable(&self, at: Option<Revision>) -> Result<i64, Error> {
        match at {
            None => Ok(0),
            Some(requested) if requested < self.oldest() => Err(Error::Compacted {
                requested,
                oldest: self.oldest(),
            }),
            Some(requested) => Ok(requested.0 as i64),
        }
    }

    async fn read(&self, request: RangeRequest) -> Result<RangeResponse, Error> {
        let at = Revision(request.revision as u64);
        let path = "/etcdserverpb.KV/Range";
        let effect = match &*request.range_end {
            [] => CallEffect::None,
            _ => CallEffect::Page,
        };
        let answer = self.client.call(path, request, effect).await;
        answer.map_err(|error| self.with_figures(error, at))
    }

    /// Fills in the revisions that etcd leaves out of its errors.
    fn with_figures(&self, error: Error, requested: Revision) -> Error {
        match error {
            Error::Compacted { .. } => Error::Compacted {
                requested,
                oldest: self.oldest().max(Revision(requested.0 + 1)),
            },
            Error::Future { .. } => Error::Future {
                requested,
                current: self.known(),
            },
            other => other,
        }
    }

    /// The current revision, by a linearizable read.
    async fn revision(&self) -> Result<Revision, Error> {
        let ticket = self.asking.came.fetch_add(1, Ordering::SeqCst) + 1;
        let mut turn = self.asking.turn.lock().await;
        if turn.came < ticket {
            // The answer is valid for all callers that arrived before the query is sent.
            let came = self.asking.came.load(Ordering::SeqCst);
            let answer = self.ask_revision().await;
            *turn = RevisionAnswer { came, answer };
        }
        turn.answer.clone()
    }

    async fn ask_revision(&self) -> Result<Revision, Error> {
        let before = self.known();
        // Only the header of the answer matters; any key will do.
        let request = RangeRequest {
            key: self.prefix.clone(),
            count_only: true,
            ..RangeRequest::default()
        };
        let header = self.read(request).await?.header.unwrap_or_default();
        let revision = Revision(header.revision as u64);
        let cluster = self.cluster.swap(header.cluster_id, Ordering::Relaxed);
        let is_another = cluster != 0 && cluster != header.cluster_id;
        if revision < before || is_another {
            self.went_back(before, revision);
        }
        self.note(revision);
        Ok(revision)
    }

    /// Handles a loss of revisions: etcd was restored from a backup, or is another cluster. All watches end.
    fn went_back(&self, from: Revision, to: Revision) {
        tracing::error!(%from, %to, "etcd has lost revisions: it was restored from a backup, or is another cluster; all watches start again");
        self.went_back.fetch_add(1, Ordering::Relaxed);
        self.known.store(to.0, Ordering::Relaxed);
        self.oldest.store(to.0, Ordering::Relaxed);
        *self.times() = RevisionTimes::default();
        self.leases.forget();
        let mut hub = self.hub();
        hub.end(&Error::WentBack { from, to });
        hub.go_back(to);
        drop(hub);
        self.pump.notify_one();
    }

    /// Converts a key and value from etcd: without the prefix of the store.
    fn entry(&self, entry: proto::ProtoKeyValue) -> KeyValue {
        KeyValue {
            key: self.own_key(&entry.key),
            value: entry.value,
            revision: Revision(entry.mod_revision as u64),
        }
    }

    fn own_key(&self, key: &Bytes) -> Bytes {
        key.slice(self.prefix.len().min(key.len())..)
    }
}

/// The first key after all keys with a prefix.
fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(b"\0") // all keys
}

/// Decrements the count of queued writes when it is dropped.
struct QueuedGuard<'a>(&'a AtomicU64);

impl Drop for QueuedGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Storage for Etcd {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(self.shared.revision())
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(std::future::ready(Ok(self.shared.oldest())))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async move {
            // etcd would refuse the write too, but without its size.
            write.check_size(self.shared.value_bytes_max)?;
            self.shared.queued.fetch_add(1, Ordering::Relaxed);
            let _queued = QueuedGuard(&self.shared.queued);
            self.shared.write(write).await
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            let mut request = shared.range_of(&range.prefix);
            request.limit = range.limit as i64;
            request.revision = shared.readable(range.at)?;
            if let Some(start) = &range.start {
                request.key = shared.key(start).max(request.key);
            }
            let answer = shared.read(request).await?;
            let header = answer.header.unwrap_or_default();
            let entries = answer.kvs.into_iter().map(|entry| shared.entry(entry));
            Ok(RangeResult {
                entries: entries.collect(),
                revision: range.at.unwrap_or(Revision(header.revision as u64)),
                more: answer.more,
            })
        })
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            shared.readable(Some(after))?;
            if after > shared.known() {
                shared.revision().await?;
            }
            let slot = {
                let mut hub = shared.hub();
                // Under the lock, because `went_back` ends all watches that are in the hub.
                let current = shared.known();
                if after > current {
                    return Err(Error::Future {
                        requested: after,
                        current,
                    });
                }
                hub.add(shared.key(&prefix), after)
            };
            shared.pump.notify_one();
            Ok(Box::pin(EtcdWatch::new(shared.clone(), slot)) as WatchStream)
        })
    }

    fn request_progress(&self, prefix: &[u8]) {
        let known = self.shared.known();
        let slots: Vec<_> = self.shared.hub().of(&self.shared.key(prefix)).collect();
        for slot in slots {
            slot.want(known);
        }
        self.shared.pump.notify_one();
    }

    fn hold_history(&self) -> HistoryHold {
        self.shared.holds.hold()
    }

    fn trouble(&self) -> Option<Trouble> {
        let ended = self.tasks.iter().find(|(_, task)| task.is_finished());
        if let Some((what, _)) = ended {
            return Some(Trouble {
                what: format!("the task that {what} has ended: restart the server"),
                needs_restart: true,
            });
        }
        let what = self.shared.client.what_is_wrong()?;
        Some(Trouble {
            what,
            needs_restart: false,
        })
    }

    fn stats(&self) -> Stats {
        Stats {
            revision: self.shared.known(),
            oldest: self.shared.oldest(),
            writes: self.shared.writes.load(Ordering::Relaxed),
            queued: self.shared.queued.load(Ordering::Relaxed),
            failed_compactions: self.shared.failed_compactions.load(Ordering::Relaxed),
            oldest_age: self.shared.oldest_age(),
            remote: Some(RemoteStats {
                watched: self.shared.hub().reached(),
                opened: self.shared.opened.load(Ordering::Relaxed),
                unanswered: self.shared.client.unanswered.load(Ordering::Relaxed),
                went_back: self.shared.went_back.load(Ordering::Relaxed),
            }),
            ..Stats::default()
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for (_, task) in &self.tasks {
            task.abort();
        }
        self.shared.hub().end(&Error::Closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_has_it_not() {
        assert_eq!(end_of(b"/registry/"), "/registry0");
        assert_eq!(end_of(b"a\xff"), "b");
        assert_eq!(end_of(b"\xff"), "\0");
    }
}
