//! What a member may act on by a table.

use std::collections::BTreeSet;

use super::table::{MemberId, ShardTable};

/// What a member may act on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ownership {
    pub(crate) me: Option<MemberId>,
    /// The table that the member goes by.
    pub(crate) table: Option<ShardTable>,
    /// Other members that may still act by an older table.
    pub(crate) unsettled: BTreeSet<MemberId>,
}

impl Ownership {
    /// True if the key is this member's by the table, whether it may act already or not.
    pub(crate) fn owns(&self, key: u64) -> bool {
        let table = self.table.as_ref();
        let owner = table.and_then(|table| table.members.owner(key));
        owner.is_some() && owner == self.me.as_ref()
    }

    /// True if the key is this member's and nobody else acts on it any more.
    pub(crate) fn may_act(&self, key: u64) -> bool {
        if !self.owns(key) {
            return false;
        }
        match self.table.as_ref().and_then(|table| table.before.as_ref()) {
            Some(before) => before.owner(key).is_none_or(|last| {
                Some(last) == self.me.as_ref() || !self.unsettled.contains(last)
            }),
            None => self.unsettled.is_empty(),
        }
    }

    /// True if every key that this member could act on before is one that it may act on still, without a look at the keys: the table
    /// is the same, and members have only let go.
    pub(crate) fn only_gains(&self, before: &Ownership) -> bool {
        self.me == before.me
            && self.table == before.table
            && self.unsettled.is_subset(&before.unsettled)
    }
}
