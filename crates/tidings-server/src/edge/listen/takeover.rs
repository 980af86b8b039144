//! Watches over HTTP/1.1, written without hyper: the head of the response and then chunks go straight into the TLS stream.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use http::response::Parts;
use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

use super::ConnectedApi;
use super::rewound::RewoundStream;
use super::websocket::WebSocketUpgrade;
use crate::edge::respond::ResponseBody;

/// How many bytes a client may send while it watches: the beginning of its next request.
const EARLY_BYTES_MAX: usize = 4096;

/// Hands a watch from the service that hyper calls to the task that takes it over.
#[derive(Debug, Default)]
pub(super) struct WatchTakeover {
    watch: Mutex<Option<TakenWatch>>,
    ready: Notify,
}

/// A watch that is taken over.
#[derive(Debug)]
pub(super) struct TakenWatch {
    pub(super) response: Response<ResponseBody>,
    /// The upgrade to a WebSocket, if the client asked for it.
    pub(super) upgrade: Option<WebSocketUpgrade>,
}

impl WatchTakeover {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<TakenWatch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a watch to take over. There may never be one.
    pub(super) async fn watch(&self) -> TakenWatch {
        loop {
            self.ready.notified().await;
            if let Some(watch) = self.lock().take() {
                return watch;
            }
        }
    }
}

/// Answers a request for hyper. A watch is offered to [`WatchTakeover`] instead, and this future then never returns.
pub(super) async fn answer(
    api: ConnectedApi,
    takeover: std::sync::Arc<WatchTakeover>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    // A watch stays with hyper if the client speaks HTTP/1.0, which has no chunks, if its request has a body that is not read yet, or if the
    // client asks to close the connection.
    let closes = request
        .headers()
        .get(http::header::CONNECTION)
        .is_some_and(|value| value != "keep-alive");
    let upgrade = WebSocketUpgrade::of(&request);
    let plain = request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && (!closes || upgrade.is_some());
    let response = api.handle(request).await;
    if plain && response.body().is_watch() {
        *takeover.lock() = Some(TakenWatch { response, upgrade });
        takeover.ready.notify_one();
        return std::future::pending().await;
    }
    Ok(response)
}

/// The head of a response with a chunked body.
pub(super) fn head(parts: &Parts) -> io::Result<Vec<u8>> {
    let mut head = format!("HTTP/1.1 {} OK\r\n", parts.status.as_u16()).into_bytes();
    for (name, value) in &parts.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    let date = http_date();
    write!(head, "transfer-encoding: chunked\r\ndate: {date}\r\n\r\n")?;
    Ok(head)
}

/// Writes a watch until it ends. Returns whether the connection can be used again.
pub(super) async fn stream<S>(
    io: &mut RewoundStream<S>,
    head: Vec<u8>,
    mut body: ResponseBody,
) -> io::Result<bool>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    send(io, &[&head]).await?;
    drop(head);
    let mut early = BytesMut::new();
    loop {
        match next(io, &mut body, &mut early).await? {
            WatchStreamEvent::Bytes(bytes) if bytes.is_empty() => {}
            WatchStreamEvent::Bytes(bytes) => {
                let mut size = [0_u8; 18];
                let mut rest = &mut size[..];
                write!(rest, "{:x}\r\n", bytes.len())?;
                let unused = rest.len();
                send(io, &[&size[..size.len() - unused], &bytes, b"\r\n"]).await?;
            }
            WatchStreamEvent::End => {
                send(io, &[b"0\r\n\r\n"]).await?;
                io.rewind(&early);
                return Ok(true);
            }
            WatchStreamEvent::ClientLeft => return Ok(false),
        }
    }
}

/// What happens next on the connection of a watch.
enum WatchStreamEvent {
    Bytes(Bytes),
    End,
    ClientLeft,
}

/// Waits for events, or until the client closes the connection.
async fn next<S>(
    io: &mut RewoundStream<S>,
    body: &mut ResponseBody,
    early: &mut BytesMut,
) -> io::Result<WatchStreamEvent>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    poll_fn(|context| {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
            let bytes = frame.and_then(|frame| {
                frame
                    .unwrap_or_else(|never| match never {})
                    .into_data()
                    .ok()
            });
            return Poll::Ready(Ok(
                bytes.map_or(WatchStreamEvent::End, WatchStreamEvent::Bytes)
            ));
        }
        let mut space = [0_u8; 256];
        loop {
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut *io).poll_read(context, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Poll::Ready(Ok(WatchStreamEvent::ClientLeft));
                }
                Poll::Ready(Ok(())) => {
                    early.extend_from_slice(buffer.filled());
                    if early.len() > EARLY_BYTES_MAX {
                        return Poll::Ready(Ok(WatchStreamEvent::ClientLeft)); // sends too much: disconnect
                    }
                }
            }
        }
    })
    .await
}

/// Writes slices one after the other, and flushes them.
async fn send<S>(io: &mut RewoundStream<S>, slices: &[&[u8]]) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut slices = slices.to_vec();
    while slices.iter().any(|slice| !slice.is_empty()) {
        let views: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut written = io.write_vectored(&views).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        for slice in &mut slices {
            let part = written.min(slice.len());
            slice.advance(part);
            written -= part;
        }
    }
    io.flush().await
}

/// The current time, in the format of the header `Date`.
fn http_date() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
