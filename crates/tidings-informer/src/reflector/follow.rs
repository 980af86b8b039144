//! Which events of a watch count, and how far they lead: pure.

use tidings_api::{Object, ObjectKey, WatchEvent};

use super::problem::Problem;
use super::version::Version;

/// Follows one watch.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) reached: Version,
    /// The watch began at no version in particular: the additions that come first are in no order, and none of them says how
    /// far the watch has come (B68).
    unordered: bool,
}

/// What of a batch counts.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    pub(super) events: Vec<WatchEvent>,
    /// Why the watch cannot go on.
    pub(super) problem: Option<Problem>,
    /// What was skipped, for a report.
    pub(super) skipped: Vec<Problem>,
    pub(super) bookmarked: bool,
}

impl Follow {
    pub(super) fn new(from: Version, zero_is_a_version: bool) -> Follow {
        Follow {
            unordered: from.is_unset() && !zero_is_a_version,
            reached: from,
        }
    }

    /// `latest` gives the version that the store has of an object.
    pub(super) fn admit(
        &mut self,
        batch: Vec<WatchEvent>,
        latest: impl Fn(&ObjectKey) -> Option<u64>,
    ) -> Admitted {
        let mut admitted = Admitted {
            events: Vec::with_capacity(batch.len()),
            ..Admitted::default()
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
                    let version = Version::new(resource_version);
                    if version.text().is_empty() {
                        continue; // it says nothing
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
            let version = Version::new(&object.resource_version());
            if !self.unordered && version.is_before(&self.reached) {
                if latest(&object.key()) >= version.number() {
                    continue; // said before
                }
                admitted.problem = Some(Problem::OutOfOrder);
                break;
            }
            // What has no version says nothing about how far the watch has come.
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

/// The kind of something that cannot be an object of the resource.
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
        WatchEvent::Modified(Object::parse(json.into()).unwrap())
    }

    #[test]
    fn b137_an_older_event_that_the_store_has_is_dropped_and_another_ends_the_watch() {
        let mut follow = Follow::new(Version::new("10"), false);
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
        assert_eq!(admitted.events.len(), 3, "said before");
        assert!(admitted.problem.is_none());
        assert_eq!(follow.reached.text(), "13");
        let admitted = follow.admit(vec![event("a", 12), event("d", 14)], known);
        assert!(admitted.events.is_empty());
        assert!(matches!(admitted.problem, Some(Problem::OutOfOrder)));
        assert_eq!(follow.reached.text(), "13", "it is not moved back");
    }

    #[test]
    fn versions_that_are_no_numbers_are_taken_as_they_come() {
        let mut follow = Follow::new(Version::new("z"), false);
        let json = r#"{"metadata":{"name":"a","resourceVersion":"b"}}"#;
        let event = WatchEvent::Added(Object::parse(json.into()).unwrap());
        let admitted = follow.admit(vec![event], |_| None);
        assert_eq!((admitted.events.len(), follow.reached.text()), (1, "b"));
    }
}
