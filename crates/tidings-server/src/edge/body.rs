//! Reads the bodies of requests, up to a size limit.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use tidings_api::Status;

/// The largest body that is accepted (W14).
const BODY_BYTES_MAX: usize = 3 << 20;

/// How many bytes of a body that is too large, or not wanted, are read and discarded.
const REFUSED_BYTES_MAX: usize = 32 << 20;

/// Reads a body, up to the limit.
pub(crate) async fn read_body<B>(mut body: std::pin::Pin<&mut B>) -> Result<Bytes, Status>
where
    B: Body,
    B::Error: std::fmt::Display,
{
    tracing::trace!(target: "tidings::walk", "reads the body");
    let mut collected = BytesMut::new();
    let mut only: Option<Bytes> = None;
    let mut too_large = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Status::bad_request(format!("the body cannot be read: {error}")))?;
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        use bytes::Buf;
        let length = data.remaining();
        let so_far = only.as_ref().map_or(collected.len(), Bytes::len);
        if too_large > 0 || so_far + length > BODY_BYTES_MAX {
            // Most clients send the whole request before they read the response, so the rest has to be read.
            too_large += length;
            (only, collected) = (None, BytesMut::new());
            if too_large > REFUSED_BYTES_MAX {
                break;
            }
            continue;
        }
        let bytes = data.copy_to_bytes(length);
        match (&only, collected.is_empty()) {
            (None, true) => only = Some(bytes),
            _ => {
                if let Some(first) = only.take() {
                    collected.extend_from_slice(&first);
                }
                collected.extend_from_slice(&bytes);
            }
        }
    }
    if too_large > 0 {
        return Err(Status::entity_too_large(BODY_BYTES_MAX));
    }
    Ok(only.unwrap_or_else(|| collected.freeze()))
}

/// Reads and discards the rest of a body, up to a size and a time.
pub(crate) async fn drain<B: Body>(mut body: std::pin::Pin<&mut B>) {
    let rest = async {
        let mut taken = 0;
        while !body.is_end_stream()
            && let Some(Ok(frame)) = body.frame().await
        {
            taken += frame.data_ref().map_or(0, bytes::Buf::remaining);
            if taken > REFUSED_BYTES_MAX {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
}

/// How long to wait for the rest of a body that is discarded.
const DRAIN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
