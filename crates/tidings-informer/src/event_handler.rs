//! Handlers of events.

use std::sync::Arc;

use crate::event::Event;
use crate::object::Cached;

/// Handles events, one call at a time. Methods that are not overridden do nothing.
pub trait ResourceEventHandler<K>: Send + 'static {
    /// An object was added; `initial` if it belongs to the initial state.
    fn on_add(&mut self, object: &Arc<Cached<K>>, initial: bool) {
        let _ = (object, initial);
    }

    /// An object changed.
    fn on_update(&mut self, old: &Arc<Cached<K>>, new: &Arc<Cached<K>>) {
        let _ = (old, new);
    }

    /// An object was deleted; `last` is its last known state, and `final_state_known` says whether it is the final one.
    fn on_delete(&mut self, last: &Arc<Cached<K>>, final_state_known: bool) {
        let _ = (last, final_state_known);
    }

    /// A resync of an object that did not change. As in client-go, calls `on_update` with equal states.
    fn on_resync(&mut self, object: &Arc<Cached<K>>) {
        self.on_update(object, object);
    }

    /// Every object of the initial state was delivered.
    fn on_synced(&mut self) {}

    /// Calls the method for an event.
    fn handle(&mut self, event: &Event<K>) {
        match event {
            Event::Added { object, initial } => self.on_add(object, *initial),
            Event::Updated { old, new } => self.on_update(old, new),
            Event::Deleted {
                last,
                final_state_known,
            } => self.on_delete(last, *final_state_known),
            Event::Resync { object } => self.on_resync(object),
            Event::Synced => self.on_synced(),
        }
    }
}

/// Passes on only objects that a filter accepts. An update that makes an object accepted is an add, one that makes it rejected is
/// a delete.
pub struct FilteringResourceEventHandler<F, H> {
    /// Accepts or rejects an object.
    pub filter: F,
    /// Receives the accepted objects.
    pub handler: H,
}

impl<K, F, H> ResourceEventHandler<K> for FilteringResourceEventHandler<F, H>
where
    F: Fn(&Cached<K>) -> bool + Send + 'static,
    H: ResourceEventHandler<K>,
{
    fn on_add(&mut self, object: &Arc<Cached<K>>, initial: bool) {
        if (self.filter)(object) {
            self.handler.on_add(object, initial);
        }
    }

    fn on_update(&mut self, old: &Arc<Cached<K>>, new: &Arc<Cached<K>>) {
        match ((self.filter)(old), (self.filter)(new)) {
            (true, true) => self.handler.on_update(old, new),
            (false, true) => self.handler.on_add(new, false),
            (true, false) => self.handler.on_delete(old, true),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, last: &Arc<Cached<K>>, final_state_known: bool) {
        if (self.filter)(last) {
            self.handler.on_delete(last, final_state_known);
        }
    }

    fn on_resync(&mut self, object: &Arc<Cached<K>>) {
        if (self.filter)(object) {
            self.handler.on_resync(object);
        }
    }

    fn on_synced(&mut self) {
        self.handler.on_synced();
    }
}

impl<F, H> std::fmt::Debug for FilteringResourceEventHandler<F, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FilteringResourceEventHandler")
    }
}
