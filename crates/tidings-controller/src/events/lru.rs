//! A map that knows which of its entries was used longest ago. Pure.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map in the order of last use. Its owner bounds it: `pop_oldest` makes room.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, (V, u64)>,
    /// The keys by their last use.
    order: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    pub(crate) fn new() -> Lru<K, V> {
        Lru {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry, used now.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (value, used) = self.entries.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.order.remove(used) {
            self.order.insert(self.uses, key);
        }
        *used = self.uses;
        Some(value)
    }

    /// An entry, without using it.
    pub(crate) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Adds an entry, used now. There must be none of this key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
        let before = self.entries.insert(key, (value, self.uses));
        debug_assert!(before.is_none());
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (value, used) = self.entries.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// The entry that was used longest ago.
    pub(crate) fn oldest(&self) -> Option<&V> {
        let (_, key) = self.order.first_key_value()?;
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Takes the entry that was used longest ago.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.order.pop_first()?;
        let (value, _) = self.entries.remove(&key)?;
        Some((key, value))
    }

    /// All entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (value, _))| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut lru = Lru::new();
        for key in ["a", "b", "c", "d"] {
            lru.insert(key, key.to_uppercase());
        }
        assert_eq!(
            lru.get_mut(&"a").map(|value| value.clone()),
            Some("A".into())
        );
        assert_eq!(
            lru.peek_mut(&"b").map(|value| value.clone()),
            Some("B".into())
        );
        assert_eq!(lru.remove(&"c"), Some("C".into()));
        assert_eq!(lru.oldest(), Some(&"B".into()), "peeking is no use");
        let order: Vec<_> = std::iter::from_fn(|| lru.pop_oldest())
            .map(|(key, _)| key)
            .collect();
        assert_eq!(order, ["b", "d", "a"]);
        assert_eq!((lru.len(), lru.order.len()), (0, 0));
    }
}
