//! The index: which versions of which keys exist. Values stay on disk; the index has their revisions.
//!
//! Per key: its text once (shared with the history), the latest version inline, older ones in a vector that is empty for
//! keys that did not change within the history.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::contract::Revision;

type Key = Arc<[u8]>;

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    revision: Revision,
    deleted: bool,
    bytes: u32,
}

#[derive(Debug)]
struct Versions {
    /// In the order of their revisions. The first is the next to be forgotten.
    older: VecDeque<Version>,
    latest: Version,
}

impl Versions {
    /// The version that was current at a revision.
    fn at(&self, revision: Revision) -> Option<Version> {
        if self.latest.revision <= revision {
            return Some(self.latest);
        }
        self.older
            .iter()
            .rev()
            .find(|version| version.revision <= revision)
            .copied()
    }
}

/// A version that only history needs, until the store is compacted past `superseded`.
#[derive(Debug)]
struct Superseded {
    superseded: Revision,
    key: Key,
    version: Version,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    keys: BTreeMap<Key, Versions>,
    history: VecDeque<Superseded>,
    history_bytes: u64,
    live: u64,
}

/// What the index knew of a key before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before {
    /// The version that was replaced, unless the key did not exist.
    pub(super) revision: Option<Revision>,
}

impl Index {
    /// When a key was last modified; `None` if it does not exist.
    pub(super) fn current(&self, key: &[u8]) -> Option<Revision> {
        self.keys
            .get(key)
            .map(|versions| versions.latest)
            .filter(|latest| !latest.deleted)
            .map(|latest| latest.revision)
    }

    /// The revision of the value that a key had at a revision.
    pub(super) fn at(&self, key: &[u8], revision: Revision) -> Option<Revision> {
        self.keys
            .get(key)?
            .at(revision)
            .filter(|version| !version.deleted)
            .map(|version| version.revision)
    }

    /// The revision of the value that a key had just before a revision.
    pub(super) fn before(&self, key: &[u8], revision: Revision) -> Option<Revision> {
        self.at(key, Revision(revision.0.saturating_sub(1)))
    }

