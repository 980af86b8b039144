//! What can be seen of a reflector from outside.

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
    /// It has asked nothing yet, or waits for its turn.
    #[default]
    Connecting,
    /// A list is coming in.
    Listing {
        /// How many objects came so far.
        received: usize,
    },
    /// The initial events of a watch are coming in.
    Streaming {
        /// How many came so far.
        received: usize,
    },
    /// The store reflects the server, and follows it.
    Synced,
    /// Something is wrong. The store keeps what it has, and the next try is due.
    Degraded {
        /// What.
        problem: Problem,
        /// Since when.
        since: Instant,
        /// How many tries have failed in a row.
        attempts: u32,
        /// When the next is due.
        next_retry: Instant,
    },
    /// It has stopped for good.
    Stopped {
        /// Why, if not because it was asked to.
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

/// Why a state was asked for as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RelistReason {
    /// There was none.
    First,
    /// The server no longer has the version, or does not have it yet.
    Expired,
    /// Events came out of order.
    OutOfOrder,
    /// The server could not read an object.
    StateUnreadable,
    /// Internal errors went on for longer than the options allow.
    InternalErrors,
    /// A watch broke again and again at one version.
    Stuck,
    /// The server's version went back.
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

    /// As a metric label.
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

/// Figures of a reflector.
#[derive(Debug)]
pub struct ReflectorStats {
    pub(crate) lists: [AtomicU64; 7],
    pub(crate) watches: AtomicU64,
    pub(crate) watch_ends: [AtomicU64; 5],
    pub(crate) objects: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) problems: AtomicU64,
    started: Instant,
    /// Milliseconds after the start; so that it can be an atomic.
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

    /// How often the state was asked for as a whole, for a reason.
    pub fn lists(&self, reason: RelistReason) -> u64 {
        self.lists[reason as usize].load(Ordering::Relaxed)
    }

    /// How often a watch was opened.
    pub fn watches(&self) -> u64 {
        self.watches.load(Ordering::Relaxed)
    }

    /// How many objects came, in lists and events.
    pub fn objects_received(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// How many bytes of objects came.
    pub fn bytes_received(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How long ago the server last said something new: an event, a bookmark, a list.
    pub fn since_progress(&self) -> std::time::Duration {
        let progressed = self.progressed_ms.load(Ordering::Relaxed);
        let progressed = std::time::Duration::from_millis(progressed);
        self.started.elapsed().saturating_sub(progressed)
    }
}

/// Is told of every problem: of failed lists and watches, of errors inside a watch, of objects that are left out.
pub type ProblemHandler = Arc<dyn Fn(&Problem) + Send + Sync>;

/// Who watches a reflector.
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

    /// Reports a problem. Regular ends of an old version and of a connection are not worth a warning.
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
