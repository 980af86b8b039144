//! A watch: a cursor in the log of its resource, turned into bytes.
//!
//! There is no queue: what a watch has not sent yet stands in the log, which all watches share. A watch that is woken writes all
//! that it has pending at once. One that has fallen so far behind that the log no longer has its place is told so and ends.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tidings_api::{EventType, Object, ResourceVersion, Status};
use tokio::time::{Instant, Sleep};

use super::list::{CHUNK_BYTES, Walk};
use super::protobuf::error_frame;
use super::view::View;
use crate::cache::log::FellBehind;
use crate::cache::shared::Encoded;
use crate::cache::{Cache, Cursor};
use crate::metrics::WatchMetrics;
use crate::negotiate::Format;
use crate::selection::Selection;

/// How often a quiet watch tells where it is (W110).
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How many events a watch looks at before it lets others have the thread.
const EVENTS_AT_ONCE: usize = 4096;

/// How a watch is to be served.
#[derive(Debug)]
pub(crate) struct WatchPlan {
    pub(crate) view: View,
    pub(crate) selection: Selection,
    /// The state to begin with, as events. Boxed: it is gone when the watch is idle.
    pub(crate) initial: Option<Box<(Walk, ResourceVersion)>>,
    /// The initial state ends with a bookmark that says so.
    pub(crate) mark_end: bool,
    /// Events up to here are not for this watch (W94).
    pub(crate) after: ResourceVersion,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
}

/// The body of a watch.
pub(crate) struct WatchBody {
    plan: WatchPlan,
    cache: Arc<Cache>,
    cursor: Cursor,
    /// Events in the encoding of the view, shared with other watches; `None` if the view is not of protobuf or the watch is idle.
    encoded: Option<Arc<Encoded>>,
    ended: bool,
    /// Which forms of objects the watch began with.
    forms: u64,
    /// The next table is the first and names the columns.
    columns: bool,
    ends_at: Instant,
    next_bookmark: Instant,
    timer: Pin<Box<Sleep>>,
    /// Turns true when the server stops.
    stopping: tokio::sync::watch::Receiver<bool>,
    metrics: WatchMetrics,
}

impl WatchBody {
    pub(crate) fn new(
        plan: WatchPlan,
        cache: Arc<Cache>,
        cursor: Cursor,
        stopping: tokio::sync::watch::Receiver<bool>,
        metrics: WatchMetrics,
    ) -> WatchBody {
        let now = Instant::now();
        let ends_at = now + plan.timeout;
        let next_bookmark = next_bookmark(now, ends_at);
        let timer = Box::pin(tokio::time::sleep_until(next_bookmark.min(ends_at)));
        WatchBody {
            plan,
            forms: cache.forms(),
            cache,
            cursor,
            encoded: None,
            ended: false,
            columns: true,
            ends_at,
            next_bookmark,
            timer,
            stopping,
            metrics,
        }
    }

    /// True if events are binary.
    pub(crate) fn is_framed(&self) -> bool {
        self.plan.view.is_protobuf()
    }

    /// The next bytes; `None` at the end.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // What the selection saw of objects is not what it sees now: the client has to look at all of them again.
        if self.plan.selection.is_by_definition() && self.cache.forms() != self.forms {
            self.ended = true;
            return Poll::Ready(None);
        }
        if let Some(initial) = self.plan.initial.take() {
            let bytes = self.send_initial(initial);
            // An empty piece would read as the end of a chunked body.
            if !bytes.is_empty() {
                return Poll::Ready(Some(bytes));
            }
        }
        self.cursor.place.wait(context.waker());
        let mut chunk = Chunk::default();
        let caught_up = match self.collect(&mut chunk) {
            ControlFlow::Break(()) => None,
            ControlFlow::Continue(revision) => revision,
        };
        if let Some(bytes) = chunk.finish() {
            return Poll::Ready(Some(bytes));
        }
        let Some(revision) = caught_up else {
            // It looked at much and found nothing, or it has fallen behind and said so above.
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        self.poll_time(context, revision)
    }

