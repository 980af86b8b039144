//! The reflector: keeps a store up to date with a lister-watcher.
//!
//! [`machine`] decides what to do next and [`follow`] which events count; both do no I/O and read no clock. This file carries out
//! their decisions.

mod follow;
mod machine;
mod options;
mod problem;
mod state;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use tidings_api::{ListOptions, ObjectKey, ResourceVersionMatch, WatchEvent};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::source::{EventStream, ListerWatcher, Paged, Pager, SourceError, next};
use crate::sync::{Mutex, lock};
use crate::version::ServerVersion;
use follow::{WatchFollower, foreign};
use machine::{EndedWatch, ReflectorMachine, ReflectorStep, StepOutcome, VERY_SHORT};
use trace::StepTrace;

use options::wait_after_failure;
pub use options::{InitialState, ListPermits, OnRefusal, ReflectorOptions, RetrySignal};
pub use problem::Problem;
pub(crate) use state::{Observers, WATCH_ENDS};
pub use state::{ProblemHandler, ReflectorState, ReflectorStats, RelistReason};

/// A watch that the server has not ended this long after its timeout is given up.
const GRACE: Duration = Duration::from_secs(15);
/// The least [`ReflectorOptions::silence_max`]: shorter pauses are normal on a network.
const SILENCE_LEAST: Duration = Duration::from_secs(1);
/// The largest [`ReflectorOptions::silence_max`]: a longer one could overflow an `Instant`.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often missing initial events are logged.
const INITIAL_EVENTS_WARNING: Duration = Duration::from_secs(10);
/// If initial events stop for this long, the reflector lists instead.
const INITIAL_EVENTS_STALL: Duration = Duration::from_secs(60);

/// The store that a reflector keeps up to date.
///
/// A list arrives in parts by [`ReflectorStore::collect`] and takes effect at [`ReflectorStore::replace`]. Readers must not see
/// any change before that.
pub trait ReflectorStore: Send {
    /// Adds a part of a list or of the initial events: additions, and changes of objects that were added before.
    fn collect(&mut self, part: Vec<WatchEvent>);

    /// Discards the parts collected so far.
    fn discard(&mut self);

    /// Discards the parts, and must not compare the next list with the store by version: the server lost history, so equal
    /// versions can belong to different contents.
    fn distrust(&mut self);

    /// Replaces the content of the store by the collected parts, the complete list at a version.
    fn replace(&mut self, version: &ServerVersion);

    /// Applies the next changes, in order. A bookmark says up to which version the store is complete. Error events never come
    /// here.
    fn apply(&mut self, events: Vec<WatchEvent>);

    /// The version of an object in the store.
    fn latest(&self, key: &ObjectKey) -> Option<u64>;
}

/// Lists and watches a source, and keeps a store up to date.
///
/// Dropping the future of [`Reflector::run`] stops it, at any point.
pub struct Reflector<L: ?Sized, S> {
    source: Arc<L>,
    store: S,
    name: Arc<str>,
    options: ReflectorOptions,
    observers: Arc<Observers>,
    /// How long a watch may be silent: the option, or longer if the server sends no bookmarks.
    silence: Duration,
}

impl<L: ListerWatcher + ?Sized, S: ReflectorStore> Reflector<L, S> {
    /// A reflector that has not started. The name is for logs.
    pub fn new(
        name: impl Into<Arc<str>>,
        source: Arc<L>,
        store: S,
        mut options: ReflectorOptions,
    ) -> Reflector<L, S> {
        options.silence_max = options.silence_max.clamp(SILENCE_LEAST, LONGEST);
        Reflector {
            source,
            store,
            name: name.into(),
            silence: options.silence_max,
            options,
            observers: Arc::default(),
        }
    }

    /// Sets a function that is called with every problem. Call it before [`Reflector::watch_state`].
    #[must_use]
    pub fn on_problem(mut self, handler: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        let handler: ProblemHandler = Arc::new(handler);
        self.observers = Arc::new(Observers::new(Arc::clone(&self.name), Some(handler)));
        self
    }

    /// A receiver for the state of the reflector, while it runs too.
    pub fn watch_state(&self) -> watch::Receiver<ReflectorState> {
        self.observers.state.subscribe()
    }

    pub(crate) fn observed_by(mut self, observers: Arc<Observers>) -> Self {
        self.observers = observers;
        self
    }

