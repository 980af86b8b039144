//! Decides what a candidate does next. Does no I/O and reads no clock: the caller passes the time and the answers.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::lock::{LeaseRecord, LeaseVersion, LockError};
use super::{ElectionOptions, JITTER};

/// How often a candidate tries to release the lease when writes conflict.
const RELEASES_MAX: u32 = 5;

/// The time of one step: the monotonic clock for decisions, and the wall clock for the lease record.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElectionTime {
    pub(super) instant: Instant,
    pub(super) wall: SystemTime,
}

/// What the candidate does next.
#[derive(Debug, PartialEq)]
pub(super) enum ElectionStep {
    Get,
    Create(LeaseRecord),
    Update(LeaseRecord, LeaseVersion),
    Wait(Instant),
    End,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum ElectionOutcome {
    Got(Result<Option<(LeaseRecord, LeaseVersion)>, LockError>),
    Written(Result<LeaseVersion, LockError>),
    Waited,
}

/// What the elector tells the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ElectionNotice {
    NewLeader(String),
    StartedLeading,
    /// The candidate must not lead any longer. `on_stopped_leading` is called later, when its work has ended.
    LostLead,
}

/// The state of one candidate.
#[derive(Debug)]
pub(super) struct Election {
    options: ElectionOptions,
    identity: String,
    observed: Option<ObservedLease>,
    leads: bool,
    /// When the leader must stop unless it renews the lease before.
    lead_until: Option<Instant>,
    /// The leader that was last reported to the program.
    reported: Option<String>,
    next: ElectionPhase,
    /// The record that is being written, and when the write began.
    writing: Option<(LeaseRecord, Instant)>,
    releases: u32,
    rng: fastrand::Rng,
}

/// The lease as it was last read or written.
#[derive(Debug)]
struct ObservedLease {
    record: LeaseRecord,
    version: LeaseVersion,
    /// When this record was first read, or when its write began, by the local clock: clocks of other candidates are not trusted.
    since: Instant,
}

