//! The options of a reflector.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep, timeout};

use crate::backoff::BackoffOptions;

/// How a reflector gets its initial state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitialState {
    /// By a list; the first one from the server's watch cache.
    #[default]
    Listed,
    /// By the initial events of a watch (`sendInitialEvents`), at the newest version. By a list if the server cannot send them.
    Streamed,
}

/// What to do when the server refuses: access is denied (401, 403), the resource does not exist (404), or the request is invalid,
/// because of a selector for example (400, 405, 406, 415, 422, 501).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnRefusal {
    /// Retry with backoff: permissions and resources can appear later.
    #[default]
    KeepTrying,
    /// Stop; waiting callers get the error.
    Stop,
    /// Stop if the server refuses before the first state was received, because of a mistake in the request. Keep trying if it
    /// refuses later: a definition can be deleted and created again.
    StopBeforeSync,
}

/// How many of the reflectors that share it list at the same time. Clones share it.
///
/// ```
/// use tidings_informer::{ListPermits, ReflectorOptions};
///
/// let mut options = ReflectorOptions::default();
/// options.lists = Some(ListPermits::new(4));
/// ```
#[derive(Debug, Clone)]
pub struct ListPermits(Arc<Semaphore>);

impl ListPermits {
    /// Permits for this many lists at a time. Zero counts as one.
    pub fn new(at_once: usize) -> ListPermits {
        let permits = at_once.clamp(1, Semaphore::MAX_PERMITS);
        ListPermits(Arc::new(Semaphore::new(permits)))
    }

    /// Waits for a permit. Cancel-safe.
    pub(super) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.0.acquire().await.ok() // never closed
    }
}

/// Tells reflectors that the server is back: whoever waits after a failure tries again at once. Clones share it.
///
/// ```
/// use tidings_informer::{ReflectorOptions, RetrySignal};
///
/// let back = RetrySignal::new();
/// let mut options = ReflectorOptions::default();
/// options.retry_now = Some(back.clone());
/// // Later, when the network is back:
/// back.retry_now();
/// ```
#[derive(Debug, Clone, Default)]
pub struct RetrySignal {
    /// How often it was given.
    given: Arc<watch::Sender<u64>>,
}

impl RetrySignal {
    /// A signal that no reflector waits for yet.
    pub fn new() -> RetrySignal {
        RetrySignal::default()
    }

    /// Ends the waits of this moment, and the next wait of each reflector whose request is under way: the failure of a request that
    /// was sent before says nothing of the server now. Their backoff starts over.
    pub fn retry_now(&self) {
        self.given.send_modify(|given| *given += 1);
    }

    fn receiver(&self) -> RetryReceiver {
        RetryReceiver(self.given.subscribe())
    }
}

/// One reflector's view of a [`RetrySignal`].
#[derive(Debug)]
pub(super) struct RetryReceiver(watch::Receiver<u64>);

impl RetryReceiver {
    /// A request begins: earlier signals say nothing of how it will end.
    pub(super) fn request_begins(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits until a signal is given, or was given since the last request began. Cancel-safe.
    async fn given(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await; // nobody can give it any more
        }
    }
}

/// Options of a reflector.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// How the reflector gets its initial state.
    pub initial_state: InitialState,
    /// The page size of every list. If unset, 500, or no paging where it would keep the server from answering from its watch
    /// cache.
    pub page_size: Option<usize>,
    /// Each watch asks the server for a timeout between this and twice this, at random. Values below five minutes count as five
    /// minutes.
    pub watch_timeout_least: Duration,
    /// A stream that is silent for longer is closed and resumed. Values below a second count as one second. Servers send a
    /// bookmark each minute; for a server that sends none, this doubles up to the watch timeout.
    pub silence_max: Duration,
    /// How waits between failed requests grow.
    pub backoff: BackoffOptions,
    /// How long watches are resumed after internal errors (500) before the reflector relists. Unset: until five in a row at one
    /// version. Zero: it relists at once.
    pub internal_error_patience: Option<Duration>,
    /// What to do when the server refuses.
    pub on_refusal: OnRefusal,
    /// Each list needs one of these permits, so that the informers of a program do not all list at once.
    pub lists: Option<ListPermits>,
    /// Ends waits after failures: for whoever knows that the server is back.
    pub retry_now: Option<RetrySignal>,
    /// The seed of the random waits and timeouts, to repeat them.
    pub seed: Option<u64>,
}

/// The default and the smallest value of [`ReflectorOptions::watch_timeout_least`].
const WATCH_TIMEOUT_LEAST: Duration = Duration::from_secs(300);

impl Default for ReflectorOptions {
    fn default() -> ReflectorOptions {
        ReflectorOptions {
            initial_state: InitialState::default(),
            page_size: None,
            watch_timeout_least: WATCH_TIMEOUT_LEAST,
            silence_max: Duration::from_secs(75),
            backoff: BackoffOptions::default(),
            internal_error_patience: None,
            on_refusal: OnRefusal::default(),
            lists: None,
            retry_now: None,
            seed: None,
        }
    }
}

impl ReflectorOptions {
    pub(super) fn watch_timeout_least(&self) -> Duration {
        self.watch_timeout_least.max(WATCH_TIMEOUT_LEAST)
    }

    /// What ends waits early.
    pub(super) fn retries(&self) -> Option<RetryReceiver> {
        self.retry_now.as_ref().map(RetrySignal::receiver)
    }
}

/// Waits after a failure. True if a signal ended the wait.
pub(super) async fn wait_after_failure(
    delay: Duration,
    retries: Option<&mut RetryReceiver>,
) -> bool {
    let Some(retries) = retries else {
        sleep(delay).await;
        return false;
    };
    timeout(delay, retries.given()).await.is_ok()
}
