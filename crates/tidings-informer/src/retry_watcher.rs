//! A watch that goes on where the one before it ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tidings_api::{ListOptions, Object, SplitError, Status, WatchEvent};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::reflector::Version;
use crate::source::{BoxFuture, EventStream, SourceError, Watcher};

/// From the start of one watch to the start of the next it takes at least this long: a server that closes every watch at once
/// must not be asked again at once.
const RESTARTS_APART: Duration = Duration::from_secs(1);
/// The longest that a server may ask to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// There is no version from which a watch could go on: "" and "0" are any state, and what follows them is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a watch cannot be resumed from the resource version {resource_version:?}")]
pub struct NotResumable {
    /// What was given.
    pub resource_version: String,
}

/// The changes of a resource after a version, over as many watches as it takes: once each, in order.
///
/// A watch that ends or fails is opened again at the version that was reached. Bookmarks say how far that is, and are not
/// handed out. What is at or before that version is not handed out a second time. The stream ends after
/// [`WatchEvent::Error`], which comes
/// * if the server says in a watch that the version is gone (410): what happened since can only be had by a list;
/// * if the server refuses (401, 403);
/// * if something comes that cannot be followed: an object without a version, a kind of event that is not known. The status is
///   then an internal error, and not the server's.
///
/// Everything else is tried again until it works, also a version that is gone when a watch is opened; how long that may take
/// is the caller's to say, by a timeout.
///
/// ≠ client-go, where a wait that the server asks for counts only inside a watch: here it counts also when a watch is refused.
///
/// Bound: the batch that is being handed out; nothing is read ahead of it, and there is no task. Dropping the stream ends the
/// watch at once, at every point.
pub struct RetryWatcher<W: ?Sized> {
    source: Arc<W>,
    reached: Version,
    /// When the last watch was asked for.
    asked: Option<Instant>,
    place: Place,
}

enum Place {
    /// Between two watches; not before this.
    Resting(Option<Pin<Box<Sleep>>>),
    Opening(BoxFuture<'static, Result<EventStream, SourceError>>),
    Reading {
        stream: EventStream,
        batch: std::vec::IntoIter<WatchEvent>,
    },
    End,
}

impl<W: Watcher + ?Sized> RetryWatcher<W> {
    /// The changes after a version: that of a list, or of an object.
    ///
    /// # Errors
    /// If it is "" or "0".
    pub fn new(source: Arc<W>, resource_version: &str) -> Result<RetryWatcher<W>, NotResumable> {
        let reached = Version::new(resource_version);
        if reached.is_unset() {
            return Err(NotResumable {
                resource_version: resource_version.to_owned(),
            });
        }
        Ok(RetryWatcher {
            source,
            reached,
            asked: None,
            place: Place::Resting(None),
        })
    }

    /// The version up to which everything was handed out.
    pub fn resource_version(&self) -> &Version {
        &self.reached
    }

    /// The next event; `None` when the stream has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        loop {
            let event = match &mut self.place {
                Place::End => return Poll::Ready(None),
                Place::Resting(rest) => {
                    if let Some(rest) = rest {
                        ready!(rest.as_mut().poll(context));
                    }
                    self.open();
                    continue;
                }
                Place::Opening(opening) => match ready!(opening.as_mut().poll(context)) {
                    Ok(stream) => {
                        let batch = Vec::new().into_iter();
                        self.place = Place::Reading { stream, batch };
                        continue;
                    }
                    Err(error) => self.not_opened(error),
                },
                Place::Reading { stream, batch } => match batch.next() {
                    Some(event) => self.take(event),
                    None => match ready!(stream.as_mut().poll_next(context)) {
                        Some(Ok(next)) => {
                            *batch = next.into_iter();
                            continue;
                        }
                        Some(Err(error)) => self.broke(error),
                        None => self.rest(None),
                    },
                },
            };
            if event.is_some() {
                return Poll::Ready(event);
            }
        }
    }

    fn open(&mut self) {
        self.asked = Some(Instant::now());
        let options = ListOptions {
            watch: true,
            allow_watch_bookmarks: true,
            resource_version: self.reached.text().to_owned(),
            ..ListOptions::default()
        };
        let source = Arc::clone(&self.source);
        self.place = Place::Opening(Box::pin(async move { source.watch(options).await }));
    }

    /// What of an event is handed out.
    fn take(&mut self, event: WatchEvent) -> Option<WatchEvent> {
        let version = match &event {
            WatchEvent::Error(status) if is_final(status) || status.is_expired() => {
                self.place = Place::End;
                return Some(event);
            }
            WatchEvent::Error(status) => return self.rest(retry_after(status)),
            WatchEvent::Bookmark {
                resource_version, ..
            } => Version::new(resource_version),
            WatchEvent::Added(object)
            | WatchEvent::Modified(object)
            | WatchEvent::Deleted(object) => Version::new(&object.resource_version()),
        };
        if version.is_unset() {
            return self.end(&format!("{} has no resource version", named(&event)));
        }
        if self.reached.includes(&version) {
            return None; // said before
        }
        self.reached = version;
        (!matches!(event, WatchEvent::Bookmark { .. })).then_some(event)
    }

    fn not_opened(&mut self, error: SourceError) -> Option<WatchEvent> {
        match error {
            SourceError::Status(status) if is_final(&status) => {
                self.place = Place::End;
                Some(WatchEvent::Error(status))
            }
            other => self.rest(other.retry_after()),
        }
    }

    /// The watch ended with an error.
    fn broke(&mut self, error: SourceError) -> Option<WatchEvent> {
        match error {
            // Whether a source hands out the server's last word as an event or as an error, it is the same word.
            SourceError::Status(status) => self.take(WatchEvent::Error(status)),
            // A stream that was cut inside an object is a connection that broke. Anything else comes again each time.
            SourceError::Malformed(why) if !matches!(*why, SplitError::Scan(_)) => {
                self.end(&crate::source::story(&SourceError::Malformed(why)))
            }
            _ => self.rest(None),
        }
    }

    fn end(&mut self, why: &str) -> Option<WatchEvent> {
        self.place = Place::End;
        let status = Status::internal(format_args!("the watch cannot be followed: {why}"));
        Some(WatchEvent::Error(Box::new(status)))
    }

    /// The watch is over; the next one begins after a while.
    fn rest(&mut self, asked_to_wait: Option<Duration>) -> Option<WatchEvent> {
        let now = Instant::now();
        let wait = asked_to_wait.unwrap_or_default().min(RETRY_AFTER_MAX);
        let earliest = self.asked.map_or(now, |asked| asked + RESTARTS_APART);
        let until = earliest.max(now + wait);
        let sleep = (until > now).then(|| Box::pin(sleep_until(until)));
        self.place = Place::Resting(sleep);
        None
    }
}

/// Nobody may have this: trying again changes nothing.
fn is_final(status: &Status) -> bool {
    matches!(status.code, 401 | 403)
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.retry_after_seconds();
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// The object of an event, by its name.
fn named(event: &WatchEvent) -> String {
    let of = |object: &Object| format!("{} {}", object.kind(), object.key());
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            of(object)
        }
        WatchEvent::Bookmark { .. } => "a bookmark".to_owned(),
        WatchEvent::Error(_) => "an error".to_owned(),
    }
}

impl<W: Watcher + ?Sized> Stream for RetryWatcher<W> {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.get_mut().poll(context)
    }
}

impl<W: ?Sized> std::fmt::Debug for RetryWatcher<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetryWatcher")
            .field("reached", &self.reached)
            .finish_non_exhaustive()
    }
}
