//! Events in another encoding than the one they are stored in, made once for all watches that want the same.
//!
//! What is made belongs to the watches, not to the log: it lives as long as one of them stands in the segment that the events are
//! of. So a server without such watches has none of it, and one with many has it for the segments that they read, mostly the last.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use tidings_api::EventType;

/// How events look. Watches that have this in common can share bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    /// The group and version that the kind is seen in; the log is of one resource.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// Only metadata is seen, of this version of `meta.k8s.io`.
    pub(crate) metadata: Option<&'static str>,
}

/// The events of one segment in one encoding.
#[derive(Debug)]
pub(crate) struct Encoded {
    encoding: Encoding,
    /// The number of the first event: no two segments of a resource have the same.
    first: u64,
    events: Box<[Slot]>,
}

/// One event, as it is seen by those to whom an object comes, changes or goes (W100). `None` inside: it cannot be encoded.
#[derive(Debug, Default)]
struct Slot([OnceLock<Option<Box<Bytes>>>; 3]);

impl Encoded {
    /// True if these are the events of the segment that starts there.
    pub(crate) fn is_of(&self, first: u64) -> bool {
        self.first == first
    }

    /// An event as it looks as one of the given type. The first who asks makes it.
    pub(crate) fn get(
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

/// What there is of one segment.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Vec<Weak<Encoded>>>);

impl Shared {
    /// The events of a segment in an encoding, shared with whoever has them now.
    pub(super) fn get(&self, encoding: Encoding, first: u64, capacity: usize) -> Arc<Encoded> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = all.iter().filter_map(Weak::upgrade);
        if let Some(found) = alive.into_iter().find(|found| found.encoding == encoding) {
            return found;
        }
        let made = Arc::new(Encoded {
            encoding,
            first,
            events: std::iter::repeat_with(Slot::default)
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

    const WHOLE: Encoding = Encoding {
        group: "",
        version: "v1",
        metadata: None,
    };
    const METADATA: Encoding = Encoding {
        metadata: Some("v1"),
        ..WHOLE
    };

    #[test]
    fn w117_an_event_is_encoded_once_for_all_who_see_it_alike() {
        let shared = Shared::default();
        let (one, other) = (shared.get(WHOLE, 32, 64), shared.get(WHOLE, 32, 64));
        let frame = one.get(40, EventType::Added, || Some(Bytes::from_static(b"added")));
        assert_eq!(frame.as_deref(), Some(&b"added"[..]));
        let again = other.get(40, EventType::Added, || unreachable!("it is there"));
        assert_eq!(again, frame);
        let left = other.get(40, EventType::Deleted, || Some(Bytes::from_static(b"left")));
        assert_eq!(left.as_deref(), Some(&b"left"[..]));
        let metadata = shared.get(METADATA, 32, 64);
        let lesser = metadata.get(40, EventType::Added, || Some(Bytes::from_static(b"less")));
        assert_eq!(lesser.as_deref(), Some(&b"less"[..]));
    }

    #[test]
    fn what_cannot_be_encoded_is_not_tried_again() {
        let shared = Shared::default().get(WHOLE, 0, 1);
        assert_eq!(shared.get(0, EventType::Added, || None), None);
        let again = shared.get(0, EventType::Added, || unreachable!("it was tried"));
        assert_eq!(again, None);
    }

    #[test]
    fn nothing_is_kept_when_the_last_watch_has_gone() {
        let shared = Shared::default();
        let held = shared.get(WHOLE, 0, 8);
        let alive = Arc::downgrade(&held);
        drop(held);
        assert!(alive.upgrade().is_none());
        let _metadata = shared.get(METADATA, 0, 8);
        let left = shared
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len();
        assert_eq!(left, 1, "the note of what has gone goes too");
    }
}
