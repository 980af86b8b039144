//! The Leases of a group in a simulated server, and requests on their way to it.

use std::collections::VecDeque;
use std::rc::Rc;

use tokio::time::Instant;

use super::super::machine::{GroupRecords, MemberRecord, ShardAnswer, ShardStep};
use super::TIMES;

/// The Leases of the group, and what they were before: views are late.
pub(super) struct SimulatedServer {
    pub(super) records: GroupRecords,
    revision: u64,
    history: VecDeque<(Instant, u64, Rc<GroupRecords>)>,
    pub(super) away_until: Instant,
}

impl SimulatedServer {
    pub(super) fn new(now: Instant) -> SimulatedServer {
        SimulatedServer {
            records: GroupRecords::default(),
            revision: 0,
            history: VecDeque::new(),
            away_until: now,
        }
    }

    pub(super) fn apply(&mut self, member: &str, step: &ShardStep, now: Instant) -> ShardAnswer {
        self.revision += 1;
        let version = self.revision.to_string();
        let answer = match step {
            ShardStep::Join if self.records.members.contains_key(member) => ShardAnswer::Conflict,
            ShardStep::Join => {
                let record = MemberRecord {
                    version: version.clone(),
                    lease: TIMES.lease,
                    ..MemberRecord::default()
                };
                self.records.members.insert(member.to_owned(), record);
                ShardAnswer::Done(version)
            }
            ShardStep::Renew {
                version: expected,
                acknowledged,
                leaving,
            } => match self.records.members.get_mut(member) {
                None => ShardAnswer::Gone,
                Some(record) if record.version != *expected => ShardAnswer::Conflict,
                Some(record) => {
                    assert!(
                        record.acknowledged <= *acknowledged,
                        "an acknowledgement is taken back"
                    );
                    record.version.clone_from(&version);
                    record.acknowledged = *acknowledged;
                    record.leaving = *leaving;
                    ShardAnswer::Done(version)
                }
            },
            ShardStep::Read => match self.records.members.get(member) {
                None => ShardAnswer::Gone,
                Some(record) => ShardAnswer::Done(record.version.clone()),
            },
            ShardStep::Advance {
                table,
                version: expected,
            } => {
                let known = self.records.table.as_ref().map(|(_, version)| version);
                if known != expected.as_ref() {
                    ShardAnswer::Conflict
                } else {
                    self.records.table = Some((table.clone(), version.clone()));
                    ShardAnswer::Done(version)
                }
            }
            ShardStep::Remove {
                member,
                version: expected,
            } => match self.records.members.get(member) {
                None => ShardAnswer::Gone,
                Some(record) if record.version != *expected => ShardAnswer::Conflict,
                Some(_) => {
                    self.records.members.remove(member);
                    ShardAnswer::Done(String::new())
                }
            },
            ShardStep::Wait(_) | ShardStep::End => unreachable!("not a request"),
        };
        self.keep(now);
        answer
    }

    fn keep(&mut self, now: Instant) {
        self.history
            .push_back((now, self.revision, Rc::new(self.records.clone())));
        if self.history.len() > 2_000 {
            self.history.pop_front();
        }
    }

    /// A person deletes the table.
    pub(super) fn delete_table(&mut self, now: Instant) {
        self.revision += 1;
        self.records.table = None;
        self.keep(now);
    }

    /// The Leases as they were at a time, and their version.
    pub(super) fn at(&self, time: Instant) -> (Rc<GroupRecords>, u64) {
        let mut known = self.history.iter().rev();
        let known = known.find(|(since, ..)| *since <= time);
        known
            .map(|(_, revision, records)| (Rc::clone(records), *revision))
            .unwrap_or_default()
    }
}

/// A request on its way. Its times are those of the server, but one.
pub(super) struct Request {
    pub(super) step: ShardStep,
    /// By the clock of the member.
    pub(super) started: Instant,
    /// When it reaches the server; `None` if it gets lost.
    pub(super) applied: Option<Instant>,
    /// When its answer comes, or its timeout ends.
    pub(super) answered: Instant,
    pub(super) answer_lost: bool,
    pub(super) answer: Option<ShardAnswer>,
}
