//! What a reflector does next: a pure function of what it has seen, the time, and its chance.

use std::time::Duration;

use tokio::time::Instant;

use super::options::{InitialState, OnRefusal, ReflectorOptions};
use super::version::Version;
use super::{Problem, RelistReason};
use crate::backoff::ExponentialBackoff;
use crate::source::{PAGE_SIZE, SourceError};

/// A watch that ends sooner than this without an event is a failure: a server that closes every watch at once must not be
/// asked again at once.
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);
/// How often a watch may break at one version before the state is listed again: something there cannot be delivered.
const FRUITLESS_MAX: u32 = 5;
/// How often the initial events may break off before they are listed instead.
const INITIAL_ATTEMPTS_MAX: u32 = 3;
/// How long a server is taken for one that cannot send initial events.
const UNSUPPORTED_FOR: Duration = Duration::from_secs(3600);
/// The longest that a server may ask to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// An internal error after this long without one starts a new window of patience.
const INTERNAL_ERRORS_APART: Duration = Duration::from_secs(60);

/// The next thing to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// List: "0" is any state, "" the newest, else one at least that new. A limit of zero asks for everything at once.
    List {
        resource_version: String,
        limit: usize,
    },
    /// Watch with initial events: "" is the newest state.
    WatchList {
        resource_version: String,
        timeout: Duration,
    },
    Watch {
        from: Version,
        timeout: Duration,
    },
    Wait {
        delay: Duration,
    },
    /// The server refuses, and that is final.
    Stop,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The state was listed; the store has it.
    Listed {
        version: Version,
        paginated: bool,
    },
    /// The initial events are complete; the store has them, and the same stream goes on.
    InitialEventsEnded {
        version: Version,
    },
    /// The state was had, and is older than the store's. It was not taken.
    WentBack,
    /// A watch was open and has ended, after everything up to `reached`.
    Ended(Ended),
    /// A list or watch could not be had.
    Failed(Problem),
    /// A watch was open and its initial events did not come to their end.
    InitialEventsFailed(Problem),
    Waited,
}

#[derive(Debug)]
pub(super) struct Ended {
    pub(super) reached: Version,
    pub(super) events: usize,
    pub(super) lasted: Duration,
    /// Why, if not by the server's regular decision.
    pub(super) problem: Option<Problem>,
}

#[derive(Debug)]
pub(super) struct Machine {
    options: ReflectorOptions,
    backoff: ExponentialBackoff,
    chance: fastrand::Rng,
    sends_initial_events: bool,
    /// The version that the store reflects; `None` before the first state.
    reached: Option<Version>,
    next: Next,
    /// The state has to be the newest: the version that the store has is of no use.
    newest: bool,
    /// The server pages its lists even where any state will do: it has no cache, so paging costs nothing.
    paginated: bool,
    unsupported_until: Option<Instant>,
    initial_attempts: u32,
    fruitless: u32,
    internal_errors: Option<(Instant, Instant)>,
    delay: Option<Duration>,
    relist: RelistReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    State,
    Watch,
    Stop,
}