    /// The state as synthetic events, a chunk at a time, and the bookmark behind it (W93, W112).
    fn send_initial(&mut self, mut initial: Box<(Walk, ResourceVersion)>) -> Bytes {
        let (walk, revision) = &mut *initial;
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        let mut count = 0;
        let (view, columns) = (self.plan.view, &mut self.columns);
        let mut failed = None;
        let ended = walk.visit(|object| {
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
        self.metrics.initial(count);
        if let Some(status) = failed {
            self.ended = true;
            buffer.put_slice(&error_event(&status, view.format));
        } else if !ended {
            self.plan.initial = Some(initial);
        } else if self.plan.mark_end {
            buffer.put_slice(&self.bookmark(*revision, true));
        }
        self.metrics.sent(count, buffer.len());
        buffer.freeze()
    }

    /// Takes what the log has for this watch. Breaks if the watch is over. The revision is how far the watch is complete, if it
    /// has seen all there is.
    fn collect(&mut self, chunk: &mut Chunk) -> ControlFlow<(), Option<ResourceVersion>> {
        let mut looked_at = 0;
        loop {
            let (segment, end, revision) = match self.cache.read(&self.cursor) {
                Ok(read) => read,
                Err(FellBehind { oldest }) => {
                    let status = too_old(self.plan.after, oldest);
                    self.end_with(&status, chunk);
                    self.metrics.fell_behind();
                    return ControlFlow::Break(());
                }
            };
            if self.is_framed()
                && !self
                    .encoded
                    .as_ref()
                    .is_some_and(|all| all.is_of(segment.first()))
            {
                self.encoded = Some(segment.encoded(self.plan.view.encoding()));
            }
            let (mut sent, mut bytes) = (0, 0);
            for event in segment.from(self.cursor.position) {
                let position = self.cursor.position;
                self.cursor.position += 1;
                looked_at += 1;
                if event.revision <= self.plan.after {
                    continue;
                }
                if let Some((kind, object)) =
                    event.seen_by(|object| self.plan.selection.selects(object))
                {
                    sent += 1;
                    bytes += if let Some(encoded) = &self.encoded {
                        let view = &self.plan.view;
                        let frame = encoded.get(position, kind, || view.frame(kind, object).ok());
                        let Some(frame) = frame else {
                            let why = format!("{} cannot be encoded", object.key());
                            self.end_with(&Status::internal(why), chunk);
                            return ControlFlow::Break(());
                        };
                        chunk.push_shared(frame)
                    } else if self.plan.view.is_plain(object) {
                        chunk.push(kind, object)
                    } else {
                        let columns = std::mem::take(&mut self.columns);
                        chunk.push_bytes(&self.plan.view.event(kind, object, columns))
                    };
                }
                self.plan.after = event.revision;
                if chunk.is_full() {
                    break;
                }
            }
            self.metrics.sent(sent, bytes);
            if chunk.is_full() || looked_at >= EVENTS_AT_ONCE {
                return ControlFlow::Continue(None);
            }
            if self.cursor.position >= end {
                return ControlFlow::Continue(Some(revision));
            }
        }
    }

    /// The watch cannot go on.
    fn end_with(&mut self, status: &Status, chunk: &mut Chunk) {
        chunk.push_bytes(&error_event(status, self.plan.view.format));
        self.ended = true;
    }

    fn bookmark(&mut self, revision: ResourceVersion, initial_events_end: bool) -> Bytes {
        if self.is_framed() {
            let frame = self.plan.view.bookmark_frame(revision, initial_events_end);
            return frame.unwrap_or_else(|status| {
                self.ended = true;
                error_event(&status, self.plan.view.format)
            });
        }
        let columns = std::mem::take(&mut self.columns);
        self.plan
            .view
            .bookmark(revision, initial_events_end, columns)
    }

    /// Nothing is pending: is it time for a bookmark or for the end?
    fn poll_time(
        &mut self,
        context: &mut Context<'_>,
        revision: ResourceVersion,
    ) -> Poll<Option<Bytes>> {
        if *self.stopping.borrow() {
            self.ended = true;
            // The client resumes from here, wherever the server comes up again.
            let told = self.plan.bookmarks && revision >= self.plan.after;
            return Poll::Ready(told.then(|| self.bookmark(revision, false)));
        }
        if self.cache.is_closed() {
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
                // What it has sent need not be kept for a watch that has nothing to send; others may still share it.
                self.encoded = None;
            }
            self.timer
                .as_mut()
                .reset(self.next_bookmark.min(self.ends_at));
            if due && self.plan.bookmarks && revision >= self.plan.after {
                return Poll::Ready(Some(self.bookmark(revision, false)));
            }
        }
        Poll::Pending
    }
}

/// A bookmark every minute, and one shortly before the end; none if the end is nearer than that.
fn next_bookmark(now: Instant, ends_at: Instant) -> Instant {
    let last = ends_at.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
    let regular = now + BOOKMARK_EVERY;
    if last > now {
        regular.min(last)
    } else {
        ends_at + BOOKMARK_EVERY
    }
}

/// `{"type":"ERROR",…}` (W96).
pub(crate) fn error_event(status: &Status, format: Format) -> Bytes {
    if format == Format::Protobuf {
        return error_frame(status);
    }
    let mut event = EventType::Error.json_prefix().to_vec();
    event.extend(status.to_json());
    event.extend_from_slice(b"}\n");
    Bytes::from(event)
}

/// W104.
pub(crate) fn too_old(requested: ResourceVersion, oldest: ResourceVersion) -> Status {
    Status::expired(format!("too old resource version: {requested} ({oldest})"))
}

/// Events on their way into one write. A single event is sent from where it stands; several are copied together.
#[derive(Default)]
struct Chunk {
    only: Option<Bytes>,
    many: BytesMut,
}

impl Chunk {
    /// Adds an event and returns its size.
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

    /// Adds an event that other watches send too.
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
