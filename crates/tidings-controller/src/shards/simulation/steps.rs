//! Single steps of a machine that random histories seldom take.

use tokio::time::Instant;

use super::super::machine::{GroupRecords, MemberRecord, ShardAnswer, ShardMachine, ShardStep};
use super::super::table::{Acknowledged, MemberId, ShardTable};
use super::{KEYS, TIMES, key};

fn table(epoch: u64, members: &[&str], before: Option<&[&str]>) -> ShardTable {
    let list = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        names.collect::<Vec<MemberId>>().into()
    };
    ShardTable {
        epoch,
        members: list(members),
        before: before.map(list),
    }
}

fn records(members: &[(&str, Acknowledged)], table: Option<&ShardTable>) -> GroupRecords {
    let record = |(name, acknowledged): &(&str, Acknowledged)| {
        let record = MemberRecord {
            version: "1".to_owned(),
            acknowledged: *acknowledged,
            leaving: false,
            lease: TIMES.lease,
        };
        ((*name).to_owned(), record)
    };
    GroupRecords {
        members: members.iter().map(record).collect(),
        table: table.map(|table| (table.clone(), "2".to_owned())),
    }
}

/// A member that has joined.
fn joined(name: &str, now: Instant) -> ShardMachine {
    let mut machine = ShardMachine::new(TIMES, name.to_owned(), now);
    let step = machine.step(now);
    assert_eq!(step, ShardStep::Join);
    machine.answered(&step, ShardAnswer::Done("1".to_owned()), now, now);
    machine
}

fn may_act(machine: &ShardMachine) -> usize {
    let ownership = machine.ownership();
    (0..KEYS)
        .filter(|number| ownership.may_act(key(*number)))
        .count()
}

#[test]
fn an_acknowledgement_of_another_table_of_the_same_epoch_counts_for_nothing() {
    let now = Instant::now();
    // The first table was deleted, and a second one written by b, who never saw the first.
    let (first, second) = (table(1, &["a"], None), table(1, &["a", "b"], None));
    let acknowledged = Acknowledged::Table(first.id());
    let mut b = joined("b", now);
    let members = [("a", acknowledged), ("b", Acknowledged::Nothing)];
    b.observed(&records(&members, Some(&second)), now);
    assert_eq!(may_act(&b), 0, "a acts on everything by the first table");

    // a goes by the first table, and writes one that all can agree on.
    let mut a = joined("a", now);
    a.observed(&records(&members[..1], Some(&first)), now);
    assert_eq!(may_act(&a), KEYS as usize);
    a.observed(&records(&members, Some(&second)), now);
    assert_eq!(may_act(&a), KEYS as usize);
    let ShardStep::Advance { table, .. } = a.step(now) else {
        panic!("a new table is needed");
    };
    assert_eq!((table.epoch, table.before), (2, None));
}

#[test]
fn who_joins_later_is_not_waited_for() {
    let now = Instant::now();
    let first = table(1, &["a"], None);
    let acknowledged = Acknowledged::Table(first.id());
    let mut a = joined("a", now);
    a.observed(&records(&[("a", acknowledged)], Some(&first)), now);
    assert_eq!(may_act(&a), KEYS as usize);
    let both = records(
        &[("a", acknowledged), ("b", Acknowledged::Nothing)],
        Some(&first),
    );
    a.observed(&both, now);
    assert_eq!(may_act(&a), KEYS as usize);
    assert_eq!(a.waits_for(), Vec::<MemberId>::new());
    let advanced = matches!(a.step(now), ShardStep::Advance { table, .. } if table.epoch == 2);
    assert!(advanced, "the next table waits for nobody");
}

#[test]
fn a_table_that_cannot_be_read_says_nothing_about_who_acts() {
    let now = Instant::now();
    // As the Leases are read when the table has no annotation.
    let unreadable = table(0, &[], None);
    let mut b = joined("b", now);
    let members = [("a", Acknowledged::Nothing), ("b", Acknowledged::Nothing)];
    b.observed(&records(&members, Some(&unreadable)), now);
    b.step(now);
    let ShardStep::Advance { table, .. } = b.step(now + TIMES.renew_every / 2) else {
        panic!("a new table is needed");
    };
    assert_eq!(table.before, None);
}

#[test]
fn a_member_whose_create_was_not_answered_does_not_create_its_lease_again() {
    let now = Instant::now();
    let mut machine = ShardMachine::new(TIMES, "a".to_owned(), now);
    let join = machine.step(now);
    machine.answered(&join, ShardAnswer::Failed, now, now);
    // It was created, put into a table, and removed while this process slept.
    let later = now + TIMES.lease * 2;
    assert_eq!(machine.step(later), ShardStep::Read);
    machine.answered(&ShardStep::Read, ShardAnswer::Gone, later, later);
    assert!(machine.is_removed(), "it needs another name");
}
