//! What a candidate does next: a pure function of what it has seen, the time, and its chance.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::lock::{LeaseRecord, LeaseVersion, LockError};
use super::{ElectionOptions, JITTER};

/// How often a lease is given back again after a conflict.
const RELEASES_MAX: u32 = 5;

/// The time here, and the time that is written for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) wall: SystemTime,
}

/// The next thing to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Get,
    Create(LeaseRecord),
    Update(LeaseRecord, LeaseVersion),
    Wait(Instant),
    End,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    Got(Result<Option<(LeaseRecord, LeaseVersion)>, LockError>),
    Written(Result<LeaseVersion, LockError>),
    Waited,
}

/// What the program is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notice {
    NewLeader(String),
    StartedLeading,
    /// It must not go on as the leader. That it has stopped is said when its work has ended.
    LostLead,
}

/// One candidate.
#[derive(Debug)]
pub(super) struct Election {
    options: ElectionOptions,
    identity: String,
    observed: Option<Observed>,
    leads: bool,
    /// Until when a leader may lead without a renewal.
    lead_until: Option<Instant>,
    /// Whom the program was told of last.
    reported: Option<String>,
    next: Next,
    /// What is being written, and since when.
    writing: Option<(LeaseRecord, Instant)>,
    releases: u32,
    chance: fastrand::Rng,
}

/// The lease as it was seen or written last.
#[derive(Debug)]
struct Observed {
    record: LeaseRecord,
    version: LeaseVersion,
    /// When this record was first seen, or before it was written. Local: nobody's clock is trusted.
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Begin a try.
    Try,
    /// Write without looking: the lease is ours unless proven otherwise.
    Renew,
    Look,
    Create,
    /// Write what was just looked at.
    Take,
    Rest(Instant),
    GiveBack,
    LookToGiveBack,
    End,
}

impl Election {
    pub(super) fn new(options: ElectionOptions, identity: &str) -> Election {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        Election {
            options,
            identity: identity.to_owned(),
            observed: None,
            leads: false,
            lead_until: None,
            reported: None,
            next: Next::Try,
            writing: None,
            releases: 0,
            chance: fastrand::Rng::with_seed(seed),
        }
    }

    /// Until when this candidate may work as the leader; nobody else takes the lease before that. Counts from before the last
    /// write that was answered: one whose answer was lost is older than when it was seen here, and nobody knows by how much.
    pub(super) fn lease_end(&self) -> Option<Instant> {
        let lead_until = self.lead_until.filter(|_| self.is_holder())?;
        Some(lead_until + (self.options.lease_duration - self.options.renew_deadline))
    }

    /// Until when work that is told now that the lead is lost may go on by itself. What is left of the lease after that is for
    /// dropping it: `least`, or half of it if there is less.
    pub(super) fn work_end(&self, now: Instant, least: Duration) -> Instant {
        let left = self.lease_end().map(|end| end.duration_since(now));
        left.map_or(now, |left| now + left.saturating_sub(least).max(left / 2))
    }

    /// How long work may take to end when the program wants to stop.
    pub(super) fn drain(&self) -> Duration {
        self.options.drain
    }

    /// The same candidate, for another term; what it has seen does not count any more.
    pub(super) fn again(&self) -> Election {
        Election::new(self.options.clone(), &self.identity)
    }

