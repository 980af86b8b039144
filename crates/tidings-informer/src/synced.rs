//! Waiting until several things are done, and saying which are not.

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

/// Something that is done at some time, and then for good.
pub trait DoneChecker: Send + Sync {
    /// What it is, for logs and errors.
    fn name(&self) -> &str;

    /// True if it is done. Does not wait.
    fn is_done(&self) -> bool;

    /// Waits until it is done. Cancel-safe.
    ///
    /// # Errors
    /// If it never will be.
    fn done(&self) -> BoxFuture<'_, Result<(), NeverDone>>;

    /// What it is doing instead, if that can be said.
    fn doing(&self) -> Option<String> {
        None
    }
}

/// Something will never be done.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct NeverDone(Arc<dyn Error + Send + Sync>);

impl NeverDone {
    /// For this reason.
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

/// Done when the handler has been given the whole initial state.
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
    /// The time is over.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// There was time left, but something will never be done.
    #[error("{name} will never be done")]
    Never {
        /// What.
        name: String,
        /// Why.
        #[source]
        why: NeverDone,
    },
}

/// Something that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What.
    pub name: String,
    /// What it is doing instead, or why it will never be done.
    pub doing: Option<String>,
}

/// Not everything is done.
#[derive(Debug, Clone)]
pub struct NotDone {
    /// What was waited for.
    pub what: String,
    /// What is done, in the order in which it was.
    pub done: Vec<String>,
    /// What is not, in the order of the names.
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

/// Waits until everything is done, not longer than this. Returns the names in the order in which they were done; what is done
/// already comes first, and counts also when there is no time. An empty set is done.
///
/// What will never be done does not make the others wait less: the error says the whole truth. Dropping the future is fine.
///
/// # Errors
/// If the time is over, or everything has come to an end and something will never be done.
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
            // Asked first: a future may take several turns to say what is so already, and there may be no time.
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
    tracing::warn!(error = %not_done, cause = %not_done.cause, "not everything is done");
    Err(not_done)
}

/// Which caches have their initial state.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SyncResult {
    /// Each that was waited for, and whether it has.
    pub synced: BTreeMap<String, bool>,
    /// Why waiting ended, if not all have.
    pub cause: Option<WaitCause>,
}

impl SyncResult {
    /// Waits until all have, not longer than this.
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
                // Last: of several with one name, one that is missing counts.
                let missing = missing.into_iter().map(|missing| (missing.name, false));
                SyncResult {
                    synced: done.chain(missing).collect(),
                    cause: Some(cause),
                }
            }
        }
    }

    /// The result as an error that names what is missing.
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

/// Not all caches have their initial state.
#[derive(Debug, Clone, thiserror::Error)]
#[error("failed to sync all caches: {}", unsynced.join(", "))]
pub struct SyncError {
    /// Those that have not, in the order of their names.
    pub unsynced: Vec<String>,
    /// Why waiting ended.
    #[source]
    pub cause: WaitCause,
}
