//! The token with which a client asks for the next page of a list (W81, W85).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tidings_api::Status;
use tidings_go::quote;
use tidings_json::write_string;

const FORMAT: &str = "meta.k8s.io/v1";

/// The decoded continue token: where the next page starts.
#[derive(Debug, Deserialize)]
pub(crate) struct ContinueToken {
    #[serde(default)]
    v: String,
    /// The revision of the list; negative if the next page is read at the latest revision.
    #[serde(default)]
    pub(crate) rv: i64,
    /// The key right after the last object, without the namespace if the list is within one.
    #[serde(default)]
    pub(crate) start: String,
    /// When the token was issued, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) t: u64,
}

impl ContinueToken {
    /// Encodes the token for the page that starts after `last_key`. `prefix` is the part that the keys of all listed objects share.
    pub(crate) fn write(revision: i64, last_key: &str, prefix: &str, issued_ms: u64) -> String {
        let relative = last_key.strip_prefix(prefix).unwrap_or(last_key);
        let mut json = format!(r#"{{"v":"{FORMAT}","rv":{revision},"start":"#);
        write_string(&mut json, &format!("{relative}\0"));
        json.push_str(&format!(r#","t":{issued_ms}}}"#));
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Decodes a token.
    pub(crate) fn read(token: &str) -> Result<ContinueToken, Status> {
        let bad = |why: &str| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(token)
            .map_err(|error| bad(&format!("illegal base64 data: {error}")))?;
        let read: ContinueToken =
            serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
        if read.v != FORMAT {
            return Err(bad(&format!(
                "server does not recognize this encoded version {}",
                quote(&read.v)
            )));
        }
        if read.rv == 0 {
            return Err(bad(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        if read.start.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if read
            .relative_start()
            .split('/')
            .any(|segment| matches!(segment, "." | ".."))
        {
            return Err(bad(&read.start));
        }
        Ok(read)
    }

    /// The key right after the last object, without a leading slash.
    pub(crate) fn relative_start(&self) -> &str {
        self.start.strip_prefix('/').unwrap_or(&self.start)
    }
}
