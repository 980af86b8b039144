//! Predicates: which events count for a controller.

use std::fmt;
use std::sync::Arc;

use crate::event::Event;
use crate::object::Cached;

type PredicateFunc<K> = dyn Fn(&Event<K>) -> bool + Send + Sync;

/// Decides whether an event counts. Clones share the function.
///
/// Predicates of changes are true for additions, deletions and resyncs: only an update can be without the change.
///
/// ```
/// use tidings_informer::Predicate;
///
/// struct Pod { node: String, phase: String }
/// let moved = Predicate::changed(|pod: &tidings_informer::Cached<Pod>| pod.node.clone());
/// let ended = Predicate::of_object(|pod: &tidings_informer::Cached<Pod>| pod.phase == "Failed");
/// let either = moved.or(ended);
/// # drop(either);
/// ```
pub struct Predicate<K>(Arc<PredicateFunc<K>>);

impl<K: 'static> Predicate<K> {
    /// With a function of the program.
    pub fn new(counts: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Predicate<K> {
        Predicate(Arc::new(counts))
    }

    /// Every event counts.
    #[must_use]
    pub fn all() -> Predicate<K> {
        Predicate::new(|_| true)
    }

    /// An event counts if its object, in its latest state, is selected.
    pub fn of_object(selects: impl Fn(&Cached<K>) -> bool + Send + Sync + 'static) -> Predicate<K> {
        Predicate::new(move |event| event.object().is_none_or(|object| selects(object)))
    }

    /// An update counts if a value differs between the old and the new state.
    pub fn changed<V: PartialEq>(
        value: impl Fn(&Cached<K>) -> V + Send + Sync + 'static,
    ) -> Predicate<K> {
        Predicate::new(move |event| match event {
            Event::Updated { old, new } => value(old) != value(new),
            _ => true,
        })
    }

    /// An update counts if something begins to be true with it. Additions count if it is true.
    pub fn becomes(holds: impl Fn(&Cached<K>) -> bool + Send + Sync + 'static) -> Predicate<K> {
        Predicate::new(move |event| match event {
            Event::Updated { old, new } => holds(new) && !holds(old),
            event => event.object().is_none_or(|object| holds(object)),
        })
    }

    /// An update counts if the labels changed.
    #[must_use]
    pub fn labels_changed() -> Predicate<K> {
        Predicate::new(|event: &Event<K>| match event {
            Event::Updated { old, new } => !old.labels().iter().eq(new.labels().iter()),
            _ => true,
        })
    }

    /// Every change counts, because each has a new resource version; resyncs do not count.
    #[must_use]
    pub fn version_changed() -> Predicate<K> {
        Predicate::new(|event: &Event<K>| match event {
            Event::Updated { old, new } => old.version() != new.version(),
            Event::Resync { .. } => false,
            _ => true,
        })
    }

    /// Both must count the event.
    #[must_use]
    pub fn and(self, other: Predicate<K>) -> Predicate<K> {
        Predicate::new(move |event| self.counts(event) && other.counts(event))
    }

    /// One of both must count the event.
    #[must_use]
    pub fn or(self, other: Predicate<K>) -> Predicate<K> {
        Predicate::new(move |event| self.counts(event) || other.counts(event))
    }

    /// Counts what this one does not.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // as its siblings `and` and `or`
    pub fn not(self) -> Predicate<K> {
        Predicate::new(move |event| !self.counts(event))
    }

    /// True if the event counts.
    pub fn counts(&self, event: &Event<K>) -> bool {
        (self.0)(event)
    }
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Predicate<K> {
        Predicate(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

#[cfg(test)]
mod tests {
    use tidings_api::ObjectKey;

    use super::*;
    use crate::object::Uid;

    fn object(value: u32, version: u64, labels: &[(&str, &str)]) -> Arc<Cached<u32>> {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Cached::from_parts(
            ObjectKey::new("ns", "a"),
            version,
            Uid::default(),
            labels,
            value,
        )
    }

    fn updated(old: u32, new: u32) -> Event<u32> {
        Event::Updated {
            old: object(old, 1, &[]),
            new: object(new, 2, &[]),
        }
    }

    fn added(value: u32) -> Event<u32> {
        Event::Added {
            object: object(value, 1, &[]),
            initial: false,
        }
    }

    #[test]
    fn kr18_cr42_changes_count_and_what_is_no_update_counts_always() {
        let tens = Predicate::changed(|value: &Cached<u32>| **value / 10);
        assert!(!tens.counts(&updated(10, 11)));
        assert!(tens.counts(&updated(19, 20)));
        assert!(tens.counts(&added(1)));
        let resync = Event::Resync {
            object: object(1, 1, &[]),
        };
        assert!(tens.counts(&resync));
        assert!(!Predicate::version_changed().counts(&resync));
        assert!(Predicate::version_changed().counts(&updated(1, 1)));
    }

    #[test]
    fn something_that_begins_counts_once() {
        let large = Predicate::becomes(|value: &Cached<u32>| **value >= 10);
        assert!(large.counts(&updated(9, 10)));
        assert!(!large.counts(&updated(10, 11)));
        assert!(!large.counts(&updated(11, 9)));
        assert!(large.counts(&added(12)));
        assert!(!large.counts(&added(2)));
    }

    #[test]
    fn labels_count_by_content() {
        let labels = Predicate::<u32>::labels_changed();
        let update = |old: &[(&str, &str)], new: &[(&str, &str)]| Event::Updated {
            old: object(1, 1, old),
            new: object(1, 2, new),
        };
        assert!(!labels.counts(&update(&[("a", "b")], &[("a", "b")])));
        assert!(labels.counts(&update(&[("a", "b")], &[("a", "c")])));
        assert!(labels.counts(&update(&[], &[("a", "c")])));
    }

    #[test]
    fn cr43_cr44_predicates_compose() {
        let even = || Predicate::of_object(|value: &Cached<u32>| value.is_multiple_of(2));
        let large = || Predicate::of_object(|value: &Cached<u32>| **value > 10);
        let counted =
            |predicate: Predicate<u32>| [2, 3, 12, 13].map(|value| predicate.counts(&added(value)));
        assert_eq!(counted(even().and(large())), [false, false, true, false]);
        assert_eq!(counted(even().or(large())), [true, false, true, true]);
        assert_eq!(counted(even().not()), [false, true, false, true]);
        assert_eq!(counted(Predicate::all()), [true; 4]);
    }
}
