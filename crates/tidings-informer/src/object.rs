//! Cached objects, and how they are decoded from the bytes that the server sent.

use std::borrow::Borrow as _;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
// Of the standard library, not of shuttle: nothing that others wait for happens under it.
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashTable;
use serde::de::DeserializeOwned;
use tidings_api::{KeyError, Labels, Object, ObjectKey, fnv1a};

/// Why an object cannot be decoded, and so not be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct DecodeError(Arc<dyn std::error::Error + Send + Sync>);

impl DecodeError {
    /// Wraps any error.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> DecodeError {
        DecodeError(Arc::from(error.into()))
    }
}

/// An object does not fit its type. Says what the type expects and where, but never quotes the object: it may be a Secret.
#[derive(Debug, thiserror::Error)]
#[error("the object does not fit its type: {wanted} at line {line} column {column}")]
struct TypeMismatch {
    wanted: String,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> DecodeError {
        let text = error.to_string();
        let text = text.rfind(" at line ").map_or(&*text, |end| &text[..end]);
        let quotes = [
            "invalid type: ",
            "invalid value: ",
            "invalid length ",
            "unknown ",
        ];
        let names = ["missing field `", "duplicate field `"];
        let starts_with =
            |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        // The text after the last "expected" comes from the program, the text before it from the object.
        let wanted = match text.rfind(", expected ") {
            Some(at) if starts_with(&quotes) => &text[at + 2..],
            _ if starts_with(&names) => text,
            _ => "something is wrong",
        };
        DecodeError::new(TypeMismatch {
            wanted: wanted.to_owned(),
            line: error.line(),
            column: error.column(),
        })
    }
}

type DecodeFunc<K> = dyn Fn(Object) -> Result<K, DecodeError> + Send + Sync;
type MarkFunc = fn(&Object) -> u64;

/// Decodes the bytes that the server sent into the value that the store keeps. Runs once for each new or changed object.
pub struct Decode<K> {
    value: Arc<DecodeFunc<K>>,
    mark: Option<MarkFunc>,
    /// Takes less time than giving an object to another thread.
    is_cheap: bool,
}

impl Decode<Object> {
    /// Keeps the object as bytes.
    pub fn bytes() -> Decode<Object> {
        Decode {
            is_cheap: true,
            ..Decode::with(Ok)
        }
    }
}

impl Decode<()> {
    /// Keeps only the key, the resource version, the uid and the labels.
    pub fn keys() -> Decode<()> {
        Decode {
            is_cheap: true,
            ..Decode::with(|_| Ok(()))
        }
    }
}

impl<K: DeserializeOwned + 'static> Decode<K> {
    /// Decodes into a type: a complete Kubernetes type, or a struct with only the fields that the program reads.
    pub fn json() -> Decode<K> {
        Decode::with(|object| Ok(serde_json::from_slice(object.as_bytes())?))
    }
}

impl<K: DeserializeOwned + 'static> Decode<Lazy<K>> {
    /// Decodes into a type to check that the object fits it, and keeps only the bytes.
    pub fn lazy() -> Decode<Lazy<K>> {
        Decode::with(|object| {
            let lazy = Lazy {
                object,
                of_type: PhantomData,
            };
            lazy.get().map(|_| lazy)
        })
    }
}

impl<K: 'static> Decode<K> {
    /// Decodes with a function of the program.
    pub fn with(
        decode: impl Fn(Object) -> Result<K, DecodeError> + Send + Sync + 'static,
    ) -> Decode<K> {
        Decode {
            value: Arc::new(decode),
            mark: None,
            is_cheap: false,
        }
    }

    /// Takes a number from each object as it was received, before fields are left out: [`Cached::mark`].
    #[must_use]
    pub fn marked(mut self, mark: fn(&Object) -> u64) -> Decode<K> {
        self.mark = Some(mark);
        self
    }

    /// Transforms each decoded value before it is stored. The transform sees each object once, and never its own output.
    #[must_use]
    pub fn transform(
        self,
        transform: impl Fn(K) -> Result<K, DecodeError> + Send + Sync + 'static,
    ) -> Decode<K> {
        let mark = self.mark;
        let decode = Decode::with(move |object| transform((self.value)(object)?));
        Decode { mark, ..decode }
    }

    /// The mark of an object, and its value.
    pub(crate) fn run(&self, object: Object) -> Result<(u64, K), DecodeError> {
        let decode = || {
            let mark = self.mark.map_or(0, |mark| mark(&object));
            Ok((mark, (self.value)(object)?))
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode))
            .unwrap_or_else(|_| Err(DecodeError::new("decoding or transforming panicked")))
    }
}

