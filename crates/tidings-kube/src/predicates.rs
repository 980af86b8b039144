//! Predicates on the metadata of typed objects: which events count for a controller.

use tidings_informer::{Cached, Predicate};

use crate::resource::KubeObject;

/// An update counts if `metadata.generation` changed: the spec changed, and not only the status or the metadata.
#[must_use]
pub fn generation_changed<K: KubeObject>() -> Predicate<K> {
    Predicate::changed(|object: &Cached<K>| object.meta().generation)
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
    use tidings_informer::{Decode, Event};

    use super::*;

    fn map(metadata: &str) -> Arc<Cached<ConfigMap>> {
        let json = format!(r#"{{"metadata":{{"name":"a","namespace":"n"{metadata}}}}}"#);
        let object = Object::parse(json.into_bytes().into()).unwrap();
        Cached::new(&object, &Decode::json()).unwrap()
    }

    #[test]
    fn each_looks_at_its_own_part_of_the_metadata() {
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
        let (generation, other) = (r#","generation":1"#, r#","generation":2"#);
        assert_eq!(counted(generation, other), [true, false, false, false]);
        let annotated = r#","annotations":{"a":"b"}"#;
        assert_eq!(counted("", annotated), [false, true, false, false]);
        let finalizers = r#","finalizers":["a/b"]"#;
        assert_eq!(counted(finalizers, ""), [false, false, true, false]);
        let deleting = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        assert_eq!(counted("", deleting), [false, false, false, true]);
        assert_eq!(counted(deleting, deleting), [false; 4]);
    }
}
