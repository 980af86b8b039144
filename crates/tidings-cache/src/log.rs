//! The event log of a resource, shared by all of its watches.
//!
//! The log is a sequence of segments. A segment begins with the objects before its first event (this snapshot is cheap: the map shares
//! its nodes) and holds events that are written once and read without a lock. Events are numbered; the position of a watch is the number
//! of its next event. Trimming drops whole segments at the front; a watch whose position is before the front has fallen behind.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tidings_api::{EventType, Object, ResourceVersion, ServedObject};

use crate::encodings::{EncodedSegment, EncodingKey, SharedEncodings};
use crate::objects::{FacetIndex, ObjectMap};

/// The first segment is small, so that quiet resources cost little; each next one is twice as large, up to the maximum. Larger segments
/// make reads at an old revision replay more events; smaller ones need more snapshots.
const SEGMENT_EVENTS_MIN: usize = 32;
/// The most events of a segment.
const SEGMENT_EVENTS_MAX: usize = 1024;

/// A full log has at least this many segments, because only whole segments can be dropped.
const SEGMENTS_MIN: usize = 16;

/// One change of one object.
#[derive(Debug)]
pub struct LoggedEvent {
    /// The revision of the change.
    pub revision: ResourceVersion,
    /// The state after the change; for a deletion, the last state with the revision of the deletion.
    pub object: Object,
    /// The state before the change; `None` if the object was created.
    pub previous: Option<Object>,
    /// True if the change is a deletion.
    pub deleted: bool,
    /// The state before the change, stamped with the revision of the change; made when the first watch needs it.
    departed: OnceLock<Object>,
}

impl LoggedEvent {
    pub(crate) fn new(object: Object, previous: Option<Object>, deleted: bool) -> LoggedEvent {
        LoggedEvent {
            revision: object.revision(),
            object,
            previous,
            deleted,
            departed: OnceLock::new(),
        }
    }

    /// The event that a watch with a selection is sent for this change (W100); `None` if it is sent nothing.
    pub fn seen_by(&self, selects: impl Fn(&Object) -> bool) -> Option<(EventType, &Object)> {
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

    /// The old content with the new revision. A watch sends this as DELETED when an object leaves its selection.
    fn departed(&self) -> &Object {
        self.departed.get_or_init(|| {
            let previous = self.previous.as_ref().unwrap_or(&self.object);
            previous.restamped(self.revision, EventType::Deleted)
        })
    }
}

/// A part of the event log: the objects before its first event, and the events.
#[derive(Debug)]
pub struct LogSegment {
    /// The position of the first event.
    first: u64,
    /// The objects before the first event, and their revision.
    base: ObjectMap,
    base_revision: ResourceVersion,
    events: Box<[OnceLock<LoggedEvent>]>,
    /// How many events have been written. Stored with `Release` after the event: a reader that sees the count sees the event.
    written: AtomicUsize,
    /// Encodings of these events, shared by watches.
    shared: SharedEncodings,
}

impl LogSegment {
    fn new(
        first: u64,
        base: ObjectMap,
        base_revision: ResourceVersion,
        capacity: usize,
    ) -> LogSegment {
        let events = std::iter::repeat_with(OnceLock::new)
            .take(capacity)
            .collect();
        LogSegment {
            first,
            base,
            base_revision,
            events,
            written: AtomicUsize::new(0),
            shared: SharedEncodings::default(),
        }
    }

    fn written(&self) -> usize {
        self.written.load(Ordering::Acquire)
    }

    /// The events from a position on that are written by now.
    pub fn from(&self, position: u64) -> impl Iterator<Item = &LoggedEvent> {
        let skip = (position - self.first) as usize;
        let written = self.written();
        self.events[skip.min(written)..written]
            .iter()
            .filter_map(OnceLock::get)
    }

    /// The event at a position, if it is in this segment.
    pub(crate) fn at(&self, position: u64) -> Option<&LoggedEvent> {
        let at = position.checked_sub(self.first)?;
        self.events.get(usize::try_from(at).ok()?)?.get()
    }

    /// The position of the first event.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The position after the last event that is written by now.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.written() as u64
    }

    /// The events of this segment in an encoding that watches share.
    pub fn encoded(&self, encoding: &EncodingKey) -> Arc<EncodedSegment> {
        self.shared.get(encoding, self.first, self.events.len())
    }

