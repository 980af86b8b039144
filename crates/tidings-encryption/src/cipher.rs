//! Keys that encrypt and decrypt values, in the forms of kube-apiserver. Pure but for random numbers.

use std::fmt;

use aes::cipher::{BlockModeDecrypt, KeyIvInit, StreamCipher, StreamCipherSeek};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use poly1305::Poly1305;
use ring::rand::{SecureRandom, SystemRandom};
use salsa20::XSalsa20;

/// The nonce in front of a value that AES-GCM has encrypted.
const GCM_NONCE_BYTES: usize = 12;
/// The nonce in front of a value in a secretbox.
const BOX_NONCE_BYTES: usize = 24;
/// The tag of a value: behind it with AES-GCM, in front of it in a secretbox.
const TAG_BYTES: usize = 16;
/// The first bytes of the key stream of a secretbox: they are the key of its tag.
const BOX_MAC_KEY_BYTES: usize = 32;
/// A block of AES, and the initialisation vector of CBC.
const BLOCK_BYTES: usize = 16;

/// How values are encrypted with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    AesGcm,
    AesCbc,
    Secretbox,
}

impl Scheme {
    /// The name in configurations and in front of values.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheme::AesGcm => "aesgcm",
            Scheme::AesCbc => "aescbc",
            Scheme::Secretbox => "secretbox",
        }
    }

    /// How long a key may be.
    pub(crate) fn key_lengths(self) -> &'static [usize] {
        match self {
            Scheme::AesGcm | Scheme::AesCbc => &[16, 24, 32],
            Scheme::Secretbox => &[32],
        }
    }
}

/// A key that encrypts values.
pub(crate) enum DataKey {
    Gcm128(Box<Aes128Gcm>),
    Gcm192(Box<AesGcm<Aes192, U12>>),
    Gcm256(Box<Aes256Gcm>),
    Cbc(Vec<u8>),
    Secretbox(Box<[u8; 32]>),
}

impl fmt::Debug for DataKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// Fills bytes from the random numbers of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the operating system gives no random numbers".to_owned())?;
    Ok(bytes)
}

impl DataKey {
    /// A key of one of the lengths of its scheme. `None` for another length.
    pub(crate) fn new(scheme: Scheme, secret: &[u8]) -> Option<DataKey> {
        Some(match (scheme, secret.len()) {
            (Scheme::AesGcm, 16) => {
                DataKey::Gcm128(Box::new(Aes128Gcm::new_from_slice(secret).ok()?))
            }
            (Scheme::AesGcm, 24) => DataKey::Gcm192(Box::new(AesGcm::new_from_slice(secret).ok()?)),
            (Scheme::AesGcm, 32) => {
                DataKey::Gcm256(Box::new(Aes256Gcm::new_from_slice(secret).ok()?))
            }
            (Scheme::AesCbc, 16 | 24 | 32) => DataKey::Cbc(secret.to_vec()),
            (Scheme::Secretbox, 32) => DataKey::Secretbox(Box::new(secret.try_into().ok()?)),
            _ => return None,
        })
    }

    /// Appends an encrypted value to `out`. `bound_to` is the place of the value, to which AES-GCM binds it: moved to another place, it cannot be
    /// decrypted.
    pub(crate) fn seal(
        &self,
        out: &mut Vec<u8>,
        clear: &[u8],
        bound_to: &[u8],
    ) -> Result<(), String> {
        match self {
            DataKey::Gcm128(key) => seal_gcm(&**key, out, clear, bound_to),
            DataKey::Gcm192(key) => seal_gcm(&**key, out, clear, bound_to),
            DataKey::Gcm256(key) => seal_gcm(&**key, out, clear, bound_to),
            DataKey::Secretbox(key) => seal_box(key, out, clear),
            DataKey::Cbc(_) => Err("aescbc is only for reading".to_owned()),
        }
    }

    /// Decrypts a value. `None` if it was encrypted with another key, for another place, or was changed.
    pub(crate) fn open(&self, sealed: &[u8], bound_to: &[u8]) -> Option<Vec<u8>> {
        match self {
            DataKey::Gcm128(key) => open_gcm(&**key, sealed, bound_to),
            DataKey::Gcm192(key) => open_gcm(&**key, sealed, bound_to),
            DataKey::Gcm256(key) => open_gcm(&**key, sealed, bound_to),
            DataKey::Secretbox(key) => open_box(key, sealed),
            DataKey::Cbc(key) => open_cbc(key, sealed),
        }
    }
}

fn seal_gcm(
    key: &impl AeadInOut<NonceSize = U12>,
    out: &mut Vec<u8>,
    clear: &[u8],
    bound_to: &[u8],
) -> Result<(), String> {
    let nonce: [u8; GCM_NONCE_BYTES] = random()?;
    out.reserve_exact(nonce.len() + clear.len() + TAG_BYTES);
    out.extend_from_slice(&nonce);
    let start = out.len();
    out.extend_from_slice(clear);
    let tag = key.encrypt_inout_detached(&nonce.into(), bound_to, (&mut out[start..]).into());
    let tag = tag.map_err(|_| "the value is too large to be encrypted".to_owned())?;
    out.extend_from_slice(&tag);
    Ok(())
}