    /// Runs until the future is dropped, or until the server refuses and the options say to stop then.
    pub async fn run(mut self) -> Problem {
        let mut machine =
            ReflectorMachine::new(self.options.clone(), self.source.sends_initial_events());
        let mut retries = self.options.retries();
        let mut degraded_since: Option<Instant> = None;
        let mut last: Option<Problem> = None;
        loop {
            let step = machine.step(Instant::now());
            if let (Some(retries), false) =
                (&mut retries, matches!(step, ReflectorStep::Wait { .. }))
            {
                retries.request_begins();
            }
            let outcome = match step {
                ReflectorStep::List {
                    resource_version,
                    limit,
                } => {
                    let reached = machine.reached().cloned();
                    self.list(resource_version, limit, reached, machine.relist_reason())
                        .await
                }
                ReflectorStep::WatchList {
                    resource_version,
                    timeout,
                } => {
                    self.observers.stats.relisted(machine.relist_reason());
                    self.watch_list(resource_version, timeout, &mut machine, &mut degraded_since)
                        .await
                }
                ReflectorStep::Watch { from, timeout } => {
                    self.watch(from, timeout, &mut degraded_since).await
                }
                ReflectorStep::Wait { delay } => {
                    let now = Instant::now();
                    let problem = last.clone().unwrap_or(Problem::VeryShortWatch);
                    self.observers.state.send_replace(ReflectorState::Degraded {
                        problem,
                        since: *degraded_since.get_or_insert(now),
                        attempts: machine.failures(),
                        next_retry: now + delay,
                    });
                    match wait_after_failure(delay, retries.as_mut()).await {
                        true => StepOutcome::CalledBack,
                        false => StepOutcome::Waited,
                    }
                }
                ReflectorStep::Stop => {
                    let problem = last.unwrap_or(Problem::VeryShortWatch);
                    let stopped = ReflectorState::Stopped {
                        problem: Some(problem.clone()),
                    };
                    self.observers.state.send_replace(stopped);
                    return problem;
                }
            };
            machine.observe(&outcome, Instant::now());
            match outcome {
                StepOutcome::Failed(problem) | StepOutcome::InitialEventsFailed(problem) => {
                    self.observers.report(&problem);
                    last = Some(problem);
                }
                StepOutcome::Ended(ended) => {
                    self.observers.stats.ended(ended.problem.as_ref());
                    if let Some(problem) = &ended.problem {
                        self.observers.report(problem);
                    }
                    last = ended.problem;
                }
                StepOutcome::Listed { .. } => degraded_since = None,
                _ => {}
            }
        }
    }

    async fn list(
        &mut self,
        resource_version: String,
        limit: usize,
        reached: Option<ServerVersion>,
        reason: RelistReason,
    ) -> StepOutcome {
        let lists = self.options.lists.clone();
        let _permit = match &lists {
            Some(lists) => lists.acquire().await,
            None => None,
        };
        let observers = Arc::clone(&self.observers);
        observers.stats.relisted(reason);
        observers
            .state
            .send_replace(ReflectorState::Listing { received: 0 });
        let mut trace = StepTrace::new("a list", Arc::clone(&self.name));
        let source = Arc::clone(&self.source);
        let heard = Mutex::new(Instant::now());
        let store = &mut self.store;
        store.discard();
        let mut received = 0;
        let pager = Pager::new(source.as_ref()).page_size(limit);
        let options = ListOptions {
            resource_version,
            ..ListOptions::default()
        };
        let listing = pager.list(options, |part| {
            *lock(&heard) = Instant::now();
            match part {
                Paged::Restart => {
                    received = 0;
                    store.discard();
                }
                Paged::Items(objects) => {
                    received += objects.len();
                    observers.stats.received(&objects);
                    trace.step("receiving", objects.len());
                    store.collect(objects.into_iter().map(WatchEvent::Added).collect());
                    trace.step("decoding", 0);
                    observers
                        .state
                        .send_replace(ReflectorState::Listing { received });
                }
            }
        });
        let listed = tokio::select! {
            biased;
            listed = listing => listed,
            () = silence(&heard, self.options.silence_max) => {
                return StepOutcome::Failed(Problem::Silent(self.options.silence_max));
            }
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return StepOutcome::Failed(error.into()),
        };
        let version = ServerVersion::new(&listed.resource_version);
        if !self.replace(&version, reached.as_ref()) {
            return StepOutcome::WentBack;
        }
        trace.step("replacing", received);
        StepOutcome::Listed {
            version,
            paginated: listed.paginated,
        }
    }

