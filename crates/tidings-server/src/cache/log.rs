//! The event log of a resource, shared by all of its watches.
//!
//! The log is a row of segments. A segment begins with the state before its first event (a snapshot costs nothing: the map
//! shares its nodes) and holds events that are written once and read without a lock. A watch is a position: the number of the
//! next event. Trimming drops whole segments at the front; who stands before the front has fallen too far behind.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use imbl::OrdMap;
use tidings_api::{EventType, Object, ObjectKey, ResourceVersion};

use super::shared::{Encoded, Encoding, Shared};

/// The state of a resource at a revision.
pub(crate) type State = OrdMap<ObjectKey, Object>;

/// Segments start small, so that quiet resources cost little, and double up to this. A larger segment makes exact reads of
/// old revisions replay more events; a smaller one keeps more snapshots.
const SEGMENT_EVENTS_MIN: usize = 32;
const SEGMENT_EVENTS_MAX: usize = 1024;

/// A log that is full has at least this many segments.
const SEGMENTS_MIN: usize = 16;

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: ResourceVersion,
    /// The state after the change; for a deletion, the last state with the revision of the deletion.
    pub(crate) object: Object,
    /// The state before; `None` if the object was created.
    pub(crate) previous: Option<Object>,
    pub(crate) deleted: bool,
    /// The state before with the revision of the change, made when the first watch needs it.
    departed: OnceLock<Object>,
}

impl Event {
    pub(crate) fn new(object: Object, previous: Option<Object>, deleted: bool) -> Event {
        Event {
            revision: object.revision(),
            object,
            previous,
            deleted,
            departed: OnceLock::new(),
        }
    }

    /// What a watch with a selection sees of the change (W100), if anything.
    pub(crate) fn seen_by(
        &self,
        selects: impl Fn(&Object) -> bool,
    ) -> Option<(EventType, &Object)> {
        let before = self.previous.as_ref().is_some_and(&selects);
        let after = !self.deleted && selects(&self.object);
        match (before, after) {
            (false, true) => Some((EventType::Added, &self.object)),
            (true, true) => Some((EventType::Modified, &self.object)),
            (true, false) if self.deleted => Some((EventType::Deleted, &self.object)),
            (true, false) => Some((EventType::Deleted, self.departed())),
            (false, false) => None,
        }
    }

    /// The old content with the new revision: what a watch gets when an object leaves its selection.
    fn departed(&self) -> &Object {
        self.departed.get_or_init(|| {
            let previous = self.previous.as_ref().unwrap_or(&self.object);
            previous.restamped(self.revision, EventType::Deleted)
        })
    }
}

#[derive(Debug)]
pub(crate) struct Segment {
    /// The number of the first event.
    first: u64,
    /// The state before the first event, and its revision.
    base: State,
    base_revision: ResourceVersion,
    events: Box<[OnceLock<Event>]>,
    /// How many events have been written. Released after the event, so whoever sees the count sees the event.
    written: AtomicUsize,
    /// Its events in other encodings.
    shared: Shared,
}

impl Segment {
    fn new(first: u64, base: State, base_revision: ResourceVersion, capacity: usize) -> Segment {
        let events = std::iter::repeat_with(OnceLock::new)
            .take(capacity)
            .collect();
        Segment {
            first,
            base,
            base_revision,
            events,
            written: AtomicUsize::new(0),
            shared: Shared::default(),
        }
    }

    fn written(&self) -> usize {
        self.written.load(Ordering::Acquire)
    }

    /// The events from a position on, as far as they are written now.
    pub(crate) fn from(&self, position: u64) -> impl Iterator<Item = &Event> {
        let skip = (position - self.first) as usize;
        let written = self.written();
        self.events[skip.min(written)..written]
            .iter()
            .filter_map(OnceLock::get)
    }

    /// The number of the first event.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Its events in another encoding.
    pub(crate) fn encoded(&self, encoding: Encoding) -> Arc<Encoded> {
        self.shared.get(encoding, self.first, self.events.len())
    }

    /// The state right after the last event up to a revision.
    fn state_at(&self, revision: ResourceVersion) -> State {
        let mut state = self.base.clone();
        for event in self
            .from(self.first)
            .take_while(|event| event.revision <= revision)
        {
            apply(&mut state, event);
        }
        state
    }
}

/// Makes a state follow an event.
pub(crate) fn apply(state: &mut State, event: &Event) {
    if event.deleted {
        state.remove(&event.object.key());
    } else {
        state.insert(event.object.key(), event.object.clone());
    }
}

/// A position before the front of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FellBehind {
    /// Where the log starts.
    pub(crate) oldest: ResourceVersion,
}

#[derive(Debug)]
pub(crate) struct Log {
    segments: VecDeque<Arc<Segment>>,
    /// Bytes of the objects in each segment, front first, and in all.
    segment_bytes: VecDeque<usize>,
    bytes: usize,
    bytes_max: usize,
}

