//! Events in an encoding other than the stored one (protobuf, tables), encoded once and shared by all watches that send the same bytes.
//!
//! The watches own an encoded segment, not the log: it lives as long as some watch reads that segment. A server without such watches
//! keeps none; a server with many keeps those of the segments that they read, mostly the last one.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use tidings_api::EventType;

/// Names an encoding. Watches with equal keys share bytes. The cache does not interpret the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodingKey(Box<str>);

impl EncodingKey {
    /// A key. The text must name everything that decides how an event is encoded: the API version, the format, the part of the object.
    pub fn new(text: impl Into<Box<str>>) -> EncodingKey {
        EncodingKey(text.into())
    }
}

/// The events of one segment in one encoding.
#[derive(Debug)]
pub struct EncodedSegment {
    encoding: EncodingKey,
    /// The position of the first event, which is unique to the segment.
    first: u64,
    events: Box<[EncodedEvent]>,
}

/// One event, encoded as ADDED, as MODIFIED and as DELETED: which of them a watch sends depends on its selection (W100). `None` inside:
/// the event cannot be encoded.
#[derive(Debug, Default)]
struct EncodedEvent([OnceLock<Option<Box<Bytes>>>; 3]);

impl EncodedSegment {
    /// True if these are the events of the segment that begins at this position.
    pub fn is_of(&self, first: u64) -> bool {
        self.first == first
    }

    /// The bytes of the event at a position, encoded as the given type. The first caller encodes them with `make`.
    pub fn get(
        &self,
        position: u64,
        event: EventType,
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        let at = match event {
            EventType::Added => 0,
            EventType::Modified => 1,
            EventType::Deleted => 2,
            EventType::Bookmark | EventType::Error => return make(),
        };
        let slot = usize::try_from(position.checked_sub(self.first)?).ok()?;
        let made = self.events.get(slot)?.0[at].get_or_init(|| make().map(Box::new));
        made.as_deref().cloned()
    }
}

/// The encodings of one segment that watches still hold.
#[derive(Debug, Default)]
pub(crate) struct SharedEncodings(Mutex<Vec<Weak<EncodedSegment>>>);

impl SharedEncodings {
    /// The encoding of a segment of `capacity` events that begins at position `first`, shared with the watches that hold it already.
    pub(crate) fn get(
        &self,
        encoding: &EncodingKey,
        first: u64,
        capacity: usize,
    ) -> Arc<EncodedSegment> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = all.iter().filter_map(Weak::upgrade);
        if let Some(found) = alive.find(|found| found.encoding == *encoding) {
            return found;
        }
        let made = Arc::new(EncodedSegment {
            encoding: encoding.clone(),
            first,
            events: std::iter::repeat_with(EncodedEvent::default)
                .take(capacity)
                .collect(),
        });
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> EncodingKey {
        EncodingKey::new("v1")
    }

    fn metadata() -> EncodingKey {
        EncodingKey::new("v1 metadata")
    }

    #[test]
    fn w117_an_event_is_encoded_once_for_all_watches_with_the_same_encoding() {
        let shared = SharedEncodings::default();
        let (one, other) = (shared.get(&whole(), 32, 64), shared.get(&whole(), 32, 64));
        let frame = one.get(40, EventType::Added, || Some(Bytes::from_static(b"added")));
        assert_eq!(frame.as_deref(), Some(&b"added"[..]));
        let again = other.get(40, EventType::Added, || {
            unreachable!("it is encoded already")
        });
        assert_eq!(again, frame);
        let left = other.get(40, EventType::Deleted, || Some(Bytes::from_static(b"left")));
        assert_eq!(left.as_deref(), Some(&b"left"[..]));
        let lean = shared.get(&metadata(), 32, 64);
        let lesser = lean.get(40, EventType::Added, || Some(Bytes::from_static(b"less")));
        assert_eq!(lesser.as_deref(), Some(&b"less"[..]));
    }

    #[test]
    fn an_event_that_cannot_be_encoded_is_tried_once() {
        let shared = SharedEncodings::default().get(&whole(), 0, 1);
        assert_eq!(shared.get(0, EventType::Added, || None), None);
        let again = shared.get(0, EventType::Added, || unreachable!("it was tried before"));
        assert_eq!(again, None);
    }

    #[test]
    fn an_encoding_is_dropped_with_its_last_watch() {
        let shared = SharedEncodings::default();
        let held = shared.get(&whole(), 0, 8);
        let alive = Arc::downgrade(&held);
        drop(held);
        assert!(alive.upgrade().is_none());
        let _metadata = shared.get(&metadata(), 0, 8);
        let left = shared
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len();
        assert_eq!(left, 1, "the dead weak pointer is removed too");
    }
}
