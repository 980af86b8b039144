//! Compresses large responses with gzip (W8).

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Response};

/// Responses larger than this are compressed, if the client accepts it.
pub(crate) const MIN_BYTES: usize = 128 << 10;

/// Compresses a stream of bytes.
pub(crate) struct GzipEncoder(GzEncoder<Vec<u8>>);

impl Default for GzipEncoder {
    fn default() -> GzipEncoder {
        GzipEncoder(GzEncoder::new(Vec::new(), Compression::fast()))
    }
}

impl GzipEncoder {
    /// For what is kept and sent often: the output is smaller and takes longer.
    pub(crate) fn small() -> GzipEncoder {
        // The levels of this library up to 6 give 6 % more than those of zlib, 8 gives less.
        GzipEncoder(GzEncoder::new(Vec::new(), Compression::new(8)))
    }

    /// Compresses some bytes and returns the output that is ready, which may be empty.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Bytes {
        // Writing into memory does not fail.
        let _ = self.0.write_all(bytes);
        std::mem::take(self.0.get_mut()).into()
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.finish().unwrap_or_default().into()
    }
}

/// Sets the headers of a compressed response.
pub(crate) fn mark<B>(response: &mut Response<B>) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}
