//! Filters the events of a watch and tracks the version that they reach. Does no I/O and reads no clock.

use tidings_api::{Object, ObjectKey, WatchEvent};

use super::problem::Problem;
use crate::version::ServerVersion;

/// The version that one watch has reached.
#[derive(Debug)]
pub(super) struct WatchFollower {
    pub(super) reached: ServerVersion,
    /// The watch began at "" or "0": its first `ADDED` events are in no order, so their versions do not say how far the watch has
    /// come (B68).
    unordered: bool,
}

/// The events of a batch to apply.
#[derive(Debug, Default)]
pub(super) struct AdmittedEvents {
    pub(super) events: Vec<WatchEvent>,
    /// Why the watch cannot continue.
    pub(super) problem: Option<Problem>,
    /// Reports of events that were skipped.
    pub(super) skipped: Vec<Problem>,
    /// True if the batch has a bookmark.
    pub(super) bookmarked: bool,
}

impl WatchFollower {
    pub(super) fn new(from: ServerVersion, zero_is_a_version: bool) -> WatchFollower {
        WatchFollower {
            unordered: from.is_unset() && !zero_is_a_version,
            reached: from,
        }
    }

    /// Filters a batch. `latest` returns the version that the store has of an object.
    pub(super) fn admit(
        &mut self,
        batch: Vec<WatchEvent>,
        latest: impl Fn(&ObjectKey) -> Option<u64>,
    ) -> AdmittedEvents {
        tracing::trace!(target: "tidings::walk", "drops events that are older than the store");
        let mut admitted = AdmittedEvents {
            events: Vec::with_capacity(batch.len()),
            ..AdmittedEvents::default()
        };
        for event in batch {
            let (object, added) = match &event {
                WatchEvent::Error(status) => {
                    admitted.problem = Some(Problem::Source(status.as_ref().clone().into()));
                    break;
                }
                WatchEvent::Bookmark {
                    resource_version, ..
                } => {
                    let version = ServerVersion::new(resource_version);
                    if version.text().is_empty() {
                        continue; // a bookmark without a version
                    }
                    if version.is_before(&self.reached) {
                        admitted.problem = Some(Problem::OutOfOrder);
                        break;
                    }
                    self.reached = version;
                    self.unordered = false;
                    admitted.bookmarked = true;
                    admitted.events.push(event);
                    continue;
                }
                WatchEvent::Added(object) => (object, true),
                WatchEvent::Modified(object) | WatchEvent::Deleted(object) => (object, false),
            };
            if let Some(kind) = foreign(object) {
                admitted.skipped.push(Problem::WrongKind(kind));
                continue;
            }
            let version = ServerVersion::new(&object.resource_version());
            if !self.unordered && version.is_before(&self.reached) {
                if latest(&object.key()) >= version.number() {
                    continue; // the store has it
                }
                admitted.problem = Some(Problem::OutOfOrder);
                break;
            }
            // An object without a version does not move the watch.
            let says_how_far = !version.text().is_empty();
            let in_order = !self.unordered || !added;
            if says_how_far && in_order {
                self.unordered = false;
                self.reached = version;
            }
            admitted.events.push(event);
        }
        admitted
    }
}

/// The kind of an event's object, if it cannot be an object of the resource: a `Table`, a `Status`, or an object without a name.
pub(super) fn foreign(object: &Object) -> Option<String> {
    let kind = object.kind();
    let is_meta = object.api_version().starts_with("meta.k8s.io/");
    if is_meta && kind == "Table" || kind == "Status" && object.name().is_empty() {
        return Some(kind.into_owned());
    }
    object
        .name()
        .is_empty()
        .then(|| format!("{kind} without a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, version: u64) -> WatchEvent {
        let json = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
        WatchEvent::Modified(Object::parse(json).unwrap())
    }

    #[test]
    fn b137_an_older_event_that_the_store_has_is_dropped_and_another_ends_the_watch() {
        let mut follow = WatchFollower::new(ServerVersion::new("10"), false);
        let known = |key: &ObjectKey| (key.name() == "a").then_some(11);
        let admitted = follow.admit(
            vec![
                event("a", 11),
                event("b", 12),
                event("a", 11),
                event("c", 13),
            ],
            known,
        );
        assert_eq!(admitted.events.len(), 3, "the store has the repeated event");
        assert!(admitted.problem.is_none());
        assert_eq!(follow.reached.text(), "13");
        let admitted = follow.admit(vec![event("a", 12), event("d", 14)], known);
        assert!(admitted.events.is_empty());
        assert!(matches!(admitted.problem, Some(Problem::OutOfOrder)));
        assert_eq!(follow.reached.text(), "13", "the version does not go back");
    }

    #[test]
    fn versions_that_are_no_numbers_are_taken_as_they_come() {
        let mut follow = WatchFollower::new(ServerVersion::new("z"), false);
        let json = r#"{"metadata":{"name":"a","resourceVersion":"b"}}"#;
        let event = WatchEvent::Added(Object::parse(json).unwrap());
        let admitted = follow.admit(vec![event], |_| None);
        assert_eq!((admitted.events.len(), follow.reached.text()), (1, "b"));
    }
}
