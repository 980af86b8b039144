//! The byte-backed object.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes};
use tidings_json::{ScanError, Span, find_member, unquote};

use crate::event_type::EventType;
use crate::key::ObjectKey;
use crate::revision::ResourceVersion;
use crate::spans::{Spans, collect};

/// An immutable Kubernetes object: its JSON as it is sent, and the positions of its metadata.
///
/// Cloning shares the bytes. Fields are decoded when they are read, and labels at most once. A program that keeps many
/// objects and seldom reads their metadata keeps them [lean](Object::lean).
///
/// The bytes may be part of a complete watch event, `{"type":"ADDED","object":…}\n`, so that a server sends the event and the
/// object from one allocation; see [`Object::stamped`] and [`Object::event_bytes`].
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    buffer: Bytes,
    /// The range of the JSON in the buffer.
    start: u32,
    end: u32,
    known: OnceLock<Box<Known>>,
}

/// Positions and labels found in the JSON. They are derived from it and can be found again.
struct Known {
    spans: Spans,
    labels: OnceLock<Labels>,
}

/// The labels of an object, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .binary_search_by(|(candidate, _)| candidate.as_ref().cmp(key))
            .ok()
            .map(|at| self.0[at].1.as_ref())
    }

    /// All labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Labels {
        // The last of duplicate keys counts, so they are inserted in order.
        let sorted: std::collections::BTreeMap<String, String> = pairs.into_iter().collect();
        Labels(
            sorted
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

/// The bytes after the object in a watch event.
const EVENT_END: &[u8] = b"}\n";

impl Object {
    /// Reads one complete JSON object.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    pub fn parse(bytes: Bytes) -> Result<Object, ScanError> {
        let spans = collect(&bytes)?;
        Ok(Object::from_parts(bytes, spans))
    }

    pub(crate) fn from_parts(bytes: Bytes, spans: Spans) -> Object {
        let end = bytes.len() as u32;
        Object::with_spans(bytes, 0, end, spans)
    }

    fn with_spans(buffer: Bytes, start: u32, end: u32, spans: Spans) -> Object {
        Object(Arc::new(Inner {
            buffer,
            start,
            end,
            known: OnceLock::from(Box::new(Known::new(spans))),
        }))
    }

    /// The object without the positions of its metadata, which take about a hundred bytes. They are found again when metadata is
    /// read.
    #[must_use]
    pub fn lean(mut self) -> Object {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.known.take();
            return self;
        }
        Object(Arc::new(Inner {
            buffer: self.0.buffer.clone(),
            start: self.0.start,
            end: self.0.end,
            known: OnceLock::new(),
        }))
    }

    fn known(&self) -> &Known {
        // The bytes were parsed before, so they are an object.
        let find = || Box::new(Known::new(collect(self.as_bytes()).unwrap_or_default()));
        self.0.known.get_or_init(find)
    }

    /// Reads one complete JSON object, sets the resource version in its metadata, and writes it as part of a watch event of the given
    /// type.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    pub fn stamped(
        json: &[u8],
        revision: ResourceVersion,
        event: EventType,
    ) -> Result<Object, ScanError> {
        Ok(Object::stamp(json, collect(json)?, revision, event))
    }

    /// Sets the resource version of an object whose positions are known, and writes it as part of a watch event. Nothing is parsed.
    pub fn stamped_at(
        json: &[u8],
        spans: Spans,
        revision: ResourceVersion,
        event: EventType,
    ) -> Object {
        debug_assert_eq!(collect(json).ok(), Some(spans));
        Object::stamp(json, spans, revision, event)
    }

    /// The object with another resource version, as part of a watch event of the given type. The last state of a deleted object is
    /// sent with the revision of its deletion.
    pub fn restamped(&self, revision: ResourceVersion, event: EventType) -> Object {
        Object::stamp(self.as_bytes(), *self.spans(), revision, event)
    }

    fn stamp(json: &[u8], spans: Spans, revision: ResourceVersion, event: EventType) -> Object {
        let text = revision.to_string();
        let prefix = event.json_prefix();
        let (position, removed, insert) = match spans.resource_version {
            Span { start, end } if start < end => (start, end - start, format!("\"{text}\"")),
            _ => insertion(json, spans, &text),
        };
        // The exact size: a buffer with spare capacity takes another allocation when it becomes `Bytes`.
        let length = json.len() + insert.len() - removed as usize;
        let mut buffer = Vec::with_capacity(prefix.len() + length + EVENT_END.len());
        buffer.extend_from_slice(prefix);
        buffer.extend_from_slice(&json[..position as usize]);
        buffer.extend_from_slice(insert.as_bytes());
        buffer.extend_from_slice(&json[(position + removed) as usize..]);
        let end = buffer.len();
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
        Object::with_spans(buffer.into(), prefix.len() as u32, end as u32, moved)
    }

    /// The JSON of the object.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.buffer[self.0.start as usize..self.0.end as usize]
    }

    /// The JSON of the object, sharing its allocation.
    pub fn bytes(&self) -> Bytes {
        self.0
            .buffer
            .slice(self.0.start as usize..self.0.end as usize)
    }

    /// The watch event of the given type that carries this object. It shares the object's allocation if the object was
    /// made for that type, and is copied otherwise.
    pub fn event_bytes(&self, event: EventType) -> Bytes {
        if self.0.start as usize == event.json_prefix().len()
            && self.0.buffer.starts_with(event.json_prefix())
        {
            return self.0.buffer.clone();
        }
        let mut copy = Vec::with_capacity(self.event_bytes_len(event));
        self.put_event(event, &mut copy);
        Bytes::from(copy)
    }

    /// The length of [`Object::event_bytes`].
    pub fn event_bytes_len(&self, event: EventType) -> usize {
        event.json_prefix().len() + self.as_bytes().len() + EVENT_END.len()
    }

    /// Appends the watch event of the given type that carries this object.
    pub fn put_event(&self, event: EventType, buffer: &mut impl BufMut) {
        buffer.put_slice(event.json_prefix());
        buffer.put_slice(&self.0.buffer[self.0.start as usize..self.0.end as usize]);
        buffer.put_slice(EVENT_END);
    }

    /// The positions of the metadata in the JSON.
    pub fn spans(&self) -> &Spans {
        &self.known().spans
    }

    /// About how many bytes of memory the object takes: its JSON, and what is kept with it.
    pub fn memory_bytes(&self) -> usize {
        let known = self.0.known.get().map_or(0, |_| size_of::<Known>());
        self.0.buffer.len() + size_of::<Inner>() + 2 * size_of::<usize>() + known
    }

    /// `kind`, or empty.
    pub fn kind(&self) -> Cow<'_, str> {
        self.text(self.spans().kind)
    }

    /// `apiVersion`, or empty.
    pub fn api_version(&self) -> Cow<'_, str> {
        self.text(self.spans().api_version)
    }

    /// `metadata.name`, or empty.
    pub fn name(&self) -> Cow<'_, str> {
        self.text(self.spans().name)
    }

    /// `metadata.namespace`, or empty.
    pub fn namespace(&self) -> Cow<'_, str> {
        self.text(self.spans().namespace)
    }

    /// `metadata.uid`, or empty.
    pub fn uid(&self) -> Cow<'_, str> {
        self.text(self.spans().uid)
    }

    /// `metadata.resourceVersion` as text, or empty.
    pub fn resource_version(&self) -> Cow<'_, str> {
        self.text(self.spans().resource_version)
    }

    /// `metadata.resourceVersion` as a number; zero if it is absent or not a number.
    pub fn revision(&self) -> ResourceVersion {
        self.resource_version().parse().unwrap_or_default()
    }

    /// True if the object is being deleted.
    pub fn is_terminating(&self) -> bool {
        let value = self.metadata_member("deletionTimestamp");
        value.is_some_and(|value| value != b"null")
    }

    /// The key of the object within its resource.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace(), &self.name())
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> &Labels {
        let known = self.known();
        known.labels.get_or_init(|| {
            let labels = known.spans.labels.of(self.as_bytes());
            string_map(labels).into_iter().collect()
        })
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<String> {
        let annotations = string_map(self.metadata_member("annotations")?);
        let mut from_last = annotations.into_iter().rev();
        let found = from_last.find(|(candidate, _)| candidate == key);
        found.map(|(_, value)| value)
    }

    fn metadata_member(&self, name: &str) -> Option<&[u8]> {
        let metadata = self.spans().metadata.of(self.as_bytes());
        Some(find_member(metadata, &[name])?.of(metadata))
    }

    /// The scalar at a path of members as text: the content of a string, or the JSON of another scalar. `None` if there is no scalar.
    pub fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        let span = find_member(self.as_bytes(), path)?;
        match span.of(self.as_bytes()) {
            [b'"', ..] => Some(self.text(span)),
            [b'{' | b'[', ..] | b"null" => None,
            scalar => Some(String::from_utf8_lossy(scalar)),
        }
    }

    /// The content of a JSON string; empty for anything else.
    fn text(&self, span: Span) -> Cow<'_, str> {
        match unquote(span.of(self.as_bytes())).unwrap_or_default() {
            Cow::Borrowed(text) => String::from_utf8_lossy(text),
            Cow::Owned(text) => String::from_utf8_lossy(&text).into_owned().into(),
        }
    }
}

