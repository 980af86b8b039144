//! The table of a group: its members, epoch by epoch, and which of them owns a key.

use serde::{Deserialize, Serialize};
use tidings_informer::Uid;

/// The name of a member, which is the name of its Lease. A replica that joins again has another one.
pub(crate) type MemberId = String;

/// The members of a group in one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardTable {
    /// Grows by one or more with each change of the members.
    pub(crate) epoch: u64,
    pub(crate) members: Vec<MemberId>,
    /// The members of the epoch before; `None` if nobody knows them, because there was no table.
    pub(crate) before: Option<Vec<MemberId>>,
}

/// The member that owns a key: the one with the highest weight for it. Without members nobody does.
///
/// By rendezvous hashing: a member that comes takes keys from all others evenly, and a member that goes leaves its keys to all
/// others evenly. No key moves between two members that stay.
pub(crate) fn owner(members: &[MemberId], key: u64) -> Option<&MemberId> {
    members
        .iter()
        .max_by_key(|member| (weight(member, key), *member))
}

fn weight(member: &str, key: u64) -> u64 {
    // The hash of uids, then the finalizer of SplitMix64: every replica, of any version, must get the same numbers.
    let name = Uid::new(member).number();
    let mixed = |value: u64| {
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    mixed(mixed(name) ^ key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: usize = 10_000;

    fn members(names: &[&str]) -> Vec<MemberId> {
        names.iter().map(|name| (*name).into()).collect()
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
        for member in &all {
            let owned = (0..KEYS).filter(|number| owner(&all, key(*number)) == Some(member));
            let owned = owned.count();
            assert!((1_800..2_200).contains(&owned), "{member} owns {owned}");
        }
        for number in 0..KEYS {
            let (before, after) = (owner(&all, key(number)), owner(&fewer, key(number)));
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
            .filter_map(|number| owner(&members, key(number)))
            .filter_map(|owner| owner.chars().last())
            .collect();
        assert_eq!(owners, "caaaccaabbcbcbaaccaccacb");
        assert_eq!(owner(&[], 7), None);
    }
}
