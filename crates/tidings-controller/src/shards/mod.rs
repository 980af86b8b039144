//! Sharding: several replicas of a program split the objects of its controllers.
//!
//! Each replica has a Lease of its own in the server, its membership, and renews it. One more Lease, the table, says which members
//! there are, as a sequence of epochs. A key, which here is the hash of an object's uid, belongs to the member that wins it ([`table`]),
//! so that a member that comes or goes moves only the keys that it gets or had.
//!
//! What keeps two members from acting on one key at a time:
//!
//! 1. A member acts only while its own Lease is fresh: for `renew_deadline` after the start of its last renewal that was answered, by its
//!    monotonic clock and by its wall clock. What began in one membership never goes on in the next.
//! 2. A member that did not renew for the whole lease duration is removed by deleting its Lease at the version that was seen. Its next
//!    renewal fails then, and it joins again under another name. No name is used twice: a member whose Lease is gone, or was perhaps
//!    never made, takes another one.
//! 3. A member acknowledges a table when it has read it and everything it does not own by it has ended. It acts on a key that it gains only
//!    when the owner by the epoch before has acknowledged this table, or its Lease is gone. An acknowledgement names the table by its
//!    epoch and a digest of its content, and says nothing about any other table.
//! 4. The table goes on to the next epoch only when all members of this epoch and of the one before have acknowledged this one, or are
//!    gone. So nobody acts by an older epoch than the one before. Who joins after a table was written is in no older one, acts by none,
//!    and is not waited for.
//! 5. A table that was deleted is followed by one that says nothing about the epoch before: by it a member acts only when all that were
//!    there have acknowledged it. That somebody replaces the table by an older one is not provided for.
//!
//! What keeps one member from holding up the others:
//!
//! 1. What acts on a key that belongs to another member is dropped after a grace. The member acknowledges some time later: as long as a
//!    lapsed member has, so that the last request of what was dropped has arrived or is lost.
//! 2. A member that does not see its own renewals lets its membership lapse, and joins again when it sees the Leases.
//! 3. A member that leaves while the server is away ends when its lease has.
//!
//! `machine` and `permit_state` make the decisions, without I/O and without a clock; `member` carries them out; `permits` is what
//! controllers ask; `group` is what the program has.

mod group;
mod lease;
mod machine;
mod member;
mod options;
mod ownership;
mod permit_state;
mod permits;
#[cfg(test)]
mod simulation;
mod table;

pub use group::ShardGroup;
pub(crate) use group::ShardSeat;
pub use options::{BadShards, ShardOptions};
pub(crate) use permit_state::{NoPermit, OwnershipView};
pub(crate) use permits::ActPermit;
pub use permits::ShardStatus;