impl Machine {
    pub(super) fn new(options: ReflectorOptions, sends_initial_events: bool) -> Machine {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        Machine {
            backoff: ExponentialBackoff::new(options.backoff.clone(), seed),
            chance: fastrand::Rng::with_seed(seed ^ 0x5eed),
            options,
            sends_initial_events,
            reached: None,
            next: Next::State,
            newest: false,
            paginated: false,
            unsupported_until: None,
            initial_attempts: 0,
            fruitless: 0,
            internal_errors: None,
            delay: None,
            relist: RelistReason::First,
        }
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// The version that the store reflects.
    pub(super) fn reached(&self) -> Option<&Version> {
        self.reached.as_ref()
    }

    /// Why the state is asked for.
    pub(super) fn relist_reason(&self) -> RelistReason {
        self.relist
    }

    pub(super) fn step(&mut self, now: Instant) -> Step {
        if let Some(delay) = self.delay {
            return Step::Wait { delay };
        }
        match self.next {
            Next::Stop => Step::Stop,
            Next::Watch => Step::Watch {
                from: self.reached.clone().unwrap_or_default(),
                timeout: self.watch_timeout(),
            },
            Next::State if self.asks_for_initial_events(now) => Step::WatchList {
                resource_version: self.known_version().unwrap_or_default(),
                timeout: self.watch_timeout(),
            },
            Next::State => {
                let resource_version = match self.known_version() {
                    Some(version) => version,
                    None if self.newest => String::new(),
                    None => "0".to_owned(),
                };
                Step::List {
                    limit: self.limit(&resource_version),
                    resource_version,
                }
            }
        }
    }

    /// The version that a new state must not be older than.
    fn known_version(&self) -> Option<String> {
        let known = self.reached.as_ref().filter(|_| !self.newest)?;
        (!known.is_unset()).then(|| known.text().to_owned())
    }

    fn asks_for_initial_events(&self, now: Instant) -> bool {
        self.options.initial_state == InitialState::Streamed
            && self.sends_initial_events
            && self.unsupported_until.is_none_or(|until| now >= until)
    }

    /// A server answers a list at a real version from its cache only if it is not paged.
    fn limit(&self, resource_version: &str) -> usize {
        match self.options.page_size {
            Some(page_size) => page_size,
            None if self.paginated => PAGE_SIZE,
            None if matches!(resource_version, "" | "0") => PAGE_SIZE,
            None => 0,
        }
    }

    /// Drawn, so that the watches of many programs do not all end at once.
    fn watch_timeout(&mut self) -> Duration {
        let least = self.options.watch_timeout_least();
        least.mul_f64(1.0 + self.chance.f64())
    }

    pub(super) fn observe(&mut self, outcome: &Outcome, now: Instant) {
        match outcome {
            Outcome::Waited => self.delay = None,
            Outcome::Listed { version, paginated } => {
                // A first list may be of any state; that such a list was paged says that the server has no cache.
                self.paginated |= self.reached.is_none() && !self.newest && *paginated;
                self.has_state(version.clone());
            }
            Outcome::InitialEventsEnded { version } => {
                self.backoff.healthy(now);
                self.has_state(version.clone());
            }
            Outcome::WentBack => {
                self.reached = None;
                self.next = Next::State;
                self.newest = true;
                self.relist = RelistReason::WentBack;
            }
            Outcome::Ended(ended) => self.watch_ended(ended, now),
            Outcome::Failed(problem) => {
                let nobody_there = matches!(problem, Problem::Source(SourceError::Transport(_)));
                self.initial_attempts += u32::from(!nobody_there && !is_busy(problem));
                self.failed(problem, now);
            }
            Outcome::InitialEventsFailed(problem) => {
                self.initial_attempts += u32::from(!is_busy(problem));
                self.failed(problem, now);
            }
        }
    }

    fn has_state(&mut self, version: Version) {
        self.reached = Some(version);
        self.next = Next::Watch;
        self.newest = false;
        self.initial_attempts = 0;
        self.fruitless = 0;
    }

    fn watch_ended(&mut self, ended: &Ended, now: Instant) {
        let progressed = self.reached.as_ref() != Some(&ended.reached);
        self.reached = Some(ended.reached.clone());
        let of_use = progressed || ended.lasted >= VERY_SHORT;
        let silent = matches!(ended.problem, Some(Problem::Silent(_))) && ended.events == 0;
        if of_use && !silent {
            self.backoff
                .healthy(now.checked_sub(ended.lasted).unwrap_or(now));
        }
        if progressed {
            self.fruitless = 0;
        }
        match &ended.problem {
            // A watch ends when its time is over, when a server restarts, when a connection breaks: go on at once.
            None | Some(Problem::Silent(_) | Problem::Source(SourceError::Transport(_)))
                if of_use => {}
            None => self.failed(&Problem::VeryShortWatch, now),
            Some(problem) => self.failed(problem, now),
        }
    }

    fn failed(&mut self, problem: &Problem, now: Instant) {
        let waits = match self.next {
            Next::State => self.state_failed(problem, now),
            Next::Watch => self.watch_failed(problem, now),
            Next::Stop => return,
        };
        let error = problem.source_error();
        // That a server cannot stream its state is no refusal: it is asked in another way, and does not wait.
        let refused = error
            .is_some_and(|error| error.is_refusal() || waits && error.is_refusal_of_the_question());
        if refused && self.options.on_refusal == OnRefusal::Stop {
            self.next = Next::Stop;
            return;
        }
        if waits {
            let asked = error.and_then(SourceError::retry_after);
            let asked = asked.unwrap_or_default().min(RETRY_AFTER_MAX);
            self.delay = Some(self.backoff.failed(now).max(asked));
        }
    }

    /// Returns true if there is a wait before the next try.
    fn state_failed(&mut self, problem: &Problem, now: Instant) -> bool {
        let error = problem.source_error();
        if error.is_some_and(SourceError::version_is_unusable) && !self.newest {
            self.newest = true;
            return false;
        }
        if !self.asks_for_initial_events(now) {
            return true;
        }
        // A server that cannot do it, or that fails again and again at it, is asked for a list instead. That nobody is there, or
        // that there are too many, says nothing about it.
        let refused = error.is_some_and(SourceError::is_refusal_of_the_question);
        let stalled = matches!(problem, Problem::InitialEventsStalled);
        if refused || stalled || self.initial_attempts >= INITIAL_ATTEMPTS_MAX {
            self.initial_attempts = 0;
            self.unsupported_until = Some(now + UNSUPPORTED_FOR);
            return false;
        }
        true
    }

    /// Resume unless the server said that the version is unusable or the state is provably lost. Returns true: there is
    /// always a wait.
    fn watch_failed(&mut self, problem: &Problem, now: Instant) -> bool {
        if let Some(reason) = self.relist_after(problem, now) {
            self.relist = reason;
            self.next = Next::State;
            self.fruitless = 0;
            self.newest = reason == RelistReason::OutOfOrder;
        }
        true
    }

    fn relist_after(&mut self, problem: &Problem, now: Instant) -> Option<RelistReason> {
        let error = match problem {
            Problem::OutOfOrder => return Some(RelistReason::OutOfOrder),
            Problem::Source(error) => error,
            _ => return None,
        };
        if error.version_is_unusable() {
            return Some(RelistReason::Expired);
        }
        if error.state_is_unreadable() {
            return Some(RelistReason::StateUnreadable);
        }
        if error.is_internal()
            && let Some(patience) = self.options.internal_error_patience
        {
            return self
                .internal_errors_exhaust(patience, now)
                .then_some(RelistReason::InternalErrors);
        }
        // The connection may fail as often as it likes: that says nothing about the version. An answer that breaks at the
        // same version each time does.
        let says_something = error.is_internal() || matches!(error, SourceError::Malformed(_));
        self.fruitless += u32::from(says_something);
        (says_something && self.fruitless >= FRUITLESS_MAX).then_some(RelistReason::Stuck)
    }

    fn internal_errors_exhaust(&mut self, patience: Duration, now: Instant) -> bool {
        let first = match self.internal_errors {
            Some((first, last)) if now.duration_since(last) < INTERNAL_ERRORS_APART => first,
            _ => now,
        };
        self.internal_errors = Some((first, now));
        patience.is_zero() || now.duration_since(first) > patience
    }
}

/// There are too many requests: that says nothing about this one.
fn is_busy(problem: &Problem) -> bool {
    problem
        .source_error()
        .is_some_and(|error| error.code() == Some(429) || error.version_is_unusable())
}
