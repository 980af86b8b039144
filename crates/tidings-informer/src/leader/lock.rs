//! The lease that an election is about.

use std::sync::Arc;
use std::time::SystemTime;

use crate::source::{BoxFuture, SourceError};

/// What a lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// How long it is good for after a renewal.
    pub lease_duration_seconds: u32,
    /// When the holder got it, by the holder's clock. For people.
    pub acquire_time: SystemTime,
    /// When it was renewed, by the holder's clock. For people, and to tell one renewal from the next.
    pub renew_time: SystemTime,
    /// How often it went from one holder to another.
    pub transitions: u32,
}

/// Which state of the lease was read or written: its resource version.
pub type LeaseVersion = String;

/// Why a lease could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else wrote it first (409).
    #[error("the lease has been written by somebody else")]
    Conflict,
    /// Anything else.
    #[error("the lease cannot be had")]
    Failed(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl LockError {
    /// For this reason.
    pub fn failed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LockError {
        LockError::Failed(Arc::from(why.into()))
    }
}

impl From<SourceError> for LockError {
    fn from(error: SourceError) -> LockError {
        match error.code() {
            Some(409) => LockError::Conflict,
            _ => LockError::failed(error),
        }
    }
}

/// Where a lease is kept. Every future may be dropped before it is done; whether the write happened is then not known.
pub trait LeaseLock: Send + Sync {
    /// Who this is, among all that could hold the lease.
    fn identity(&self) -> &str;

    /// The lease; none if there is none yet.
    fn get(&self) -> BoxFuture<'_, Result<Option<(LeaseRecord, LeaseVersion)>, LockError>>;

    /// Creates the lease. Fails with [`LockError::Conflict`] if there is one.
    fn create(&self, record: LeaseRecord) -> BoxFuture<'_, Result<LeaseVersion, LockError>>;

    /// Writes the lease. Fails with [`LockError::Conflict`] if it is not at this version any more.
    fn update(
        &self,
        record: LeaseRecord,
        version: LeaseVersion,
    ) -> BoxFuture<'_, Result<LeaseVersion, LockError>>;
}
