//! Decides what a member of a group writes next, and which keys it may act on. Does no I/O and reads no clock: the caller passes the time,
//! what the server has, and the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::table::{MemberId, ShardTable, owner};

/// The durations of memberships, as in a leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardTimes {
    /// A member that did not renew for this long is removed by others.
    pub(crate) lease: Duration,
    /// A member that could not renew for this long stops to act.
    pub(crate) renew_deadline: Duration,
    /// How often a member renews.
    pub(crate) renew_every: Duration,
}

/// What the Lease of a member says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MemberRecord {
    /// The version of the Lease.
    pub(crate) version: String,
    /// The epoch that the member has acknowledged; [`LEFT`] once it will never act again.
    pub(crate) acknowledged: u64,
    /// The member wants no keys.
    pub(crate) leaving: bool,
    /// How long others wait for a renewal before they remove the member.
    pub(crate) lease: Duration,
}

/// The acknowledgement of a member that has left: it acts in no epoch.
pub(crate) const LEFT: u64 = u64::MAX;

/// The Leases of a group at one version of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GroupRecords {
    pub(crate) members: BTreeMap<MemberId, MemberRecord>,
    /// The table, and the version of its Lease.
    pub(crate) table: Option<(ShardTable, String)>,
}

/// What a member writes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShardStep {
    /// Create the member's Lease.
    Join,
    /// Write the member's Lease, if it still has this version.
    Renew {
        version: String,
        acknowledged: u64,
        leaving: bool,
    },
    /// Read the member's Lease: its version is not known.
    Read,
    /// Write the table, if it still has this version; without a version, create it.
    Advance {
        table: ShardTable,
        version: Option<String>,
    },
    /// Delete the Lease of a member that is gone, if it still has this version.
    Remove { member: MemberId, version: String },
    /// Nothing until this time, unless something is observed before.
    Wait(Instant),
    /// The member has left.
    End,
}

/// The answer to a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShardAnswer {
    /// It was done; with the version of the Lease that was written or read.
    Done(String),
    /// The Lease has another version, or is there already.
    Conflict,
    /// There is no such Lease.
    Gone,
    /// Nobody knows: the request failed or was not answered.
    Failed,
}

/// What a member may act on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ownership {
    pub(crate) me: Option<MemberId>,
    /// The table that the member goes by.
    pub(crate) table: Option<ShardTable>,
    /// Members of this epoch and the one before that may still act by the one before.
    pub(crate) unsettled: BTreeSet<MemberId>,
}

impl Ownership {
    /// True if the key is this member's by the table, whether it may act already or not.
    pub(crate) fn owns(&self, key: u64) -> bool {
        let table = self.table.as_ref();
        let owner = table.and_then(|table| owner(&table.members, key));
        owner.is_some() && owner == self.me.as_ref()
    }

    /// True if the key is this member's and nobody else acts on it any more.
    pub(crate) fn may_act(&self, key: u64) -> bool {
        if !self.owns(key) {
            return false;
        }
        match self.table.as_ref().and_then(|table| table.before.as_ref()) {
            Some(before) => owner(before, key).is_none_or(|last| {
                Some(last) == self.me.as_ref() || !self.unsettled.contains(last)
            }),
            None => self.unsettled.is_empty(),
        }
    }
}

/// A member as this one sees it.
#[derive(Debug)]
struct SeenMember {
    record: MemberRecord,
    /// When this record was first seen, by the local clock.
    since: Instant,
}

impl SeenMember {
    /// When the member is removed unless it renews.
    fn end(&self) -> Instant {
        self.since + self.record.lease
    }
}

/// The state of one member.
#[derive(Debug)]
pub(crate) struct ShardMachine {
    times: ShardTimes,
    me: MemberId,
    /// The version of the member's own Lease, where it is known.
    version: Option<String>,
    has_joined: bool,
    /// The Lease is not known to be gone, but its version is not known either.
    must_read: bool,
    valid_until: Option<Instant>,
    renew_at: Instant,
    /// What the last renewal that was answered said.
    written: (u64, bool),
    seen: BTreeMap<MemberId, SeenMember>,
    table: Option<(ShardTable, String)>,
    /// The table that this member goes by: the newest it has seen.
    current: Option<ShardTable>,
    /// All that the member does not own in this epoch has ended. Never taken back.
    acknowledged: u64,
    leaving: bool,
    has_left: bool,
    /// What was to be said when the member last renewed before its time.
    hurried: Option<(u64, bool)>,
    /// The next write of the table or deletion of a Lease: not at once after one that failed.
    others_at: Option<Instant>,
    /// A change of the table or of others' Leases that is due, and since when.
    due: Option<(ShardStep, Instant)>,
}

impl ShardMachine {
    pub(crate) fn new(times: ShardTimes, me: MemberId, now: Instant) -> ShardMachine {
        ShardMachine {
            times,
            me,
            version: None,
            has_joined: false,
            must_read: false,
            valid_until: None,
            renew_at: now,
            written: (0, false),
            seen: BTreeMap::new(),
            table: None,
            current: None,
            acknowledged: 0,
            leaving: false,
            has_left: false,
            hurried: None,
            others_at: None,
            due: None,
        }
    }

