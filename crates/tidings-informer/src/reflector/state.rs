//! The state, statistics and observers of a reflector.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidings_api::Object;
use tokio::sync::watch;
use tokio::time::Instant;

use super::problem::Problem;

/// What a reflector is doing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ReflectorState {
    /// No request has been answered yet, or a list waits for a permit.
    #[default]
    Connecting,
    /// Receiving a list.
    Listing {
        /// Objects received so far.
        received: usize,
    },
    /// Receiving the initial events of a watch.
    Streaming {
        /// Events received so far.
        received: usize,
    },
    /// The store has the complete state, and a watch keeps it up to date.
    Synced,
    /// Requests fail. The store keeps its objects until a retry succeeds.
    Degraded {
        /// The last problem.
        problem: Problem,
        /// When the first of these failures happened.
        since: Instant,
        /// Failures in a row.
        attempts: u32,
        /// When the next attempt is due.
        next_retry: Instant,
    },
    /// The reflector has stopped for good.
    Stopped {
        /// Why; `None` if it was asked to stop.
        problem: Option<Problem>,
    },
}

impl fmt::Display for ReflectorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReflectorState::Connecting => f.write_str("connecting"),
            ReflectorState::Listing { received } => write!(f, "listing, {received} objects so far"),
            ReflectorState::Streaming { received } => {
                write!(f, "receiving the initial state, {received} objects so far")
            }
            ReflectorState::Synced => f.write_str("synced"),
            ReflectorState::Degraded {
                problem, attempts, ..
            } => {
                let tries = if *attempts == 1 { "try" } else { "tries" };
                let problem = problem.story();
                write!(f, "degraded after {attempts} {tries}: {problem}")
            }
            ReflectorState::Stopped { problem: None } => f.write_str("stopped"),
            ReflectorState::Stopped {
                problem: Some(problem),
            } => write!(f, "stopped: {}", problem.story()),
        }
    }
}

/// Why a reflector lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RelistReason {
    /// The store has no state yet.
    First,
    /// The server no longer has the version of the store, or has not reached it.
    Expired,
    /// Events came out of order.
    OutOfOrder,
    /// The server could not read a stored object.
    StateUnreadable,
    /// Internal errors went on for longer than the options allow.
    InternalErrors,
    /// Watches broke repeatedly at one version.
    Stuck,
    /// The server's version is lower than before.
    WentBack,
}

impl RelistReason {
    /// All of them, in the order of the counters.
    pub const ALL: [RelistReason; 7] = [
        RelistReason::First,
        RelistReason::Expired,
        RelistReason::OutOfOrder,
        RelistReason::StateUnreadable,
        RelistReason::InternalErrors,
        RelistReason::Stuck,
        RelistReason::WentBack,
    ];

    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            RelistReason::First => "first",
            RelistReason::Expired => "expired",
            RelistReason::OutOfOrder => "out_of_order",
            RelistReason::StateUnreadable => "state_unreadable",
            RelistReason::InternalErrors => "internal_errors",
            RelistReason::Stuck => "stuck",
            RelistReason::WentBack => "went_back",
        }
    }
}

/// Why watches ended, in the order of the counters.
pub(crate) const WATCH_ENDS: [&str; 5] = ["regular", "connection", "silent", "error", "short"];

/// Counts of lists, watches and received objects.
#[derive(Debug)]
pub struct ReflectorStats {
    pub(crate) lists: [AtomicU64; 7],
    pub(crate) watches: AtomicU64,
    pub(crate) watch_ends: [AtomicU64; 5],
    pub(crate) objects: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) problems: AtomicU64,
    started: Instant,
    /// When the server last sent something new, in milliseconds after `started`.
    progressed_ms: AtomicU64,
}

impl Default for ReflectorStats {
    fn default() -> ReflectorStats {
        ReflectorStats {
            lists: Default::default(),
            watches: AtomicU64::default(),
            watch_ends: Default::default(),
            objects: AtomicU64::default(),
            bytes: AtomicU64::default(),
            problems: AtomicU64::default(),
            started: Instant::now(),
            progressed_ms: AtomicU64::default(),
        }
    }
}

