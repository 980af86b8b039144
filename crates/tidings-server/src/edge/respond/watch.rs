//! The body of a watch: reads events from the log of its resource and encodes them.
//!
//! A watch has no queue: events that it has not sent yet are in the event log, which all watches share. A woken watch sends all its pending
//! events at once. A watch that has fallen behind the log sends an ERROR event and ends.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tidings_api::{EventType, Object, ResourceVersion, ServedObject, Status, event_prefix};
use tidings_cache::{EncodedSegment, EncodingKey, FellBehind};
use tokio::time::{Instant, Sleep};

use super::ChunkTurn;
use super::list::CHUNK_BYTES;
use super::protobuf::error_frame;
use super::view::ObjectView;
use crate::core::{ListItems, OpenWatch, too_old};
use crate::edge::negotiate::DocumentFormat;

/// How often an idle watch sends a bookmark (W110).
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch sends the last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How many events a watch examines before it yields to other tasks.
const EVENTS_AT_ONCE: usize = 4096;

/// The body of a watch.
pub(crate) struct WatchBody {
    view: ObjectView,
    watch: OpenWatch,
    /// The key of the shared encoding, if the format is protobuf.
    encoding: Option<EncodingKey>,
    /// Encoded events of the current log segment, shared with other watches; `None` if the watch is idle.
    encoded: Option<Arc<EncodedSegment>>,
    ended: bool,
    /// The value of `Resource::kind_changes` when the watch last checked it.
    kind_changes: u64,
    /// The next table is the first one of the watch and has column definitions.
    columns: bool,
    ends_at: Instant,
    next_bookmark: Instant,
    timer: Pin<Box<Sleep>>,
    /// For the initial events.
    turn: ChunkTurn,
}

impl WatchBody {
    pub(crate) fn new(view: ObjectView, watch: OpenWatch) -> WatchBody {
        let now = Instant::now();
        let ends_at = now + watch.timeout;
        let next_bookmark = next_bookmark(now, ends_at);
        let timer = Box::pin(tokio::time::sleep_until(next_bookmark.min(ends_at)));
        WatchBody {
            encoding: view.is_protobuf().then(|| view.encoding()),
            view,
            // The kind was found when the request was routed; the definition may have changed since.
            kind_changes: 0,
            watch,
            encoded: None,
            ended: false,
            columns: true,
            ends_at,
            next_bookmark,
            timer,
            turn: ChunkTurn::default(),
        }
    }

    /// Switches to the current kind if the definition of a custom resource has changed since the last check.
    fn follow_definition(&mut self) {
        let changes = self.watch.resource.kind_changes();
        if changes != self.kind_changes {
            self.kind_changes = changes;
            self.view.kind = self.watch.resource.current_kind(&self.view.kind);
            // Without a webhook before, objects in other versions were sent as they are stored.
            let is_converted = self.view.kind.is_converted_by_webhook();
            self.ended |= is_converted && !self.watch.reading.is_converted();
        }
    }

    /// True if events are in protobuf, each after its length.
    pub(crate) fn is_framed(&self) -> bool {
        self.view.is_protobuf()
    }

    /// The next bytes; `None` at the end.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // Under the changed definition the selector may select other objects. The watch ends, and the client has to list again.
        let rereads = self.watch.resource.cache().rereads();
        if self.watch.selection.is_by_definition() && rereads != self.watch.rereads {
            self.ended = true;
            return Poll::Ready(None);
        }
        self.follow_definition();
        if self.ended {
            return Poll::Ready(None);
        }
        if self.watch.initial.is_some() && self.turn.poll(context).is_pending() {
            return Poll::Pending;
        }
        if let Some(initial) = self.watch.initial.take() {
            let bytes = self.send_initial(initial);
            // An empty chunk would end a chunked body.
            if !bytes.is_empty() {
                return Poll::Ready(Some(bytes));
            }
        }
        self.watch.cursor.wait(context.waker());
        let mut chunk = EventChunk::default();
        let caught_up = match self.collect(&mut chunk) {
            ControlFlow::Break(()) => None,
            ControlFlow::Continue(revision) => revision,
        };
        if let Some(bytes) = chunk.finish() {
            return Poll::Ready(Some(bytes));
        }
        let Some(revision) = caught_up else {
            // Not all events are examined yet, and none so far was for this watch. Yield to other tasks and go on.
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        self.poll_time(context, revision)
    }

