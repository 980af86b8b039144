//! Iterates over the objects of a snapshot: all of a namespace or cluster, or those that a selection selects.

use std::ops::Bound;

use tidings_api::{Object, ObjectKey};
use tidings_cache::{Cache, ObjectMap};
use tidings_registry::Selection;

/// How many objects are examined before other tasks get their turn. To find the fields of one takes some microseconds.
const EXAMINED_AT_ONCE: usize = 128;
/// How many objects are counted before other tasks get their turn.
const COUNTED_AT_ONCE: usize = 16_384;
/// A selection that examines more objects than this, and ten times more than it finds, makes an index for the next one.
const EXAMINED_WITHOUT_INDEX: usize = 1000;

/// An iteration over the objects of a namespace or cluster, which can be paused.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotWalk {
    state: ObjectMap,
    prefix: String,
    /// Where the walk continues.
    next: Bound<ObjectKey>,
}

impl SnapshotWalk {
    /// Walks the objects whose keys have a prefix, from the first or from `start` on.
    pub(crate) fn new(state: ObjectMap, prefix: String, start: Option<&str>) -> SnapshotWalk {
        tracing::trace!(target: "tidings::walk", "walks the objects of the namespace or cluster");
        let next = first_key(&prefix, start);
        SnapshotWalk {
            state,
            prefix,
            next,
        }
    }

    /// Visits the objects in key order until the visitor returns false. Returns true if the end is reached.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&Object) -> bool) -> bool {
        let mut stopped_at = None;
        for (key, object) in self.rest() {
            if !visit(object) {
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

    fn rest(&self) -> impl Iterator<Item = (&ObjectKey, &Object)> {
        let rest = self.state.range((self.next.clone(), Bound::Unbounded));
        rest.take_while(|(key, _)| key.as_str().starts_with(&self.prefix))
    }

    /// How many objects follow.
    pub(crate) async fn remaining(&self) -> u64 {
        let mut count = 0;
        for _ in self.rest() {
            count += 1;
            if count % COUNTED_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        count as u64
    }
}

/// The key at which a walk starts: that of a page, or the first with a prefix.
fn first_key(prefix: &str, start: Option<&str>) -> Bound<ObjectKey> {
    Bound::Included(ObjectKey::from_joined(start.unwrap_or(prefix)))
}

/// The selected objects of a snapshot, in the order of their keys.
#[derive(Debug)]
pub(crate) struct SelectedObjects {
    pub(crate) objects: Vec<Object>,
    /// More are selected than the limit.
    pub(crate) more: bool,
}

/// Finds the selected objects of a snapshot of a cache, from a key on, and yields to other tasks meanwhile. Bound: the limit, or the
/// objects of the snapshot, which are shared with it.
pub(crate) async fn select(
    cache: &Cache,
    state: &ObjectMap,
    selection: &Selection,
    start: Option<&str>,
    limit: usize,
) -> SelectedObjects {
    tracing::trace!(target: "tidings::walk", "finds the selected objects");
    let prefix = selection.key_prefix();
    let next = first_key(&prefix, start);
    let mut found = SelectedObjects {
        objects: Vec::new(),
        more: false,
    };
    if let Some(key) = selection.single_key() {
        let is_next = matches!(&next, Bound::Included(start) if key >= *start);
        let object = state.get(&key).filter(|_| is_next);
        let object = object.filter(|object| selection.selects(object));
        found.objects.extend(object.cloned());
        return found;
    }
    let required = selection.required_value();
    let indexed = required
        .as_ref()
        .and_then(|(facet, value)| state.with_value(facet, value, &next));
    let is_indexed = indexed.is_some();
    let walked = (!is_indexed).then(|| state.range((next, Bound::Unbounded)));
    let candidates = indexed.into_iter().flatten();
    let candidates = candidates.chain(walked.into_iter().flatten());
    let mut examined = 0;
    for (key, object) in candidates {
        if !key.as_str().starts_with(&prefix) {
            break;
        }
        examined += 1;
        if examined % EXAMINED_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
        if !selection.selects(object) {
            continue;
        }
        if found.objects.len() == limit {
            found.more = true;
            break;
        }
        found.objects.push(object.clone());
    }
    let is_costly = examined > EXAMINED_WITHOUT_INDEX.max(10 * found.objects.len());
    if let (Some((facet, _)), true) = (required, is_indexed || is_costly) {
        Box::pin(cache.index(&facet)).await; // makes it, or notes that it is used
    }
    found
}

/// The objects of a list. Clones share them.
#[derive(Debug, Clone)]
pub(crate) enum ListItems {
    /// All objects of a namespace or cluster.
    Walk(SnapshotWalk),
    /// These objects.
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