    /// Replaces the content of the store by the collected list. Returns false if the list is older than the store: the server has
    /// lost history, and the reflector must list again without comparing versions.
    fn replace(&mut self, version: &ServerVersion, reached: Option<&ServerVersion>) -> bool {
        if let Some(reached) = reached.filter(|reached| version.is_before(reached)) {
            self.observers.report(&Problem::WentBack {
                from: reached.text().into(),
                to: version.text().into(),
            });
            self.store.distrust();
            return false;
        }
        self.store.replace(version);
        self.observers.stats.progressed();
        self.observers.state.send_replace(ReflectorState::Synced);
        true
    }

    async fn open(&self, options: ListOptions) -> Result<EventStream, Problem> {
        let opening = timeout(self.options.silence_max, self.source.watch(options));
        match opening.await {
            Err(_) => Err(Problem::Silent(self.options.silence_max)),
            Ok(opened) => opened.map_err(Problem::from),
        }
    }

    async fn watch_list(
        &mut self,
        resource_version: String,
        lasting: Duration,
        machine: &mut ReflectorMachine,
        degraded_since: &mut Option<Instant>,
    ) -> StepOutcome {
        let start = Instant::now();
        let options = ListOptions {
            resource_version,
            resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
            send_initial_events: Some(true),
            ..watch_options(lasting)
        };
        self.observers
            .state
            .send_replace(ReflectorState::Streaming { received: 0 });
        self.store.discard();
        let mut trace = StepTrace::new("a list by initial events", Arc::clone(&self.name));
        let mut stream = match self.open(options).await {
            Ok(stream) => stream,
            Err(problem) => return StepOutcome::Failed(problem),
        };
        self.observers.stats.opened();
        trace.step("opening", 0);
        let collected = self
            .collect(&mut stream, start + lasting + GRACE, &mut trace)
            .await;
        let (version, rest) = match collected {
            Ok(collected) => collected,
            Err(problem) => return StepOutcome::InitialEventsFailed(problem),
        };
        if !self.replace(&version, machine.reached()) {
            return StepOutcome::WentBack;
        }
        *degraded_since = None;
        trace.step("replacing", 0);
        drop(trace);
        machine.observe(
            &StepOutcome::InitialEventsEnded {
                version: version.clone(),
            },
            Instant::now(),
        );
        self.follow(stream, version, rest, start, lasting).await
    }

    /// Collects the initial events. Returns the version of the bookmark that ends them, and the events after it in its batch.
    async fn collect(
        &mut self,
        stream: &mut EventStream,
        deadline: Instant,
        trace: &mut StepTrace,
    ) -> Result<(ServerVersion, Vec<WatchEvent>), Problem> {
        let mut received = 0;
        let mut heard = Instant::now();
        let mut warn_at = heard + INITIAL_EVENTS_WARNING;
        loop {
            let wake = warn_at.min(heard + INITIAL_EVENTS_STALL).min(deadline);
            let mut batch = match timeout_at(wake, next(stream)).await {
                Ok(Some(batch)) => batch?,
                Ok(None) => return Err(Problem::InitialEventsBrokeOff),
                Err(_) => {
                    let now = Instant::now();
                    if now >= deadline || now - heard >= INITIAL_EVENTS_STALL {
                        return Err(Problem::InitialEventsStalled);
                    }
                    warn_at = now + INITIAL_EVENTS_WARNING;
                    self.warn_of_missing_end(received, now - heard);
                    continue;
                }
            };
            heard = Instant::now();
            let end = batch.iter().position(ends_initial_events);
            let rest = match end {
                Some(end) => batch.split_off(end),
                None => Vec::new(),
            };
            if let Some(error) = batch
                .iter()
                .position(|event| matches!(event, WatchEvent::Error(_)))
            {
                return Err(match batch.swap_remove(error) {
                    WatchEvent::Error(status) => SourceError::Status(status).into(),
                    _ => Problem::InitialEventsBrokeOff,
                });
            }
            batch.retain(|event| object(event).is_some_and(|object| foreign(object).is_none()));
            received += batch.len();
            self.observers
                .stats
                .received(batch.iter().filter_map(object));
            trace.step("receiving", batch.len());
            self.store.collect(batch);
            trace.step("decoding", 0);
            self.observers
                .state
                .send_replace(ReflectorState::Streaming { received });
            let mut rest = rest.into_iter();
            if let Some(WatchEvent::Bookmark {
                resource_version, ..
            }) = rest.next()
            {
                return Ok((ServerVersion::new(&resource_version), rest.collect()));
            }
        }
    }