/// What the candidate is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElectionPhase {
    /// Begin an attempt to acquire or renew.
    Try,
    /// Update the lease without reading it first: this candidate held it last.
    Renew,
    Get,
    Create,
    /// Update the lease that was just read.
    Acquire,
    Rest(Instant),
    Release,
    GetForRelease,
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
            next: ElectionPhase::Try,
            writing: None,
            releases: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// When the lease of this candidate expires: no other takes it before. Counts from the start of the last write that was
    /// answered. A write whose answer was lost may be older than the read that showed it, by an unknown time.
    pub(super) fn lease_end(&self) -> Option<Instant> {
        let lead_until = self.lead_until.filter(|_| self.is_holder())?;
        Some(lead_until + (self.options.lease_duration - self.options.renew_deadline))
    }

    /// When work must have ended by itself after the lead was lost at `now`. The rest of the lease is for aborting the work:
    /// `least`, or half of what is left of the lease if that is less.
    pub(super) fn work_end(&self, now: Instant, least: Duration) -> Instant {
        let left = self.lease_end().map(|end| end.duration_since(now));
        left.map_or(now, |left| now + left.saturating_sub(least).max(left / 2))
    }

    /// How long the work may take to end when the program stops.
    pub(super) fn drain(&self) -> Duration {
        self.options.drain
    }

    /// The candidate for another term, without what it has observed.
    pub(super) fn again(&self) -> Election {
        Election::new(self.options.clone(), &self.identity)
    }

    /// When to give up a step that begins at `now`.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        let longest = now + self.options.renew_deadline;
        self.lead_until.map_or(longest, |until| until.min(longest))
    }

    pub(super) fn step(&mut self, now: ElectionTime) -> ElectionStep {
        if self.next == ElectionPhase::Try {
            self.next = match &self.observed {
                Some(observed) if self.leads && observed.end() > now.instant => {
                    ElectionPhase::Renew
                }
                _ => ElectionPhase::Get,
            };
        }
        match self.next {
            ElectionPhase::Try | ElectionPhase::Get | ElectionPhase::GetForRelease => {
                ElectionStep::Get
            }
            ElectionPhase::Rest(until) => ElectionStep::Wait(until),
            ElectionPhase::End => ElectionStep::End,
            ElectionPhase::Create => ElectionStep::Create(self.write(now)),
            ElectionPhase::Renew | ElectionPhase::Acquire | ElectionPhase::Release => {
                let record = self.write(now);
                let version = self.observed.as_ref().map(|known| known.version.clone());
                ElectionStep::Update(record, version.unwrap_or_default())
            }
        }
    }

    /// The record to write in this phase.
    fn write(&mut self, now: ElectionTime) -> LeaseRecord {
        let known = self.observed.as_ref().map(|observed| &observed.record);
        let transitions = known.map_or(0, |record| record.transitions);
        let record = if self.next == ElectionPhase::Release {
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

    pub(super) fn observe(
        &mut self,
        outcome: ElectionOutcome,
        now: Instant,
    ) -> Vec<ElectionNotice> {
        let mut notices = Vec::new();
        match (self.next, outcome) {
            (ElectionPhase::Rest(_), ElectionOutcome::Waited) => {
                self.next = ElectionPhase::Try;
                if self.leads && self.lead_until.is_some_and(|until| now >= until) {
                    self.failed(now, &mut notices);
                }
            }
            (ElectionPhase::Release, ElectionOutcome::Written(written)) => self.released(&written),
            (ElectionPhase::GetForRelease, ElectionOutcome::Got(got)) => {
                self.got_for_release(got, now)
            }
            (_, ElectionOutcome::Written(Ok(version))) => self.won(version, now, &mut notices),
            // Another candidate wrote the lease, or the answer was lost: read it.
            (ElectionPhase::Renew, ElectionOutcome::Written(Err(_))) => {
                self.next = ElectionPhase::Get
            }
            (_, ElectionOutcome::Got(Ok(None))) => {
                // If a lease is deleted while this candidate leads, it creates it again from the record that it knows.
                if !self.leads {
                    self.observed = None;
                }
                self.next = ElectionPhase::Create;
            }
            (_, ElectionOutcome::Got(Ok(Some((record, version))))) => {
                self.see(record, version, now);
                let free = self.observed.as_ref().is_none_or(|observed| {
                    observed.record.holder.is_empty() || observed.end() <= now
                });
                if self.is_holder() || free && !self.leads {
                    self.next = ElectionPhase::Acquire;
                } else {
                    self.failed(now, &mut notices);
                }
            }
            (_, ElectionOutcome::Got(Err(_)) | ElectionOutcome::Written(Err(_))) => {
                self.failed(now, &mut notices);
            }
            (_, ElectionOutcome::Waited) => {}
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
        // Only a changed record is a renewal; a changed label of the lease object is not.
        let since = match &self.observed {
            Some(observed) if observed.record == record => observed.since,
            _ => now,
        };
        self.observed = Some(ObservedLease {
            record,
            version,
            since,
        });
    }

    fn won(&mut self, version: LeaseVersion, now: Instant, notices: &mut Vec<ElectionNotice>) {
        let Some((record, since)) = self.writing.take() else {
            return;
        };
        self.observed = Some(ObservedLease {
            record,
            version,
            since,
        });
        self.lead_until = Some(since + self.options.renew_deadline);
        self.report(notices);
        if !std::mem::replace(&mut self.leads, true) {
            notices.push(ElectionNotice::StartedLeading);
        }
        self.next = ElectionPhase::Rest(now + self.options.retry_period);
    }

    fn failed(&mut self, now: Instant, notices: &mut Vec<ElectionNotice>) {
        self.report(notices);
        let Some(until) = self.lead_until.filter(|_| self.leads) else {
            let wait = self.options.retry_period;
            self.next = ElectionPhase::Rest(now + wait.mul_f64(1.0 + JITTER * self.rng.f64()));
            return;
        };
        // Another candidate may lead already: to go on until the deadline could mean two leaders.
        if now >= until || !self.is_holder() {
            notices.push(ElectionNotice::LostLead);
            self.leads = false;
            self.next = ElectionPhase::End;
            return;
        }
        self.next = ElectionPhase::Rest((now + self.options.retry_period).min(until));
    }

    fn report(&mut self, notices: &mut Vec<ElectionNotice>) {
        let holder = self
            .observed
            .as_ref()
            .map(|observed| &observed.record.holder);
        let holder = holder.filter(|holder| !holder.is_empty());
        if holder != self.reported.as_ref() {
            self.reported = holder.cloned();
            notices.extend(holder.cloned().map(ElectionNotice::NewLeader));
        }
    }

    /// The program stops, and its work has ended: releases the lease if the options say so.
    pub(super) fn stop(&mut self, now: Instant) {
        let releases_lease = self.leads && self.options.release;
        self.leads = false;
        self.lead_until = Some(now + self.options.renew_deadline);
        self.next = if releases_lease {
            ElectionPhase::Release
        } else {
            ElectionPhase::End
        };
    }

    fn released(&mut self, written: &Result<LeaseVersion, LockError>) {
        self.releases += 1;
        let again = matches!(written, Err(LockError::Conflict)) && self.releases < RELEASES_MAX;
        self.next = if again {
            ElectionPhase::GetForRelease
        } else {
            ElectionPhase::End
        };
    }

    fn got_for_release(
        &mut self,
        got: Result<Option<(LeaseRecord, LeaseVersion)>, LockError>,
        now: Instant,
    ) {
        self.next = ElectionPhase::End;
        if let Ok(Some((record, version))) = got {
            self.see(record, version, now);
            // Another candidate may hold the lease by now.
            if self.is_holder() {
                self.next = ElectionPhase::Release;
            }
        }
    }
}

impl ObservedLease {
    fn end(&self) -> Instant {
        self.since + Duration::from_secs(u64::from(self.record.lease_duration_seconds))
    }
}
