//! A stream into which bytes that were read too early can be put back.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The connection of a client that reads nothing for this long, while something is to be sent, is closed; the client can resume its watch.
const STUCK_AFTER: Duration = Duration::from_secs(600);

/// A stream with bytes in front of it that are read first. It fails when the other side reads nothing for long.
#[derive(Debug)]
pub(super) struct RewoundStream<S> {
    stream: S,
    front: Bytes,
    /// When it fails, if it waits for the other side to read.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> RewoundStream<S> {
    pub(super) fn new(stream: S) -> RewoundStream<S> {
        RewoundStream {
            stream,
            front: Bytes::new(),
            stuck: None,
        }
    }

    /// Puts bytes back that were read but not used. The caller has read all bytes that were put back before.
    pub(super) fn rewind(&mut self, front: &[u8]) {
        // Copied, because a slice, even an empty one, keeps the whole buffer in memory.
        self.front = Bytes::copy_from_slice(front);
    }
}

impl<S> RewoundStream<S> {
    /// What became of a write, or that the other side has read nothing for too long.
    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self
            .stuck
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(STUCK_AFTER)));
        match stuck.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RewoundStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.front.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.front.len().min(buffer.remaining());
        buffer.put_slice(&self.front[..length]);
        self.front.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RewoundStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_reads_nothing_for_long_ends_the_stream() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = RewoundStream::new(near);
        stream.write_all(&[0; 64]).await.unwrap();
        // One that reads a little now and then is slow, not stuck.
        let reader = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(STUCK_AFTER - Duration::from_secs(1)).await;
                far.read_u8().await.unwrap();
            }
            far
        });
        for _ in 0..5 {
            stream.write_all(&[1]).await.unwrap();
        }
        let _far = reader.await.unwrap();
        let begun = tokio::time::Instant::now();
        let error = stream.write_all(&[2]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), STUCK_AFTER.as_secs());
    }
}
