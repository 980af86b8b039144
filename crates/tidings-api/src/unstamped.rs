//! An object before it has a revision.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidings_json::ScanError;

use crate::event_type::EventType;
use crate::object::Object;
use crate::revision::ResourceVersion;
use crate::served_object::ServedObject;
use crate::spans::Spans;

/// An object as it is written to a store: its JSON without a resourceVersion, and the positions of its metadata.
///
/// Cloning shares the bytes.
#[derive(Debug, Clone)]
pub struct UnstampedObject {
    value: Bytes,
    spans: Spans,
    /// The object at its first revision. It is read twice: by the request that writes it, and by the cache when the store reports it.
    stamped: Arc<OnceLock<(EventType, Object)>>,
}

impl UnstampedObject {
    /// An object whose spans are known. They must be those of the JSON.
    pub fn new(json: Vec<u8>, spans: Spans) -> UnstampedObject {
        UnstampedObject {
            value: json.into(),
            spans,
            stamped: Arc::default(),
        }
    }

    /// Reads one complete JSON object.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    pub fn parse(json: Vec<u8>) -> Result<UnstampedObject, ScanError> {
        let spans = Spans::of(&json)?;
        Ok(UnstampedObject::new(json, spans))
    }

    /// The JSON.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// The object at a revision, inside a watch event of the given type. The object at the first revision
    /// is made once and shared.
    pub fn stamped(&self, at: ResourceVersion, event: EventType) -> Object {
        let stamp = || Object::stamped_at(&self.value, self.spans, at, event);
        let (known_event, known) = self.stamped.get_or_init(|| (event, stamp()));
        match *known_event == event && known.revision() == at {
            true => known.clone(),
            false => stamp(),
        }
    }
}