    /// The keys with a prefix that existed at a revision, in order, with the revisions of their values.
    pub(super) fn range<'a>(
        &'a self,
        prefix: &'a [u8],
        start: Option<&'a [u8]>,
        revision: Revision,
    ) -> impl Iterator<Item = (&'a Key, Revision)> {
        let first = start.filter(|start| *start > prefix).unwrap_or(prefix);
        self.keys
            .range::<[u8], _>((Bound::Included(first), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter_map(move |(key, versions)| {
                versions
                    .at(revision)
                    .filter(|version| !version.deleted)
                    .map(|version| (key, version.revision))
            })
    }

    /// Notes a change. Revisions come in order.
    pub(super) fn apply(
        &mut self,
        key: &[u8],
        revision: Revision,
        deleted: bool,
        bytes: usize,
    ) -> Before {
        let version = Version {
            revision,
            deleted,
            bytes: bytes.try_into().unwrap_or(u32::MAX),
        };
        let (key, before) = match self.keys.get_key_value(key) {
            Some((key, versions)) => (key.clone(), Some(versions.latest)),
            None => (Key::from(key), None),
        };
        assert!(
            before.is_none_or(|before| before.revision < revision),
            "revisions of a key only grow"
        );
        match self.keys.get_mut(&key) {
            Some(versions) => versions
                .older
                .push_back(std::mem::replace(&mut versions.latest, version)),
            None => {
                self.keys.insert(
                    key.clone(),
                    Versions {
                        older: VecDeque::new(),
                        latest: version,
                    },
                );
            }
        }
        let existed = before.filter(|before| !before.deleted);
        if let Some(before) = existed {
            self.remember(revision, key.clone(), before);
        }
        if deleted {
            self.remember(revision, key, version); // a deletion is history from the start
        }
        self.live = self.live + u64::from(!deleted) - u64::from(existed.is_some());
        Before {
            revision: existed.map(|before| before.revision),
        }
    }

    fn remember(&mut self, superseded: Revision, key: Key, version: Version) {
        self.history_bytes += u64::from(version.bytes);
        self.history.push_back(Superseded {
            superseded,
            key,
            version,
        });
    }

    /// Forgets up to `limit` versions that nobody needs once reads and watches start at `oldest` or later. Returns their
    /// revisions, and whether nothing more is to be forgotten.
    pub(super) fn compact(&mut self, oldest: Revision, limit: usize) -> (Vec<Revision>, bool) {
        let mut forgotten = Vec::new();
        while let Some(entry) = self
            .history
            .front()
            .filter(|entry| entry.superseded <= oldest)
        {
            if forgotten.len() >= limit {
                return (forgotten, false);
            }
            let revision = entry.version.revision;
            forgotten.push(revision);
            self.history_bytes -= u64::from(entry.version.bytes);
            let key = entry.key.clone();
            self.history.pop_front();
            let Some(versions) = self.keys.get_mut(&key) else {
                continue;
            };
            if versions
                .older
                .front()
                .is_some_and(|oldest| oldest.revision == revision)
            {
                versions.older.pop_front();
            }
            if versions.latest.revision == revision {
                self.keys.remove(&key); // a deletion that nobody needs to hear of any more
            } else if versions.older.is_empty() {
                versions.older = VecDeque::new(); // give the memory back
            }
        }
        (forgotten, true)
    }

    /// Where history would start if it were cut to `bytes_max`: the revision that supersedes the oldest entry too much.
    pub(super) fn oldest_within(&self, bytes_max: u64) -> Option<Revision> {
        let mut excess = self
            .history_bytes
            .checked_sub(bytes_max)
            .filter(|excess| *excess > 0)?;
        for entry in &self.history {
            excess = excess.saturating_sub(u64::from(entry.version.bytes));
            if excess == 0 {
                return Some(entry.superseded);
            }
        }
        None
    }

    pub(super) fn live(&self) -> u64 {
        self.live
    }

    pub(super) fn history_len(&self) -> u64 {
        self.history.len() as u64
    }

    pub(super) fn history_bytes(&self) -> u64 {
        self.history_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: &Index, key: &str, revision: u64) -> Option<u64> {
        index
            .at(key.as_bytes(), Revision(revision))
            .map(|revision| revision.0)
    }

    #[test]
    fn reads_see_the_version_of_their_revision() {
        let mut index = Index::default();
        index.apply(b"a", Revision(1), false, 10);
        index.apply(b"a", Revision(3), false, 10);
        index.apply(b"a", Revision(5), true, 0);
        index.apply(b"a", Revision(7), false, 10);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7].map(|revision| at(&index, "a", revision)),
            [
                None,
                Some(1),
                Some(1),
                Some(3),
                Some(3),
                None,
                None,
                Some(7)
            ]
        );
        assert_eq!(index.before(b"a", Revision(5)), Some(Revision(3)));
        assert_eq!(index.live(), 1);
    }

    #[test]
    fn compaction_forgets_only_what_nobody_can_ask_for() {
        let mut index = Index::default();
        index.apply(b"a", Revision(1), false, 10);
        index.apply(b"b", Revision(2), false, 10);
        index.apply(b"a", Revision(3), false, 10);
        index.apply(b"b", Revision(4), true, 0);
        let (forgotten, done) = index.compact(Revision(3), 100);
        assert_eq!((forgotten, done), (vec![Revision(1)], true));
        assert_eq!(at(&index, "a", 3), Some(3));
        assert_eq!(
            at(&index, "b", 3),
            Some(2),
            "still readable at the oldest revision"
        );
        let (forgotten, _) = index.compact(Revision(4), 100);
        assert_eq!(forgotten, [Revision(2), Revision(4)]);
        assert_eq!(index.keys.len(), 1, "nothing is left of a deleted key");
        assert_eq!(index.history_bytes(), 0);
    }

    #[test]
    fn history_is_cut_by_bytes() {
        let mut index = Index::default();
        for revision in 1..=10 {
            index.apply(b"a", Revision(revision), false, 100);
        }
        assert_eq!(index.oldest_within(900), None);
        assert_eq!(index.oldest_within(450), Some(Revision(6)));
        index.compact(Revision(6), 100);
        assert!(index.history_bytes() <= 450);
    }
}
