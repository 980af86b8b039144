//! What a store keeps of an object, and how it is made from the bytes of the wire.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tidings_api::{KeyError, Labels, Object, ObjectKey};

/// Why an object cannot be taken into a store.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct DecodeError(Arc<dyn std::error::Error + Send + Sync>);

impl DecodeError {
    /// From any error.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> DecodeError {
        DecodeError(Arc::from(error.into()))
    }
}

/// An object that does not fit its type: what the type wants and where, but not what the object has, which may be a Secret's.
#[derive(Debug, thiserror::Error)]
#[error("the object does not fit its type: {wanted} at line {line} column {column}")]
struct Misfit {
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
        // What stands after the last "expected" is from the program, what stands before it is from the object.
        let wanted = match text.rfind(", expected ") {
            Some(at) if starts_with(&quotes) => &text[at + 2..],
            _ if starts_with(&names) => text,
            _ => "something is wrong",
        };
        DecodeError::new(Misfit {
            wanted: wanted.to_owned(),
            line: error.line(),
            column: error.column(),
        })
    }
}

type DecodeFunc<K> = dyn Fn(Object) -> Result<K, DecodeError> + Send + Sync;

/// Makes what the store keeps from the bytes of the wire. It runs exactly once for each object that is new or has changed.
pub struct Decode<K>(Arc<DecodeFunc<K>>);

impl Decode<Object> {
    /// Keeps the bytes.
    pub fn bytes() -> Decode<Object> {
        Decode::with(|object| Ok(object.lean()))
    }
}

impl Decode<()> {
    /// Keeps nothing but the key, the version, the uid and the labels.
    pub fn keys() -> Decode<()> {
        Decode::with(|_| Ok(()))
    }
}

impl<K: DeserializeOwned + 'static> Decode<K> {
    /// Decodes into a type: a whole object of Kubernetes, or a struct with the few fields that matter.
    pub fn json() -> Decode<K> {
        Decode::with(|object| Ok(serde_json::from_slice(object.as_bytes())?))
    }
}

impl<K: DeserializeOwned + 'static> Decode<Lazy<K>> {
    /// Decodes into a type to see that the object fits, and keeps the bytes.
    pub fn lazy() -> Decode<Lazy<K>> {
        Decode::with(|object| {
            let lazy = Lazy {
                object: object.lean(),
                of_type: PhantomData,
            };
            lazy.get().map(|_| lazy)
        })
    }
}

impl<K: 'static> Decode<K> {
    /// Decodes by a function.
    pub fn with(
        decode: impl Fn(Object) -> Result<K, DecodeError> + Send + Sync + 'static,
    ) -> Decode<K> {
        Decode(Arc::new(decode))
    }

    /// Transforms what was decoded, before anyone sees it. The transform sees each object once, and never one that it has
    /// transformed before.
    #[must_use]
    pub fn transform(
        self,
        transform: impl Fn(K) -> Result<K, DecodeError> + Send + Sync + 'static,
    ) -> Decode<K> {
        Decode::with(move |object| transform((self.0)(object)?))
    }

    pub(crate) fn run(&self, object: Object) -> Result<K, DecodeError> {
        let decode = || (self.0)(object);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode))
            .unwrap_or_else(|_| Err(DecodeError::new("decoding or transforming panicked")))
    }
}

impl<K> Clone for Decode<K> {
    fn clone(&self) -> Decode<K> {
        Decode(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Decode<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decode")
    }
}

/// An object of a type that is kept as bytes and decoded when it is asked for. The structs of Kubernetes' types are several
/// times as large as the objects: a program that looks at few of many objects at a time saves that.
pub struct Lazy<K> {
    object: Object,
    of_type: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned> Lazy<K> {
    /// Decodes the object. Each call decodes anew.
    ///
    /// # Errors
    /// If the object does not fit the type, which was seen when it came: a store does not have such objects.
    pub fn get(&self) -> Result<K, DecodeError> {
        Ok(serde_json::from_slice(self.object.as_bytes())?)
    }
}

impl<K> Lazy<K> {
    /// The bytes. A single field is read from them without decoding the rest.
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

/// Which object this is, over deletion and creation of the same name: a hash of its `metadata.uid`. It is only ever compared
/// with another object of the same key, so eight bytes are enough to tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uid(u64);

impl Uid {
    /// From the text of `metadata.uid`.
    pub fn new(text: &str) -> Uid {
        if text.is_empty() {
            return Uid(0);
        }
        // FNV-1a: the same text must give the same uid in every store.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Uid(hash)
    }

