//! Objects as a server sends them: with the resource version of their write, inside watch events.

use bytes::{BufMut, Bytes};
use tidings_json::{ScanError, Span};

use crate::event_type::EventType;
use crate::object::Object;
use crate::revision::ResourceVersion;
use crate::spans::{Spans, collect};

/// The bytes after the object in a watch event.
const EVENT_END: &[u8] = b"}\n";

/// The bytes of a JSON event before its object.
pub const fn event_prefix(event: EventType) -> &'static [u8] {
    match event {
        EventType::Added => b"{\"type\":\"ADDED\",\"object\":",
        EventType::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
        EventType::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        EventType::Bookmark => b"{\"type\":\"BOOKMARK\",\"object\":",
        EventType::Error => b"{\"type\":\"ERROR\",\"object\":",
    }
}

/// What a server does with objects. It is a trait of its own, so that programs that read objects do not meet it.
///
/// The bytes of an object may be part of a complete watch event, `{"type":"ADDED","object":…}\n`: then the server sends the event
/// and the object from one allocation.
pub trait ServedObject: Sized {
    /// Reads one complete JSON object, sets the resource version in its metadata, and writes it as part of a watch event of the given
    /// type.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    fn stamped(json: &[u8], revision: ResourceVersion, event: EventType)
    -> Result<Self, ScanError>;

    /// Sets the resource version of an object whose positions are known, and writes it as part of a watch event. Nothing is parsed.
    fn stamped_at(json: &[u8], spans: Spans, revision: ResourceVersion, event: EventType) -> Self;

    /// The object with another resource version, as part of a watch event of the given type. The last state of a deleted object is
    /// sent with the revision of its deletion.
    #[must_use]
    fn restamped(&self, revision: ResourceVersion, event: EventType) -> Self;

    /// The watch event of the given type that carries this object. It shares the object's allocation if the object was
    /// made for that type, and is copied otherwise.
    fn event_bytes(&self, event: EventType) -> Bytes;

    /// The length of [`ServedObject::event_bytes`].
    fn event_bytes_len(&self, event: EventType) -> usize;

    /// Appends the watch event of the given type that carries this object.
    fn put_event(&self, event: EventType, buffer: &mut impl BufMut);

    /// The positions of the metadata in the JSON.
    fn spans(&self) -> &Spans;
}

impl ServedObject for Object {
    fn stamped(
        json: &[u8],
        revision: ResourceVersion,
        event: EventType,
    ) -> Result<Object, ScanError> {
        Ok(stamp(json, collect(json)?, revision, event))
    }

    fn stamped_at(
        json: &[u8],
        spans: Spans,
        revision: ResourceVersion,
        event: EventType,
    ) -> Object {
        debug_assert_eq!(collect(json).ok(), Some(spans));
        stamp(json, spans, revision, event)
    }

    fn restamped(&self, revision: ResourceVersion, event: EventType) -> Object {
        stamp(self.as_bytes(), *self.spans(), revision, event)
    }

    fn event_bytes(&self, event: EventType) -> Bytes {
        let (kept, start) = self.kept();
        let prefix = event_prefix(event);
        if start == prefix.len() && kept.starts_with(prefix) {
            return self.kept_bytes();
        }
        let mut copy = Vec::with_capacity(self.event_bytes_len(event));
        self.put_event(event, &mut copy);
        Bytes::from(copy)
    }

    fn event_bytes_len(&self, event: EventType) -> usize {
        event_prefix(event).len() + self.as_bytes().len() + EVENT_END.len()
    }

    fn put_event(&self, event: EventType, buffer: &mut impl BufMut) {
        buffer.put_slice(event_prefix(event));
        buffer.put_slice(self.as_bytes());
        buffer.put_slice(EVENT_END);
    }

    fn spans(&self) -> &Spans {
        self.positions()
    }
}

