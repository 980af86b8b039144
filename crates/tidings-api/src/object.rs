//! The byte-backed object.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidings_json::{ScanError, Span, find_member, unquote};

use crate::field_paths::FieldPaths;
use crate::key::ObjectKey;
use crate::labels::{Labels, string_map};
use crate::last_manager::last_manager;
use crate::revision::ResourceVersion;
use crate::spans::{Spans, collect};

/// An immutable Kubernetes object: its JSON as it is sent, and the positions of its metadata.
///
/// Cloning shares the bytes. Fields are decoded when they are read, and labels at most once. A program that keeps many
/// objects and seldom reads their metadata keeps them [lean](Object::lean).
///
/// What a server does with objects is in the trait [`ServedObject`](crate::ServedObject).
#[derive(Clone)]
pub struct Object(Arc<ObjectBytes>);

struct ObjectBytes {
    buffer: Bytes,
    /// The range of the JSON in the buffer.
    start: u32,
    end: u32,
    known: OnceLock<Box<KnownMetadata>>,
}

/// Positions and labels found in the JSON. They are derived from it and can be found again.
struct KnownMetadata {
    spans: Spans,
    labels: OnceLock<Labels>,
    fields: OnceLock<Box<KeptFields>>,
    /// Found while `managedFields` were left out.
    last_manager: Option<Arc<str>>,
}

/// The positions of the fields that the object was selected by first. Those of other paths are looked for each time.
struct KeptFields {
    paths: FieldPaths,
    spans: Box<[Option<Span>]>,
}