    /// True if the object has none.
    pub fn is_unset(self) -> bool {
        self.0 == 0
    }
}

/// An object as a store keeps it: what the user asked for, and what every object has. It never changes; a changed object is
/// another one.
pub struct Cached<K> {
    key: ObjectKey,
    version: u64,
    uid: Uid,
    labels: Arc<Labels>,
    memory_bytes: u32,
    value: K,
}

impl<K> Cached<K> {
    /// Makes what a store keeps of an object.
    ///
    /// # Errors
    /// If it has no name, or cannot be decoded.
    pub fn new(object: &Object, decode: &Decode<K>) -> Result<Arc<Cached<K>>, DecodeError>
    where
        K: 'static,
    {
        Decoder::new(decode.clone()).decode(object.clone(), object.key())
    }

    /// From its parts, for an object that was decoded elsewhere: what the answer to a write holds, for example.
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
            labels: Arc::new(labels.into_iter().collect()),
            memory_bytes: u32::try_from(size_of::<Cached<K>>()).unwrap_or(u32::MAX),
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

    /// The resource version as a number; zero if it is none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Which object this is.
    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// The labels. Equal labels are kept once.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// What the user asked for.
    pub fn value(&self) -> &K {
        &self.value
    }

    /// How large the object came, as an estimate of what it keeps.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes as usize
    }

    /// True if this is the same state of the same object. Versions that are no numbers are never the same.
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
    /// Names the object without its content, which may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.version)
    }
}

/// Decodes, and keeps equal labels once.
#[derive(Debug)]
pub(crate) struct Decoder<K> {
    decode: Decode<K>,
    labels: LabelPool,
}

impl<K: 'static> Decoder<K> {
    pub(crate) fn new(decode: Decode<K>) -> Decoder<K> {
        Decoder {
            decode,
            labels: LabelPool::default(),
        }
    }

    pub(crate) fn decode(
        &mut self,
        object: Object,
        key: ObjectKey,
    ) -> Result<Arc<Cached<K>>, DecodeError> {
        if key.name().is_empty() {
            return Err(DecodeError::new(KeyError(key.to_string())));
        }
        Ok(Arc::new(Cached {
            key,
            version: object.revision().get(),
            uid: Uid::new(&object.uid()),
            labels: self.labels.get(&object),
            memory_bytes: u32::try_from(object.memory_bytes()).unwrap_or(u32::MAX),
            value: self.decode.run(object)?,
        }))
    }
}

/// Labels by the bytes that spelled them. Most objects of a resource share theirs with others.
///
/// Bound: twice the sets in use, at least a thousand.
#[derive(Debug)]
struct LabelPool {
    known: HashMap<Box<[u8]>, Arc<Labels>>,
    sweep_at: usize,
}

const LABEL_SETS_LEAST: usize = 1024;

impl Default for LabelPool {
    fn default() -> LabelPool {
        LabelPool {
            known: HashMap::new(),
            sweep_at: LABEL_SETS_LEAST,
        }
    }
}

impl LabelPool {
    fn get(&mut self, object: &Object) -> Arc<Labels> {
        let spelled = object.spans().labels.of(object.as_bytes());
        if let Some(known) = self.known.get(spelled) {
            return Arc::clone(known);
        }
        let labels = Arc::new(object.labels().clone());
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, labels| Arc::strong_count(labels) > 1);
            self.sweep_at = (self.known.len() * 2).max(LABEL_SETS_LEAST);
        }
        self.known.insert(spelled.into(), Arc::clone(&labels));
        labels
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
            let object = Object::parse(json.to_owned().into_bytes().into()).unwrap();
            let error = Decode::<Typed>::json().run(object).unwrap_err();
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
