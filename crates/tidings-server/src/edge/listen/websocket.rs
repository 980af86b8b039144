//! Watches over WebSockets (W120–W125): one event per frame, made from the body that other watches send in chunks.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Request, Version};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::edge::authenticate;
use crate::edge::respond::ResponseBody;

/// The connection of a client that reads nothing for this long is closed.
const STUCK_AFTER: Duration = Duration::from_secs(600);
/// Small, because there are many idle watches and clients send next to nothing.
const BUFFER_BYTES: usize = 2 << 10;
/// The largest message that a client may send. Messages of clients are ignored.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The upgrade that a client requests.
#[derive(Debug)]
pub(super) struct WebSocketUpgrade {
    accept: String,
    /// The subprotocol of the response, if the client offered exactly one.
    protocol: Option<String>,
}

impl WebSocketUpgrade {
    /// The upgrade that a request asks for; `None` if it is no WebSocket request.
    pub(super) fn of<B>(request: &Request<B>) -> Option<WebSocketUpgrade> {
        let headers = request.headers();
        let is_valid = request.version() == Version::HTTP_11
            && is_websocket(headers)
            && headers
                .get(SEC_WEBSOCKET_VERSION)
                .is_some_and(|version| version == "13");
        if !is_valid {
            return None;
        }
        let mut protocols = authenticate::websocket_protocols(headers);
        protocols.retain(|protocol| authenticate::protocol_token(protocol).is_none());
        let only = match protocols.as_slice() {
            [only] => Some((*only).to_owned()),
            _ => None,
        };
        Some(WebSocketUpgrade {
            accept: derive_accept_key(headers.get(SEC_WEBSOCKET_KEY)?.as_bytes()),
            protocol: only,
        })
    }

    /// Upgrades the connection and writes a watch to its end.
    pub(super) async fn stream<S>(self, io: &mut S, mut body: ResponseBody) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n",
            self.accept
        );
        if let Some(protocol) = self.protocol {
            head.push_str(&format!("{SEC_WEBSOCKET_PROTOCOL}: {protocol}\r\n"));
        }
        head.push_str("\r\n");
        io.write_all(head.as_bytes()).await?;
        io.flush().await?;
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES)
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        let framed = body.is_framed();
        loop {
            tokio::select! {
                events = next(&mut body) => match events {
                    Some(events) => send(&mut socket, messages(&events, framed)?).await?,
                    None => {
                        let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
                        return socket.close(Some(normal)).await.map_err(io::Error::other);
                    }
                },
                // Reading also answers pings.
                received = socket.next() => match received {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                    Some(Ok(_)) => {}
                },
            }
        }
    }
}

/// True if the request asks to upgrade to a WebSocket.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let says = |name, word: &str| {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case(word))
    };
    says(CONNECTION, "upgrade") && says(UPGRADE, "websocket")
}

async fn next(body: &mut ResponseBody) -> Option<Bytes> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    frame
        .unwrap_or_else(|never| match never {})
        .into_data()
        .ok()
}

/// Splits a chunk into events and puts each into a message of its own (W122). JSON events end with a line break; protobuf events follow their
/// length.
fn messages(events: &Bytes, framed: bool) -> io::Result<Vec<Message>> {
    if !framed {
        let lines = events.split_inclusive(|byte| *byte == b'\n');
        return lines
            .map(|line| {
                let text = Utf8Bytes::try_from(events.slice_ref(line)).map_err(io::Error::other)?;
                Ok(Message::Text(text))
            })
            .collect();
    }
    let mut rest = events.clone();
    let mut messages = Vec::new();
    while rest.has_remaining() {
        let length = rest.try_get_u32().map_err(io::Error::other)? as usize;
        if length > rest.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        messages.push(Message::Binary(rest.split_to(length)));
    }
    Ok(messages)
}

async fn send<S>(socket: &mut WebSocketStream<S>, messages: Vec<Message>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let write = async {
        for message in messages {
            socket.feed(message).await.map_err(io::Error::other)?;
        }
        socket.flush().await.map_err(io::Error::other)
    };
    tokio::time::timeout(STUCK_AFTER, write)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
