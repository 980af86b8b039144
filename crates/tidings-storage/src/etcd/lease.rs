//! etcd leases: etcd deletes keys with a lifetime when their lease expires.
//!
//! A lease costs etcd as much as a key, so keys that are written within a short time share a lease.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::client::{CallEffect, EtcdClient};
use super::proto::{LeaseGrantRequest, LeaseGrantResponse};
use crate::contract::Error;

/// The maximum number of keys of a lease: they are all deleted at once.
const KEYS_MAX: u32 = 1000;
/// The maximum time during which new keys get the same lease; also at most a twentieth of the lifetime.
const SHARED_FOR_MAX: Duration = Duration::from_secs(60);

/// The leases of all lifetimes.
pub(super) struct Leases {
    lifetimes: Vec<(Bytes, Duration)>,
    /// The current lease of each lifetime.
    current: std::sync::Mutex<Vec<Option<Lease>>>,
    /// Held by the writer that requests a new lease; others wait for it.
    turn: Mutex<()>,
}

/// A lease that new keys can share.
#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    until: Instant,
    keys: u32,
}

impl Leases {
    pub(super) fn new(lifetimes: Vec<(Bytes, Duration)>) -> Leases {
        Leases {
            current: std::sync::Mutex::new(vec![None; lifetimes.len()]),
            lifetimes,
            turn: Mutex::new(()),
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Vec<Option<Lease>>> {
        self.current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Drops the current leases, so that the next key gets a new one.
    pub(super) fn forget(&self) {
        self.current().fill(None);
    }

    /// The lease for a key; zero if the key has no lifetime.
    pub(super) async fn of(&self, key: &[u8], client: &EtcdClient) -> Result<i64, Error> {
        let found = self
            .lifetimes
            .iter()
            .position(|(prefix, _)| key.starts_with(prefix));
        let Some(at) = found else { return Ok(0) };
        if let Some(id) = self.share(at) {
            return Ok(id);
        }
        let _turn = self.turn.lock().await;
        if let Some(id) = self.share(at) {
            return Ok(id);
        }
        let lifetime = self.lifetimes[at].1;
        let shared_for = SHARED_FOR_MAX.min(lifetime / 20);
        let until = Instant::now() + shared_for;
        let request = LeaseGrantRequest {
            // Long enough for the last key that shares the lease.
            ttl: (lifetime + shared_for).as_secs().max(1) as i64,
        };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        // A lease whose answer is lost expires by itself.
        let granted: LeaseGrantResponse = client.call(path, request, CallEffect::None).await?;
        let id = granted.id;
        self.current()[at] = Some(Lease { id, until, keys: 1 });
        Ok(id)
    }

    fn share(&self, at: usize) -> Option<i64> {
        let mut current = self.current();
        let lease = current[at].as_mut()?;
        if lease.keys >= KEYS_MAX || Instant::now() >= lease.until {
            return None;
        }
        lease.keys += 1;
        Some(lease.id)
    }
}
