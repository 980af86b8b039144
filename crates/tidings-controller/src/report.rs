//! Events of a reconcile.

use tidings_informer::Cached;
use tidings_kube::KubeObject;

use crate::context::Context;
use crate::events::{EventRecorder, NewEvent};

impl<S> Context<S> {
    /// Records an event about an object, for `kubectl describe` and `kubectl get events`. Returns at once: it is written in the background, repeats
    /// become a series, and when the controller stops, what waits is written within its grace.
    pub fn event<K: KubeObject>(&self, object: &Cached<K>, event: NewEvent) {
        self.events().record(object, event);
    }

    /// The recorder of the controller, for events about objects of a resource that is known only at run time, and for tasks that outlive the reconcile.
    pub fn events(&self) -> &EventRecorder {
        &self.shared.events
    }
}
