//! The locks of this crate: the standard library's, or shuttle's for tests that try many thread schedules.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, Weak};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, Weak};

/// Locks, and ignores poisoning: every change under a lock is one step, so a panic leaves the data consistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
