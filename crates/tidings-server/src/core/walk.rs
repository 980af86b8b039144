//! Iterates over the selected objects of a snapshot.

use std::ops::Bound;

use tidings_api::{Object, ObjectKey};
use tidings_cache::ObjectMap;
use tidings_registry::Selection;

/// An iteration over the selected objects of a snapshot, which can be paused.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotWalk {
    state: ObjectMap,
    selection: Selection,
    prefix: String,
    /// Where the walk continues.
    next: Bound<ObjectKey>,
}

impl SnapshotWalk {
    /// Starts at the beginning of the selection, or at a key.
    pub(crate) fn new(state: ObjectMap, selection: Selection, start: Option<&str>) -> SnapshotWalk {
        tracing::trace!(target: "tidings::walk", "walks the selected objects");
        let prefix = selection.key_prefix();
        let next = match start {
            Some(start) => Bound::Included(ObjectKey::from_joined(start)),
            None => Bound::Included(ObjectKey::from_joined(&prefix)),
        };
        SnapshotWalk {
            state,
            selection,
            prefix,
            next,
        }
    }

    /// Visits the selected objects in key order until the visitor returns false. Returns true if the end is reached.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&Object) -> bool) -> bool {
        if let Some(key) = self.selection.single_key() {
            let unseen = match std::mem::replace(&mut self.next, Bound::Unbounded) {
                Bound::Included(start) => key >= start,
                Bound::Excluded(start) => key > start,
                Bound::Unbounded => false,
            };
            if let Some(object) = self
                .state
                .get(&key)
                .filter(|object| unseen && self.selection.selects(object))
            {
                visit(object);
            }
            return true;
        }
        let mut stopped_at = None;
        for (key, object) in self.state.range((self.next.clone(), Bound::Unbounded)) {
            if !key.as_str().starts_with(&self.prefix) {
                break;
            }
            if self.selection.selects(object) && !visit(object) {
                stopped_at = Some(key.clone());
                break;
            }
        }
        match stopped_at {
            Some(key) => {
                self.next = Bound::Excluded(key);
                false
            }
            None => true,
        }
    }

    /// How many objects follow in the namespace or cluster, selected or not.
    pub(crate) fn remaining(&self) -> u64 {
        let rest = self.state.range((self.next.clone(), Bound::Unbounded));
        rest.take_while(|(key, _)| key.as_str().starts_with(&self.prefix))
            .count() as u64
    }

    /// True if another selected object follows.
    pub(crate) fn has_more(&self) -> bool {
        let rest = self.state.range((self.next.clone(), Bound::Unbounded));
        let mut here = rest.take_while(|(key, _)| key.as_str().starts_with(&self.prefix));
        here.any(|(_, object)| self.selection.selects(object))
    }

    /// The key after which the walk continues.
    pub(crate) fn last_key(&self) -> Option<&ObjectKey> {
        match &self.next {
            Bound::Excluded(key) => Some(key),
            _ => None,
        }
    }
}

/// The objects of a list. Clones share them.
#[derive(Debug, Clone)]
pub(crate) enum ListItems {
    /// All selected objects of a snapshot.
    Walk(SnapshotWalk),
    /// The objects of one page.
    Page(std::vec::IntoIter<Object>),
}

impl ListItems {
    /// Visits the next objects until the visitor returns false. Returns true if the end is reached.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&Object) -> bool) -> bool {
        match self {
            ListItems::Walk(walk) => walk.visit(visit),
            ListItems::Page(page) => loop {
                match page.next() {
                    None => return true,
                    Some(object) if visit(&object) => {}
                    Some(_) => return page.len() == 0,
                }
            },
        }
    }

    /// All remaining objects.
    pub(crate) fn collect(mut self) -> Vec<Object> {
        let mut objects = Vec::new();
        self.visit(|object| {
            objects.push(object.clone());
            true
        });
        objects
    }
}
