//! Objects as the persistent maps of a store hold them.

use std::sync::Arc;

use crate::object::Cached;

/// An object in a persistent map. Equal if it is the same allocation, so that comparing maps is cheap.
pub(crate) struct HeldObject<K>(pub(crate) Arc<Cached<K>>);

impl<K> Clone for HeldObject<K> {
    fn clone(&self) -> HeldObject<K> {
        HeldObject(Arc::clone(&self.0))
    }
}

impl<K> PartialEq for HeldObject<K> {
    fn eq(&self, other: &HeldObject<K>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