fn open_gcm(
    key: &impl AeadInOut<NonceSize = U12>,
    sealed: &[u8],
    bound_to: &[u8],
) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_first_chunk::<GCM_NONCE_BYTES>()?;
    let (sealed, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
    let mut clear = sealed.to_vec();
    let tag = tag.as_slice().try_into().ok()?;
    key.decrypt_inout_detached(
        &(*nonce).into(),
        bound_to,
        clear.as_mut_slice().into(),
        &tag,
    )
    .ok()?;
    Some(clear)
}

/// The key stream of a secretbox behind the key of its tag, and that key.
fn box_stream(key: &[u8; 32], nonce: &[u8; BOX_NONCE_BYTES]) -> (XSalsa20, Poly1305) {
    let mut stream = XSalsa20::new(key.into(), nonce.into());
    let mut mac_key = [0; BOX_MAC_KEY_BYTES];
    stream.apply_keystream(&mut mac_key);
    debug_assert_eq!(stream.current_pos::<usize>(), BOX_MAC_KEY_BYTES);
    (stream, Poly1305::new(&mac_key.into()))
}

fn seal_box(key: &[u8; 32], out: &mut Vec<u8>, clear: &[u8]) -> Result<(), String> {
    let nonce: [u8; BOX_NONCE_BYTES] = random()?;
    let (mut stream, mac) = box_stream(key, &nonce);
    out.reserve_exact(nonce.len() + TAG_BYTES + clear.len());
    out.extend_from_slice(&nonce);
    let tag = out.len();
    out.extend_from_slice(&[0; TAG_BYTES]);
    out.extend_from_slice(clear);
    let start = tag + TAG_BYTES;
    stream.apply_keystream(&mut out[start..]);
    let computed = mac.compute_unpadded(&out[start..]);
    out[tag..start].copy_from_slice(&computed);
    Ok(())
}

fn open_box(key: &[u8; 32], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_first_chunk::<BOX_NONCE_BYTES>()?;
    let (tag, sealed) = rest.split_first_chunk::<TAG_BYTES>()?;
    let (mut stream, mac) = box_stream(key, nonce);
    let computed = mac.compute_unpadded(sealed);
    // In constant time, as a tag must be compared.
    let differs = computed
        .iter()
        .zip(tag)
        .fold(0, |differs, (one, other)| differs | (one ^ other));
    if differs != 0 {
        return None;
    }
    let mut clear = sealed.to_vec();
    stream.apply_keystream(&mut clear);
    Some(clear)
}

fn open_cbc(key: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (iv, blocks) = sealed.split_first_chunk::<BLOCK_BYTES>()?;
    if blocks.is_empty() || !blocks.len().is_multiple_of(BLOCK_BYTES) {
        return None;
    }
    match key.len() {
        16 => decrypt_cbc::<cbc::Decryptor<Aes128>>(key, iv, blocks),
        24 => decrypt_cbc::<cbc::Decryptor<Aes192>>(key, iv, blocks),
        _ => decrypt_cbc::<cbc::Decryptor<Aes256>>(key, iv, blocks),
    }
}

fn decrypt_cbc<C: KeyIvInit + BlockModeDecrypt>(
    key: &[u8],
    iv: &[u8],
    blocks: &[u8],
) -> Option<Vec<u8>> {
    let cipher = C::new_from_slices(key, iv).ok()?;
    let mut clear = blocks.to_vec();
    let length = cipher
        .decrypt_padded::<aes::cipher::block_padding::Pkcs7>(&mut clear)
        .ok()?
        .len();
    clear.truncate(length);
    Some(clear)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<DataKey> {
        let schemes = [Scheme::AesGcm, Scheme::Secretbox];
        let lengths = schemes.iter().flat_map(|scheme| {
            let lengths = scheme.key_lengths().iter();
            lengths.map(|length| DataKey::new(*scheme, &vec![7; *length]).unwrap())
        });
        lengths.collect()
    }

    #[test]
    fn what_was_encrypted_is_decrypted_unless_one_bit_of_it_was_changed() {
        for key in keys() {
            for length in [0, 1, 31, 32, 33, 1000] {
                let clear = vec![b'x'; length];
                let mut sealed = Vec::new();
                key.seal(&mut sealed, &clear, b"/registry/secrets/a/b")
                    .unwrap();
                let opened = key.open(&sealed, b"/registry/secrets/a/b");
                assert_eq!(opened.as_deref(), Some(&*clear));
                for at in 0..sealed.len() {
                    sealed[at] ^= 1;
                    assert_eq!(key.open(&sealed, b"/registry/secrets/a/b"), None, "{at}");
                    sealed[at] ^= 1;
                }
            }
            assert_eq!(key.open(b"short", b""), None);
        }
    }

    #[test]
    fn aes_gcm_binds_a_value_to_its_place() {
        let key = DataKey::new(Scheme::AesGcm, &[1; 32]).unwrap();
        let mut sealed = Vec::new();
        key.seal(&mut sealed, b"v", b"/registry/secrets/a/b")
            .unwrap();
        assert_eq!(key.open(&sealed, b"/registry/secrets/a/c"), None);
    }

    #[test]
    fn keys_have_the_lengths_of_their_scheme() {
        for scheme in [Scheme::AesGcm, Scheme::AesCbc, Scheme::Secretbox] {
            for length in 0..64 {
                let is_key = DataKey::new(scheme, &vec![0; length]).is_some();
                assert_eq!(is_key, scheme.key_lengths().contains(&length));
            }
        }
    }
}