    /// The next chunk of initial events, and the bookmark after the last one (W93, W112).
    fn send_initial(&mut self, mut initial: Box<(ListItems, ResourceVersion)>) -> Bytes {
        let (items, revision) = &mut *initial;
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        let mut count = 0;
        let (view, columns) = (&self.view, &mut self.columns);
        let mut failed = None;
        let ended = items.visit(|object| {
            if view.is_protobuf() {
                match view.frame(EventType::Added, object) {
                    Ok(frame) => buffer.put_slice(&frame),
                    Err(status) => {
                        failed = Some(status);
                        return false;
                    }
                }
            } else if view.is_plain(object) {
                object.put_event(EventType::Added, &mut buffer);
            } else {
                buffer.put_slice(&view.event(EventType::Added, object, std::mem::take(columns)));
            }
            count += 1;
            buffer.len() < CHUNK_BYTES - (CHUNK_BYTES / 16)
        });
        self.watch.counter.initial(count);
        if let Some(status) = failed {
            self.ended = true;
            buffer.put_slice(&error_event(&status, view.format));
        } else if !ended {
            self.watch.initial = Some(initial);
        } else if self.watch.mark_end {
            buffer.put_slice(&self.bookmark(*revision, true));
        }
        self.watch.counter.sent(count, buffer.len());
        buffer.freeze()
    }

    /// Adds pending events to a chunk. Breaks if the watch has to end. Returns the revision up to which the watch has sent everything, if it has
    /// read the whole log.
    fn collect(&mut self, chunk: &mut EventChunk) -> ControlFlow<(), Option<ResourceVersion>> {
        let mut looked_at = 0;
        loop {
            let read = match self.watch.reading.cache().read(&self.watch.cursor) {
                Ok(read) => read,
                Err(FellBehind { oldest }) => {
                    let status = too_old(self.watch.after, oldest);
                    self.end_with(&status, chunk);
                    self.watch.counter.fell_behind();
                    return ControlFlow::Break(());
                }
            };
            let (mut sent, mut bytes) = (0, 0);
            for (position, event) in read.events() {
                self.watch.cursor.pass(position);
                looked_at += 1;
                if event.revision <= self.watch.after {
                    continue;
                }
                if let Some((kind, object)) =
                    event.seen_by(|object| self.watch.selection.selects(object))
                {
                    sent += 1;
                    bytes += if let Some(encoding) = &self.encoding {
                        let segment = read.segment();
                        let known = self.encoded.take();
                        let known = known.filter(|all| all.is_of(segment.first()));
                        let encoded = known.unwrap_or_else(|| segment.encoded(encoding));
                        let encoded = &*self.encoded.insert(encoded);
                        let view = &self.view;
                        let frame = encoded.get(position, kind, || view.frame(kind, object).ok());
                        let Some(frame) = frame else {
                            let why = format!("{} cannot be encoded", object.key());
                            self.end_with(&Status::internal(why), chunk);
                            return ControlFlow::Break(());
                        };
                        chunk.push_shared(frame)
                    } else if self.view.is_plain(object) {
                        chunk.push(kind, object)
                    } else {
                        let columns = std::mem::take(&mut self.columns);
                        chunk.push_bytes(&self.view.event(kind, object, columns))
                    };
                }
                self.watch.after = event.revision;
                if chunk.is_full() {
                    break;
                }
            }
            self.watch.counter.sent(sent, bytes);
            if chunk.is_full() {
                return ControlFlow::Continue(None);
            }
            if let Some(revision) = self.watch.cursor.pass_all(&read) {
                return ControlFlow::Continue(Some(revision));
            }
            if looked_at >= EVENTS_AT_ONCE {
                return ControlFlow::Continue(None);
            }
        }
    }

    /// Ends the watch with an ERROR event.
    fn end_with(&mut self, status: &Status, chunk: &mut EventChunk) {
        chunk.push_bytes(&error_event(status, self.view.format));
        self.ended = true;
    }

