//! Audit ids: the header `Audit-Id` of every response (W2).

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Generates unique ids that look random, without a system call for random bytes at every request.
pub(crate) struct AuditIds {
    start: (u64, u64),
    count: AtomicU64,
}

impl AuditIds {
    pub(crate) fn new() -> AuditIds {
        AuditIds {
            start: Uuid::new_v4().as_u64_pair(),
            count: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self) -> Uuid {
        // Multiplication by an odd number is a bijection: different counts give different numbers.
        let count = self
            .count
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (high, low) = (
            self.start.0 ^ count.rotate_left(32),
            self.start.1.wrapping_add(count),
        );
        uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
            .into_uuid()
    }
}
