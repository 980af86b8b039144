//! Documents with an ETag: a client that has the current one gets 304.

use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tidings_json::Value;

use super::respond::{self, ResponseBody};

/// A document with its ETag.
#[derive(Debug)]
pub(super) struct TaggedDocument {
    bytes: Bytes,
    /// SHA-512 in upper-case hexadecimal digits.
    pub(super) hash: String,
}

impl TaggedDocument {
    pub(super) fn new(value: &Value) -> TaggedDocument {
        let mut json = value.to_string().into_bytes();
        json.push(b'\n');
        TaggedDocument::of_bytes(json)
    }

    pub(super) fn of_bytes(bytes: Vec<u8>) -> TaggedDocument {
        TaggedDocument {
            hash: hash(&bytes),
            bytes: bytes.into(),
        }
    }

    /// The document, or 304 if the client has it already.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Response<ResponseBody> {
        answer_tagged(&self.hash, headers, || self.bytes.clone())
    }
}

/// SHA-512 in upper-case hexadecimal digits.
pub(super) fn hash(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02X}"));
    digits.collect()
}

/// A document whose ETag is its hash, or 304 if the client has it already.
pub(super) fn answer_tagged(
    hash: &str,
    headers: &HeaderMap,
    document: impl FnOnce() -> Bytes,
) -> Response<ResponseBody> {
    let tag = format!("\"{hash}\"");
    let known = headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    let known = known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag));
    let (code, body) = if known {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (StatusCode::OK, document())
    };
    let mut response = respond::json_response(code, ResponseBody::bytes(body));
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}
