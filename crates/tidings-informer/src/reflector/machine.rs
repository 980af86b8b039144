//! Decides what a reflector does next. Does no I/O and reads no clock: the caller passes the time and the outcomes.

use std::time::Duration;

use tokio::time::Instant;

use super::options::{InitialState, OnRefusal, ReflectorOptions};
use super::{Problem, RelistReason};
use crate::backoff::ExponentialBackoff;
use crate::source::{PAGE_SIZE, SourceError};
use crate::version::ServerVersion;

/// A watch that ends sooner than this without an event is a failure, so that a server that closes every watch at once is not
/// flooded.
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);
/// How often a watch may break at one version before the reflector relists: an event there may be impossible to deliver.
const FRUITLESS_MAX: u32 = 5;
/// How often the initial events may fail before the reflector lists instead.
const INITIAL_ATTEMPTS_MAX: u32 = 3;
/// How long the reflector remembers that a server cannot send initial events.
const UNSUPPORTED_FOR: Duration = Duration::from_secs(3600);
/// The longest `Retry-After` that is honored.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// An internal error after this long without one starts a new [`ReflectorOptions::internal_error_patience`].
const INTERNAL_ERRORS_APART: Duration = Duration::from_secs(60);

/// What the reflector does next.
#[derive(Debug, PartialEq)]
pub(super) enum ReflectorStep {
    /// List at a resource version: "0" means any, "" the newest, else at least that one. A limit of zero disables paging.
    List {
        resource_version: String,
        limit: usize,
    },
    /// Watch with initial events; the resource version "" means the newest.
    WatchList {
        resource_version: String,
        timeout: Duration,
    },
    Watch {
        from: ServerVersion,
        timeout: Duration,
    },
    Wait {
        delay: Duration,
    },
    /// The server refuses, and the options say to stop then.
    Stop,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum StepOutcome {
    /// The list is complete and in the store.
    Listed {
        version: ServerVersion,
        paginated: bool,
    },
    /// The initial events are complete and in the store; the stream continues as a watch.
    InitialEventsEnded {
        version: ServerVersion,
    },
    /// The list is older than the store, and was discarded.
    WentBack,
    /// An open watch ended.
    Ended(EndedWatch),
    /// A list failed, or a watch did not open.
    Failed(Problem),
    /// A watch opened and failed before its initial events were complete.
    InitialEventsFailed(Problem),
    Waited,
    /// A wait was ended by whoever knows that the server is back.
    CalledBack,
}

/// A watch that was open and has ended.
#[derive(Debug)]
pub(super) struct EndedWatch {
    /// The store has all events up to this version.
    pub(super) reached: ServerVersion,
    pub(super) events: usize,
    pub(super) lasted: Duration,
    /// Why it ended; `None` if the server closed it normally.
    pub(super) problem: Option<Problem>,
}

/// The state from which a reflector's next step follows.
#[derive(Debug)]
pub(super) struct ReflectorMachine {
    options: ReflectorOptions,
    backoff: ExponentialBackoff,
    rng: fastrand::Rng,
    sends_initial_events: bool,
    /// The version of the store; `None` before the first list.
    reached: Option<ServerVersion>,
    next: NextRequest,
    /// The next list must be the newest: the server cannot serve the version of the store.
    newest: bool,
    /// The server pages lists at "0": it has no watch cache, so paging costs nothing.
    paginated: bool,
    /// Until when initial events are not requested, because the server could not send them.
    unsupported_until: Option<Instant>,
    /// Failed attempts to get initial events.
    initial_attempts: u32,
    /// Watches in a row that broke at one version.
    fruitless: u32,
    /// The first and the last of the current internal errors.
    internal_errors: Option<(Instant, Instant)>,
    /// The wait before the next request.
    delay: Option<Duration>,
    /// Why the next list is made.
    relist: RelistReason,
}

/// The next request after any wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextRequest {
    State,
    Watch,
    Stop,
}