impl ReflectorStats {
    pub(super) fn relisted(&self, reason: RelistReason) {
        self.lists[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn opened(&self) {
        self.watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, problem: Option<&Problem>) {
        let reason = match problem {
            None => 0,
            Some(Problem::Source(crate::SourceError::Transport(_))) => 1,
            Some(Problem::Silent(_)) => 2,
            Some(Problem::VeryShortWatch) => 4,
            Some(_) => 3,
        };
        self.watch_ends[reason].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, objects: impl IntoIterator<Item = impl Borrow<Object>>) {
        let (mut count, mut bytes) = (0, 0);
        for object in objects {
            count += 1;
            bytes += object.borrow().as_bytes().len() as u64;
        }
        self.objects.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn progressed(&self) {
        let elapsed = self.started.elapsed().as_millis() as u64;
        self.progressed_ms.store(elapsed, Ordering::Relaxed);
    }

    /// The number of lists (and requests for initial events) for a reason.
    pub fn lists(&self, reason: RelistReason) -> u64 {
        self.lists[reason as usize].load(Ordering::Relaxed)
    }

    /// The number of watches that opened.
    pub fn watches(&self) -> u64 {
        self.watches.load(Ordering::Relaxed)
    }

    /// Objects received in lists and events.
    pub fn objects_received(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Bytes of objects received.
    pub fn bytes_received(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Time since the server last sent something new: an event, a bookmark or a list.
    pub fn since_progress(&self) -> std::time::Duration {
        let progressed = self.progressed_ms.load(Ordering::Relaxed);
        let progressed = std::time::Duration::from_millis(progressed);
        self.started.elapsed().saturating_sub(progressed)
    }
}

/// Called with every problem: failed lists and watches, errors inside a watch, objects that are left out.
pub type ProblemHandler = Arc<dyn Fn(&Problem) + Send + Sync>;

/// Where a reflector publishes its state, statistics and problems.
pub(crate) struct Observers {
    pub(crate) name: Arc<str>,
    pub(crate) state: watch::Sender<ReflectorState>,
    pub(crate) stats: ReflectorStats,
    pub(crate) on_problem: Option<ProblemHandler>,
}

impl Default for Observers {
    fn default() -> Observers {
        Observers::new(Arc::from("reflector"), None)
    }
}

impl Observers {
    pub(crate) fn new(name: Arc<str>, on_problem: Option<ProblemHandler>) -> Observers {
        Observers {
            name,
            state: watch::Sender::new(ReflectorState::default()),
            stats: ReflectorStats::default(),
            on_problem,
        }
    }

    /// Reports a problem. Expired versions and silent connections are normal and logged at debug level only.
    pub(crate) fn report(&self, problem: &Problem) {
        self.stats.problems.fetch_add(1, Ordering::Relaxed);
        let regular = match problem {
            Problem::Source(error) => error.version_is_unusable(),
            Problem::Silent(_) => true,
            _ => false,
        };
        let what = match problem {
            Problem::Quarantined { .. } | Problem::NotIndexed { .. } | Problem::WrongKind(_) => {
                "an object is left out"
            }
            Problem::Panicked => "the informer stops",
            _ => "a list or watch failed and will be tried again",
        };
        let (informer, problem_story) = (&*self.name, problem.story());
        if regular {
            tracing::debug!(informer, problem = problem_story, "{what}");
        } else {
            tracing::warn!(informer, problem = problem_story, "{what}");
        }
        if let Some(on_problem) = &self.on_problem {
            let told = std::panic::AssertUnwindSafe(|| on_problem(problem));
            if std::panic::catch_unwind(told).is_err() {
                tracing::error!(informer = &*self.name, "a problem handler panicked");
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("name", &self.name)
            .field("state", &*self.state.borrow())
            .finish_non_exhaustive()
    }
}
