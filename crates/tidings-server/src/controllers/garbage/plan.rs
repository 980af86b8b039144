//! Decides what to do with one object, from the state of its owners. Pure.

use serde::Deserialize;
use tidings_api::Object;

use super::graph::{Owner, Phase, Uid};
use crate::core::{FOREGROUND, ORPHAN, PropagationPolicy};

/// The part of an object that the collector reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Facts {
    pub(crate) owner_references: Vec<OwnerReference>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) deletion_timestamp: Option<String>,
}

/// One of an object's owners, as the object names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) block_owner_deletion: Option<bool>,
}

impl Facts {
    /// Reads an object. Most neither have owners nor are being deleted, and are not decoded to find that out.
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
        let owner = |reference: &OwnerReference| Owner {
            uid: Uid::new(&reference.uid),
            blocks: reference.block_owner_deletion == Some(true),
        };
        references.map(owner).collect()
    }
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// It does not exist, or another object has its name.
    Absent,
    /// It exists, though perhaps not for long.
    Solid,
    /// It is being deleted in the foreground: it waits for its dependents to go.
    Waiting,
    /// It cannot be found out: its kind is not served, or it would have to be in a namespace and the dependent is in none.
    Unknown,
}

/// What to do with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectAction {
    /// Keep it as it is.
    Keep,
    /// Remove the references to these owners.
    Disown(Vec<String>),
    /// Delete it.
    Delete(PropagationPolicy),
}

/// Decides about an object that is not being deleted. `states` are those of its owners in their order; `owns` says that other objects name
/// it as their owner.
pub(crate) fn plan(facts: &Facts, states: &[OwnerState], owns: bool) -> ObjectAction {
    let any = |state: OwnerState| states.contains(&state);
    if states.is_empty() || any(OwnerState::Unknown) {
        return ObjectAction::Keep;
    }
    if any(OwnerState::Solid) {
        let owners = facts.owner_references.iter().zip(states);
        let lost: Vec<String> = owners
            .filter(|(_, state)| **state != OwnerState::Solid)
            .map(|(reference, _)| reference.uid.clone())
            .collect();
        return if lost.is_empty() {
            ObjectAction::Keep
        } else {
            ObjectAction::Disown(lost)
        };
    }
    let has = |finalizer: &str| facts.finalizers.iter().any(|known| known == finalizer);
    if any(OwnerState::Waiting) && owns {
        // The owner that waits for it waits for its dependents too.
        return ObjectAction::Delete(PropagationPolicy::Foreground);
    }
    // A finalizer that it has already says what becomes of its dependents.
    ObjectAction::Delete(if has(ORPHAN) {
        PropagationPolicy::Orphan
    } else if has(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    })
}
