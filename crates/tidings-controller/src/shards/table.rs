//! The table of a group: its members, epoch by epoch, and which of them owns a key.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidings_informer::Uid;

/// The name of a member, which is the name of its Lease. A replica that joins again has another one.
pub(crate) type MemberId = String;

/// Members of a group. Their names are hashed once, not for each key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<MemberId>", into = "Vec<MemberId>")]
pub(crate) struct MemberList {
    names: Vec<MemberId>,
    /// For each name the hash that its weights are made of.
    hashes: Vec<u64>,
}

impl From<Vec<MemberId>> for MemberList {
    fn from(names: Vec<MemberId>) -> MemberList {
        // The hash of uids: every replica, of any version, must get the same numbers.
        let hash = |name: &MemberId| mixed(Uid::new(name).number());
        let hashes = names.iter().map(hash).collect();
        MemberList { names, hashes }
    }
}

impl From<MemberList> for Vec<MemberId> {
    fn from(list: MemberList) -> Vec<MemberId> {
        list.names
    }
}

impl MemberList {
    pub(crate) fn names(&self) -> &[MemberId] {
        &self.names
    }

    pub(crate) fn contains(&self, member: &MemberId) -> bool {
        self.names.contains(member)
    }

    /// The member that owns a key: the one with the highest weight for it. Without members nobody does.
    ///
    /// By rendezvous hashing: a member that comes takes keys from all others evenly, and a member that goes leaves its keys to all
    /// others evenly. No key moves between two members that stay.
    pub(crate) fn owner(&self, key: u64) -> Option<&MemberId> {
        let weighed = self.names.iter().zip(&self.hashes);
        let heaviest = weighed.max_by_key(|(name, hash)| (mixed(**hash ^ key), *name));
        heaviest.map(|(name, _)| name)
    }
}

/// The finalizer of SplitMix64.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The members of a group in one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardTable {
    /// Grows by one or more with each change of the members.
    pub(crate) epoch: u64,
    pub(crate) members: MemberList,
    /// The members of the epoch before; `None` if nobody knows them, because there was no table.
    pub(crate) before: Option<MemberList>,
}

/// Identifies a table. An epoch alone does not: a table that was deleted can be written again, with other members, by somebody who
/// never saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableId {
    pub(crate) epoch: u64,
    digest: u64,
}

impl ShardTable {
    pub(crate) fn id(&self) -> TableId {
        let before = self.before.as_ref();
        let before = before.map_or("?".to_owned(), |before| before.names().join(","));
        let text = format!("{}|{}|{before}", self.epoch, self.members.names().join(","));
        TableId {
            epoch: self.epoch,
            digest: mixed(Uid::new(&text).number()),
        }
    }
}

/// What a member has said in its Lease about the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Acknowledged {
    #[default]
    Nothing,
    /// All that the member does not own by this table has ended.
    Table(TableId),
    /// The member has left: it acts by no table.
    Left,
}

impl Acknowledged {
    /// The table that was acknowledged.
    pub(crate) fn table(self) -> Option<TableId> {
        match self {
            Acknowledged::Table(id) => Some(id),
            Acknowledged::Nothing | Acknowledged::Left => None,
        }
    }

    /// True if the member acts by no older table than this one. That it has acknowledged a newer one says nothing: it may never have
    /// seen this one, and act since an older one on what is its own again.
    pub(crate) fn covers(self, id: TableId) -> bool {
        self == Acknowledged::Left || self == Acknowledged::Table(id)
    }

    /// From the text of a Lease. What cannot be read says nothing.
    pub(crate) fn parse(text: &str) -> Acknowledged {
        if text == LEFT {
            return Acknowledged::Left;
        }
        let table = text.split_once('.').and_then(|(epoch, digest)| {
            let (epoch, digest) = (epoch.parse(), u64::from_str_radix(digest, 16));
            let (epoch, digest) = (epoch.ok()?, digest.ok()?);
            Some(TableId { epoch, digest })
        });
        table.map_or(Acknowledged::Nothing, Acknowledged::Table)
    }
}

const LEFT: &str = "left";

impl fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Acknowledged::Nothing => Ok(()),
            Acknowledged::Table(id) => write!(f, "{}.{:016x}", id.epoch, id.digest),
            Acknowledged::Left => f.write_str(LEFT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: usize = 10_000;

    fn members(names: &[&str]) -> MemberList {
        let names = names.iter().map(|name| (*name).into());
        names.collect::<Vec<MemberId>>().into()
    }

    fn key(number: usize) -> u64 {
        let uid = format!("7b1c0e52-0b9e-4f3c-8f0e-{number:012x}");
        Uid::new(&uid).number()
    }

    #[test]
    fn keys_are_spread_evenly_and_only_those_of_a_member_that_goes_move() {
        let (all, fewer) = (
            members(&["web-a", "web-b", "web-c", "web-d", "web-e"]),
            members(&["web-a", "web-b", "web-d", "web-e"]),
        );
        let mut moved = 0;
        for member in all.names() {
            let owned = (0..KEYS).filter(|number| all.owner(key(*number)) == Some(member));
            let owned = owned.count();
            assert!((1_800..2_200).contains(&owned), "{member} owns {owned}");
        }
        for number in 0..KEYS {
            let (before, after) = (all.owner(key(number)), fewer.owner(key(number)));
            if before.is_some_and(|before| &**before == "web-c") {
                moved += 1;
            } else {
                assert_eq!(before, after, "a key of a member that stays has moved");
            }
        }
        assert!(moved > 0);
    }

    #[test]
    fn the_weights_never_change() {
        // Replicas of two versions of a program share a group while it is being replaced.
        let members = members(&["web-a", "web-b", "web-c"]);
        let owners: String = (0..24)
            .filter_map(|number| members.owner(key(number)))
            .filter_map(|owner| owner.chars().last())
            .collect();
        assert_eq!(owners, "caaaccaabbcbcbaaccaccacb");
        assert_eq!(MemberList::default().owner(7), None);
    }

    #[test]
    fn tables_of_one_epoch_with_other_members_are_not_acknowledged_together() {
        let table = |names: &[&str], before: Option<&[&str]>| ShardTable {
            epoch: 7,
            members: members(names),
            before: before.map(members),
        };
        let ids = [
            table(&["a", "b"], None).id(),
            table(&["a", "c"], None).id(),
            table(&["a", "b"], Some(&[])).id(),
            table(&["a", "b"], Some(&["a"])).id(),
        ];
        for (position, id) in ids.iter().enumerate() {
            let acknowledged = Acknowledged::Table(*id);
            let covered = ids.iter().filter(|id| acknowledged.covers(**id)).count();
            assert_eq!((covered, acknowledged.covers(*id)), (1, true), "{position}");
            assert_eq!(Acknowledged::parse(&acknowledged.to_string()), acknowledged);
            assert!(Acknowledged::Left.covers(*id) && !Acknowledged::Nothing.covers(*id));
        }
        // Replicas of all versions must get the same.
        let known = Acknowledged::Table(ids[0]).to_string();
        assert_eq!(known, "7.dafe416b87de21e8");
        for (text, meant) in [("left", Acknowledged::Left), ("", Acknowledged::Nothing)] {
            assert_eq!(
                (Acknowledged::parse(text), meant.to_string()),
                (meant, text.to_owned())
            );
        }
        assert_eq!(Acknowledged::parse("7"), Acknowledged::Nothing);
    }
}