    fn bookmark(&mut self, revision: ResourceVersion, initial_events_end: bool) -> Bytes {
        if self.is_framed() {
            let frame = self.view.bookmark_frame(revision, initial_events_end);
            return frame.unwrap_or_else(|status| {
                self.ended = true;
                error_event(&status, self.view.format)
            });
        }
        let columns = std::mem::take(&mut self.columns);
        self.view.bookmark(revision, initial_events_end, columns)
    }

    /// Without pending events: checks whether it is time for a bookmark or for the end.
    fn poll_time(
        &mut self,
        context: &mut Context<'_>,
        revision: ResourceVersion,
    ) -> Poll<Option<Bytes>> {
        if *self.watch.stopping.borrow() {
            self.ended = true;
            // The client can resume from here after a restart, or on another server.
            let sends_bookmark = self.watch.bookmarks && revision >= self.watch.after;
            return Poll::Ready(sends_bookmark.then(|| self.bookmark(revision, false)));
        }
        if self.watch.reading.cache().is_closed() {
            self.ended = true;
            return Poll::Ready(None);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if now >= self.ends_at {
                self.ended = true;
                return Poll::Ready(None);
            }
            let due = now >= self.next_bookmark;
            if due {
                self.next_bookmark = next_bookmark(now, self.ends_at);
                // An idle watch does not keep encoded events; other watches may still share them.
                self.encoded = None;
            }
            self.timer
                .as_mut()
                .reset(self.next_bookmark.min(self.ends_at));
            if due && self.watch.bookmarks && revision >= self.watch.after {
                return Poll::Ready(Some(self.bookmark(revision, false)));
            }
        }
        Poll::Pending
    }
}

/// The time of the next bookmark: every minute, and shortly before the end. If the end is nearer than that, a time after it, which means none.
fn next_bookmark(now: Instant, ends_at: Instant) -> Instant {
    let last = ends_at.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
    let regular = now + BOOKMARK_EVERY;
    if last > now {
        regular.min(last)
    } else {
        ends_at + BOOKMARK_EVERY
    }
}

/// An ERROR event: `{"type":"ERROR",…}` or its protobuf frame (W96).
pub(crate) fn error_event(status: &Status, format: DocumentFormat) -> Bytes {
    if format == DocumentFormat::Protobuf {
        return error_frame(status);
    }
    let mut event = event_prefix(EventType::Error).to_vec();
    event.extend(status.to_json());
    event.extend_from_slice(b"}\n");
    Bytes::from(event)
}

/// Events that are sent in one chunk. A single event is sent without a copy; several are copied into one buffer.
#[derive(Default)]
struct EventChunk {
    only: Option<Bytes>,
    many: BytesMut,
}

impl EventChunk {
    /// Adds a JSON event and returns its size.
    fn push(&mut self, kind: EventType, object: &Object) -> usize {
        let bytes = object.event_bytes_len(kind);
        if self.only.is_none() && self.many.is_empty() {
            self.only = Some(object.event_bytes(kind));
            return bytes;
        }
        self.make_room(bytes);
        object.put_event(kind, &mut self.many);
        bytes
    }

    /// Adds an encoded event that is shared with other watches, and returns its size.
    fn push_shared(&mut self, event: Bytes) -> usize {
        if self.only.is_none() && self.many.is_empty() {
            let bytes = event.len();
            self.only = Some(event);
            return bytes;
        }
        self.push_bytes(&event)
    }

    fn push_bytes(&mut self, bytes: &Bytes) -> usize {
        self.make_room(bytes.len());
        self.many.put_slice(bytes);
        bytes.len()
    }

    fn make_room(&mut self, bytes: usize) {
        if self.many.is_empty() {
            self.many.reserve(CHUNK_BYTES.max(bytes));
        }
        if let Some(only) = self.only.take() {
            self.many.put_slice(&only);
        }
    }

    fn is_full(&self) -> bool {
        self.many.len() >= CHUNK_BYTES - (CHUNK_BYTES / 16)
    }

    fn finish(self) -> Option<Bytes> {
        match self.only {
            Some(only) => Some(only),
            None if self.many.is_empty() => None,
            None => Some(self.many.freeze()),
        }
    }
}