impl Object {
    /// Reads one complete JSON object.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    pub fn parse(bytes: Bytes) -> Result<Object, ScanError> {
        let spans = collect(&bytes)?;
        Ok(Object::from_parts(bytes, spans))
    }

    /// An object whose positions are known, with the manager that wrote it last if the bytes do not say so. The bytes must be one JSON object.
    pub fn from_known(bytes: Bytes, spans: Spans, last_manager: Option<Arc<str>>) -> Object {
        Object::from_parts(bytes, spans).written_by(last_manager)
    }

    pub(crate) fn from_parts(bytes: Bytes, spans: Spans) -> Object {
        let end = bytes.len() as u32;
        Object::with_spans(bytes, 0, end, spans)
    }

    /// The object in a part of a buffer.
    pub(crate) fn with_spans(buffer: Bytes, start: u32, end: u32, spans: Spans) -> Object {
        Object(Arc::new(ObjectBytes {
            buffer,
            start,
            end,
            known: OnceLock::from(Box::new(KnownMetadata::new(spans))),
        }))
    }

    /// The object with the name of its last writer, which its bytes do not have any more.
    pub(crate) fn written_by(mut self, manager: Option<Arc<str>>) -> Object {
        let inner = Arc::get_mut(&mut self.0);
        if let Some(known) = inner.and_then(|inner| inner.known.get_mut()) {
            known.last_manager = manager;
        }
        self
    }

    /// The object without the positions of its metadata and the name of its last manager, which take about a hundred bytes. The positions are
    /// found again when metadata is read.
    #[must_use]
    pub fn lean(mut self) -> Object {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.known.take();
            return self;
        }
        Object(Arc::new(ObjectBytes {
            buffer: self.0.buffer.clone(),
            start: self.0.start,
            end: self.0.end,
            known: OnceLock::new(),
        }))
    }

    fn known(&self) -> &KnownMetadata {
        // The bytes were parsed before, so they are an object.
        let find = || {
            Box::new(KnownMetadata::new(
                collect(self.as_bytes()).unwrap_or_default(),
            ))
        };
        self.0.known.get_or_init(find)
    }

    /// The JSON of the object.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.buffer[self.0.start as usize..self.0.end as usize]
    }

    /// The buffer of which the JSON is a part, and the position of the JSON.
    pub(crate) fn buffer(&self) -> (&Bytes, usize) {
        (&self.0.buffer, self.0.start as usize)
    }

    /// The positions of the metadata in the JSON.
    pub(crate) fn positions(&self) -> &Spans {
        &self.known().spans
    }

    /// The JSON of the object, sharing its allocation.
    pub fn bytes(&self) -> Bytes {
        self.0
            .buffer
            .slice(self.0.start as usize..self.0.end as usize)
    }

    /// About how many bytes of memory the object takes: its JSON, and what is kept with it.
    pub fn memory_bytes(&self) -> usize {
        let known = self.0.known.get().map_or(0, |_| size_of::<KnownMetadata>());
        self.0.buffer.len() + size_of::<ObjectBytes>() + 2 * size_of::<usize>() + known
    }

    /// `kind`, or empty.
    pub fn kind(&self) -> Cow<'_, str> {
        self.text(self.positions().kind)
    }

    /// `apiVersion`, or empty.
    pub fn api_version(&self) -> Cow<'_, str> {
        self.text(self.positions().api_version)
    }

    /// `metadata.name`, or empty.
    pub fn name(&self) -> Cow<'_, str> {
        self.text(self.positions().name)
    }

    /// `metadata.namespace`, or empty.
    pub fn namespace(&self) -> Cow<'_, str> {
        self.text(self.positions().namespace)
    }

    /// `metadata.uid`, or empty.
    pub fn uid(&self) -> Cow<'_, str> {
        self.text(self.positions().uid)
    }

    /// `metadata.resourceVersion` as text, or empty.
    pub fn resource_version(&self) -> Cow<'_, str> {
        self.text(self.positions().resource_version)
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
        known
            .labels
            .get_or_init(|| Labels::of_json(known.spans.labels.of(self.as_bytes())))
    }

    /// Replaces `packed` by the labels in the form that [`Labels`] keeps them in.
    pub fn pack_labels(&self, packed: &mut String) {
        Labels::pack(self.positions().labels.of(self.as_bytes()), packed);
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<String> {
        let mut from_last = self.annotations().into_iter().rev();
        let found = from_last.find(|(candidate, _)| candidate == key);
        found.map(|(_, value)| value)
    }

    /// `metadata.annotations`, in the order of the JSON.
    pub fn annotations(&self) -> Vec<(String, String)> {
        string_map(self.metadata_member("annotations").unwrap_or_default())
    }

    /// The field manager that wrote the object last, by the times in `metadata.managedFields`, which are of whole seconds. Also known where
    /// `managedFields` were left out while the object was received.
    pub fn last_manager(&self) -> Option<Arc<str>> {
        let known = self.known().last_manager.clone();
        known.or_else(|| last_manager(self.metadata_member("managedFields")?))
    }

    fn metadata_member(&self, name: &str) -> Option<&[u8]> {
        let metadata = self.positions().metadata.of(self.as_bytes());
        Some(find_member(metadata, &[name])?.of(metadata))
    }

    /// The scalar at a path of members as text: the content of a string, or the JSON of another scalar. `None` if there is no scalar.
    pub fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        self.scalar(find_member(self.as_bytes(), path)?)
    }

    /// The scalar at one of some paths. All of them are looked for at once, and their positions are kept.
    pub(crate) fn kept_field(&self, paths: &FieldPaths, at: usize) -> Option<Cow<'_, str>> {
        let kept = self.known().fields.get_or_init(|| {
            Box::new(KeptFields {
                paths: paths.clone(),
                spans: paths.find(self.as_bytes()),
            })
        });
        let span = match kept.paths == *paths {
            true => kept.spans[at],
            false => paths.find(self.as_bytes())[at],
        };
        self.scalar(span?)
    }

    /// A scalar as text; `None` for an object, a list and null.
    fn scalar(&self, span: Span) -> Option<Cow<'_, str>> {
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

impl KnownMetadata {
    fn new(spans: Spans) -> KnownMetadata {
        KnownMetadata {
            spans,
            labels: OnceLock::new(),
            fields: OnceLock::new(),
            last_manager: None,
        }
    }
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

    #[test]
    fn debug_never_shows_content() {
        let json = br#"{"metadata":{"name":"a","namespace":"n"},"data":{"password":"hunter2"}}"#;
        let object = Object::parse(Bytes::from_static(json)).unwrap();
        assert!(!format!("{object:?}").contains("hunter2"));
    }

    #[test]
    fn escaped_keys_and_values_are_understood() {
        let json = br#"{"metadata":{"n\u0061me":"\u0061b"}}"#;
        let object = Object::parse(Bytes::from_static(json)).unwrap();
        assert_eq!(object.name(), "ab");
    }
}
