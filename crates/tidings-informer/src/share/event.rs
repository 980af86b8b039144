//! What a handler is told.

use std::fmt;
use std::sync::Arc;

use crate::object::Cached;

/// One thing that happened to the store, in the order in which it happened.
///
/// When an event is delivered, the store has it already.
#[non_exhaustive]
pub enum Event<K> {
    /// An object came.
    Added {
        /// The object.
        object: Arc<Cached<K>>,
        /// It was there when the handler began, or when the informer did.
        initial: bool,
    },
    /// An object changed. Both states are of one object: one that was deleted and created again is deleted and added.
    Updated {
        /// What the handler was told last.
        old: Arc<Cached<K>>,
        /// What it is now.
        new: Arc<Cached<K>>,
    },
    /// An object went.
    Deleted {
        /// Its last state.
        last: Arc<Cached<K>>,
        /// This is the state in which it was deleted. False if the deletion itself was not seen, because the connection was
        /// lost or the handler was slow: then `last` is the last state that was.
        final_state_known: bool,
    },
    /// Nothing happened: the handler asked to look at every object again from time to time.
    Resync {
        /// The object.
        object: Arc<Cached<K>>,
    },
    /// Every object of the initial state was delivered. Comes once.
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