impl Known {
    fn new(spans: Spans) -> Known {
        Known {
            spans,
            labels: OnceLock::new(),
        }
    }
}

/// The members of a map of strings; empty if the bytes are not such a map.
fn string_map(json: &[u8]) -> Vec<(String, String)> {
    if json.is_empty() {
        return Vec::new();
    }
    let map: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(json);
    map.unwrap_or_default()
        .into_iter()
        .filter_map(|(key, value)| match value {
            serde_json::Value::String(text) => Some((key, text)),
            _ => None,
        })
        .collect()
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

impl std::fmt::Debug for Object {
    /// Names the object without its content, which may be a Secret's.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Object({}@{}, {} bytes)",
            self.key(),
            self.resource_version(),
            self.as_bytes().len()
        )
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Object {}

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

    #[test]
    fn a_lean_object_answers_as_before_and_keeps_less() {
        let object = stamped(
            r#"{"metadata":{"name":"a","uid":"u","labels":{"a":"1"},"annotations":{"n":"x"},"deletionTimestamp":"now"},"kind":"K"}"#,
            9,
        );
        let lean = object.clone().lean();
        assert!(lean.memory_bytes() + 80 < object.memory_bytes());
        assert_eq!(lean, object);
        assert_eq!(lean.spans(), object.spans());
        assert_eq!(lean.labels(), object.labels());
        assert_eq!(lean.annotation("n").as_deref(), Some("x"));
        assert!(lean.is_terminating());
        assert_eq!(
            lean.lean()
                .restamped(ResourceVersion::new(10), EventType::Deleted),
            object.restamped(ResourceVersion::new(10), EventType::Deleted)
        );
    }

    #[test]
    fn debug_never_shows_content() {
        let object = stamped(
            r#"{"metadata":{"name":"a","namespace":"n"},"data":{"password":"hunter2"}}"#,
            1,
        );
        assert!(!format!("{object:?}").contains("hunter2"));
    }

    #[test]
    fn escaped_keys_and_values_are_understood() {
        let object = Object::parse(Bytes::from_static(
            br#"{"metadata":{"n\u0061me":"\u0061b"}}"#,
        ))
        .unwrap();
        assert_eq!(object.name(), "ab");
    }
}
