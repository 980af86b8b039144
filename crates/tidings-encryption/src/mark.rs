//! What stands in front of an encrypted value: how it was encrypted, and with which key.

use std::fmt;

use prost::Message;

use crate::proto::EncryptedObject;

/// What every encrypted value begins with.
const START: &[u8] = b"k8s:enc:";

/// How a value was encrypted, and with which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueMark<'a> {
    /// `aesgcm`, `secretbox`, `aescbc` or `kms`.
    pub(crate) scheme: &'a str,
    pub(crate) version: &'a str,
    /// The name of the key, or of the KMS provider.
    pub(crate) name: &'a str,
    /// What follows the mark.
    pub(crate) rest: &'a [u8],
}

impl<'a> ValueMark<'a> {
    /// The mark in front of a value. `None` if the value is not encrypted.
    pub fn of(value: &'a [u8]) -> Option<ValueMark<'a>> {
        let mut rest = value.strip_prefix(START)?;
        let mut part = || {
            let end = rest.iter().position(|byte| *byte == b':');
            let Some(end) = end else { return "" };
            let text = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            rest = &rest[end + 1..];
            text
        };
        let (scheme, version, name) = (part(), part(), part());
        Some(ValueMark {
            scheme,
            version,
            name,
            rest,
        })
    }

    /// The id of the key of a KMS; empty for other schemes.
    fn key_id(&self) -> String {
        if self.scheme != "kms" {
            return String::new();
        }
        let stored = EncryptedObject::decode(self.rest);
        stored.map(|stored| stored.key_id).unwrap_or_default()
    }
}

impl fmt::Display for ValueMark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scheme, self.key_id()) {
            ("kms", id) => write!(f, "kms provider {}, key {id}", self.name),
            (scheme, _) => write!(f, "{scheme} key {}", self.name),
        }
    }
}

/// What is written in front of a value.
pub(crate) fn mark(scheme: &str, version: &str, name: &str) -> Vec<u8> {
    [START, format!("{scheme}:{version}:{name}:").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let value = [mark("aesgcm", "v1", "key1"), b"\x00:x".to_vec()].concat();
        let read = ValueMark::of(&value).unwrap();
        assert_eq!(
            (read.scheme, read.version, read.name),
            ("aesgcm", "v1", "key1")
        );
        assert_eq!(read.rest, b"\x00:x");
        assert_eq!(read.to_string(), "aesgcm key key1");
        assert_eq!(ValueMark::of(b"{\"kind\":\"Secret\"}"), None);
        assert!(ValueMark::of(b"k8s:enc:").is_some());
    }
}
