//! Sharding: several replicas of a program split the keys of its controllers.
//!
//! Each replica has a Lease of its own in the server, its membership, and renews it. One more Lease, the table, says which members
//! there are, as a sequence of epochs. A key belongs to the member that wins it by its uid ([`table`]), so that a member that comes
//! or goes moves only the keys that it gets or had.
//!
//! What keeps two members from acting on one key at a time:
//!
//! 1. A member acts only while its own Lease is fresh: for `renew_deadline` after the start of its last renewal that was answered.
//! 2. A member that did not renew for the whole lease duration is removed by deleting its Lease at the version that was seen. Its next
//!    renewal fails then, and it joins again under another name.
//! 3. A member acknowledges an epoch when it has read the table and everything it does not own by it has ended. It acts on a key that it
//!    gains only when the owner by the epoch before has acknowledged the new one, or its Lease is gone.
//! 4. The table goes on to the next epoch only when all members of this epoch and of the one before have acknowledged this one, or are
//!    gone. So nobody acts by an older epoch than the one before.
//!
//! `machine` makes the decisions, without I/O and without a clock; `group` carries them out; `permits` is what controllers ask.

mod group;
mod lease;
mod machine;
mod options;
mod permits;
#[cfg(test)]
mod simulation;
mod table;

pub use group::ShardGroup;
pub(crate) use machine::Ownership;
pub use options::{BadShards, ShardOptions};
pub use permits::ShardStatus;
pub(crate) use permits::{ActPermit, NoPermit};
