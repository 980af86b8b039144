//! A watch without a store that resumes by itself when it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tidings_api::{ListOptions, Object, SplitError, Status, WatchEvent};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::source::{BoxFuture, EventStream, SourceError, Watcher};
use crate::version::ServerVersion;

/// The least time between the starts of two watches, so that a server that closes every watch at once is not flooded.
const RESTARTS_APART: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is honored.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// A watch cannot start at "" or "0": they mean any version, so it is unknown which changes follow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a watch cannot be resumed from the resource version {resource_version:?}")]
pub struct NotResumable {
    /// The given resource version.
    pub resource_version: String,
}

/// The changes of a resource after a version, each once and in order, over as many watches as necessary.
///
/// A watch that ends or fails is resumed at the last version. Bookmarks advance that version and are not returned. Events at or
/// before that version are not returned again. The stream ends after a [`WatchEvent::Error`], which is returned
/// * if the server says in a watch that the version has expired (410): only a list can show what was missed;
/// * if the server refuses (401, 403);
/// * if an event cannot be processed: an object without a resource version, an unknown event type. The status is then an internal
///   error made here, not by the server.
///
/// All other errors are retried without end, including a version that has expired before a watch opens: use a timeout to limit
/// this.
///
/// client-go honors `Retry-After` only inside a watch; here it is also honored when the server refuses to open one.
///
/// Holds at most one batch of events, reads nothing ahead of it, and has no task. Dropping the stream ends the watch at once.
pub struct RetryWatcher<W: ?Sized> {
    source: Arc<W>,
    reached: ServerVersion,
    /// When the last watch was requested.
    asked: Option<Instant>,
    state: RetryState,
}

/// What a retry watcher is doing.
enum RetryState {
    /// Between two watches, until the timer ends.
    Resting(Option<Pin<Box<Sleep>>>),
    Opening(BoxFuture<'static, Result<EventStream, SourceError>>),
    Reading {
        stream: EventStream,
        batch: std::vec::IntoIter<WatchEvent>,
    },
    End,
}

impl<W: Watcher + ?Sized> RetryWatcher<W> {
    /// Watches the changes after a resource version: that of a list, or of an object.
    ///
    /// # Errors
    /// If the version is "" or "0".
    pub fn new(source: Arc<W>, resource_version: &str) -> Result<RetryWatcher<W>, NotResumable> {
        let reached = ServerVersion::new(resource_version);
        if reached.is_unset() {
            return Err(NotResumable {
                resource_version: resource_version.to_owned(),
            });
        }
        Ok(RetryWatcher {
            source,
            reached,
            asked: None,
            state: RetryState::Resting(None),
        })
    }

    /// The version up to which all events were returned.
    pub fn resource_version(&self) -> &ServerVersion {
        &self.reached
    }

    /// The next event; `None` when the stream has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        loop {
            let event = match &mut self.state {
                RetryState::End => return Poll::Ready(None),
                RetryState::Resting(rest) => {
                    if let Some(rest) = rest {
                        ready!(rest.as_mut().poll(context));
                    }
                    self.open();
                    continue;
                }
                RetryState::Opening(opening) => match ready!(opening.as_mut().poll(context)) {
                    Ok(stream) => {
                        let batch = Vec::new().into_iter();
                        self.state = RetryState::Reading { stream, batch };
                        continue;
                    }
                    Err(error) => self.not_opened(error),
                },
                RetryState::Reading { stream, batch } => match batch.next() {
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
        self.state = RetryState::Opening(Box::pin(async move { source.watch(options).await }));
    }

    /// Advances the version, and returns the event if the caller shall see it.
    fn take(&mut self, event: WatchEvent) -> Option<WatchEvent> {
        let version = match &event {
            WatchEvent::Error(status) if is_final(status) || status.is_expired() => {
                self.state = RetryState::End;
                return Some(event);
            }
            WatchEvent::Error(status) => return self.rest(retry_after(status)),
            WatchEvent::Bookmark {
                resource_version, ..
            } => ServerVersion::new(resource_version),
            WatchEvent::Added(object)
            | WatchEvent::Modified(object)
            | WatchEvent::Deleted(object) => ServerVersion::new(&object.resource_version()),
        };
        if version.is_unset() {
            return self.end(&format!("{} has no resource version", named(&event)));
        }
        if self.reached.includes(&version) {
            return None; // returned before
        }
        self.reached = version;
        (!matches!(event, WatchEvent::Bookmark { .. })).then_some(event)
    }

    fn not_opened(&mut self, error: SourceError) -> Option<WatchEvent> {
        match error {
            SourceError::Status(status) if is_final(&status) => {
                self.state = RetryState::End;
                Some(WatchEvent::Error(status))
            }
            other => self.rest(other.retry_after()),
        }
    }

    /// The watch ended with an error.
    fn broke(&mut self, error: SourceError) -> Option<WatchEvent> {
        match error {
            // A source may return the server's final Status as an event or as an error: both mean the same.
            SourceError::Status(status) => self.take(WatchEvent::Error(status)),
            // A stream that ends inside an object is a broken connection. Other malformed data would come again each time.
            SourceError::Malformed(why) if !matches!(*why, SplitError::Scan(_)) => {
                self.end(&crate::source::story(&SourceError::Malformed(why)))
            }
            _ => self.rest(None),
        }
    }

    fn end(&mut self, why: &str) -> Option<WatchEvent> {
        self.state = RetryState::End;
        let status = Status::internal(format_args!("the watch cannot be resumed: {why}"));
        Some(WatchEvent::Error(Box::new(status)))
    }

    /// Ends the watch; the next one begins after a pause.
    fn rest(&mut self, asked_to_wait: Option<Duration>) -> Option<WatchEvent> {
        let now = Instant::now();
        let wait = asked_to_wait.unwrap_or_default().min(RETRY_AFTER_MAX);
        let earliest = self.asked.map_or(now, |asked| asked + RESTARTS_APART);
        let until = earliest.max(now + wait);
        let sleep = (until > now).then(|| Box::pin(sleep_until(until)));
        self.state = RetryState::Resting(sleep);
        None
    }
}

/// True if the server refuses access: a retry cannot help.
fn is_final(status: &Status) -> bool {
    matches!(status.code, 401 | 403)
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.retry_after_seconds();
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// Names the object of an event for an error message.
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
