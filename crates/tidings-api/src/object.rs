//! The byte-backed object.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidings_json::{ScanError, Span, find_member, unquote};
use triomphe::ThinArc;

use crate::field_paths::FieldPaths;
use crate::key::ObjectKey;
use crate::labels::{Labels, string_map};
use crate::last_manager::last_manager;
use crate::revision::ResourceVersion;
use crate::spans::{Spans, collect};

/// An immutable Kubernetes object: its JSON as it is sent, and the positions of its metadata.
///
/// Cloning shares the bytes. Fields are decoded when they are read, and labels at most once.
///
/// What a server does with objects is in the trait [`ServedObject`](crate::ServedObject).
#[derive(Clone)]
pub struct Object(ThinArc<Head, u8>);

/// What is known of an object. It stands in front of the bytes in one allocation: a server keeps a hundred thousand objects.
struct Head {
    /// The range of the JSON in the bytes.
    start: u32,
    end: u32,
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

/// The allocation of an object as the owner of `Bytes`.
struct SharedObject(Object);

impl AsRef<[u8]> for SharedObject {
    fn as_ref(&self) -> &[u8] {
        &self.0.0.slice
    }
}

impl Object {
    /// Reads one complete JSON object.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    pub fn parse(json: impl AsRef<[u8]>) -> Result<Object, ScanError> {
        let json = json.as_ref();
        Ok(Object::from_known(json, collect(json)?, None))
    }

    /// An object whose positions are known, with the manager that wrote it last if the bytes do not say so. The bytes must be one JSON object.
    pub fn from_known(json: &[u8], spans: Spans, last_manager: Option<Arc<str>>) -> Object {
        Object::in_part(json, 0..json.len(), spans, last_manager)
    }

    /// The object in a part of some bytes, all of which are kept. The positions are those in the part.
    pub(crate) fn in_part(
        bytes: &[u8],
        part: Range<usize>,
        spans: Spans,
        last_manager: Option<Arc<str>>,
    ) -> Object {
        let head = Head {
            start: part.start as u32,
            end: part.end as u32,
            spans,
            labels: OnceLock::new(),
            fields: OnceLock::new(),
            last_manager,
        };
        Object(ThinArc::from_header_and_slice(head, bytes))
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    /// The JSON of the object.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.slice[self.part()]
    }

    fn part(&self) -> Range<usize> {
        self.head().start as usize..self.head().end as usize
    }

    /// The kept bytes of which the JSON is a part, and the position of the JSON.
    pub(crate) fn kept(&self) -> (&[u8], usize) {
        (&self.0.slice, self.part().start)
    }

    /// [`Object::kept`] without a copy.
    pub(crate) fn kept_bytes(&self) -> Bytes {
        Bytes::from_owner(SharedObject(self.clone()))
    }

    /// The positions of the metadata in the JSON.
    pub(crate) fn positions(&self) -> &Spans {
        &self.head().spans
    }

    /// The JSON of the object, sharing its allocation.
    pub fn bytes(&self) -> Bytes {
        self.kept_bytes().slice(self.part())
    }

    /// About how many bytes of memory the object takes: its JSON, and what is kept with it.
    pub fn memory_bytes(&self) -> usize {
        self.0.slice.len() + size_of::<Head>() + 2 * size_of::<usize>()
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
        let head = self.head();
        head.labels
            .get_or_init(|| Labels::of_json(head.spans.labels.of(self.as_bytes())))
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
        let known = self.head().last_manager.clone();
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
        let kept = self.head().fields.get_or_init(|| {
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
        self.0.ptr() == other.0.ptr() || self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Object {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_never_shows_content() {
        let json = br#"{"metadata":{"name":"a","namespace":"n"},"data":{"password":"hunter2"}}"#;
        let object = Object::parse(json).unwrap();
        assert!(!format!("{object:?}").contains("hunter2"));
    }

    #[test]
    fn escaped_keys_and_values_are_understood() {
        let json = br#"{"metadata":{"n\u0061me":"\u0061b"}}"#;
        let object = Object::parse(json).unwrap();
        assert_eq!(object.name(), "ab");
    }
}
