//! What becomes of one object, from what is known of its owners. Pure.

use serde::Deserialize;
use tidings_api::Object;

use super::graph::{Owner, Phase, Uid};

/// Holds an object until its dependents no longer name it.
pub(crate) const ORPHAN: &str = "orphan";
/// Holds an object until no dependent blocks it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// What the collector reads of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Facts {
    pub(crate) owner_references: Vec<Reference>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) deletion_timestamp: Option<String>,
}

/// One of an object's owners, as the object names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) block_owner_deletion: Option<bool>,
}

impl Facts {
    /// Reads an object. Most have neither owners nor an end, and are not decoded to learn that.
    pub(crate) fn of(object: &Object) -> Facts {
        let metadata = object.spans().metadata.of(object.as_bytes());
        let mentions = |member: &[u8]| memchr::memmem::find(metadata, member).is_some();
        if !mentions(b"\"ownerReferences\"") && !mentions(b"\"deletionTimestamp\"") {
            return Facts::default();
        }
        serde_json::from_slice(metadata).unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> Phase {
        let has = |finalizer: &str| self.finalizers.iter().any(|known| known == finalizer);
        match self.deletion_timestamp {
            None => Phase::Living,
            Some(_) if has(ORPHAN) => Phase::Orphaning,
            Some(_) if has(FOREGROUND) => Phase::Foreground,
            Some(_) => Phase::Leaving,
        }
    }

    /// The owners, for the graph.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        let references = self.owner_references.iter();
        let owner = |reference: &Reference| Owner {
            uid: Uid::new(&reference.uid),
            blocks: reference.block_owner_deletion == Some(true),
        };
        references.map(owner).collect()
    }
}

/// How an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// It does not exist, or another object has its name.
    Absent,
    /// It is there, though perhaps not for long.
    Solid,
    /// It is being deleted in the foreground: it waits for its dependents to go.
    Waiting,
    /// Nobody can say: its kind is not served, or it would have to be in a namespace and the dependent is in none.
    Unknown,
}

/// How the dependents of a deleted object fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// What is to be done with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// It stays as it is.
    Keep,
    /// It stays, but these of its owners are no longer named.
    Disown(Vec<String>),
    Delete(Policy),
}

/// What becomes of an object that lives. `states` are those of its owners in their order; `owns` says that others name it as
/// their owner.
pub(crate) fn plan(facts: &Facts, states: &[OwnerState], owns: bool) -> Action {
    let any = |state: OwnerState| states.contains(&state);
    if states.is_empty() || any(OwnerState::Unknown) {
        return Action::Keep;
    }
    if any(OwnerState::Solid) {
        let owners = facts.owner_references.iter().zip(states);
        let lost: Vec<String> = owners
            .filter(|(_, state)| **state != OwnerState::Solid)
            .map(|(reference, _)| reference.uid.clone())
            .collect();
        return if lost.is_empty() {
            Action::Keep
        } else {
            Action::Disown(lost)
        };
    }
    let has = |finalizer: &str| facts.finalizers.iter().any(|known| known == finalizer);
    if any(OwnerState::Waiting) && owns {
        // What waits for it waits for its dependents too.
        return Action::Delete(Policy::Foreground);
    }
    // Whoever gave it a finalizer before has said how its dependents are to fare.
    Action::Delete(if has(ORPHAN) {
        Policy::Orphan
    } else if has(FOREGROUND) {
        Policy::Foreground
    } else {
        Policy::Background
    })
}
