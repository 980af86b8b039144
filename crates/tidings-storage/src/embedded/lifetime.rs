//! Keys that are deleted some time after their last write, such as Events. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::contract::Revision;

/// The writes of keys that have a lifetime, in order.
///
/// Bound: the writes within the lifetime of their keys.
#[derive(Debug, Default)]
pub(super) struct Lifetimes(Vec<Lifetime>);

/// The lifetime of the keys with a prefix, and their writes.
#[derive(Debug)]
struct Lifetime {
    prefix: Bytes,
    milliseconds: u64,
    writes: VecDeque<LifetimeWrite>,
}

/// A write of a key that has a lifetime.
#[derive(Debug, Clone)]
pub(super) struct LifetimeWrite {
    pub(super) key: Bytes,
    pub(super) revision: Revision,
    written_ms: u64,
}

impl Lifetimes {
    pub(super) fn new(lifetimes: &[(Bytes, Duration)]) -> Lifetimes {
        let lifetimes = lifetimes.iter().map(|(prefix, lifetime)| Lifetime {
            prefix: prefix.clone(),
            milliseconds: lifetime.as_millis() as u64,
            writes: VecDeque::new(),
        });
        Lifetimes(lifetimes.collect())
    }

    /// Notes a write, if its key has a lifetime.
    pub(super) fn note(&mut self, key: &Bytes, revision: Revision, written_ms: u64) {
        let mut lifetimes = self.0.iter_mut();
        if let Some(lifetime) = lifetimes.find(|lifetime| key.starts_with(&lifetime.prefix)) {
            lifetime.writes.push_back(LifetimeWrite {
                // A copy, because the key may be a slice of a whole segment.
                key: Bytes::copy_from_slice(key),
                revision,
                written_ms,
            });
        }
    }

    /// Removes and returns at most `most` keys whose lifetime is over. `current` returns the revision of a key's last change.
    pub(super) fn due(
        &mut self,
        now_ms: u64,
        most: usize,
        current: impl Fn(&Bytes) -> Option<Revision>,
    ) -> Vec<LifetimeWrite> {
        let mut due = Vec::new();
        for lifetime in &mut self.0 {
            while due.len() < most
                && let Some(write) = lifetime.writes.front()
                && write.written_ms + lifetime.milliseconds <= now_ms
                && let Some(write) = lifetime.writes.pop_front()
            {
                // A key that was written again has a later entry.
                if current(&write.key) == Some(write.revision) {
                    due.push(write);
                }
            }
        }
        due
    }

    /// Puts back a key that could not be deleted, so that it is due again.
    pub(super) fn put_back(&mut self, write: LifetimeWrite) {
        let mut lifetimes = self.0.iter_mut();
        if let Some(lifetime) = lifetimes.find(|lifetime| write.key.starts_with(&lifetime.prefix)) {
            lifetime.writes.push_front(write);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lives_from_its_last_write() {
        let mut lifetimes = Lifetimes::new(&[("e/".into(), Duration::from_secs(60))]);
        let (old, renewed) = (Bytes::from("e/old"), Bytes::from("e/renewed"));
        lifetimes.note(&old, Revision(1), 0);
        lifetimes.note(&renewed, Revision(2), 0);
        lifetimes.note(&Bytes::from("other"), Revision(3), 0);
        lifetimes.note(&renewed, Revision(4), 30_000);
        let current = |key: &Bytes| Some(Revision(if *key == renewed { 4 } else { 1 }));
        let keys =
            |due: Vec<LifetimeWrite>| due.into_iter().map(|write| write.key).collect::<Vec<_>>();
        assert!(lifetimes.due(59_999, 9, current).is_empty());
        let due = lifetimes.due(60_000, 9, current);
        lifetimes.put_back(due[0].clone());
        assert_eq!(keys(due), [&*old]);
        assert_eq!(keys(lifetimes.due(60_000, 9, current)), [&*old]);
        assert!(lifetimes.due(89_999, 9, current).is_empty());
        assert_eq!(keys(lifetimes.due(90_000, 9, current)), [&*renewed]);
    }
}