    /// When to give up on the step that was begun now.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        let longest = now + self.options.renew_deadline;
        self.lead_until.map_or(longest, |until| until.min(longest))
    }

    pub(super) fn step(&mut self, now: Now) -> Step {
        if self.next == Next::Try {
            self.next = match &self.observed {
                Some(observed) if self.leads && observed.end() > now.instant => Next::Renew,
                _ => Next::Look,
            };
        }
        match self.next {
            Next::Try | Next::Look | Next::LookToGiveBack => Step::Get,
            Next::Rest(until) => Step::Wait(until),
            Next::End => Step::End,
            Next::Create => Step::Create(self.write(now)),
            Next::Renew | Next::Take | Next::GiveBack => {
                let record = self.write(now);
                let version = self.observed.as_ref().map(|known| known.version.clone());
                Step::Update(record, version.unwrap_or_default())
            }
        }
    }

    /// The record to be written.
    fn write(&mut self, now: Now) -> LeaseRecord {
        let known = self.observed.as_ref().map(|observed| &observed.record);
        let transitions = known.map_or(0, |record| record.transitions);
        let record = if self.next == Next::GiveBack {
            LeaseRecord {
                holder: String::new(),
                lease_duration_seconds: 1,
                acquire_time: now.wall,
                renew_time: now.wall,
                transitions,
            }
        } else {
            let ours = known.filter(|record| record.holder == self.identity);
            let first = known.is_none();
            LeaseRecord {
                holder: self.identity.clone(),
                lease_duration_seconds: self.options.lease_duration.as_secs() as u32,
                acquire_time: ours.map_or(now.wall, |record| record.acquire_time),
                renew_time: now.wall,
                transitions: if ours.is_some() || first {
                    transitions
                } else {
                    transitions.saturating_add(1)
                },
            }
        };
        self.writing = Some((record.clone(), now.instant));
        record
    }

    pub(super) fn observe(&mut self, outcome: Outcome, now: Instant) -> Vec<Notice> {
        let mut notices = Vec::new();
        match (self.next, outcome) {
            (Next::Rest(_), Outcome::Waited) => {
                self.next = Next::Try;
                if self.leads && self.lead_until.is_some_and(|until| now >= until) {
                    self.failed(now, &mut notices);
                }
            }
            (Next::GiveBack, Outcome::Written(written)) => self.gave_back(&written),
            (Next::LookToGiveBack, Outcome::Got(got)) => self.looked_to_give_back(got, now),
            (_, Outcome::Written(Ok(version))) => self.won(version, now, &mut notices),
            // Somebody wrote the lease, or the answer was lost: look.
            (Next::Renew, Outcome::Written(Err(_))) => self.next = Next::Look,
            (_, Outcome::Got(Ok(None))) => {
                // Deleted behind a leader's back it goes on from what the leader knows.
                if !self.leads {
                    self.observed = None;
                }
                self.next = Next::Create;
            }
            (_, Outcome::Got(Ok(Some((record, version))))) => {
                self.see(record, version, now);
                let free = self.observed.as_ref().is_none_or(|observed| {
                    observed.record.holder.is_empty() || observed.end() <= now
                });
                if self.is_holder() || free && !self.leads {
                    self.next = Next::Take;
                } else {
                    self.failed(now, &mut notices);
                }
            }
            (_, Outcome::Got(Err(_)) | Outcome::Written(Err(_))) => {
                self.failed(now, &mut notices);
            }
            (_, Outcome::Waited) => {}
        }
        notices
    }

    fn is_holder(&self) -> bool {
        let holder = self
            .observed
            .as_ref()
            .map(|observed| &observed.record.holder);
        holder == Some(&self.identity)
    }

    fn see(&mut self, record: LeaseRecord, version: LeaseVersion, now: Instant) {
        // Only a changed record is a renewal: a label on the lease is none.
        let since = match &self.observed {
            Some(observed) if observed.record == record => observed.since,
            _ => now,
        };
        self.observed = Some(Observed {
            record,
            version,
            since,
        });
    }

    fn won(&mut self, version: LeaseVersion, now: Instant, notices: &mut Vec<Notice>) {
        let Some((record, since)) = self.writing.take() else {
            return;
        };
        self.observed = Some(Observed {
            record,
            version,
            since,
        });
        self.lead_until = Some(since + self.options.renew_deadline);
        self.report(notices);
        if !std::mem::replace(&mut self.leads, true) {
            notices.push(Notice::StartedLeading);
        }
        self.next = Next::Rest(now + self.options.retry_period);
    }

    fn failed(&mut self, now: Instant, notices: &mut Vec<Notice>) {
        self.report(notices);
        let Some(until) = self.lead_until.filter(|_| self.leads) else {
            let wait = self.options.retry_period;
            self.next = Next::Rest(now + wait.mul_f64(1.0 + JITTER * self.chance.f64()));
            return;
        };
        // Whoever has held the lease since, it is over: going on until the deadline would be two leaders.
        if now >= until || !self.is_holder() {
            notices.push(Notice::LostLead);
            self.leads = false;
            self.next = Next::End;
            return;
        }
        self.next = Next::Rest((now + self.options.retry_period).min(until));
    }

    fn report(&mut self, notices: &mut Vec<Notice>) {
        let holder = self
            .observed
            .as_ref()
            .map(|observed| &observed.record.holder);
        let holder = holder.filter(|holder| !holder.is_empty());
        if holder != self.reported.as_ref() {
            self.reported = holder.cloned();
            notices.extend(holder.cloned().map(Notice::NewLeader));
        }
    }

    /// The program wants to stop; its work has ended.
    pub(super) fn stop(&mut self, now: Instant) {
        let gives_back = self.leads && self.options.release;
        self.leads = false;
        self.lead_until = Some(now + self.options.renew_deadline);
        self.next = if gives_back {
            Next::GiveBack
        } else {
            Next::End
        };
    }

    fn gave_back(&mut self, written: &Result<LeaseVersion, LockError>) {
        self.releases += 1;
        let again = matches!(written, Err(LockError::Conflict)) && self.releases < RELEASES_MAX;
        self.next = if again {
            Next::LookToGiveBack
        } else {
            Next::End
        };
    }

    fn looked_to_give_back(
        &mut self,
        got: Result<Option<(LeaseRecord, LeaseVersion)>, LockError>,
        now: Instant,
    ) {
        self.next = Next::End;
        if let Ok(Some((record, version))) = got {
            self.see(record, version, now);
            // What is another's by now is not ours to give.
            if self.is_holder() {
                self.next = Next::GiveBack;
            }
        }
    }
}

impl Observed {
    fn end(&self) -> Instant {
        self.since + Duration::from_secs(u64::from(self.record.lease_duration_seconds))
    }
}
