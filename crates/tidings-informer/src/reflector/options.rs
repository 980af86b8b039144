//! What can be set on a reflector.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::backoff::BackoffOptions;

/// How a reflector gets its initial state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitialState {
    /// By a list, from the server's cache the first time.
    #[default]
    Listed,
    /// By the first events of the watch (`sendInitialEvents`), if the server can; else by a list. The newest state.
    Streamed,
}

/// What to do when the server refuses: nobody may have this (401, 403), it does not exist (404), or the question is wrong, by its
/// selectors for example (400, 405, 406, 415, 422, 501).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnRefusal {
    /// Try again, as after every failure: permissions come and go.
    #[default]
    KeepTrying,
    /// Stop; who waits gets the error.
    Stop,
}

/// What can be set on a reflector.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// How the state is had.
    pub initial_state: InitialState,
    /// The page size of every list. Unset, it is 500 where the server reads its store, and none where that would keep it from
    /// answering from its cache.
    pub page_size: Option<usize>,
    /// The server is asked to end a watch after a time drawn between this and its double. Less than five minutes is raised
    /// to five.
    pub watch_timeout_least: Duration,
    /// A stream that is silent for longer is given up and resumed. Less than a second is raised to one. Servers send a bookmark each minute; for a server that is
    /// found to send none, the time doubles up to the watch timeout.
    pub silence_max: Duration,
    /// How waits grow.
    pub backoff: BackoffOptions,
    /// For how long internal errors (500) in a watch are answered by resuming it before the state is listed again. Unset:
    /// until five in a row at one version. Zero: at once.
    pub internal_error_patience: Option<Duration>,
    /// What to do when the server refuses.
    pub on_refusal: OnRefusal,
    /// Lists wait for one of these permits: many informers of one program do not list all at once.
    pub lists: Option<Arc<Semaphore>>,
    /// Makes waits and timeouts repeatable.
    pub seed: Option<u64>,
}

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
            seed: None,
        }
    }
}

impl ReflectorOptions {
    pub(super) fn watch_timeout_least(&self) -> Duration {
        self.watch_timeout_least.max(WATCH_TIMEOUT_LEAST)
    }
}