impl<K> Clone for Decode<K> {
    fn clone(&self) -> Decode<K> {
        Decode {
            value: Arc::clone(&self.value),
            mark: self.mark,
            is_cheap: self.is_cheap,
        }
    }
}

impl<K> fmt::Debug for Decode<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decode")
    }
}

/// A typed object that is kept as bytes and decoded by each [`Lazy::get`]. The structs of Kubernetes types are several times as
/// large as the bytes: this saves memory where a program reads few of many objects at a time.
pub struct Lazy<K> {
    object: Object,
    of_type: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned> Lazy<K> {
    /// Decodes the object. Each call decodes anew.
    ///
    /// # Errors
    /// If the object does not fit the type. Objects in a store always fit: they were decoded once when they arrived.
    pub fn get(&self) -> Result<K, DecodeError> {
        Ok(serde_json::from_slice(self.object.as_bytes())?)
    }
}

impl<K> Lazy<K> {
    /// The object as bytes. Single fields can be read from it without decoding the rest.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

impl<K> Clone for Lazy<K> {
    fn clone(&self) -> Lazy<K> {
        Lazy {
            object: self.object.clone(),
            of_type: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Lazy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

/// A hash of `metadata.uid`. It tells an object from one that was deleted and created again under the same name. Only objects
/// with the same key are compared, so eight bytes are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uid(u64);

impl Uid {
    /// From the text of `metadata.uid`.
    pub fn new(text: &str) -> Uid {
        if text.is_empty() {
            return Uid(0);
        }
        // Equal texts must give equal hashes in every store.
        Uid(fnv1a(text.as_bytes()))
    }

    /// A hash of the text, the same in every process and version.
    pub fn number(self) -> u64 {
        self.0
    }

    /// True if the object has no `metadata.uid`.
    pub fn is_unset(self) -> bool {
        self.0 == 0
    }
}

/// An object as a store keeps it: the decoded value, and the metadata that every object has. Immutable: a changed object is a new
/// `Cached`.
pub struct Cached<K> {
    key: ObjectKey,
    version: u64,
    uid: Uid,
    shared: Arc<SharedMetadata>,
    mark: u64,
    memory_bytes: u32,
    is_confirmed: AtomicBool,
    value: K,
}

/// Metadata that many objects of a resource have in common, and share.
#[derive(Debug, Default)]
struct SharedMetadata {
    labels: Labels,
    /// A pointer of one word to a text that many sets share.
    last_manager: Option<Arc<Box<str>>>,
}

impl SharedMetadata {
    fn last_manager(&self) -> Option<&str> {
        self.last_manager.as_deref().map(|manager| &**manager)
    }
}

impl<K> Cached<K> {
    /// Decodes an object into its cached form.
    ///
    /// # Errors
    /// If the object has no name, or cannot be decoded.
    pub fn new(object: &Object, decode: &Decode<K>) -> Result<Arc<Cached<K>>, DecodeError>
    where
        K: 'static,
    {
        Decoder::new(decode.clone()).decode(object.clone(), object.key())
    }

    /// A cached object from a value that was decoded elsewhere, for example from the answer to a write.
    pub fn from_parts(
        key: ObjectKey,
        version: u64,
        uid: Uid,
        labels: impl IntoIterator<Item = (String, String)>,
        value: K,
    ) -> Arc<Cached<K>> {
        Arc::new(Cached {
            key,
            version,
            uid,
            shared: Arc::new(SharedMetadata {
                labels: labels.into_iter().collect(),
                last_manager: None,
            }),
            mark: 0,
            memory_bytes: u32::try_from(size_of::<Cached<K>>()).unwrap_or(u32::MAX),
            is_confirmed: AtomicBool::new(false),
            value,
        })
    }

    /// Namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.key.namespace()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// The resource version as a number; zero if it is not a number.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The hash of `metadata.uid`.
    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// The labels. Objects with equal labels share one allocation.
    pub fn labels(&self) -> &Labels {
        &self.shared.labels
    }

    /// The field manager that wrote the object last, as far as `metadata.managedFields` told: their times are of whole seconds. `None` if the
    /// server did not say.
    pub fn last_manager(&self) -> Option<&str> {
        self.shared.last_manager()
    }

    /// The number that [`Decode::marked`] took from the object; zero without it.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Notes that a program has compared this state of the object with what its mark stands for.
    pub fn confirm_mark(&self) {
        self.is_confirmed.store(true, Relaxed);
    }

    /// True after [`Cached::confirm_mark`]. Another state of the object is not confirmed.
    pub fn is_mark_confirmed(&self) -> bool {
        self.is_confirmed.load(Relaxed)
    }

    /// The decoded value.
    pub fn value(&self) -> &K {
        &self.value
    }

    /// The size of the object as received, an estimate of the memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes as usize
    }

    /// True if `version` and `uid` are those of this object. Versions that are not numbers never match.
    pub(crate) fn is_same(&self, version: u64, uid: Uid) -> bool {
        version != 0 && self.version == version && self.uid == uid
    }
}

impl<K> Deref for Cached<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.value
    }
}

impl<K> fmt::Debug for Cached<K> {
    /// Shows the key and the version, never the content: it may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.version)
    }
}

/// Decodes objects; objects with equal labels share one allocation for them. Clones share too.
#[derive(Debug)]
pub(crate) struct Decoder<K> {
    decode: Decode<K>,
    pool: Arc<Mutex<MetadataPool>>,
}

impl<K> Clone for Decoder<K> {
    fn clone(&self) -> Decoder<K> {
        Decoder {
            decode: self.decode.clone(),
            pool: Arc::clone(&self.pool),
        }
    }
}

impl<K: 'static> Decoder<K> {
    pub(crate) fn new(decode: Decode<K>) -> Decoder<K> {
        Decoder {
            decode,
            pool: Arc::new(Mutex::new(MetadataPool::default())),
        }
    }

