//! Decides what to do with one object, from the states of its owners. Pure.

use serde::Deserialize;
use tidings_api::validate::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use tidings_api::{Object, ServedObject};

use super::graph::{DeletionPhase, OwnerLink, Uid};
use crate::core::PropagationPolicy;

/// The part of an object that the collector reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnershipFacts {
    pub(crate) owner_references: Vec<OwnerReference>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) deletion_timestamp: Option<String>,
}

/// One entry of `ownerReferences`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) block_owner_deletion: Option<bool>,
}

impl OwnershipFacts {
    /// Reads an object. Most objects neither have owners nor are being deleted; their JSON is searched but not decoded.
    pub(crate) fn of(object: &Object) -> OwnershipFacts {
        let metadata = object.spans().metadata.of(object.as_bytes());
        let mentions = |member: &[u8]| memchr::memmem::find(metadata, member).is_some();
        if !mentions(b"\"ownerReferences\"") && !mentions(b"\"deletionTimestamp\"") {
            return OwnershipFacts::default();
        }
        serde_json::from_slice(metadata).unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> DeletionPhase {
        let has = |finalizer: &str| self.finalizers.iter().any(|known| known == finalizer);
        match self.deletion_timestamp {
            None => DeletionPhase::Living,
            Some(_) if has(ORPHAN_FINALIZER) => DeletionPhase::Orphaning,
            Some(_) if has(FOREGROUND_FINALIZER) => DeletionPhase::Foreground,
            Some(_) => DeletionPhase::Leaving,
        }
    }

    /// The owners, in the form that the graph needs.
    pub(crate) fn owners(&self) -> Vec<OwnerLink> {
        let references = self.owner_references.iter();
        let owner = |reference: &OwnerReference| OwnerLink {
            uid: Uid::new(&reference.uid),
            blocks: reference.block_owner_deletion == Some(true),
        };
        references.map(owner).collect()
    }
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// It does not exist, or an object with another uid has its name.
    Absent,
    /// It exists and does not wait for its dependents, though it may be being deleted.
    Solid,
    /// It is being deleted in the foreground and waits for its dependents to go.
    Waiting,
    /// It cannot be looked up: its kind is not served, or it is namespaced while the dependent is cluster-scoped.
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

/// Decides about an object that is not being deleted. `states` are the states of its owners, in order; `owns` is true if other objects refer
/// to it as their owner.
pub(crate) fn plan(facts: &OwnershipFacts, states: &[OwnerState], owns: bool) -> ObjectAction {
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
        // The waiting owner must outlive the dependents of this object too.
        return ObjectAction::Delete(PropagationPolicy::Foreground);
    }
    // A deletion finalizer that the object already has decides what becomes of its dependents.
    ObjectAction::Delete(if has(ORPHAN_FINALIZER) {
        PropagationPolicy::Orphan
    } else if has(FOREGROUND_FINALIZER) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    })
}