fn stamp(json: &[u8], spans: Spans, revision: ResourceVersion, event: EventType) -> Object {
    let text = revision.to_string();
    let prefix = event_prefix(event);
    let (position, removed, insert) = match spans.resource_version {
        Span { start, end } if start < end => (start, end - start, format!("\"{text}\"")),
        _ => insertion(json, spans, &text),
    };
    let length = json.len() + insert.len() - removed as usize;
    let mut buffer = Vec::with_capacity(prefix.len() + length + EVENT_END.len());
    buffer.extend_from_slice(prefix);
    buffer.extend_from_slice(&json[..position as usize]);
    buffer.extend_from_slice(insert.as_bytes());
    buffer.extend_from_slice(&json[(position + removed) as usize..]);
    let part = prefix.len()..buffer.len();
    buffer.extend_from_slice(EVENT_END);

    let growth = insert.len() as i64 - i64::from(removed);
    let mut moved = if spans.metadata.is_empty() {
        spans
    } else {
        spans.shifted(position, growth)
    };
    let quoted = text.len() as u32 + 2;
    if !spans.metadata.is_empty() {
        let start = position + insert.find(&format!("\"{text}\"")).unwrap_or(0) as u32;
        moved.resource_version = Span {
            start,
            end: start + quoted,
        };
    }
    Object::in_part(&buffer, part, moved, None)
}

/// The position at which a missing resource version is inserted: after the uid, where the API server writes it, or else at the start of
/// the metadata. An object without metadata is not changed.
fn insertion(json: &[u8], spans: Spans, text: &str) -> (u32, u32, String) {
    if !spans.uid.is_empty() {
        return (spans.uid.end, 0, format!(",\"resourceVersion\":\"{text}\""));
    }
    let metadata = spans.metadata.of(json);
    if metadata.first() != Some(&b'{') {
        return (json.len() as u32, 0, String::new());
    }
    let empty = metadata[1..metadata.len() - 1]
        .iter()
        .all(u8::is_ascii_whitespace);
    let comma = if empty { "" } else { "," };
    (
        spans.metadata.start + 1,
        0,
        format!("\"resourceVersion\":\"{text}\"{comma}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(json: &str, revision: u64) -> Object {
        Object::stamped(
            json.as_bytes(),
            ResourceVersion::new(revision),
            EventType::Added,
        )
        .unwrap()
    }

    #[test]
    fn w138_the_revision_stands_behind_the_uid() {
        let object = stamped(
            r#"{"metadata":{"name":"a","uid":"u","labels":{"b":"2","a":"1"}},"data":{}}"#,
            42,
        );
        assert_eq!(
            std::str::from_utf8(object.as_bytes()).unwrap(),
            r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"42","labels":{"b":"2","a":"1"}},"data":{}}"#
        );
        assert_eq!(object.revision(), ResourceVersion::new(42));
        assert_eq!(
            object.labels().iter().collect::<Vec<_>>(),
            [("a", "1"), ("b", "2")]
        );
        assert_eq!(object.uid(), "u");
    }

    #[test]
    fn w101_restamping_replaces_the_revision_and_keeps_the_spans_right() {
        let object = stamped(
            r#"{"metadata":{"name":"a","uid":"u","labels":{"a":"1"}},"kind":"K"}"#,
            9,
        );
        let again = object.restamped(ResourceVersion::new(1000), EventType::Deleted);
        assert_eq!(again.resource_version(), "1000");
        assert_eq!(again.labels().get("a"), Some("1"));
        assert_eq!(again.kind(), "K");
        assert_eq!(*again.spans(), collect(again.as_bytes()).unwrap());
    }

    #[test]
    fn w99_an_event_is_the_object_between_prefix_and_end() {
        let object = stamped(r#"{"metadata":{"uid":"u"}}"#, 1);
        let expected = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"uid\":\"u\",\"resourceVersion\":\"1\"}}}\n";
        assert_eq!(object.event_bytes(EventType::Added), expected);
        assert_eq!(
            object.event_bytes(EventType::Modified),
            expected.replace("ADDED", "MODIFIED")
        );
    }

    #[test]
    fn spans_after_stamping_equal_those_of_a_fresh_scan() {
        for json in [
            r#"{"metadata":{}}"#,
            r#"{"metadata":{ "name" : "x" } , "kind":"K"}"#,
            r#"{"kind":"K","metadata":{"resourceVersion":"1","name":"x","namespace":"n"},"apiVersion":"v1"}"#,
            r#"{"kind":"K","metadata":{"managedFields":[{"a":1}],"uid":"q","deletionTimestamp":null}}"#,
        ] {
            let object = stamped(json, 1234);
            assert_eq!(
                *object.spans(),
                collect(object.as_bytes()).unwrap(),
                "{json}"
            );
            assert_eq!(object.resource_version(), "1234", "{json}");
        }
    }
}
