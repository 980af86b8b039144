//! Waits until several caches, handlers or trackers are done, and names those that are not.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

use crate::share::{Registration, SharedInformer};
use crate::source::{BoxFuture, story};

/// Something to wait for: a cache that syncs, for example. Once done, it stays done.
pub trait DoneChecker: Send + Sync {
    /// The name, for logs and errors.
    fn name(&self) -> &str;

    /// True if it is done. Does not wait.
    fn is_done(&self) -> bool;

    /// Waits until it is done. Cancel-safe.
    ///
    /// # Errors
    /// If it will never be done.
    fn done(&self) -> BoxFuture<'_, Result<(), NeverDone>>;

    /// What it is doing while it is not done, if known.
    fn doing(&self) -> Option<String> {
        None
    }
}

/// A [`DoneChecker`] will never be done.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct NeverDone(Arc<dyn Error + Send + Sync>);

impl NeverDone {
    /// With this reason.
    pub fn new(why: impl Into<Box<dyn Error + Send + Sync>>) -> NeverDone {
        NeverDone(Arc::from(why.into()))
    }
}

/// Done when the store has the initial state.
impl<K: Send + Sync + 'static> DoneChecker for SharedInformer<K> {
    fn name(&self) -> &str {
        self.name()
    }

    fn is_done(&self) -> bool {
        self.has_synced()
    }

    fn done(&self) -> BoxFuture<'_, Result<(), NeverDone>> {
        Box::pin(async move { self.wait_synced().await.map_err(NeverDone::new) })
    }

    fn doing(&self) -> Option<String> {
        Some(self.state().to_string())
    }
}

/// Done when the handler has received the complete initial state.
impl<K: Send + Sync + 'static> DoneChecker for Registration<K> {
    fn name(&self) -> &str {
        self.name()
    }

    fn is_done(&self) -> bool {
        self.has_synced()
    }

    fn done(&self) -> BoxFuture<'_, Result<(), NeverDone>> {
        Box::pin(async move {
            let synced = self.synced().await;
            let ended = || NeverDone::new("the handler ended before it was given the state");
            synced.then_some(()).ok_or_else(ended)
        })
    }
}

/// Why waiting ended before everything was done.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WaitCause {
    /// The timeout passed.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// A checker will never be done; the timeout had not passed.
    #[error("{name} will never be done")]
    Never {
        /// Its name.
        name: String,
        /// The reason.
        #[source]
        why: NeverDone,
    },
}

/// A checker that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub name: String,
    /// What it is doing, or why it will never be done.
    pub doing: Option<String>,
}

/// Not every checker is done.
#[derive(Debug, Clone)]
pub struct NotDone {
    /// The name of the wait, as given to [`wait_for`].
    pub what: String,
    /// The checkers that are done, in the order in which they became done.
    pub done: Vec<String>,
    /// The checkers that are not done, sorted by name.
    pub missing: Vec<Missing>,
    /// Why waiting ended.
    pub cause: WaitCause,
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is waiting for ", self.what)?;
        for (index, Missing { name, doing }) in self.missing.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
            if let Some(doing) = doing {
                write!(f, " ({doing})")?;
            }
        }
        Ok(())
    }
}

impl Error for NotDone {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// Waits until every checker is done, for at most `longest`. Returns the names in the order in which they became done; checkers
/// that are done at the start come first, and count even if `longest` is zero. An empty set is done.
///
/// A checker that will never be done does not cut the wait for the others, so that the error names all that are missing.
/// Cancel-safe.
///
/// # Errors
/// If the timeout passes, or if all others are done and a checker will never be.
pub async fn wait_for(
    what: &str,
    checkers: &[&dyn DoneChecker],
    longest: Duration,
) -> Result<Vec<String>, NotDone> {
    let mut done: Vec<String> = Vec::with_capacity(checkers.len());
    let mut never: Vec<(String, NeverDone)> = Vec::new();
    let mut waiting: Vec<_> = checkers
        .iter()
        .map(|checker| (*checker, checker.done()))
        .collect();
    let mut timer = pin!(sleep(longest));
    let timed_out = std::future::poll_fn(|context| {
        waiting.retain_mut(|(checker, future)| {
            // Before the poll: a future may need several polls to notice that it is done, and `longest` may be zero.
            let outcome = if checker.is_done() {
                Ok(())
            } else {
                match future.as_mut().poll(context) {
                    Poll::Ready(outcome) => outcome,
                    Poll::Pending => return true,
                }
            };
            let name = checker.name().to_owned();
            match outcome {
                Ok(()) => {
                    tracing::debug!(what, name, "done");
                    done.push(name);
                }
                Err(why) => never.push((name, why)),
            }
            false
        });
        if waiting.is_empty() {
            return Poll::Ready(false);
        }
        timer.as_mut().poll(context).map(|()| true)
    })
    .await;
    let cause = match never.first().cloned() {
        _ if timed_out => WaitCause::TimedOut(longest),
        Some((name, why)) => WaitCause::Never { name, why },
        None => return Ok(done),
    };
    let mut missing: Vec<Missing> = waiting
        .iter()
        .map(|(checker, _)| (checker.name().to_owned(), checker.doing()))
        .chain(never.iter().map(|(name, why)| {
            let why = story(why);
            (name.clone(), Some(why))
        }))
        .map(|(name, doing)| Missing { name, doing })
        .collect();
    missing.sort_by(|left, right| left.name.cmp(&right.name));
    let not_done = NotDone {
        what: what.to_owned(),
        done,
        missing,
        cause,
    };
    tracing::warn!(error = %not_done, cause = %not_done.cause, "gave up waiting: not everything is done");
    Err(not_done)
}

/// Which caches have synced.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SyncResult {
    /// Each cache by name, and whether it has synced.
    pub synced: BTreeMap<String, bool>,
    /// Why waiting ended, if not all have synced.
    pub cause: Option<WaitCause>,
}

impl SyncResult {
    /// Waits until all have synced, for at most `longest`.
    pub async fn wait(checkers: &[&dyn DoneChecker], longest: Duration) -> SyncResult {
        match wait_for("cache sync", checkers, longest).await {
            Ok(done) => SyncResult {
                synced: done.into_iter().map(|name| (name, true)).collect(),
                cause: None,
            },
            Err(NotDone {
                done,
                missing,
                cause,
                ..
            }) => {
                let done = done.into_iter().map(|name| (name, true));
                // The missing come last: if several share a name, one that is missing counts.
                let missing = missing.into_iter().map(|missing| (missing.name, false));
                SyncResult {
                    synced: done.chain(missing).collect(),
                    cause: Some(cause),
                }
            }
        }
    }

    /// The result as an error that names the caches that have not synced.
    ///
    /// # Errors
    /// If not all have synced.
    pub fn as_error(&self) -> Result<(), SyncError> {
        let Some(cause) = &self.cause else {
            return Ok(());
        };
        let unsynced = self.synced.iter().filter(|(_, synced)| !**synced);
        Err(SyncError {
            unsynced: unsynced.map(|(name, _)| name.clone()).collect(),
            cause: cause.clone(),
        })
    }
}

/// Not all caches have synced.
#[derive(Debug, Clone, thiserror::Error)]
#[error("failed to sync all caches: {}", unsynced.join(", "))]
pub struct SyncError {
    /// The caches that have not synced, sorted by name.
    pub unsynced: Vec<String>,
    /// Why waiting ended.
    #[source]
    pub cause: WaitCause,
}