    /// The objects after the events up to and including a revision.
    fn state_at(&self, revision: ResourceVersion) -> ObjectMap {
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

/// Applies an event to a state.
pub(crate) fn apply(state: &mut ObjectMap, event: &LoggedEvent) {
    if event.deleted {
        state.remove(&event.object.key());
    } else {
        state.insert(event.object.key(), event.object.clone());
    }
}

/// The log was trimmed and no longer has the event at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FellBehind {
    /// The revision at which the log starts.
    pub oldest: ResourceVersion,
}

/// The event log of one resource.
#[derive(Debug)]
pub(crate) struct EventLog {
    segments: VecDeque<Arc<LogSegment>>,
    /// Bytes of the objects in each segment, oldest segment first.
    segment_bytes: VecDeque<usize>,
    /// Bytes of the objects in all segments.
    bytes: usize,
    bytes_max: usize,
}

impl EventLog {
    /// An empty log after the objects `base`.
    pub(crate) fn new(
        base: ObjectMap,
        base_revision: ResourceVersion,
        bytes_max: usize,
    ) -> EventLog {
        let segment = Arc::new(LogSegment::new(0, base, base_revision, SEGMENT_EVENTS_MIN));
        EventLog {
            segments: [segment].into(),
            segment_bytes: [0].into(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Empties the log after a relist. Every watch of the old log has then fallen behind.
    pub(crate) fn restart(&mut self, base: ObjectMap, base_revision: ResourceVersion) {
        // Positions are never used twice, and one is skipped: a cursor at the end of the old log must not fit the new log.
        let first = self.end() + 1;
        let segment = Arc::new(LogSegment::new(
            first,
            base,
            base_revision,
            SEGMENT_EVENTS_MIN,
        ));
        *self = EventLog {
            segments: [segment].into(),
            segment_bytes: [0].into(),
            bytes: 0,
            bytes_max: self.bytes_max,
        };
    }

    /// The position after the last event.
    pub(crate) fn end(&self) -> u64 {
        self.segments.back().map_or(0, |last| last.end())
    }

    /// The position of the first event that the log has.
    pub(crate) fn front(&self) -> u64 {
        self.segments.front().map_or(0, |front| front.first)
    }

    /// Starts a new segment if the last one is full. `state` and `revision` are the objects before the next event and their revision.
    pub(crate) fn make_room(&mut self, state: &ObjectMap, revision: ResourceVersion) {
        let (Some(last), Some(last_bytes)) = (self.segments.back(), self.segment_bytes.back())
        else {
            return;
        };
        // A segment of large objects is full earlier: only whole segments can be dropped.
        if last.written() == last.events.len() || *last_bytes > self.bytes_max / SEGMENTS_MIN {
            self.start_segment(state.clone(), revision);
        }
    }

    /// Starts a new segment: reads at `revision` and later begin with `base`. A last segment without events is replaced.
    pub(crate) fn start_segment(&mut self, base: ObjectMap, revision: ResourceVersion) {
        let first = self.end();
        let last = self.segments.back();
        let (written, size) = last.map_or((0, 0), |last| (last.written(), last.events.len()));
        let capacity = match written {
            0 => {
                self.segments.pop_back();
                self.segment_bytes.pop_back();
                size.max(SEGMENT_EVENTS_MIN)
            }
            _ => (size * 2).min(SEGMENT_EVENTS_MAX),
        };
        let segment = LogSegment::new(first, base, revision, capacity);
        self.segments.push_back(Arc::new(segment));
        self.segment_bytes.push_back(0);
    }

    /// Appends an event. The caller has called [`EventLog::make_room`].
    pub(crate) fn push(&mut self, event: LoggedEvent) {
        let (Some(last), Some(last_bytes)) = (self.segments.back(), self.segment_bytes.back_mut())
        else {
            return;
        };
        let bytes = event.object.memory_bytes();
        let at = last.written();
        let stored = last.events[at].set(event);
        assert!(stored.is_ok(), "a slot of the log is written once");
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

    /// Ends the last segment if it holds no event after `oldest`, so that it can be dropped: of a quiet resource it would keep the objects of
    /// its events for ever. `state` are the objects after the last event.
    pub(crate) fn end_segment(&mut self, oldest: ResourceVersion, state: &ObjectMap) {
        let last = self.segments.back();
        let last = last.and_then(|last| last.at(last.end().checked_sub(1)?));
        if let Some(last) = last.filter(|last| last.revision <= oldest) {
            let (first, revision) = (self.end(), last.revision);
            let segment = LogSegment::new(first, state.clone(), revision, SEGMENT_EVENTS_MIN);
            self.segments.push_back(Arc::new(segment));
            self.segment_bytes.push_back(0);
        }
    }

    /// Drops the segments that hold no event after `oldest`.
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

    /// The segment with a position. The position may be at the end of the last segment, where there is nothing to read yet.
    pub(crate) fn segment(&self, position: u64) -> Result<Arc<LogSegment>, FellBehind> {
        let behind = self
            .segments
            .partition_point(|segment| segment.first <= position);
        match behind.checked_sub(1).and_then(|at| self.segments.get(at)) {
            Some(segment) if position <= segment.end() => Ok(segment.clone()),
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

    /// The objects at a revision. `None` if the log does not go back that far.
    pub(crate) fn state_at(&self, revision: ResourceVersion) -> Option<ObjectMap> {
        self.covering(revision)
            .map(|segment| segment.state_at(revision))
    }

    /// The last segment that starts at or before a revision.
    fn covering(&self, revision: ResourceVersion) -> Option<&Arc<LogSegment>> {
        let behind = self
            .segments
            .partition_point(|segment| segment.base_revision <= revision);
        behind.checked_sub(1).and_then(|at| self.segments.get(at))
    }

    /// Brings an index of the objects before a position up to the end of the log.
    ///
    /// # Errors
    /// If the log was trimmed past the position.
    pub(crate) fn follow(
        &self,
        mut position: u64,
        index: &mut FacetIndex,
    ) -> Result<(), FellBehind> {
        while position < self.end() {
            let segment = self.segment(position)?;
            for event in segment.from(position) {
                let after = (!event.deleted).then_some(&event.object);
                index.change(&event.object.key(), event.previous.as_ref(), after);
                position += 1;
            }
        }
        self.segment(position).map(drop)
    }

    /// Bytes of the objects in the log.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many events the log holds.
    pub(crate) fn len(&self) -> u64 {
        self.end() - self.front()
    }
}
