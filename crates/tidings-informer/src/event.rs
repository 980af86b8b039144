//! The events that handlers receive.

use std::fmt;
use std::sync::Arc;

use crate::object::Cached;

/// One change of the store. Events come in the order of the changes.
///
/// The store already has the change when its event is delivered.
#[non_exhaustive]
pub enum Event<K> {
    /// An object was added.
    Added {
        /// The object.
        object: Arc<Cached<K>>,
        /// True if the object belongs to the initial state of the handler or of the informer.
        initial: bool,
    },
    /// An object changed. Both states have one uid: an object that was deleted and created again gives `Deleted` and `Added`.
    Updated {
        /// The state that the handler saw last.
        old: Arc<Cached<K>>,
        /// The new state.
        new: Arc<Cached<K>>,
    },
    /// An object was deleted.
    Deleted {
        /// Its last known state.
        last: Arc<Cached<K>>,
        /// True if `last` is the state in which the object was deleted. False if the deletion event was missed, because the
        /// connection was lost or the handler was slow (client-go's `DeletedFinalStateUnknown`).
        final_state_known: bool,
    },
    /// The object did not change: it is delivered again because the handler asked for resyncs.
    Resync {
        /// The object.
        object: Arc<Cached<K>>,
    },
    /// Every object of the initial state was delivered. Delivered once.
    Synced,
}

impl<K> Event<K> {
    /// The object that the event is about, in its latest state; none for [`Event::Synced`].
    pub fn object(&self) -> Option<&Arc<Cached<K>>> {
        match self {
            Event::Added { object, .. } | Event::Resync { object } => Some(object),
            Event::Updated { new, .. } => Some(new),
            Event::Deleted { last, .. } => Some(last),
            Event::Synced => None,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let object = self.object().map_or(0, |object| object.memory_bytes());
        object + size_of::<Event<K>>()
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Event<K> {
        match self {
            Event::Added { object, initial } => Event::Added {
                object: Arc::clone(object),
                initial: *initial,
            },
            Event::Updated { old, new } => Event::Updated {
                old: Arc::clone(old),
                new: Arc::clone(new),
            },
            Event::Deleted {
                last,
                final_state_known,
            } => Event::Deleted {
                last: Arc::clone(last),
                final_state_known: *final_state_known,
            },
            Event::Resync { object } => Event::Resync {
                object: Arc::clone(object),
            },
            Event::Synced => Event::Synced,
        }
    }
}

impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Added { object, initial } => {
                write!(
                    f,
                    "Added({object:?}{})",
                    if *initial { ", initial" } else { "" }
                )
            }
            Event::Updated { old, new } => write!(f, "Updated({old:?} -> {new:?})"),
            Event::Deleted {
                last,
                final_state_known,
            } => {
                let unknown = if *final_state_known {
                    ""
                } else {
                    ", final state unknown"
                };
                write!(f, "Deleted({last:?}{unknown})")
            }
            Event::Resync { object } => write!(f, "Resync({object:?})"),
            Event::Synced => f.write_str("Synced"),
        }
    }
}
