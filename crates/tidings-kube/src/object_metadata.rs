//! Metadata in a small form: what nearly every object has takes a few bytes, the rest is kept as JSON.

use std::fmt;

use jiff::Timestamp;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidings_api::Object;
use tidings_informer::{Cached, Decode, DecodeError};

/// The metadata of an object in a metadata-only informer, without what the informer has of every object: its name, namespace, version and
/// labels. [`CachedMetadata::object_meta`] puts everything together.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ObjectMetadata {
    /// The uid, if it is a UUID in the usual form; zero otherwise. As bytes, which need no alignment.
    uid: [u8; 16],
    /// The seconds of `creationTimestamp`, if it has no fraction and they fit; zero otherwise.
    created: u32,
    /// All other members, as a JSON object. Most objects have none: twice in a box, it takes one word of them.
    rest: Option<Box<Box<str>>>,
}

#[derive(Deserialize)]
struct WithMetadata<M: Default> {
    #[serde(default)]
    metadata: M,
}

impl ObjectMetadata {
    /// Takes the metadata of an object.
    fn new(object: &Object) -> Result<ObjectMetadata, DecodeError> {
        let WithMetadata { metadata: mut rest } =
            serde_json::from_slice::<WithMetadata<Map<String, Value>>>(object.as_bytes())?;
        // Metadata that is no ObjectMeta is refused here, where the reflector can report it.
        serde_json::from_slice::<WithMetadata<ObjectMeta>>(object.as_bytes())?;
        // The informer has these.
        for name in ["name", "namespace", "labels"] {
            rest.remove(name);
        }
        if object.revision().to_string() == object.resource_version() {
            rest.remove("resourceVersion");
        }
        let mut kept = ObjectMetadata::default();
        let text = |rest: &Map<String, Value>, name: &str| {
            let text = rest.get(name).and_then(Value::as_str);
            text.map(ToOwned::to_owned)
        };
        if let Some(text) = text(&rest, "uid") {
            let uid = u128::from_str_radix(&text.replace('-', ""), 16).unwrap_or_default();
            if uid != 0 && uuid(uid) == text {
                kept.uid = uid.to_be_bytes();
                rest.remove("uid");
            }
        }
        if let Some(text) = text(&rest, "creationTimestamp") {
            let seconds = text.parse().map(Timestamp::as_second).unwrap_or_default();
            let created = u32::try_from(seconds).unwrap_or_default();
            if created != 0 && time(created).as_deref() == Some(&*text) {
                kept.created = created;
                rest.remove("creationTimestamp");
            }
        }
        if !rest.is_empty() {
            kept.rest = Some(Box::new(Value::Object(rest).to_string().into()));
        }
        Ok(kept)
    }

    /// How objects become metadata.
    pub fn decode() -> Decode<ObjectMetadata> {
        Decode::with(|object| ObjectMetadata::new(&object))
    }

    /// The uid; empty if the object has none.
    pub fn uid(&self) -> String {
        match u128::from_be_bytes(self.uid) {
            0 => self.member("uid").as_str().unwrap_or_default().to_owned(),
            uid => uuid(uid),
        }
    }

    /// A member of the metadata as JSON, such as `ownerReferences`, `annotations` or `finalizers`; null if the object does not have it. Name,
    /// namespace, version and labels are those of the cached object.
    pub fn member(&self, name: &str) -> Value {
        match name {
            "uid" if self.uid != [0; 16] => self.uid().into(),
            "creationTimestamp" if self.created != 0 => time(self.created).into(),
            name => self.rest().remove(name).unwrap_or_default(),
        }
    }

    fn rest(&self) -> Map<String, Value> {
        let rest = self.rest.as_deref();
        // Cannot fail: it was written here.
        rest.map_or_else(Map::new, |rest| {
            serde_json::from_str(rest).unwrap_or_default()
        })
    }
}

impl fmt::Debug for ObjectMetadata {
    /// Without annotations, which may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectMetadata({})", self.uid())
    }
}