    /// When the member must stop to act, unless it renews before. `None` before it has joined, and after others have removed it.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        self.valid_until
    }

    /// True if the member was removed by others: it must end everything, and join again under another name.
    pub(crate) fn is_removed(&self) -> bool {
        self.has_left && !self.leaving
    }

    /// The server has these Leases.
    pub(crate) fn observed(&mut self, records: &GroupRecords, now: Instant) {
        self.seen
            .retain(|member, _| records.members.contains_key(member));
        for (member, record) in &records.members {
            let known = self.seen.get(member).map(|seen| &seen.record);
            if known != Some(record) {
                let record = record.clone();
                let seen = SeenMember { record, since: now };
                self.seen.insert(member.clone(), seen);
            }
        }
        self.table.clone_from(&records.table);
        let newest = self.table.as_ref().map(|(table, _)| table);
        let known = self.current.as_ref().map_or(0, |table| table.epoch);
        // A table that was deleted or restored from a backup says nothing new: nobody gains a key by it.
        if newest.is_some_and(|table| table.epoch > known) {
            self.current = newest.cloned();
        }
    }

    /// Everything that the member does not own in the current epoch has ended; when it leaves, everything.
    pub(crate) fn drained(&mut self) {
        self.acknowledged = match self.leaving {
            true => LEFT,
            false => self.acknowledged.max(self.epoch()),
        };
    }

    /// The epoch that the member goes by.
    fn epoch(&self) -> u64 {
        self.current.as_ref().map_or(0, |table| table.epoch)
    }

    /// The member wants to leave: it owns nothing from now on.
    pub(crate) fn leave(&mut self, now: Instant) {
        if !self.leaving {
            self.leaving = true;
            self.renew_at = now;
        }
    }

    /// What the member may act on, while it is valid.
    pub(crate) fn ownership(&self) -> Ownership {
        let has_joined = self.has_joined && !self.has_left && !self.leaving;
        let table = self.current.clone().filter(|_| has_joined);
        let unsettled = match &table {
            Some(table) => self.unsettled(table),
            None => BTreeSet::new(),
        };
        Ownership {
            me: has_joined.then(|| self.me.clone()),
            table,
            unsettled,
        }
    }

    /// The members that may still act by the epoch before a table: all who have not acknowledged it and whose Lease is there.
    fn unsettled(&self, table: &ShardTable) -> BTreeSet<MemberId> {
        let others = self.seen.iter().filter(|(member, _)| **member != self.me);
        let acting = others.filter(|(_, seen)| seen.record.acknowledged < table.epoch);
        acting.map(|(member, _)| member.clone()).collect()
    }

    /// What the member has to say in its Lease: the acknowledged epoch, and whether it leaves.
    fn wanted(&self) -> (u64, bool) {
        (self.acknowledged, self.leaving)
    }

    /// What to write next.
    pub(crate) fn step(&mut self, now: Instant) -> ShardStep {
        if self.has_left {
            return ShardStep::End;
        }
        if !self.has_joined {
            return match (self.leaving, self.renew_at <= now) {
                (true, _) => ShardStep::End,
                (false, true) => ShardStep::Join,
                (false, false) => ShardStep::Wait(self.renew_at),
            };
        }
        if self.leaving && self.written.0 == LEFT {
            return ShardStep::End;
        }
        if self.renew_at <= now {
            if self.must_read {
                return ShardStep::Read;
            }
            if let Some(version) = &self.version {
                let (acknowledged, leaving) = self.wanted();
                return ShardStep::Renew {
                    version: version.clone(),
                    acknowledged,
                    leaving,
                };
            }
        }
        // A member whose view of the group is old, or does not have itself yet, changes nothing.
        let is_seen = self.seen.get(&self.me).is_some_and(|seen| seen.end() > now);
        let may_change = is_seen && !self.leaving;
        let change = self.change_of_others(now).filter(|_| may_change);
        self.due = change.map(|change| match self.due.take() {
            Some((known, since)) if known == change => (known, since),
            _ => (change, now),
        });
        if let Some((change, since)) = &self.due
            && self.turn(*since, now) <= now
        {
            return change.clone();
        }
        ShardStep::Wait(self.next_time(now))
    }

    /// Renews before its time if the member has something new to say. Once: a renewal that fails is tried again later.
    pub(crate) fn hurry(&mut self, now: Instant) {
        let wanted = self.wanted();
        if self.has_joined && wanted != self.written && self.hurried != Some(wanted) {
            self.hurried = Some(wanted);
            self.renew_at = self.renew_at.min(now);
        }
    }

    fn next_time(&self, now: Instant) -> Instant {
        let ends = self.seen.values().map(SeenMember::end);
        let next = ends.filter(|end| *end > now).min();
        let mut next = next.map_or(self.renew_at, |next| next.min(self.renew_at));
        if let Some((_, since)) = &self.due {
            next = next.min(self.turn(*since, now));
        }
        next.max(now + Duration::from_millis(1))
    }

    /// When it is this member's turn to make a change that is due: the first of those that renew makes it at once, the others only if it
    /// does not.
    fn turn(&self, since: Instant, now: Instant) -> Instant {
        let before = self
            .seen
            .iter()
            .take_while(|(member, _)| **member != self.me);
        let fresh = before.filter(|(_, seen)| seen.end() > now && !seen.record.leaving);
        let places = u32::try_from(fresh.count()).unwrap_or(u32::MAX);
        let turn = since + (self.times.renew_every / 4).saturating_mul(places);
        self.others_at.map_or(turn, |at| at.max(turn))
    }

    /// The next change of the table or of others' Leases.
    fn change_of_others(&self, now: Instant) -> Option<ShardStep> {
        let gone = self
            .seen
            .iter()
            .find(|(member, seen)| **member != self.me && seen.end() <= now);
        if let Some((member, seen)) = gone {
            return Some(ShardStep::Remove {
                member: member.clone(),
                version: seen.record.version.clone(),
            });
        }
        let members: Vec<MemberId> = self
            .seen
            .iter()
            .filter(|(_, seen)| !seen.record.leaving)
            .map(|(member, _)| member.clone())
            .collect();
        let acknowledged = self.seen.values().map(|seen| seen.record.acknowledged);
        let acknowledged = acknowledged.filter(|epoch| *epoch != LEFT).max();
        let newest = acknowledged.unwrap_or_default().max(self.epoch());
        match &self.table {
            Some((table, version)) if table.epoch >= newest => {
                // A member that came later acts by no epoch yet.
                let acts = |member: &MemberId| {
                    let before = table.before.as_ref();
                    table.members.contains(member)
                        || before.is_none_or(|before| before.contains(member))
                };
                let settled = self
                    .seen
                    .iter()
                    .all(|(member, seen)| seen.record.acknowledged >= table.epoch || !acts(member));
                (table.members != members && settled).then(|| ShardStep::Advance {
                    table: ShardTable {
                        epoch: table.epoch + 1,
                        members,
                        before: Some(table.members.clone()),
                    },
                    version: Some(version.clone()),
                })
            }
            // The table was deleted, or an old one came back: who acts on what is known to its owners only.
            other => Some(ShardStep::Advance {
                table: ShardTable {
                    epoch: newest + 1,
                    members,
                    before: None,
                },
                version: other.as_ref().map(|(_, version)| version.clone()),
            }),
        }
    }

    /// The answer to a step that began at `started`.
    pub(crate) fn answered(
        &mut self,
        step: &ShardStep,
        answer: ShardAnswer,
        started: Instant,
        now: Instant,
    ) {
        match (step, answer) {
            (ShardStep::Join, ShardAnswer::Done(version)) => {
                self.has_joined = true;
                self.renewed(version, (0, false), started);
            }
            // A create whose answer was lost: the name is this member's own.
            (ShardStep::Join, ShardAnswer::Conflict) => {
                self.has_joined = true;
                self.must_read = true;
                self.renew_at = now;
            }
            (
                ShardStep::Renew {
                    acknowledged,
                    leaving,
                    ..
                },
                ShardAnswer::Done(version),
            ) => self.renewed(version, (*acknowledged, *leaving), started),
            (ShardStep::Renew { .. } | ShardStep::Read, ShardAnswer::Gone) => {
                self.has_left = true;
                self.valid_until = None;
            }
            // The answer to an earlier renewal was lost, or a person has changed the Lease.
            (ShardStep::Renew { .. }, ShardAnswer::Conflict) => {
                self.must_read = true;
                self.renew_at = now;
            }
            (ShardStep::Renew { .. }, ShardAnswer::Failed) => {
                self.must_read = true;
                self.renew_at = now + self.retry();
            }
            (ShardStep::Read, ShardAnswer::Done(version)) => {
                self.must_read = false;
                self.version = Some(version);
                self.renew_at = now;
            }
            (ShardStep::Join | ShardStep::Read, _) => self.renew_at = now + self.retry(),
            (ShardStep::Remove { .. } | ShardStep::Advance { .. }, answer) => {
                // What was written is observed soon; what failed is not tried again at once.
                let wait = match answer {
                    ShardAnswer::Failed => self.retry(),
                    _ => self.retry() / 4,
                };
                self.others_at = Some(now + wait);
            }
            (ShardStep::Wait(_) | ShardStep::End, _) => {}
        }
    }

    /// Something has changed since the last write of the table or deletion of a Lease: the next need not wait.
    pub(crate) fn others_changed(&mut self) {
        self.others_at = None;
    }

    fn renewed(&mut self, version: String, written: (u64, bool), started: Instant) {
        self.version = Some(version);
        self.written = written;
        self.valid_until = Some(started + self.times.renew_deadline);
        self.renew_at = started + self.times.renew_every;
    }

    /// The wait after a request that failed.
    fn retry(&self) -> Duration {
        self.times.renew_every / 2
    }
}