impl ReflectorMachine {
    pub(super) fn new(options: ReflectorOptions, sends_initial_events: bool) -> ReflectorMachine {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        ReflectorMachine {
            backoff: ExponentialBackoff::new(options.backoff.clone(), seed),
            rng: fastrand::Rng::with_seed(seed ^ 0x5eed),
            options,
            sends_initial_events,
            reached: None,
            next: NextRequest::State,
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

    /// The version of the store.
    pub(super) fn reached(&self) -> Option<&ServerVersion> {
        self.reached.as_ref()
    }

    /// Why the next list is made.
    pub(super) fn relist_reason(&self) -> RelistReason {
        self.relist
    }

    pub(super) fn step(&mut self, now: Instant) -> ReflectorStep {
        if let Some(delay) = self.delay {
            return ReflectorStep::Wait { delay };
        }
        match self.next {
            NextRequest::Stop => ReflectorStep::Stop,
            NextRequest::Watch => ReflectorStep::Watch {
                from: self.reached.clone().unwrap_or_default(),
                timeout: self.watch_timeout(),
            },
            NextRequest::State if self.asks_for_initial_events(now) => ReflectorStep::WatchList {
                resource_version: self.known_version().unwrap_or_default(),
                timeout: self.watch_timeout(),
            },
            NextRequest::State => {
                let resource_version = match self.known_version() {
                    Some(version) => version,
                    None if self.newest => String::new(),
                    None => "0".to_owned(),
                };
                ReflectorStep::List {
                    limit: self.limit(&resource_version),
                    resource_version,
                }
            }
        }
    }

    /// The version that the next list must not be older than.
    fn known_version(&self) -> Option<String> {
        let known = self.reached.as_ref().filter(|_| !self.newest)?;
        (!known.is_unset()).then(|| known.text().to_owned())
    }

    fn asks_for_initial_events(&self, now: Instant) -> bool {
        self.options.initial_state == InitialState::Streamed
            && self.sends_initial_events
            && self.unsupported_until.is_none_or(|until| now >= until)
    }

    /// The page size of a list. A server answers a list at a version other than "0" from its watch cache only if it is not paged.
    fn limit(&self, resource_version: &str) -> usize {
        match self.options.page_size {
            Some(page_size) => page_size,
            None if self.paginated => PAGE_SIZE,
            None if matches!(resource_version, "" | "0") => PAGE_SIZE,
            None => 0,
        }
    }

    /// A random timeout, so that the watches of many clients do not all end at once.
    fn watch_timeout(&mut self) -> Duration {
        let least = self.options.watch_timeout_least();
        least.mul_f64(1.0 + self.rng.f64())
    }

    pub(super) fn observe(&mut self, outcome: &StepOutcome, now: Instant) {
        match outcome {
            StepOutcome::Waited => self.delay = None,
            StepOutcome::CalledBack => {
                self.delay = None;
                self.backoff.start_over();
            }
            StepOutcome::Listed { version, paginated } => {
                // A first list at "0" that was paged shows that the server has no watch cache.
                self.paginated |= self.reached.is_none() && !self.newest && *paginated;
                self.has_state(version.clone());
            }
            StepOutcome::InitialEventsEnded { version } => {
                self.backoff.healthy(now);
                self.has_state(version.clone());
            }
            StepOutcome::WentBack => {
                self.reached = None;
                self.next = NextRequest::State;
                self.newest = true;
                self.relist = RelistReason::WentBack;
            }
            StepOutcome::Ended(ended) => self.watch_ended(ended, now),
            StepOutcome::Failed(problem) => {
                let nobody_there = matches!(problem, Problem::Source(SourceError::Transport(_)));
                self.initial_attempts += u32::from(!nobody_there && !is_busy(problem));
                self.failed(problem, now);
            }
            StepOutcome::InitialEventsFailed(problem) => {
                self.initial_attempts += u32::from(!is_busy(problem));
                self.failed(problem, now);
            }
        }
    }

    fn has_state(&mut self, version: ServerVersion) {
        self.reached = Some(version);
        self.next = NextRequest::Watch;
        self.newest = false;
        self.initial_attempts = 0;
        self.fruitless = 0;
    }

    fn watch_ended(&mut self, ended: &EndedWatch, now: Instant) {
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
            // Watches end normally at their timeout, when a server restarts or a connection breaks: resume at once.
            None | Some(Problem::Silent(_) | Problem::Source(SourceError::Transport(_)))
                if of_use => {}
            None => self.failed(&Problem::VeryShortWatch, now),
            Some(problem) => self.failed(problem, now),
        }
    }

    fn failed(&mut self, problem: &Problem, now: Instant) {
        let waits = match self.next {
            NextRequest::State => self.state_failed(problem, now),
            NextRequest::Watch => self.watch_failed(problem, now),
            NextRequest::Stop => return,
        };
        let error = problem.source_error();
        // A server that cannot send initial events does not refuse: the reflector lists instead, without a wait.
        let refused = error
            .is_some_and(|error| error.is_refusal() || waits && error.is_refusal_of_the_question());
        let stops = match self.options.on_refusal {
            OnRefusal::KeepTrying => false,
            OnRefusal::Stop => true,
            OnRefusal::StopBeforeSync => self.reached.is_none(),
        };
        if refused && stops {
            self.next = NextRequest::Stop;
            return;
        }
        if waits {
            let asked = error.and_then(SourceError::retry_after);
            let asked = asked.unwrap_or_default().min(RETRY_AFTER_MAX);
            self.delay = Some(self.backoff.failed(now).max(asked));
        }
    }

    /// Handles a failed list or failed initial events. Returns true if the next attempt must wait.
    fn state_failed(&mut self, problem: &Problem, now: Instant) -> bool {
        let error = problem.source_error();
        if error.is_some_and(SourceError::version_is_unusable) && !self.newest {
            self.newest = true;
            return false;
        }
        if !self.asks_for_initial_events(now) {
            return true;
        }
        // List instead if the server cannot send initial events or fails repeatedly at it. Connection errors and 429 are not
        // counted as attempts: they say nothing about initial events.
        let refused = error.is_some_and(SourceError::is_refusal_of_the_question);
        let stalled = matches!(problem, Problem::InitialEventsStalled);
        if refused || stalled || self.initial_attempts >= INITIAL_ATTEMPTS_MAX {
            self.initial_attempts = 0;
            self.unsupported_until = Some(now + UNSUPPORTED_FOR);
            return false;
        }
        true
    }

    /// Handles a failed watch: resumes it, unless the server cannot serve the version or the events are not reliable. Returns
    /// true: there is always a wait.
    fn watch_failed(&mut self, problem: &Problem, now: Instant) -> bool {
        if let Some(reason) = self.relist_after(problem, now) {
            self.relist = reason;
            self.next = NextRequest::State;
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
        // Connection errors say nothing about the version, however many there are. Responses that break at one version each time
        // do.
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

/// True if the server has too many requests, or cannot serve the version: this says nothing about the kind of request.
fn is_busy(problem: &Problem) -> bool {
    problem
        .source_error()
        .is_some_and(|error| error.code() == Some(429) || error.version_is_unusable())
}