    fn warn_of_missing_end(&self, received: usize, quiet: Duration) {
        if received == 0 {
            tracing::warn!(
                reflector = &*self.name,
                "no initial events yet, and no bookmark that ends them"
            );
        } else {
            tracing::warn!(
                reflector = &*self.name,
                received,
                "no bookmark ends the initial events; the last event came {quiet:.0?} ago"
            );
        }
    }

    async fn watch(
        &mut self,
        from: ServerVersion,
        lasting: Duration,
        degraded_since: &mut Option<Instant>,
    ) -> StepOutcome {
        let start = Instant::now();
        let options = ListOptions {
            resource_version: from.text().to_owned(),
            ..watch_options(lasting)
        };
        let stream = match self.open(options).await {
            Ok(stream) => stream,
            Err(problem) => return StepOutcome::Failed(problem),
        };
        *degraded_since = None;
        self.observers.stats.opened();
        self.observers.state.send_if_modified(|state| {
            let changes = !matches!(state, ReflectorState::Synced);
            *state = ReflectorState::Synced;
            changes
        });
        self.follow(stream, from, Vec::new(), start, lasting).await
    }

    /// Applies the events of a watch until it ends.
    async fn follow(
        &mut self,
        mut stream: EventStream,
        from: ServerVersion,
        rest: Vec<WatchEvent>,
        start: Instant,
        lasting: Duration,
    ) -> StepOutcome {
        let deadline = start + lasting + GRACE;
        let mut follow = WatchFollower::new(from.clone(), self.source.zero_is_a_version());
        let mut events = 0;
        let mut bookmarked = false;
        let mut batch = rest;
        let mut problem = loop {
            events += batch.len();
            tracing::trace!(target: "tidings::walk", "receives events of the watch");
            self.observers
                .stats
                .received(batch.iter().filter_map(object));
            let store = &mut self.store;
            let admitted = follow.admit(batch, |key| store.latest(key));
            bookmarked |= admitted.bookmarked;
            if bookmarked {
                self.silence = self.options.silence_max;
            }
            if !admitted.events.is_empty() {
                store.apply(admitted.events);
                self.observers.stats.progressed();
            }
            for skipped in &admitted.skipped {
                self.observers.report(skipped);
            }
            if admitted.problem.is_some() {
                break admitted.problem;
            }
            let quiet_until = (Instant::now() + self.silence).min(deadline);
            batch = match timeout_at(quiet_until, next(&mut stream)).await {
                Ok(Some(Ok(batch))) => batch,
                Ok(Some(Err(error))) => break Some(error.into()),
                Ok(None) => break None,
                Err(_) if Instant::now() >= deadline => break None,
                Err(_) => {
                    let silence = self.silence;
                    if !bookmarked {
                        self.silence = (self.silence * 2).min(lasting);
                    }
                    break Some(Problem::Silent(silence));
                }
            };
        };
        let lasted = start.elapsed();
        if problem.is_none() && follow.reached == from && lasted < VERY_SHORT {
            problem = Some(Problem::VeryShortWatch);
        }
        StepOutcome::Ended(EndedWatch {
            reached: follow.reached,
            events,
            lasted,
            problem,
        })
    }
}

/// Waits until nothing was received for `longest`.
async fn silence(heard: &Mutex<Instant>, longest: Duration) {
    loop {
        let until = *lock(heard) + longest;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}

fn watch_options(lasting: Duration) -> ListOptions {
    ListOptions {
        watch: true,
        allow_watch_bookmarks: true,
        timeout_seconds: Some(lasting.as_secs() as i64),
        ..ListOptions::default()
    }
}

fn object(event: &WatchEvent) -> Option<&tidings_api::Object> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            Some(object)
        }
        WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => None,
    }
}

fn ends_initial_events(event: &WatchEvent) -> bool {
    matches!(
        event,
        WatchEvent::Bookmark {
            initial_events_end: true,
            ..
        }
    )
}

impl<L: ?Sized, S> std::fmt::Debug for Reflector<L, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
