//! Waiting until something has happened, by a watch.

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

/// Looks at an event and says whether it is the one that was waited for.
///
/// Over the events of a server it sees also [`WatchEvent::Error`]: what that means is the condition's to say.
pub type Condition<'a, T> = Box<dyn FnMut(&T) -> Result<bool, ConditionError> + Send + 'a>;

/// Looks at a store that has its initial state and says whether there is nothing to wait for.
pub type Precondition<'a, K> =
    Box<dyn FnOnce(&Store<K>) -> Result<bool, ConditionError> + Send + 'a>;

/// Why a condition was not met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unmet {
    /// The time is over.
    #[error("timed out after {0:?} waiting for the condition")]
    TimedOut(Duration),
    /// A condition failed.
    #[error("the condition failed")]
    Condition(#[source] ConditionError),
    /// The watch ended.
    #[error("the watch closed before the condition was met")]
    Closed,
    /// The watch broke.
    #[error("the watch broke before the condition was met")]
    Source(#[source] SourceError),
    /// There is no version to start from.
    #[error(transparent)]
    NotResumable(#[from] NotResumable),
    /// The informer did not get its initial state, for which a precondition waits.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// The informer has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A condition was not met.
#[derive(Debug)]
pub struct UntilError<T> {
    /// The last event that was looked at.
    pub last: Option<T>,
    /// Why.
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

/// Reads a watch until every condition was met, one after the other, not longer than this. Returns the event that met the last
/// one; none if there are no conditions.
///
/// A condition is first asked about the event that met the one before it. Dropping the future ends the watch.
///
/// # Errors
/// If the time is over, a condition fails, or the watch ends.
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
    meet(next, conditions, Limit::new(longest)).await
}

/// Like [`until_without_retry`], from a version on, over as many watches as it takes; see [`RetryWatcher`].
///
/// # Errors
/// If the version is "" or "0", the time is over, a condition fails, or the watch ends for good.
pub async fn until<W: Watcher + ?Sized>(
    source: Arc<W>,
    resource_version: &str,
    conditions: Vec<Condition<'_, WatchEvent>>,
    longest: Duration,
) -> Result<Option<WatchEvent>, UntilError<WatchEvent>> {
    let mut watch = RetryWatcher::new(source, resource_version).map_err(Unmet::from)?;
    let next =
        move |context: &mut Context<'_>| Pin::new(&mut watch).poll_next(context).map(as_read);
    meet(next, conditions, Limit::new(longest)).await
}

/// Like [`until_without_retry`], over an informer, which is started if it has not been: no event is missed, over whatever
/// happens between it and the server.
///
/// With a precondition, the initial state is waited for, and the precondition looks at it first: if it is met, the outcome is
/// none. The conditions then see every object of that state as added, and everything after it.
///
/// # Errors
/// If the time is over, a condition fails, or the informer stops.
pub async fn until_with_sync<K: Send + Sync + 'static>(
    informer: &SharedInformer<K>,
    precondition: Option<Precondition<'_, K>>,
    conditions: Vec<Condition<'_, WatchItem<K>>>,
    longest: Duration,
) -> Result<Option<WatchItem<K>>, UntilError<WatchItem<K>>> {
    let limit = Limit::new(longest);
    // Before the state is looked at: what happens meanwhile must not be missed.
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

/// Until when to wait.
#[derive(Clone, Copy)]
struct Limit {
    longest: Duration,
    start: Instant,
}

impl Limit {
    fn new(longest: Duration) -> Limit {
        Limit {
            longest,
            start: Instant::now(),
        }
    }

    fn is_over(self) -> bool {
        self.start.elapsed() >= self.longest
    }
}

/// Asks the conditions, one after the other, about what `next` brings.
async fn meet<T>(
    mut next: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<T, SourceError>>>,
    conditions: Vec<Condition<'_, T>>,
    limit: Limit,
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
                // Events may be ready for ever: the timer alone would not be asked.
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
