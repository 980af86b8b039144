//! Leases: keys that have a lifetime are deleted by etcd when it is over.
//!
//! A lease costs etcd as much as a key, so keys that are written within a short time share one.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::client::{Client, Effect};
use super::proto::{LeaseGrantRequest, LeaseGrantResponse};
use crate::contract::Error;

/// A lease is not shared by more keys than this: they all go at once.
const KEYS_MAX: u32 = 1000;
/// A lease is given to new keys for so long, or a twentieth of the lifetime if that is less.
const SHARED_FOR_MAX: Duration = Duration::from_secs(60);

pub(super) struct Leases {
    lifetimes: Vec<(Bytes, Duration)>,
    /// The one that is given out now, of each lifetime.
    current: std::sync::Mutex<Vec<Option<Lease>>>,
    /// One asks for a new lease, the others wait for it.
    turn: Mutex<()>,
}

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

    /// The next key gets a new lease.
    pub(super) fn forget(&self) {
        self.current().fill(None);
    }

    /// The lease for a key that is written now; zero is none.
    pub(super) async fn of(&self, key: &[u8], client: &Client) -> Result<i64, Error> {
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
            // The last key that gets it lives as long as it should.
            ttl: (lifetime + shared_for).as_secs().max(1) as i64,
        };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        // A lease that is granted and not heard of ends by itself.
        let granted: LeaseGrantResponse = client.call(path, request, Effect::None).await?;
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
