//! Decides what a member of a group writes next, and which keys it may act on. Does no I/O and reads no clock: the caller passes the time,
//! what the server has, and the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::ownership::Ownership;
use super::table::{Acknowledged, MemberId, MemberList, ShardTable, TableId};

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
    pub(crate) acknowledged: Acknowledged,
    /// The member wants no keys.
    pub(crate) leaving: bool,
    /// How long others wait for a renewal before they remove the member.
    pub(crate) lease: Duration,
}

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
        acknowledged: Acknowledged,
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
    /// When the last renewal began that was answered.
    renewed_at: Instant,
    valid_until: Option<Instant>,
    renew_at: Instant,
    /// What the last renewal that was answered said.
    written: (Acknowledged, bool),
    /// When the first renewal began that was answered and that the member has not seen since. Who does not see what it writes does not
    /// see the group.
    unseen_since: Option<Instant>,
    seen: BTreeMap<MemberId, SeenMember>,
    table: Option<(ShardTable, String)>,
    /// The table that this member goes by: the newest it has seen.
    current: Option<ShardTable>,
    /// Other members that may act by an older table than the current one. Only shrinks until there is another table: who joins later
    /// acts by no older one.
    unsettled: BTreeSet<MemberId>,
    /// Never taken back.
    acknowledged: Acknowledged,
    leaving: bool,
    has_left: bool,
    /// What was to be said when the member last renewed before its time.
    hurried: Option<(Acknowledged, bool)>,
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
            renewed_at: now,
            valid_until: None,
            renew_at: now,
            written: (Acknowledged::Nothing, false),
            unseen_since: None,
            seen: BTreeMap::new(),
            table: None,
            current: None,
            unsettled: BTreeSet::new(),
            acknowledged: Acknowledged::Nothing,
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

    /// True if the member has told the others that it acts no more, or has no Lease.
    pub(crate) fn has_said_goodbye(&self) -> bool {
        self.has_left || !self.has_joined || self.written.0 == Acknowledged::Left
    }

    /// The version of the member's Lease that it last wrote or read.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
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
                if *member == self.me {
                    self.unseen_since = None;
                }
            }
        }
        self.table.clone_from(&records.table);
        let newest = self.table.as_ref().map(|(table, _)| table);
        let known = self.current.as_ref().map_or(0, |table| table.epoch);
        // A table that was deleted or restored from a backup says nothing new: nobody gains a key by it.
        if newest.is_some_and(|table| table.epoch > known) {
            self.current = newest.cloned();
            self.unsettled = self.others_before();
        }
        if let Some(id) = self.id() {
            let seen = &self.seen;
            let acts = |member: &MemberId| {
                let seen = seen.get(member);
                seen.is_some_and(|seen| !seen.record.acknowledged.covers(id))
            };
            self.unsettled.retain(acts);
        }
    }

    /// Other members that may have acted before the current table.
    fn others_before(&self) -> BTreeSet<MemberId> {
        let before = self.current.as_ref();
        let before = before.and_then(|table| table.before.as_ref());
        let others = self.seen.keys().filter(|member| **member != self.me);
        let others = others.filter(|member| before.is_none_or(|before| before.contains(member)));
        others.cloned().collect()
    }

    /// Everything that the member does not own by the current table has ended; when it leaves, everything.
    pub(crate) fn drained(&mut self) {
        if self.leaving {
            self.acknowledged = Acknowledged::Left;
        } else if let Some(table) = &self.current {
            self.acknowledged = Acknowledged::Table(table.id());
        }
    }

    /// Members that have not acknowledged the current table, this one perhaps among them. There is no next table before they do.
    pub(crate) fn waits_for(&self) -> Vec<MemberId> {
        let Some(table) = &self.current else {
            return Vec::new();
        };
        let (id, before) = (table.id(), table.before.as_ref());
        // A member that came later acts by no table yet.
        let acts = |member: &MemberId| {
            table.members.contains(member)
                || before.is_some_and(|before| before.contains(member))
                || self.unsettled.contains(member)
        };
        let waited = self
            .seen
            .iter()
            .filter(|(member, seen)| !seen.record.acknowledged.covers(id) && acts(member));
        waited.map(|(member, _)| member.clone()).collect()
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
            Some(_) => self.unsettled.clone(),
            None => BTreeSet::new(),
        };
        Ownership {
            me: has_joined.then(|| self.me.clone()),
            table,
            unsettled,
        }
    }

    /// What the member has to say in its Lease: the acknowledged table, and whether it leaves.
    fn wanted(&self) -> (Acknowledged, bool) {
        (self.acknowledged, self.leaving)
    }

    /// True if the member has not seen its own renewals for so long that it must let its membership lapse: others would wait for
    /// acknowledgements of tables that it does not see.
    fn is_blind(&self, now: Instant) -> bool {
        let deadline = self.times.renew_deadline;
        !self.leaving
            && self
                .unseen_since
                .is_some_and(|since| since + deadline <= now)
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
        // The others do not wait for a member that has said so, nor for one whose lease is over.
        let is_over = self.renewed_at + self.times.lease <= now;
        if self.leaving && (self.written.0 == Acknowledged::Left || is_over) {
            return ShardStep::End;
        }
        if self.renew_at <= now {
            if self.must_read || self.is_blind(now) {
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
        let members = MemberList::from(members);
        let records = self.seen.values().map(|seen| &seen.record);
        let tables = records.filter_map(|record| record.acknowledged.table());
        let tables: BTreeSet<TableId> = tables.chain(self.id()).collect();
        let newest = tables.last().map_or(0, |id| id.epoch);
        match &self.table {
            Some((table, version))
                if self.current.as_ref() == Some(table) && is_newest(table, &tables) =>
            {
                let is_settled = self.waits_for().is_empty();
                (table.members != members && is_settled).then(|| ShardStep::Advance {
                    table: ShardTable {
                        epoch: table.epoch + 1,
                        members,
                        before: Some(table.members.clone()),
                    },
                    version: Some(version.clone()),
                })
            }
            // The table was deleted or cannot be read, or an old or another one came back: who acts on what is known to its owners only.
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

    fn id(&self) -> Option<TableId> {
        self.current.as_ref().map(ShardTable::id)
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
                self.renewed(version, (Acknowledged::Nothing, false), started);
            }
            // The answer to a create was lost, that of this one or of one before: the name is this member's own. It is not created
            // again: if it was there and was removed meanwhile, there may be tables that name it.
            (ShardStep::Join, answer) => {
                self.has_joined = true;
                self.must_read = true;
                self.renewed_at = started;
                self.renew_at = match answer {
                    ShardAnswer::Failed => now + self.retry(),
                    _ => now,
                };
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
                self.renew_at = match self.is_blind(now) {
                    true => now + self.times.renew_every,
                    false => now,
                };
            }
            (ShardStep::Read, _) => self.renew_at = now + self.retry(),
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

    fn renewed(&mut self, version: String, written: (Acknowledged, bool), started: Instant) {
        let own = self.seen.get(&self.me);
        if own.is_none_or(|own| own.record.version != version) {
            self.unseen_since.get_or_insert(started);
        }
        self.version = Some(version);
        self.renewed_at = started;
        self.written = written;
        self.valid_until = Some(started + self.times.renew_deadline);
        self.renew_at = started + self.times.renew_every;
    }

    /// The wait after a request that failed.
    fn retry(&self) -> Duration {
        self.times.renew_every / 2
    }
}

/// True if a table is the newest of those that members go by, and nobody goes by another one of its epoch.
fn is_newest(table: &ShardTable, tables: &BTreeSet<TableId>) -> bool {
    let id = table.id();
    tables
        .iter()
        .all(|other| other.epoch < id.epoch || *other == id)
}
