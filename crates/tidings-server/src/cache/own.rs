//! What this server writes itself: it is known before the store brings it back, and need not be read again then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidings_api::{EventType, Object, ObjectKey, ResourceVersion};

use crate::registry::draft::Written;

/// The writes of this server to one resource that its cache does not have yet.
#[derive(Debug, Default)]
pub(super) struct OwnWrites(Mutex<Writes>);

#[derive(Debug, Default)]
struct Writes {
    /// On their way. The store often brings back what is written before it says that it is.
    ///
    /// Bound: the requests at work.
    under_way: HashMap<ObjectKey, Written>,
    /// Done.
    ///
    /// Bound: the writes within the lag of the cache.
    done: HashMap<ObjectKey, (Bytes, Object)>,
}

impl OwnWrites {
    fn writes(&self) -> MutexGuard<'_, Writes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write begins. It is under way until what is returned is dropped.
    pub(super) fn begin(&self, key: &ObjectKey, written: &Written) -> UnderWay<'_> {
        let mut writes = self.writes();
        writes.under_way.insert(key.clone(), written.clone());
        drop(writes);
        UnderWay {
            own: self,
            key: key.clone(),
            address: written.value.as_ptr().addr(),
        }
    }

    /// A write is done, and is not in the cache yet: `is_new` says so while no cache can pass it.
    pub(super) fn done(&self, value: &Bytes, object: &Object, is_new: impl FnOnce() -> bool) {
        let mut writes = self.writes();
        if is_new() {
            let done = (value.clone(), object.clone());
            writes.done.insert(object.key(), done);
        }
    }

    /// An object as it has been written last.
    pub(super) fn newest(&self, key: &ObjectKey) -> Option<Object> {
        let writes = self.writes();
        writes.done.get(key).map(|(_, object)| object.clone())
    }

    /// The object that the store brings, if it is one of them: nothing of it has to be read.
    pub(super) fn recognise(
        &self,
        key: &ObjectKey,
        value: &[u8],
        revision: ResourceVersion,
        event: EventType,
    ) -> Option<Object> {
        let writes = self.writes();
        // After a restored backup, a revision can be another's.
        if let Some((written, object)) = writes.done.get(key)
            && object.revision() == revision
            && is_same(written, value)
        {
            return Some(object.clone());
        }
        let written = writes.under_way.get(key)?;
        if !is_same(&written.value, value) {
            return None; // somebody else's
        }
        let written = written.clone();
        drop(writes);
        Some(written.stamped(revision, event))
    }

    /// The cache has reached a revision.
    pub(super) fn reached(&self, revision: ResourceVersion) {
        let mut writes = self.writes();
        if !writes.done.is_empty() {
            let is_new = |object: &Object| object.revision() > revision;
            writes.done.retain(|_, (_, object)| is_new(object));
        }
    }

    /// The cache is filled anew.
    pub(super) fn forget(&self) {
        self.writes().done.clear();
    }
}

/// The embedded store brings back the very bytes that it was given.
fn is_same(written: &Bytes, brought: &[u8]) -> bool {
    std::ptr::eq(&**written, brought) || written == brought
}

/// A write on its way to the store.
pub(crate) struct UnderWay<'a> {
    own: &'a OwnWrites,
    key: ObjectKey,
    /// Where its bytes are. Two may write to one object, and then the later one is known.
    address: usize,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut writes = self.own.writes();
        let known = writes.under_way.get(&self.key);
        if known.is_some_and(|known| known.value.as_ptr().addr() == self.address) {
            writes.under_way.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{self, draft::Draft};

    fn written(value: &str) -> Written {
        let kind = registry::find("", "v1", "configmaps").unwrap();
        let body = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"a":"{value}"}}}}"#);
        Draft::read(kind, body.as_bytes()).unwrap().write().unwrap()
    }

    #[test]
    fn what_the_store_brings_is_recognised_while_it_is_written_and_after() {
        let (own, key) = (OwnWrites::default(), ObjectKey::new("", "a"));
        let (first, second) = (written("1"), written("2"));
        let (at, event) = (ResourceVersion::new(7), EventType::Modified);
        let brought = |write: &Written| own.recognise(&key, &write.value, at, event);
        let scanned = Object::stamped(&first.value, at, event).unwrap();
        let under_way = own.begin(&key, &first);
        let recognised = brought(&first).unwrap();
        assert_eq!(recognised.spans(), scanned.spans());
        assert_eq!(recognised.as_bytes(), scanned.as_bytes());
        let of_the_writer = first.stamped(at, event);
        let place = |object: &Object| object.as_bytes().as_ptr();
        assert_eq!(place(&recognised), place(&of_the_writer), "they share it");
        let later = first.stamped(ResourceVersion::new(8), event);
        assert_eq!(later.revision(), ResourceVersion::new(8));
        assert!(brought(&second).is_none(), "it is somebody else's");
        drop(under_way);
        assert!(brought(&first).is_none());
        own.done(&first.value, &scanned, || true);
        assert!(brought(&first).is_some());
        assert!(brought(&second).is_none(), "the revision is another's");
        own.reached(at);
        assert!(brought(&first).is_none() && own.newest(&key).is_none());
    }

    #[test]
    fn of_two_writes_to_one_object_the_later_is_known_until_it_ends() {
        let (own, key) = (OwnWrites::default(), ObjectKey::new("", "a"));
        let (first, second) = (written("1"), written("2"));
        let (at, event) = (ResourceVersion::new(7), EventType::Modified);
        let earlier = own.begin(&key, &first);
        let later = own.begin(&key, &second);
        drop(earlier);
        assert!(own.recognise(&key, &second.value, at, event).is_some());
        drop(later);
        assert!(own.recognise(&key, &second.value, at, event).is_none());
    }
}