    /// True if decoding takes less time than giving an object to another thread.
    pub(crate) fn is_cheap(&self) -> bool {
        self.decode.is_cheap
    }

    fn pooled(&self, object: &Object) -> Arc<SharedMetadata> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.get(object)
    }

    pub(crate) fn decode(
        &self,
        object: Object,
        key: ObjectKey,
    ) -> Result<Arc<Cached<K>>, DecodeError> {
        if key.name().is_empty() {
            return Err(DecodeError::new(KeyError(key.to_string())));
        }
        let (version, uid) = (object.revision().get(), Uid::new(&object.uid()));
        let memory_bytes = u32::try_from(object.memory_bytes()).unwrap_or(u32::MAX);
        let shared = self.pooled(&object);
        let (mark, value) = self.decode.run(object)?;
        Ok(Arc::new(Cached {
            key,
            version,
            uid,
            shared,
            mark,
            is_confirmed: AtomicBool::new(false),
            memory_bytes,
            value,
        }))
    }
}

/// The labels of objects with the last manager, each set once. Most objects of a resource have the same as others.
///
/// Bound: twice the sets that several objects have, at least [`POOLED_LEAST`].
#[derive(Debug)]
struct MetadataPool {
    known: HashTable<Arc<SharedMetadata>>,
    hasher: RandomState,
    sweep_at: usize,
    /// The labels of the last object, so that looking them up allocates nothing.
    packed: String,
    /// The managers that were seen last, at most [`MANAGERS_MAX`].
    managers: VecDeque<Arc<Box<str>>>,
}

