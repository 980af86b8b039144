//! Predicates on the metadata of typed objects: which events count for a controller.

use tidings_informer::{Cached, Event, Predicate};

use crate::resource::KubeObject;

/// An update counts if `metadata.generation` changed (the spec changed, and not only the status or the metadata), or if the deletion of
/// the object began. Every update of a kind without a generation counts.
#[must_use]
pub fn generation_changed<K: KubeObject>() -> Predicate<K> {
    Predicate::new(|event: &Event<K>| match event {
        Event::Updated { old, new } => {
            let (old, new) = (old.meta(), new.meta());
            new.generation.is_none()
                || old.generation != new.generation
                || old.deletion_timestamp.is_some() != new.deletion_timestamp.is_some()
        }
        _ => true,
    })
}

/// An update counts if the annotations changed.
#[must_use]
pub fn annotations_changed<K: KubeObject>() -> Predicate<K> {
    Predicate::changed(|object: &Cached<K>| object.meta().annotations.clone())
}

/// An update counts if the finalizers changed.
#[must_use]
pub fn finalizers_changed<K: KubeObject>() -> Predicate<K> {
    Predicate::changed(|object: &Cached<K>| object.meta().finalizers.clone())
}

/// An update counts if the deletion of the object begins with it. Additions count if the object is being deleted.
#[must_use]
pub fn deletion_begun<K: KubeObject>() -> Predicate<K> {
    Predicate::becomes(|object: &Cached<K>| object.meta().deletion_timestamp.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use tidings_api::Object;
    use tidings_informer::Decode;

    use super::*;

    fn map(metadata: &str) -> Arc<Cached<ConfigMap>> {
        let json = format!(r#"{{"metadata":{{"name":"a","namespace":"n"{metadata}}}}}"#);
        let object = Object::parse(json).unwrap();
        Cached::new(&object, &Decode::json()).unwrap()
    }

    #[test]
    fn cr40_cr41_each_looks_at_its_own_part_of_the_metadata() {
        let predicates = [
            generation_changed(),
            annotations_changed(),
            finalizers_changed(),
            deletion_begun(),
        ];
        let counted = |old: &str, new: &str| {
            let event = Event::Updated {
                old: map(old),
                new: map(new),
            };
            predicates
                .each_ref()
                .map(|predicate| predicate.counts(&event))
        };
        let metadata = |more: &str| format!(r#","generation":1{more}"#);
        let plain = metadata("");
        let changed = r#","generation":2"#;
        assert_eq!(counted(&plain, changed), [true, false, false, false]);
        let annotated = metadata(r#","annotations":{"a":"b"}"#);
        assert_eq!(counted(&plain, &annotated), [false, true, false, false]);
        let finalizers = metadata(r#","finalizers":["a/b"]"#);
        assert_eq!(counted(&finalizers, &plain), [false, false, true, false]);
        let deleting = metadata(r#","deletionTimestamp":"2026-01-01T00:00:00Z""#);
        assert_eq!(counted(&plain, &deleting), [true, false, false, true]);
        assert_eq!(counted(&deleting, &deleting), [false; 4]);
        // A kind without a generation.
        assert_eq!(counted("", ""), [true, false, false, false]);
    }
}
