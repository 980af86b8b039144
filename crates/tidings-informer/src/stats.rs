//! Counts and sizes of informers and their handlers.

use std::sync::Arc;
use std::time::Duration;

use crate::reflector::ReflectorStats;
use crate::version::ServerVersion;

/// Counts and sizes of an informer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InformerStats {
    /// Objects in the store.
    pub objects: usize,
    /// Estimated bytes of these objects.
    pub object_bytes: usize,
    /// Deltas that wait for the store.
    pub queued: usize,
    /// Estimated bytes of these deltas.
    pub queued_bytes: usize,
    /// Deltas that a later delta of the same key replaced, so far.
    pub coalesced: u64,
    /// Events that wait for the slowest handler.
    pub logged: usize,
    /// Estimated bytes of these events.
    pub logged_bytes: usize,
    /// Handlers and subscriptions.
    pub handlers: usize,
    /// Objects that are left out because they cannot be decoded.
    pub quarantined: usize,
    /// Time spent comparing and decoding objects.
    pub decoding: Duration,
    /// The version of the store.
    pub version: ServerVersion,
}

/// How far a handler is behind the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Events that are not handled yet, including objects of the initial state and the event that is being handled.
    pub events: u64,
    /// Estimated bytes of their objects.
    pub bytes: u64,
    /// How long the oldest of these events has waited.
    pub age: Duration,
}

impl Lag {
    /// The sum of two lags.
    pub(crate) fn and(self, older: Lag) -> Lag {
        Lag {
            events: self.events + older.events,
            bytes: self.bytes + older.bytes,
            age: self.age.max(older.age),
        }
    }
}

/// The metrics of an informer of any type.
pub(crate) trait ObservedInformer: Send + Sync {
    fn name(&self) -> Arc<str>;
    fn is_stopped(&self) -> bool;
    fn stats(&self) -> InformerStats;
    fn reflector(&self) -> &ReflectorStats;
    fn lags(&self) -> Vec<(Arc<str>, Lag)>;
}
