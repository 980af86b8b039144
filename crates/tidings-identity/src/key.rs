//! Keys that sign tokens and keys that check them, from PEM and from JSON Web Keys.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey};
use rustls::SignatureScheme;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::SigningKey as TlsKey;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey as ParsedKey;

/// Why keys cannot be read. Quotes nothing of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(String);

fn wrong(why: impl Into<String>) -> KeyError {
    KeyError(why.into())
}

/// How a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Algorithm {
    /// RSA with PKCS #1 and SHA-256.
    Rs256,
    /// RSA with PKCS #1 and SHA-384.
    Rs384,
    /// RSA with PKCS #1 and SHA-512.
    Rs512,
    /// RSA with PSS and SHA-256.
    Ps256,
    /// RSA with PSS and SHA-384.
    Ps384,
    /// RSA with PSS and SHA-512.
    Ps512,
    /// ECDSA with P-256.
    Es256,
    /// ECDSA with P-384.
    Es384,
}

impl Algorithm {
    /// The name in tokens and keys.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
        }
    }
}

/// The numbers of a key.
#[derive(Clone, PartialEq, Eq)]
enum KeyForm {
    /// Modulus and exponent, without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point, uncompressed: 4, x, y.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

/// A key that checks signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    form: KeyForm,
    /// The name of the key in tokens.
    id: String,
    /// How tokens must be signed, if the key says so.
    only: Option<Algorithm>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} {})", self.algorithm().name(), self.id)
    }
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo`. Its id is a hash of it, as kube-apiserver makes it.
    ///
    /// # Errors
    /// If it is no key of RSA, P-256 or P-384.
    pub fn from_der(der: &[u8]) -> Result<PublicKey, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der)
            .map_err(|_| wrong("the public key cannot be read"))?;
        let parsed = info.parsed();
        let form = match parsed.map_err(|_| wrong("the public key cannot be read"))? {
            ParsedKey::RSA(key) => KeyForm::Rsa {
                n: without_zeros(key.modulus),
                e: without_zeros(key.exponent),
            },
            ParsedKey::EC(point) => point_form(point.data())?,
            _ => {
                return Err(wrong(
                    "the public key is neither of RSA nor of ECDSA (P-256, P-384)",
                ));
            }
        };
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, der));
        let only = None;
        Ok(PublicKey { form, id, only })
    }

    /// The name of the key in tokens.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm that service account tokens are signed with by the private half.
    pub fn algorithm(&self) -> Algorithm {
        match (self.only, &self.form) {
            (Some(only), _) => only,
            (None, KeyForm::Rsa { .. }) => Algorithm::Rs256,
            (None, KeyForm::P256(_)) => Algorithm::Es256,
            (None, KeyForm::P384(_)) => Algorithm::Es384,
        }
    }

    /// True if a signature of a message is right.
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if self.only.is_some_and(|only| only != algorithm) {
            return false;
        }
        let checked = match (&self.form, algorithm) {
            (KeyForm::Rsa { n, e }, algorithm) => {
                let parameters = match algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    Algorithm::Es256 | Algorithm::Es384 => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (KeyForm::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
            }
            (KeyForm::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature)
            }
            _ => return false,
        };
        checked.is_ok()
    }

    /// The key as a JSON Web Key.
    pub fn to_jwk(&self) -> JsonWebKey {
        let text = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
        let mut key = JsonWebKey {
            usage: "sig".into(),
            kty: "EC".into(),
            kid: self.id.clone(),
            alg: self.algorithm().name().into(),
            ..JsonWebKey::default()
        };
        match &self.form {
            KeyForm::Rsa { n, e } => {
                key.kty = "RSA".into();
                (key.n, key.e) = (text(n), text(e));
            }
            KeyForm::P256(point) | KeyForm::P384(point) => {
                let (x, y) = point[1..].split_at((point.len() - 1) / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                key.crv = Some(curve.into());
                (key.x, key.y) = (text(x), text(y));
            }
        }
        key
    }

    /// Reads a JSON Web Key.
    ///
    /// # Errors
    /// If it is no public key of RSA, P-256 or P-384.
    pub fn from_jwk(key: &JsonWebKey) -> Result<PublicKey, KeyError> {
        let bytes = |value: &Option<String>| {
            let text = value.as_deref().unwrap_or_default();
            let decoded = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
            decoded
                .ok()
                .filter(|bytes| !bytes.is_empty())
                .ok_or_else(|| wrong("a member of the key is missing, or not in base64"))
        };
        let form = match (&*key.kty, key.crv.as_deref()) {
            ("RSA", _) => KeyForm::Rsa {
                n: without_zeros(&bytes(&key.n)?),
                e: without_zeros(&bytes(&key.e)?),
            },
            ("EC", Some("P-256" | "P-384")) => {
                point_form(&[&[4], &bytes(&key.x)?[..], &bytes(&key.y)?[..]].concat())?
            }
            _ => {
                return Err(wrong(
                    "the key is neither of RSA nor of ECDSA (P-256, P-384)",
                ));
            }
        };
        let only = match &*key.alg {
            "" => None,
            name => Some(
                serde_json::from_value(name.into())
                    .map_err(|_| wrong("the algorithm of the key is not known"))?,
            ),
        };
        Ok(PublicKey {
            form,
            id: key.kid.clone(),
            only,
        })
    }
}

/// A JSON Web Key, with its members in the order in which kube-apiserver writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JsonWebKey {
    /// What it is for: `sig`.
    #[serde(rename = "use", skip_serializing_if = "String::is_empty")]
    pub usage: String,
    /// `RSA` or `EC`.
    pub kty: String,
    /// Its name in tokens.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kid: String,
    /// The curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crv: Option<String>,
    /// How tokens are signed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alg: String,
    /// A coordinate of the point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// A coordinate of the point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
    /// The modulus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<String>,
    /// The exponent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e: Option<String>,
}

/// A set of JSON Web Keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonWebKeySet {
    /// The keys.
    pub keys: Vec<JsonWebKey>,
}

fn without_zeros(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

fn point_form(point: &[u8]) -> Result<KeyForm, KeyError> {
    match (point.first(), point.len()) {
        (Some(4), 65) => Ok(KeyForm::P256(point.to_vec())),
        (Some(4), 97) => Ok(KeyForm::P384(point.to_vec())),
        _ => Err(wrong("the curve of the key is neither P-256 nor P-384")),
    }
}

/// Reads all keys of a file in PEM: public keys, private keys, of which the public half counts, and certificates.
///
/// # Errors
/// If one cannot be read, or there is none.
pub fn public_keys(pem: &[u8]) -> Result<Vec<PublicKey>, KeyError> {
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let (kind, der) = section.map_err(|_| wrong("the PEM cannot be read"))?;
        match kind {
            SectionKind::PublicKey => keys.push(PublicKey::from_der(&der)?),
            SectionKind::Certificate => keys.push(key_of_certificate(&CertificateDer::from(der))?),
            _ => {
                if let Some(key) = private_key(kind, der) {
                    keys.push(SigningKey::from_private(&key)?.public);
                }
            }
        }
    }
    match keys.is_empty() {
        true => Err(wrong(
            "there is no key in it: write one in PEM (PUBLIC KEY, or a private key)",
        )),
        false => Ok(keys),
    }
}

fn key_of_certificate(certificate: &CertificateDer<'_>) -> Result<PublicKey, KeyError> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|_| wrong("a certificate cannot be read"))?;
    PublicKey::from_der(parsed.public_key().raw)
}

fn private_key(kind: SectionKind, der: Vec<u8>) -> Option<PrivateKeyDer<'static>> {
    match kind {
        SectionKind::PrivateKey => Some(PrivatePkcs8KeyDer::from(der).into()),
        SectionKind::RsaPrivateKey => Some(PrivatePkcs1KeyDer::from(der).into()),
        SectionKind::EcPrivateKey => Some(PrivateSec1KeyDer::from(der).into()),
        _ => None,
    }
}

/// A key that signs tokens.
#[derive(Clone)]
pub struct SigningKey {
    key: Arc<dyn TlsKey>,
    public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?})", self.public)
    }
}

impl SigningKey {
    /// A new key of ECDSA with P-256, as PKCS #8.
    ///
    /// # Errors
    /// If the operating system has no random bytes.
    pub fn generate() -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        let made =
            EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let made = made.map_err(|_| wrong("the operating system has no random bytes"))?;
        Ok(made.as_ref().to_vec())
    }

    /// Reads a key in PKCS #8.
    ///
    /// # Errors
    /// If it is no key of RSA, P-256 or P-384.
    pub fn from_pkcs8(der: &[u8]) -> Result<SigningKey, KeyError> {
        SigningKey::from_private(&PrivatePkcs8KeyDer::from(der).into())
    }

    /// Reads the first private key of a file in PEM.
    ///
    /// # Errors
    /// If there is none, or it is not of RSA, P-256 or P-384.
    pub fn from_pem(pem: &[u8]) -> Result<SigningKey, KeyError> {
        let none = || wrong("there is no private key in it: write one in PEM (PKCS #8, RSA or EC)");
        let mut sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem);
        let key = sections.find_map(|section| {
            let (kind, der) = section.ok()?;
            private_key(kind, der)
        });
        SigningKey::from_private(&key.ok_or_else(none)?)
    }

    fn from_private(key: &PrivateKeyDer<'_>) -> Result<SigningKey, KeyError> {
        let cannot = || {
            wrong(
                "the private key is neither of RSA (2048 bits or more) nor of ECDSA (P-256, P-384)",
            )
        };
        let key = rustls::crypto::ring::sign::any_supported_type(key).map_err(|_| cannot())?;
        let public = key.public_key().ok_or_else(cannot)?;
        let public = PublicKey::from_der(&public).map_err(|_| cannot())?;
        Ok(SigningKey { key, public })
    }

    /// The key that checks what this one signs.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message.
    ///
    /// # Errors
    /// If the operating system has no random bytes.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let (scheme, width) = match self.public.form {
            KeyForm::Rsa { .. } => (SignatureScheme::RSA_PKCS1_SHA256, 0),
            KeyForm::P256(_) => (SignatureScheme::ECDSA_NISTP256_SHA256, 32),
            KeyForm::P384(_) => (SignatureScheme::ECDSA_NISTP384_SHA384, 48),
        };
        let cannot = || wrong("the key cannot sign");
        let signer = self.key.choose_scheme(&[scheme]).ok_or_else(cannot)?;
        let signature = signer.sign(message).map_err(|_| cannot())?;
        match width {
            0 => Ok(signature),
            width => fixed_width(&signature, width).ok_or_else(cannot),
        }
    }
}

/// The two numbers of an ECDSA signature one after the other, as tokens have them, instead of in DER.
fn fixed_width(der: &[u8], width: usize) -> Option<Vec<u8>> {
    // SEQUENCE, its length in one byte (signatures are shorter than 128 bytes), and two INTEGERs.
    let mut rest = der.strip_prefix(&[0x30])?.get(1..)?;
    let mut fixed = Vec::with_capacity(2 * width);
    for _ in 0..2 {
        rest = rest.strip_prefix(&[2])?;
        let (length, after) = rest.split_first()?;
        let (number, after) = after.split_at_checked(usize::from(*length))?;
        rest = after;
        let number = without_zeros(number);
        fixed.resize(fixed.len() + width.checked_sub(number.len())?, 0);
        fixed.extend(number);
    }
    Some(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_signs_what_its_public_half_checks() {
        let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
        // Often, because numbers of a signature may be shorter than the field.
        for round in 0..300_u32 {
            let message = round.to_be_bytes();
            let signature = key.sign(&message).unwrap();
            assert_eq!(signature.len(), 64);
            assert!(
                key.public()
                    .verifies(Algorithm::Es256, &message, &signature)
            );
            assert!(!key.public().verifies(Algorithm::Es256, b"else", &signature));
            assert!(
                !key.public()
                    .verifies(Algorithm::Rs256, &message, &signature)
            );
        }
        let read = PublicKey::from_jwk(&key.public().to_jwk()).unwrap();
        let signature = key.sign(b"m").unwrap();
        assert!(read.verifies(Algorithm::Es256, b"m", &signature));
        assert_eq!(read.id(), key.public().id());
    }

    #[test]
    fn keys_are_found_in_pem_and_wrong_ones_are_refused_without_quoting_them() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let pem = pair.serialize_pem() + &pair.public_key_pem();
        let keys = public_keys(pem.as_bytes()).unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[0], keys[1]);
        let none = public_keys(b"hunter2").unwrap_err().to_string();
        assert!(none.starts_with("there is no key in it"), "{none}");
        let ed = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let other = SigningKey::from_pem(ed.serialize_pem().as_bytes()).unwrap_err();
        assert!(other.to_string().contains("neither of RSA"), "{other}");
        let other = public_keys(ed.public_key_pem().as_bytes()).unwrap_err();
        assert!(other.to_string().contains("neither of RSA"), "{other}");
    }
}