/// How many managers are shared. A resource has few.
const MANAGERS_MAX: usize = 8;

/// The pool forgets sets that at most one object has when it holds this many, or more.
const POOLED_LEAST: usize = 1024;

impl Default for MetadataPool {
    fn default() -> MetadataPool {
        MetadataPool {
            known: HashTable::new(),
            hasher: RandomState::new(),
            sweep_at: POOLED_LEAST,
            packed: String::new(),
            managers: VecDeque::new(),
        }
    }
}

impl SharedMetadata {
    /// What a set is found by.
    fn parts(&self) -> (&str, Option<&str>) {
        (self.labels.borrow(), self.last_manager())
    }
}

impl MetadataPool {
    fn manager(&mut self, name: &str) -> Arc<Box<str>> {
        if let Some(known) = self.managers.iter().find(|known| &****known == name) {
            return Arc::clone(known);
        }
        self.managers.truncate(MANAGERS_MAX - 1);
        self.managers.push_front(Arc::new(name.into()));
        Arc::clone(&self.managers[0])
    }

    fn get(&mut self, object: &Object) -> Arc<SharedMetadata> {
        let last_manager = object.last_manager();
        object.pack_labels(&mut self.packed);
        let parts = (&*self.packed, last_manager.as_deref());
        let hash = self.hasher.hash_one(parts);
        if let Some(known) = self.known.find(hash, |known| known.parts() == parts) {
            return Arc::clone(known);
        }
        let shared = Arc::new(SharedMetadata {
            labels: Labels::from_packed(&self.packed),
            last_manager: last_manager.map(|manager| self.manager(&manager)),
        });
        if self.known.len() >= self.sweep_at {
            // One is the pool's. Where every object has labels of its own, remembering them all would take more than it saves.
            self.known.retain(|known| Arc::strong_count(known) > 2);
            self.known.shrink_to(self.known.len() * 2, |known| {
                self.hasher.hash_one(known.parts())
            });
            self.sweep_at = (self.known.len() * 2).max(POOLED_LEAST);
        }
        let rehash = |known: &Arc<SharedMetadata>| self.hasher.hash_one(known.parts());
        self.known.insert_unique(hash, Arc::clone(&shared), rehash);
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k20_why_an_object_does_not_fit_says_nothing_of_its_content() {
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code)]
        enum Size {
            Small,
            Large,
        }

        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code)]
        struct Typed {
            number: u8,
            size: Option<Size>,
            address: Option<std::net::IpAddr>,
            word: Option<Word>,
        }

        #[derive(Debug)]
        struct Word;

        impl<'de> serde::Deserialize<'de> for Word {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
                let text = String::deserialize(from)?;
                Err(serde::de::Error::custom(format!("{text} is no word")))
            }
        }

        let check = |json: &str, expected: &str| {
            let object = Object::parse(json).unwrap();
            let error = Decode::<Typed>::json().run(object).map(|_| ()).unwrap_err();
            assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
            let text = error.to_string();
            let expected =
                format!("the object does not fit its type: {expected} at line 1 column ");
            assert!(text.starts_with(&expected), "{text}");
            assert!(!text.contains("hunter"), "{text}");
        };
        check(r#"{"number":"hunter, expected 2"}"#, "expected u8");
        check(r#"{"number":"hunter at line 2"}"#, "expected u8");
        check(r#"{"number":65536}"#, "expected u8");
        check(r#"{}"#, "missing field `number`");
        check(
            r#"{"number":1,"size":"hunter2"}"#,
            "expected `Small` or `Large`",
        );
        check(r#"{"number":1,"address":"hunter2"}"#, "something is wrong");
        check(r#"{"number":1,"word":"hunter2"}"#, "something is wrong");
    }
}
