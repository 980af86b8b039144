//! Limits the number of requests in flight.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many reads may be in flight, not counting watches: kube-apiserver's default.
const READING_MAX: usize = 400;
/// How many writes may be in flight: kube-apiserver's default.
const MUTATING_MAX: usize = 200;

/// Limits the number of requests in flight.
#[derive(Debug)]
pub(crate) struct InFlightLimits {
    reading: Arc<Semaphore>,
    mutating: Arc<Semaphore>,
}

impl InFlightLimits {
    pub(crate) fn new() -> InFlightLimits {
        InFlightLimits {
            reading: Arc::new(Semaphore::new(READING_MAX)),
            mutating: Arc::new(Semaphore::new(MUTATING_MAX)),
        }
    }

    /// A permit for a request. `None` if too many are in flight: the client gets 429 (W58, W189).
    pub(crate) fn admit(&self, mutates: bool) -> Option<OwnedSemaphorePermit> {
        let semaphore = if mutates {
            &self.mutating
        } else {
            &self.reading
        };
        semaphore.clone().try_acquire_owned().ok()
    }

    /// The number of requests in flight: mutating, reading.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        (
            MUTATING_MAX - self.mutating.available_permits(),
            READING_MAX - self.reading.available_permits(),
        )
    }
}