impl Log {
    /// A log that starts at a state.
    pub(crate) fn new(base: State, base_revision: ResourceVersion, bytes_max: usize) -> Log {
        let segment = Arc::new(Segment::new(0, base, base_revision, SEGMENT_EVENTS_MIN));
        Log {
            segments: [segment].into(),
            segment_bytes: [0].into(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Starts over: whoever follows the log has fallen behind.
    pub(crate) fn restart(&mut self, base: State, base_revision: ResourceVersion) {
        // Positions are never used twice, and one number is left out, so that no old position fits the new log.
        let first = self.end() + 1;
        let segment = Arc::new(Segment::new(first, base, base_revision, SEGMENT_EVENTS_MIN));
        *self = Log {
            segments: [segment].into(),
            segment_bytes: [0].into(),
            bytes: 0,
            bytes_max: self.bytes_max,
        };
    }

    /// The position behind the last event.
    pub(crate) fn end(&self) -> u64 {
        self.segments
            .back()
            .map_or(0, |last| last.first + last.written() as u64)
    }

    /// Starts a new segment if the last one is full. `state` is what the next event changes, `revision` its revision.
    pub(crate) fn make_room(&mut self, state: &State, revision: ResourceVersion) {
        let (Some(last), Some(last_bytes)) = (self.segments.back(), self.segment_bytes.back())
        else {
            return;
        };
        let written = last.written();
        // Large objects fill a segment by their bytes: only whole segments can be dropped.
        if written == last.events.len() || *last_bytes > self.bytes_max / SEGMENTS_MIN {
            let capacity = (last.events.len() * 2).min(SEGMENT_EVENTS_MAX);
            let first = last.first + written as u64;
            self.segments.push_back(Arc::new(Segment::new(
                first,
                state.clone(),
                revision,
                capacity,
            )));
            self.segment_bytes.push_back(0);
        }
    }

    /// Adds an event, for which there must be room.
    pub(crate) fn push(&mut self, event: Event) {
        let (Some(last), Some(last_bytes)) = (self.segments.back(), self.segment_bytes.back_mut())
        else {
            return;
        };
        let bytes = event.object.memory_bytes();
        let at = last.written();
        let stored = last.events[at].set(event);
        assert!(stored.is_ok(), "a place in the log is written once");
        last.written.store(at + 1, Ordering::Release);
        *last_bytes += bytes;
        self.bytes += bytes;
        while self.bytes > self.bytes_max && self.segments.len() > 1 {
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        self.segments.pop_front();
        self.bytes -= self.segment_bytes.pop_front().unwrap_or(0);
    }

    /// Drops the segments that nobody needs who starts at `oldest` or later.
    pub(crate) fn trim(&mut self, oldest: ResourceVersion) {
        while self
            .segments
            .get(1)
            .is_some_and(|second| second.base_revision <= oldest)
        {
            self.drop_front();
        }
    }

    /// The oldest revision from which the log is complete.
    pub(crate) fn oldest(&self) -> ResourceVersion {
        self.segments
            .front()
            .map_or(ResourceVersion::default(), |front| front.base_revision)
    }

    /// The segment to read a position from. The position may be at the end of the segment: then there is nothing to read.
    pub(crate) fn segment(&self, position: u64) -> Result<Arc<Segment>, FellBehind> {
        let behind = self
            .segments
            .partition_point(|segment| segment.first <= position);
        match behind.checked_sub(1).and_then(|at| self.segments.get(at)) {
            Some(segment) if position <= segment.first + segment.written() as u64 => {
                Ok(segment.clone())
            }
            _ => Err(FellBehind {
                oldest: self.oldest(),
            }),
        }
    }

    /// The position of the first event after a revision. `None` if the log does not go back that far.
    pub(crate) fn position_after(&self, revision: ResourceVersion) -> Option<u64> {
        let segment = self.covering(revision)?;
        let events = &segment.events[..segment.written()];
        let skip = events
            .partition_point(|event| event.get().is_some_and(|event| event.revision <= revision));
        Some(segment.first + skip as u64)
    }

    /// The state at a revision. `None` if the log does not go back that far.
    pub(crate) fn state_at(&self, revision: ResourceVersion) -> Option<State> {
        self.covering(revision)
            .map(|segment| segment.state_at(revision))
    }

    /// The last segment that starts at or before a revision.
    fn covering(&self, revision: ResourceVersion) -> Option<&Arc<Segment>> {
        let behind = self
            .segments
            .partition_point(|segment| segment.base_revision <= revision);
        behind.checked_sub(1).and_then(|at| self.segments.get(at))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> u64 {
        self.end() - self.segments.front().map_or(0, |front| front.first)
    }
}
