//! The index: the versions of all keys. Values stay on disk; the index has their revisions.
//!
//! Each key has its bytes once (shared with the history), the latest version inline, and older versions in a queue that keys which did
//! not change within the history do not have.
//!
//! A forgotten value stays in its segment until the space is reclaimed: it is buried. A tombstone, the record of a deletion, is
//! kept as long as a value of its key is buried. Without the tombstone, the value would be back when the store is opened.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::contract::Revision;

type IndexKey = Arc<[u8]>;

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyVersion {
    revision: Revision,
    deleted: bool,
    bytes: u32,
}

/// All versions of a key within the history.
#[derive(Debug)]
struct KeyVersions {
    older: OlderVersions,
    latest: KeyVersion,
}

impl KeyVersions {
    /// The version that was current at a revision.
    fn at(&self, revision: Revision) -> Option<KeyVersion> {
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

/// Versions in the order of their revisions. The first is forgotten next. Most keys have none: then this is a null pointer.
#[derive(Debug, Default)]
struct OlderVersions(Option<Box<OlderQueue>>);

#[derive(Debug, Default)]
struct OlderQueue(VecDeque<KeyVersion>);

impl OlderVersions {
    fn iter(&self) -> impl DoubleEndedIterator<Item = &KeyVersion> {
        self.0.iter().flat_map(|queue| queue.0.iter())
    }

    fn first(&self) -> Option<&KeyVersion> {
        self.0.as_ref()?.0.front()
    }

    fn push(&mut self, version: KeyVersion) {
        self.0.get_or_insert_default().0.push_back(version);
    }

    fn pop_first(&mut self) {
        if let Some(queue) = &mut self.0 {
            queue.0.pop_front();
            if queue.0.is_empty() {
                self.0 = None;
            }
        }
    }
}

/// A version that only history needs; it can be forgotten when history starts at `superseded` or later.
#[derive(Debug)]
struct SupersededVersion {
    superseded: Revision,
    key: IndexKey,
    version: KeyVersion,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    keys: BTreeMap<IndexKey, KeyVersions>,
    history: VecDeque<SupersededVersion>,
    history_bytes: u64,
    live: u64,
    /// The number of buried values by key.
    ///
    /// Bound: the records in all segments, which reclaiming keeps to about twice the needed records.
    buried: HashMap<IndexKey, u32>,
    /// Number of tombstones that only buried values need.
    tombstones: u64,
}

/// A change of a key, for watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedChange {
    pub(super) revision: Revision,
    /// True if the key did not exist before.
    pub(super) created: bool,
}

impl Index {
    /// The revision of a key's last change; `None` if the key does not exist.
    pub(super) fn current(&self, key: &[u8]) -> Option<Revision> {
        self.keys
            .get(key)
            .map(|versions| versions.latest)
            .filter(|latest| !latest.deleted)
            .map(|latest| latest.revision)
    }

    /// The size of a key and its value; `None` if the key does not exist.
    pub(super) fn current_bytes(&self, key: &[u8]) -> Option<usize> {
        let latest = self.keys.get(key)?.latest;
        (!latest.deleted).then_some(latest.bytes as usize)
    }

    /// The revision at which the value was written that a key had at `revision`.
    #[cfg(test)]
    fn at(&self, key: &[u8], revision: Revision) -> Option<Revision> {
        self.keys
            .get(key)?
            .at(revision)
            .filter(|version| !version.deleted)
            .map(|version| version.revision)
    }

    /// All changes of keys with a prefix after a revision, in order.
    pub(super) fn changes(&self, prefix: &[u8], after: Revision) -> VecDeque<IndexedChange> {
        let mut changes = Vec::new();
        let keys = self
            .keys
            .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        for (_, versions) in keys {
            if versions.latest.revision <= after {
                continue;
            }
            let mut existed = false;
            for version in versions.older.iter().chain([&versions.latest]) {
                if version.revision > after {
                    changes.push(IndexedChange {
                        revision: version.revision,
                        created: !existed && !version.deleted,
                    });
                }
                existed = !version.deleted;
            }
        }
        changes.sort_unstable_by_key(|change| change.revision);
        changes.into()
    }

