//! Waits for events of a watch or an informer that meet conditions.

use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tidings_api::WatchEvent;
use tokio::time::{Instant, sleep};

use crate::retry_watcher::{NotResumable, RetryWatcher};
use crate::share::{HandlerOptions, NotSynced, SharedInformer, Stopped, WatchItem};
use crate::source::{EventStream, SourceError, Watcher};
use crate::store::Store;

/// Why a condition cannot say whether it is met.
pub type ConditionError = Box<dyn Error + Send + Sync>;

/// Looks at an event and says whether the condition is met.
///
/// A condition over the events of a server also sees [`WatchEvent::Error`], and decides what that means.
pub type Condition<'a, T> = Box<dyn FnMut(&T) -> Result<bool, ConditionError> + Send + 'a>;

/// Looks at a synced store and says whether there is nothing to wait for.
pub type Precondition<'a, K> =
    Box<dyn FnOnce(&Store<K>) -> Result<bool, ConditionError> + Send + 'a>;

/// Why a condition was not met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unmet {
    /// The timeout passed.
    #[error("timed out after {0:?} waiting for the condition")]
    TimedOut(Duration),
    /// A condition returned an error.
    #[error("the condition failed")]
    Condition(#[source] ConditionError),
    /// The watch ended without an error.
    #[error("the watch closed before the condition was met")]
    Closed,
    /// The watch ended with an error.
    #[error("the watch broke before the condition was met")]
    Source(#[source] SourceError),
    /// A watch cannot start at the given resource version.
    #[error(transparent)]
    NotResumable(#[from] NotResumable),
    /// The informer did not sync in time, and there is a precondition to check.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// The informer has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A condition was not met.
#[derive(Debug)]
pub struct UntilError<T> {
    /// The last event that a condition saw.
    pub last: Option<T>,
    /// Why the condition was not met.
    pub reason: Unmet,
}

impl<T> fmt::Display for UntilError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T: fmt::Debug> Error for UntilError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}

impl<T> From<Unmet> for UntilError<T> {
    fn from(reason: Unmet) -> UntilError<T> {
        UntilError { last: None, reason }
    }
}

/// Reads a watch until every condition was met, one after the other, for at most `longest`. Returns the event that met the last
/// condition; `None` if there are no conditions.
///
/// A condition first sees the event that met the condition before it. Dropping the future ends the watch.
///
/// # Errors
/// If the timeout passes, a condition fails, or the watch ends.
pub async fn until_without_retry(
    mut watch: EventStream,
    conditions: Vec<Condition<'_, WatchEvent>>,
    longest: Duration,
) -> Result<Option<WatchEvent>, UntilError<WatchEvent>> {
    let mut batch = Vec::new().into_iter();
    let next = move |context: &mut Context<'_>| loop {
        if let Some(event) = batch.next() {
            return Poll::Ready(Some(Ok(event)));
        }
        match watch.as_mut().poll_next(context) {
            Poll::Ready(Some(Ok(events))) => batch = events.into_iter(),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        }
    };
    meet(next, conditions, TimeLimit::new(longest)).await
}

/// Like [`until_without_retry`], but starts after a resource version and reopens watches that end; see [`RetryWatcher`].
///
/// # Errors
/// If the version is "" or "0", the timeout passes, a condition fails, or the watch ends for good.
pub async fn until<W: Watcher + ?Sized>(
    source: Arc<W>,
    resource_version: &str,
    conditions: Vec<Condition<'_, WatchEvent>>,
    longest: Duration,
) -> Result<Option<WatchEvent>, UntilError<WatchEvent>> {
    let mut watch = RetryWatcher::new(source, resource_version).map_err(Unmet::from)?;
    let next =
        move |context: &mut Context<'_>| Pin::new(&mut watch).poll_next(context).map(as_read);
    meet(next, conditions, TimeLimit::new(longest)).await
}

/// Like [`until_without_retry`], over an informer, which is started if necessary. The informer relists and resumes as needed, so
/// no change is missed.
///
/// With a precondition, this waits for the initial state and checks the precondition on it first: if it is met, the result is
/// `None`. Otherwise the conditions see every object of the initial state as added, and then every later event.
///
/// # Errors
/// If the timeout passes, a condition fails, or the informer stops.
pub async fn until_with_sync<K: Send + Sync + 'static>(
    informer: &SharedInformer<K>,
    precondition: Option<Precondition<'_, K>>,
    conditions: Vec<Condition<'_, WatchItem<K>>>,
    longest: Duration,
) -> Result<Option<WatchItem<K>>, UntilError<WatchItem<K>>> {
    let limit = TimeLimit::new(longest);
    // Before the precondition reads the store: events that come after that read must not be missed.
    let mut watch = informer
        .as_watch(&HandlerOptions::default().name("until"))
        .map_err(Unmet::from)?;
    informer.start();
    if let Some(precondition) = precondition {
        let synced = informer.wait_synced_within(longest).await;
        synced.map_err(Unmet::from)?;
        if precondition(&informer.store()).map_err(Unmet::Condition)? {
            return Ok(None);
        }
    }
    let next =
        move |context: &mut Context<'_>| Pin::new(&mut watch).poll_next(context).map(as_read);
    meet(next, conditions, limit).await
}

fn as_read<T>(event: Option<T>) -> Option<Result<T, SourceError>> {
    event.map(Ok)
}

/// A timeout that counts from its creation.
#[derive(Clone, Copy)]
struct TimeLimit {
    longest: Duration,
    start: Instant,
}

impl TimeLimit {
    fn new(longest: Duration) -> TimeLimit {
        TimeLimit {
            longest,
            start: Instant::now(),
        }
    }

    fn is_over(self) -> bool {
        self.start.elapsed() >= self.longest
    }
}

/// Checks the conditions, one after the other, against the events from `next`.
async fn meet<T>(
    mut next: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<T, SourceError>>>,
    conditions: Vec<Condition<'_, T>>,
    limit: TimeLimit,
) -> Result<Option<T>, UntilError<T>> {
    let mut timer = pin!(sleep(limit.longest.saturating_sub(limit.start.elapsed())));
    let mut last = None;
    for mut condition in conditions {
        let mut met = match &last {
            Some(event) => condition(event),
            None => Ok(false),
        };
        loop {
            let reason = match met {
                Ok(true) => break,
                // If events are always ready, the timer is never polled.
                Ok(false) if last.is_some() && limit.is_over() => Unmet::TimedOut(limit.longest),
                Ok(false) => {
                    let read = std::future::poll_fn(|context| match next(context) {
                        Poll::Ready(read) => Poll::Ready(Some(read)),
                        Poll::Pending => timer.as_mut().poll(context).map(|()| None),
                    });
                    match read.await {
                        Some(Some(Ok(event))) => {
                            met = condition(&event);
                            last = Some(event);
                            tokio::task::coop::consume_budget().await;
                            continue;
                        }
                        Some(Some(Err(error))) => Unmet::Source(error),
                        Some(None) => Unmet::Closed,
                        None => Unmet::TimedOut(limit.longest),
                    }
                }
                Err(error) => Unmet::Condition(error),
            };
            return Err(UntilError { last, reason });
        }
    }
    Ok(last)
}
