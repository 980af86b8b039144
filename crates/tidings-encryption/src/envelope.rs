//! Keys that a key management service has encrypted: each value has a key of its own, derived from a seed that the service knows.

use std::fmt;

use ring::digest;
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

use crate::cipher::{DataKey, Scheme, random};
use crate::proto::{EncryptedObject, SOURCE_KEY, SOURCE_SEED};

/// The random bytes in front of a value, from which with the seed its key is made.
const INFO_BYTES: usize = 32;
/// How long a seed is.
pub(crate) const SEED_BYTES: usize = 32;
/// The longest id of a key, and the longest encrypted seed.
const FIELD_BYTES_MAX: usize = 1 << 10;
/// How long the annotations of a value may be.
const ANNOTATIONS_BYTES_MAX: usize = 32 << 10;

/// What a service has decrypted: a seed, or a key of older servers.
pub(crate) enum EnvelopeKey {
    Seed([u8; SEED_BYTES]),
    Key(DataKey),
}

impl fmt::Debug for EnvelopeKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvelopeKey")
    }
}

struct DerivedLength;

impl KeyType for DerivedLength {
    fn len(&self) -> usize {
        32
    }
}

/// The key of a value.
fn derive(seed: &[u8; SEED_BYTES], info: &[u8]) -> Option<DataKey> {
    let mut key = [0; 32];
    let seed = Prk::new_less_safe(HKDF_SHA256, seed);
    let info = [info];
    let derived = seed.expand(&info, DerivedLength).ok()?;
    derived.fill(&mut key).ok()?;
    DataKey::new(Scheme::AesGcm, &key)
}

impl EnvelopeKey {
    /// What a service has decrypted. `None` if it cannot be a key.
    pub(crate) fn new(source_type: i32, plain: &[u8]) -> Option<EnvelopeKey> {
        match source_type {
            SOURCE_KEY => DataKey::new(Scheme::AesGcm, plain).map(EnvelopeKey::Key),
            SOURCE_SEED => Some(EnvelopeKey::Seed(plain.try_into().ok()?)),
            _ => None,
        }
    }

    pub(crate) fn open(&self, sealed: &[u8], bound_to: &[u8]) -> Option<Vec<u8>> {
        match self {
            EnvelopeKey::Key(key) => key.open(sealed, bound_to),
            EnvelopeKey::Seed(seed) => {
                let (info, sealed) = sealed.split_first_chunk::<INFO_BYTES>()?;
                derive(seed, info)?.open(sealed, bound_to)
            }
        }
    }
}

/// Encrypts a value with a new key from a seed.
pub(crate) fn seal(
    seed: &[u8; SEED_BYTES],
    clear: &[u8],
    bound_to: &[u8],
) -> Result<Vec<u8>, String> {
    let info: [u8; INFO_BYTES] = random()?;
    let key = derive(seed, &info).ok_or("no key can be derived")?;
    let mut sealed = info.to_vec();
    key.seal(&mut sealed, clear, bound_to)?;
    Ok(sealed)
}

/// Refuses what a service must not answer, because no server could read it again.
pub(crate) fn check(object: &EncryptedObject) -> Result<(), String> {
    let length = |what: &str, length: usize| match length {
        0 => Err(format!("{what} is empty")),
        length if length > FIELD_BYTES_MAX => {
            Err(format!("{what} is longer than {FIELD_BYTES_MAX} bytes"))
        }
        _ => Ok(()),
    };
    length("the key id", object.key_id.len())?;
    length("the encrypted seed", object.source.len())?;
    let annotations = object.annotations.iter();
    let bytes: usize = annotations
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        return Err(format!(
            "the annotations are longer than {ANNOTATIONS_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

/// Names the key of a value: two values with the same digest have the same.
pub(crate) fn digest(object: &EncryptedObject) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut field = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    };
    field(&object.source_type.to_be_bytes());
    field(&object.source);
    field(object.key_id.as_bytes());
    for (name, value) in &object.annotations {
        field(name.as_bytes());
        field(value);
    }
    context.finish().as_ref().try_into().unwrap_or_default()
}