    /// The keys with a prefix that existed at a revision, in order, with the revisions of their values.
    pub(super) fn range<'a>(
        &'a self,
        prefix: &'a [u8],
        start: Option<&'a [u8]>,
        revision: Revision,
    ) -> impl Iterator<Item = (&'a IndexKey, Revision)> {
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

    /// Applies a change; revisions must be in order. True if the key existed before.
    pub(super) fn apply(
        &mut self,
        key: &[u8],
        revision: Revision,
        deleted: bool,
        bytes: usize,
    ) -> bool {
        let version = KeyVersion {
            revision,
            deleted,
            bytes: bytes.try_into().unwrap_or(u32::MAX),
        };
        let (key, before) = match self.keys.get_key_value(key) {
            Some((key, versions)) => (key.clone(), Some(versions.latest)),
            None => (IndexKey::from(key), None),
        };
        assert!(
            before.is_none_or(|before| before.revision < revision),
            "revisions of a key only grow"
        );
        match self.keys.get_mut(&key) {
            Some(versions) => versions
                .older
                .push(std::mem::replace(&mut versions.latest, version)),
            None => {
                self.keys.insert(
                    key.clone(),
                    KeyVersions {
                        older: OlderVersions::default(),
                        latest: version,
                    },
                );
            }
        }
        let existed = before.filter(|before| !before.deleted);
        if let Some(before) = before {
            // A superseded tombstone is not needed once history starts at the next version, even if values are buried.
            let bytes = if before.deleted { 0 } else { before.bytes };
            self.remember(revision, key.clone(), KeyVersion { bytes, ..before });
        }
        if deleted {
            self.remember(revision, key, version); // a deletion is history from the start
        }
        self.live = self.live + u64::from(!deleted) - u64::from(existed.is_some());
        existed.is_some()
    }

    fn remember(&mut self, superseded: Revision, key: IndexKey, version: KeyVersion) {
        self.history_bytes += u64::from(version.bytes);
        self.history.push_back(SupersededVersion {
            superseded,
            key,
            version,
        });
    }

    /// True if some versions are not needed when history starts at `oldest`.
    pub(super) fn has_forgettable(&self, oldest: Revision) -> bool {
        let first = self.history.front();
        first.is_some_and(|entry| entry.superseded <= oldest)
    }

    /// Forgets up to `limit` versions that are not needed when history starts at `oldest`. Returns their revisions, and true if
    /// none are left to forget.
    pub(super) fn compact(&mut self, oldest: Revision, limit: usize) -> (Vec<Revision>, bool) {
        let mut forgotten = Vec::new();
        while self.has_forgettable(oldest) {
            if forgotten.len() >= limit {
                return (forgotten, false);
            }
            let Some(entry) = self.history.pop_front() else {
                break;
            };
            let SupersededVersion {
                key,
                version,
                superseded,
            } = entry;
            self.history_bytes -= u64::from(version.bytes);
            if !version.deleted {
                self.remove(&key, version.revision);
                self.bury(&key);
                forgotten.push(version.revision);
                continue;
            }
            let was_kept_for_history = superseded == version.revision;
            let buried = self.buried.contains_key(&key);
            if was_kept_for_history && buried {
                self.tombstones += 1;
            } else if self.remove(&key, version.revision) {
                self.tombstones -= u64::from(!was_kept_for_history);
                forgotten.push(version.revision);
            }
        }
        (forgotten, true)
    }

    /// Removes the oldest version of a key, if it is of this revision.
    fn remove(&mut self, key: &IndexKey, revision: Revision) -> bool {
        let Some(versions) = self.keys.get_mut(key) else {
            return false;
        };
        match versions.older.first() {
            Some(oldest) if oldest.revision == revision => {
                versions.older.pop_first();
                true
            }
            None if versions.latest.revision == revision => {
                self.keys.remove(key); // a tombstone that is not needed any more
                true
            }
            _ => false,
        }
    }

    /// Counts a forgotten value that is still in its segment.
    pub(super) fn bury(&mut self, key: &[u8]) {
        match self.buried.get_mut(key) {
            Some(count) => *count += 1,
            None => {
                let known = self.keys.get_key_value(key).map(|(key, _)| key.clone());
                self.buried
                    .insert(known.unwrap_or_else(|| IndexKey::from(key)), 1);
            }
        }
    }

    /// Uncounts buried values of these keys whose space was reclaimed. Returns the tombstones that are not needed any more.
    pub(super) fn unbury(&mut self, keys: &[impl AsRef<[u8]>]) -> Vec<Revision> {
        let mut forgotten = Vec::new();
        for key in keys {
            let Some((key, count)) = self.buried.get_key_value(key.as_ref()) else {
                debug_assert!(false, "a value that was not buried is gone");
                continue;
            };
            let (key, count) = (key.clone(), count - 1);
            if count > 0 {
                self.buried.insert(key, count);
                continue;
            }
            self.buried.remove(&key);
            let Some(versions) = self.keys.get(&key) else {
                continue;
            };
            let first = *versions.older.first().unwrap_or(&versions.latest);
            // A tombstone that history still needs is forgotten later, by compaction.
            let compacted = !self.has_forgettable(first.revision);
            if first.deleted && compacted && self.remove(&key, first.revision) {
                self.tombstones -= 1;
                forgotten.push(first.revision);
            }
        }
        forgotten
    }

    /// The start of history if it is cut to `bytes_max`: the revision that supersedes the last version to drop. `None` if it
    /// fits.
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

    /// The number of tombstones that only buried values need.
    pub(super) fn tombstones(&self) -> u64 {
        self.tombstones
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
        assert_eq!(index.live(), 1);
        let changes = |after| {
            let changes = index.changes(b"", Revision(after));
            let changes = changes.into_iter();
            changes
                .map(|change| (change.revision.0, change.created))
                .collect::<Vec<_>>()
        };
        assert_eq!(changes(0), [(1, true), (3, false), (5, false), (7, true)]);
        assert_eq!(changes(3), [(5, false), (7, true)]);
        assert_eq!(changes(7), []);
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
        assert_eq!(
            forgotten,
            [Revision(2)],
            "the tombstone stays: a value is buried"
        );
        assert_eq!((index.tombstones(), index.history_bytes()), (1, 0));
        assert_eq!(index.unbury(&[b"b"]), [Revision(4)]);
        assert_eq!(index.keys.len(), 1, "nothing is left of a deleted key");
        assert_eq!(index.tombstones(), 0);
        assert_eq!(index.unbury(&[b"a"]), []);
        assert!(index.buried.is_empty());
    }

    #[test]
    fn a_tombstone_stays_until_no_value_of_its_key_stands_anywhere() {
        let mut index = Index::default();
        // Created, updated, deleted, created, deleted, created.
        for (revision, deleted) in [
            (1, false),
            (2, false),
            (3, true),
            (4, false),
            (5, true),
            (6, false),
        ] {
            index.apply(b"a", Revision(revision), deleted, 10);
        }
        let (forgotten, _) = index.compact(Revision(5), 100);
        assert_eq!(
            forgotten,
            [Revision(1), Revision(2), Revision(3), Revision(4)],
            "of several tombstones the last is enough"
        );
        assert_eq!(index.tombstones(), 1);
        let created: Vec<_> = index.changes(b"", Revision(5)).into();
        assert_eq!(
            created,
            [IndexedChange {
                revision: Revision(6),
                created: true
            }]
        );
        assert_eq!(index.unbury(&[b"a", b"a"]), []);
        let mut one = Index::default();
        std::mem::swap(&mut one, &mut index);
        assert_eq!(one.unbury(&[b"a"]), [Revision(5)], "the last value is gone");
        assert_eq!(one.tombstones(), 0);
    }

    #[test]
    fn a_tombstone_is_not_needed_when_history_starts_at_what_came_after_it() {
        let mut index = Index::default();
        for (revision, deleted) in [(1, false), (2, true), (3, false), (4, false)] {
            index.apply(b"a", Revision(revision), deleted, 10);
        }
        assert_eq!(index.compact(Revision(2), 100).0, [Revision(1)]);
        assert_eq!(index.tombstones(), 1);
        assert_eq!(index.compact(Revision(3), 100).0, [Revision(2)]);
        assert_eq!(index.tombstones(), 0);
        assert_eq!(index.compact(Revision(4), 100).0, [Revision(3)]);
        assert_eq!(index.buried.get(&b"a"[..]), Some(&2));
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
