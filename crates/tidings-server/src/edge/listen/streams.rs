//! Which streams of an HTTP/2 connection are in use: one that nobody uses for long is closed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::edge::respond::ResponseBody;

/// Counts the streams of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamActivity(Arc<StreamCounts>);

#[derive(Debug, Default)]
struct StreamCounts {
    open: AtomicUsize,
    /// How many streams there were.
    begun: AtomicU64,
}

/// A stream that is open as long as this exists.
#[derive(Debug)]
pub(super) struct OpenStream(Arc<StreamCounts>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl StreamActivity {
    pub(super) fn begin(&self) -> OpenStream {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        self.0.begun.fetch_add(1, Ordering::AcqRel);
        OpenStream(self.0.clone())
    }

    /// True if a stream is open.
    pub(super) fn is_open(&self) -> bool {
        self.0.open.load(Ordering::Acquire) > 0
    }

    /// Waits until no stream was open and none has begun for a time, and at most twice that.
    pub(super) async fn idle(&self, time: Duration) {
        loop {
            let begun = self.0.begun.load(Ordering::Acquire);
            let was_open = self.is_open();
            tokio::time::sleep(time).await;
            if !was_open && !self.is_open() && begun == self.0.begun.load(Ordering::Acquire) {
                return;
            }
        }
    }
}

/// The body of a response on an open stream.
#[derive(Debug)]
pub(super) struct StreamBody {
    body: ResponseBody,
    _open: OpenStream,
}

impl StreamBody {
    pub(super) fn new(body: ResponseBody, open: OpenStream) -> StreamBody {
        StreamBody { body, _open: open }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_no_stream_is_open_or_begins() {
        let activity = StreamActivity::default();
        let time = Duration::from_secs(90);
        let is_idle_after = async |seconds| {
            let waited = Duration::from_secs(seconds);
            tokio::time::timeout(waited, activity.idle(time))
                .await
                .is_ok()
        };
        assert!(is_idle_after(91).await, "nothing was asked");
        let watch = activity.begin();
        assert!(!is_idle_after(3600).await, "a watch is open");
        drop(watch);
        let asked = activity.clone();
        let asks = tokio::spawn(async move {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(60)).await;
                drop(asked.begin());
            }
        });
        assert!(!is_idle_after(1200).await, "a request a minute");
        asks.await.unwrap();
        assert!(is_idle_after(181).await);
    }
}
