//! The lease record of an election, and the trait of what stores it.

use std::sync::Arc;
use std::time::SystemTime;

use crate::source::{BoxFuture, SourceError};

/// The contents of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The identity of the holder; empty if there is none.
    pub holder: String,
    /// How long the lease is valid after a renewal.
    pub lease_duration_seconds: u32,
    /// When the holder acquired it, by the holder's clock. Only for people.
    pub acquire_time: SystemTime,
    /// When it was renewed, by the holder's clock. For people, and to tell renewals apart.
    pub renew_time: SystemTime,
    /// How often the holder changed.
    pub transitions: u32,
}

/// The resource version of the lease that was read or written.
pub type LeaseVersion = String;

/// Why a lease could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another candidate wrote the lease first (409).
    #[error("another candidate has written the lease")]
    Conflict,
    /// Anything else.
    #[error("the lease cannot be read or written")]
    Failed(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl LockError {
    /// A [`LockError::Failed`] with this cause.
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

/// Reads and writes a lease. Every future may be dropped before it is done; it is then unknown whether its write happened.
pub trait LeaseLock: Send + Sync {
    /// The identity of this candidate, unique among all candidates for the lease.
    fn identity(&self) -> &str;

    /// Reads the lease; `None` if it does not exist.
    fn get(&self) -> BoxFuture<'_, Result<Option<(LeaseRecord, LeaseVersion)>, LockError>>;

    /// Creates the lease. Fails with [`LockError::Conflict`] if it exists.
    fn create(&self, record: LeaseRecord) -> BoxFuture<'_, Result<LeaseVersion, LockError>>;

    /// Updates the lease. Fails with [`LockError::Conflict`] if it is not at `version`.
    fn update(
        &self,
        record: LeaseRecord,
        version: LeaseVersion,
    ) -> BoxFuture<'_, Result<LeaseVersion, LockError>>;
}
