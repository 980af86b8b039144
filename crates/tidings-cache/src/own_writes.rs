//! The writes of this process that its cache does not have yet. They can be read before the watch of the store delivers them, and need not
//! be parsed again when it does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, UnstampedObject};

/// The writes of this process to one resource that its cache does not have yet.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(Mutex<PendingWrites>);

#[derive(Debug, Default)]
struct PendingWrites {
    /// Sent to the store and not acknowledged yet. The watch of the store often delivers a write before the write is acknowledged.
    ///
    /// Bound: the write requests in flight.
    under_way: HashMap<ObjectKey, (WriteNumber, UnstampedObject)>,
    /// Acknowledged by the store.
    ///
    /// Bound: the writes that the store has acknowledged and the cache has not received yet.
    done: HashMap<ObjectKey, (Bytes, Object)>,
    next: WriteNumber,
}

/// Distinguishes concurrent writes to the same object.
type WriteNumber = u64;

impl OwnWrites {
    fn pending(&self) -> MutexGuard<'_, PendingWrites> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a write begins. The write is under way until the returned guard is dropped.
    pub(crate) fn begin(&self, key: &ObjectKey, object: &UnstampedObject) -> WriteUnderWay<'_> {
        let mut pending = self.pending();
        let number = pending.next;
        pending.next += 1;
        let under_way = (number, object.clone());
        pending.under_way.insert(key.clone(), under_way);
        drop(pending);
        WriteUnderWay {
            own: self,
            key: key.clone(),
            number,
        }
    }

    /// Notes that a write is acknowledged, unless the cache has it already. `is_new` is called under the lock that [`OwnWrites::reached`]
    /// takes: a write must not be noted after the cache has passed its revision, because nothing would remove it.
    pub(crate) fn done(&self, value: &Bytes, object: &Object, is_new: impl FnOnce() -> bool) {
        let mut pending = self.pending();
        if is_new() {
            let done = (value.clone(), object.clone());
            pending.done.insert(object.key(), done);
        }
    }

    /// The last acknowledged write to an object, if the cache does not have it yet.
    pub(crate) fn newest(&self, key: &ObjectKey) -> Option<Object> {
        let pending = self.pending();
        pending.done.get(key).map(|(_, object)| object.clone())
    }

    /// The object in a value that the watch of the store delivered, if this process wrote that value; it need not be parsed then.
    pub(crate) fn recognise(
        &self,
        key: &ObjectKey,
        value: &[u8],
        revision: ResourceVersion,
        event: EventType,
    ) -> Option<Object> {
        let pending = self.pending();
        // The bytes are compared too: after a backup was restored, the same revision can belong to another write.
        if let Some((written, object)) = pending.done.get(key)
            && object.revision() == revision
            && is_same(written, value)
        {
            return Some(object.clone());
        }
        let (_, written) = pending.under_way.get(key)?;
        if !is_same(written.value(), value) {
            return None; // written by another process
        }
        let written = written.clone();
        drop(pending);
        Some(written.stamped(revision, event))
    }

    /// Forgets the writes that the cache has, now that it has reached a revision.
    pub(crate) fn reached(&self, revision: ResourceVersion) {
        let mut pending = self.pending();
        if !pending.done.is_empty() {
            let is_new = |object: &Object| object.revision() > revision;
            pending.done.retain(|_, (_, object)| is_new(object));
        }
    }

    /// Forgets every acknowledged write, because the cache is filled again.
    pub(crate) fn forget(&self) {
        self.pending().done.clear();
    }
}

/// True for equal bytes. The embedded store delivers the same allocation that it was given, so that pointers often tell.
fn is_same(written: &Bytes, delivered: &[u8]) -> bool {
    std::ptr::eq(&**written, delivered) || written == delivered
}

/// A write that the store has not acknowledged yet.
pub(crate) struct WriteUnderWay<'a> {
    own: &'a OwnWrites,
    key: ObjectKey,
    number: WriteNumber,
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        let mut pending = self.own.pending();
        let known = pending.under_way.get(&self.key);
        // A later write to the same object may have replaced the entry.
        if known.is_some_and(|(number, _)| *number == self.number) {
            pending.under_way.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_api::ServedObject;

    fn written(value: &str) -> UnstampedObject {
        let json = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"a":"{value}"}}}}"#);
        UnstampedObject::parse(json.into_bytes()).unwrap()
    }

    #[test]
    fn a_delivered_value_is_recognised_while_its_write_is_under_way_and_after() {
        let (own, key) = (OwnWrites::default(), ObjectKey::new("", "a"));
        let (first, second) = (written("1"), written("2"));
        let (at, event) = (ResourceVersion::new(7), EventType::Modified);
        let deliver = |write: &UnstampedObject| own.recognise(&key, write.value(), at, event);
        let scanned = Object::stamped(first.value(), at, event).unwrap();
        let under_way = own.begin(&key, &first);
        let recognised = deliver(&first).unwrap();
        assert_eq!(recognised.spans(), scanned.spans());
        assert_eq!(recognised.as_bytes(), scanned.as_bytes());
        let stamped = first.stamped(at, event);
        let address = |object: &Object| object.as_bytes().as_ptr();
        assert_eq!(address(&recognised), address(&stamped), "shared bytes");
        let later = first.stamped(ResourceVersion::new(8), event);
        assert_eq!(later.revision(), ResourceVersion::new(8));
        assert!(deliver(&second).is_none(), "another process wrote it");
        drop(under_way);
        assert!(deliver(&first).is_none());
        own.done(first.value(), &scanned, || true);
        assert!(deliver(&first).is_some());
        assert!(deliver(&second).is_none(), "another write");
        own.reached(at);
        assert!(deliver(&first).is_none() && own.newest(&key).is_none());
    }

    #[test]
    fn the_later_of_two_writes_to_one_object_is_recognised_until_it_ends() {
        let (own, key) = (OwnWrites::default(), ObjectKey::new("", "a"));
        let (first, second) = (written("1"), written("2"));
        let (at, event) = (ResourceVersion::new(7), EventType::Modified);
        let earlier = own.begin(&key, &first);
        let later = own.begin(&key, &second);
        drop(earlier);
        assert!(own.recognise(&key, second.value(), at, event).is_some());
        drop(later);
        assert!(own.recognise(&key, second.value(), at, event).is_none());
    }
}
