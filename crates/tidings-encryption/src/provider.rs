//! The providers of a resource: the first encrypts values, all decrypt them.

use std::sync::Arc;

use crate::cipher::DataKey;
use crate::config::{NamedKey, ProviderConfig};
use crate::kms::KmsProvider;
use crate::mark::{ValueMark, mark};
use crate::proto::EncryptedObject;

/// The providers of a resource.
#[derive(Debug)]
pub(crate) struct Providers(Vec<Provider>);

#[derive(Debug)]
enum Provider {
    Identity,
    Keys(&'static str, Vec<LoadedKey>),
    Kms(Arc<KmsProvider>),
}

#[derive(Debug)]
struct LoadedKey {
    name: String,
    mark: Vec<u8>,
    key: DataKey,
}

/// A value that was read.
pub(crate) enum OpenedValue {
    /// It is stored as it is.
    AsStored,
    /// It was decrypted.
    Clear(Vec<u8>),
    /// This provider must decrypt the key of the value first.
    NeedsKey(Arc<KmsProvider>, EncryptedObject),
}

/// The version of the form of values.
const VERSION: &str = "v1";

impl Providers {
    /// Values are stored as they are.
    pub(crate) fn identity() -> Providers {
        Providers(vec![Provider::Identity])
    }

    /// The providers of a configuration. `kms` are its KMS providers by name.
    pub(crate) fn new(
        config: &[ProviderConfig],
        kms: impl Fn(&str) -> Option<Arc<KmsProvider>>,
    ) -> Providers {
        let provider = |config: &ProviderConfig| {
            Some(match config {
                ProviderConfig::Identity => Provider::Identity,
                ProviderConfig::Kms(config) => Provider::Kms(kms(&config.name)?),
                ProviderConfig::Keys(scheme, keys) => {
                    let load = |key: &NamedKey| {
                        Some(LoadedKey {
                            name: key.name.clone(),
                            mark: mark(scheme.name(), VERSION, &key.name),
                            key: DataKey::new(*scheme, &key.secret)?,
                        })
                    };
                    Provider::Keys(scheme.name(), keys.iter().filter_map(load).collect())
                }
            })
        };
        Providers(config.iter().filter_map(provider).collect())
    }

    /// True if nothing is encrypted.
    pub(crate) fn writes_as_is(&self) -> bool {
        matches!(self.0.first(), None | Some(Provider::Identity))
    }

    /// Encrypts a value. `None` if it is stored as it is.
    pub(crate) fn seal(&self, clear: &[u8], bound_to: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match self.0.first() {
            None | Some(Provider::Identity) => Ok(None),
            Some(Provider::Kms(kms)) => kms.seal(clear, bound_to).map(Some),
            Some(Provider::Keys(_, keys)) => {
                let first = keys.first().ok_or("there is no key")?;
                let mut out = first.mark.clone();
                first.key.seal(&mut out, clear, bound_to)?;
                Ok(Some(out))
            }
        }
    }

    /// Decrypts a value, or says why it cannot be.
    pub(crate) fn open(&self, stored: &[u8], bound_to: &[u8]) -> Result<OpenedValue, String> {
        let Some(mark) = ValueMark::of(stored) else {
            let reads_as_is = |provider: &Provider| matches!(provider, Provider::Identity);
            return match self.0.iter().any(reads_as_is) {
                true => Ok(OpenedValue::AsStored),
                false => Err(
                    "it is stored without encryption, and no provider reads that: add `- identity: {}` at the end of the providers"
                        .to_owned(),
                ),
            };
        };
        let mut is_known = false;
        for provider in &self.0 {
            match provider {
                Provider::Keys(scheme, keys) if *scheme == mark.scheme => {
                    for key in keys.iter().filter(|key| key.name == mark.name) {
                        is_known = true;
                        if let Some(clear) = key.key.open(mark.rest, bound_to) {
                            return Ok(OpenedValue::Clear(clear));
                        }
                    }
                }
                Provider::Kms(kms) if mark.scheme == "kms" && mark.version == "v2" => {
                    if kms.name() != mark.name {
                        continue;
                    }
                    is_known = true;
                    let object = kms.read(mark.rest)?;
                    let Some(key) = kms.known_key(&object) else {
                        return Ok(OpenedValue::NeedsKey(kms.clone(), object));
                    };
                    if let Some(clear) = key.open(&object.data, bound_to) {
                        return Ok(OpenedValue::Clear(clear));
                    }
                }
                _ => {}
            }
        }
        Err(match is_known {
            true => format!(
                "it was encrypted with another key that is named as {mark} is, or was changed or moved since"
            ),
            false => format!(
                "it was encrypted with {mark}, which no provider of its resource has: add the key again, after those that are used now"
            ),
        })
    }

    /// True if a value would be stored in another way now.
    pub(crate) fn is_outdated(&self, stored: &[u8]) -> bool {
        let Some(mark) = ValueMark::of(stored) else {
            return !self.writes_as_is();
        };
        match self.0.first() {
            None | Some(Provider::Identity) => true,
            Some(Provider::Keys(scheme, keys)) => {
                *scheme != mark.scheme || keys.first().is_none_or(|key| key.name != mark.name)
            }
            Some(Provider::Kms(kms)) => {
                let is_its = mark.scheme == "kms" && mark.name == kms.name();
                !is_its
                    || !kms
                        .read(mark.rest)
                        .is_ok_and(|object| kms.is_current(&object))
            }
        }
    }
}