/// A UUID in the usual form.
fn uuid(uid: u128) -> String {
    let digits = format!("{uid:032x}");
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    parts.join("-")
}

fn time(seconds: u32) -> Option<String> {
    let time = Timestamp::from_second(seconds.into()).ok()?;
    Some(time.to_string())
}

/// What a metadata-only informer has of an object, as kube's type.
pub trait CachedMetadata {
    /// All metadata but `managedFields`. Each call makes it anew.
    fn object_meta(&self) -> ObjectMeta;
}

impl CachedMetadata for Cached<ObjectMetadata> {
    fn object_meta(&self) -> ObjectMeta {
        let metadata = self.value();
        let mut members = metadata.rest();
        let mut put = |name: &str, value: Value| {
            if !value.is_null() && value != "" {
                members.insert(name.to_owned(), value);
            }
        };
        put("name", self.name().into());
        put("namespace", self.namespace().into());
        put("uid", metadata.member("uid"));
        put("creationTimestamp", metadata.member("creationTimestamp"));
        if self.version() > 0 {
            put("resourceVersion", self.version().to_string().into());
        }
        let labels = self.labels().iter();
        let labels: Map<String, Value> = labels
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        if !labels.is_empty() {
            put("labels", labels.into());
        }
        // Cannot fail: it was an ObjectMeta when it came.
        serde_json::from_value(Value::Object(members)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(metadata: &Value) -> (ObjectMetadata, ObjectMeta) {
        let json = json!({"kind": "PartialObjectMetadata", "metadata": metadata}).to_string();
        let object = Object::parse(json).unwrap();
        let cached = Cached::new(&object, &ObjectMetadata::decode()).unwrap();
        (cached.value().clone(), cached.object_meta())
    }

    #[test]
    fn all_metadata_comes_back() {
        for metadata in [
            json!({"name": "a"}),
            json!({
                "name": "a", "namespace": "n", "uid": "3c2d7d2b-8e0f-4a53-9f7c-5b1f0f6f1e11", "resourceVersion": "7",
                "creationTimestamp": "2026-11-18T14:00:00Z", "labels": {"app": "web"},
            }),
            json!({
                "name": "a", "uid": "3C2D7D2B-8E0F-4A53-9F7C-5B1F0F6F1E11", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-11-18T14:00:00.5Z", "deletionTimestamp": "2026-11-18T14:00:01Z",
                "annotations": {"a": "b"}, "finalizers": ["x/y"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u"}],
            }),
            json!({"name": "a", "resourceVersion": "not-a-number"}),
            json!({"name": "a", "uid": "00000000-0000-0000-0000-000000000000", "creationTimestamp": "1970-01-01T00:00:00Z"}),
        ] {
            let (_, meta) = kept(&metadata);
            let expected: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
            assert_eq!(meta, expected, "{metadata}");
        }
    }

    #[test]
    fn metadata_that_does_not_fit_its_type_is_refused() {
        let json = json!({"metadata": {"name": "a", "finalizers": 1}}).to_string();
        let object = Object::parse(json).unwrap();
        assert!(Cached::new(&object, &ObjectMetadata::decode()).is_err());
    }

    #[test]
    fn what_every_object_has_takes_few_bytes() {
        let metadata = json!({
            "name": "a", "namespace": "n", "uid": "3c2d7d2b-8e0f-4a53-9f7c-5b1f0f6f1e11", "resourceVersion": "7",
            "creationTimestamp": "2026-11-18T14:00:00Z", "labels": {"app": "web"},
        });
        let (kept, _) = kept(&metadata);
        assert_eq!(kept.rest, None);
        assert!(size_of::<ObjectMetadata>() <= 32);
        assert_eq!(kept.uid(), "3c2d7d2b-8e0f-4a53-9f7c-5b1f0f6f1e11");
        assert_eq!(kept.member("creationTimestamp"), "2026-11-18T14:00:00Z");
        assert_eq!(kept.member("annotations"), Value::Null);
        assert!(!format!("{kept:?}").contains("web"));
    }
}
