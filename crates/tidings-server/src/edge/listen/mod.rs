//! The listener: accepts connections, serves HTTP/1.1 and HTTP/2 over TLS, and drains connections at shutdown.

mod rewound;
mod streams;
mod takeover;
mod websocket;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::core::ShownCertificate;
use crate::edge::Api;
use crate::edge::api::PeerAddress;
use crate::edge::respond::ResponseBody;
use crate::edge::turns::{InTurn, Turn, TurnExecutor, Turns};
use rewound::RewoundStream;
use streams::{StreamActivity, StreamBody};
use takeover::{TakenWatch, WatchTakeover};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Boxed, because it takes 1.5 KiB and a future reserves space for each variable that it is moved through.
type TlsStream = Box<tokio_rustls::server::TlsStream<TcpStream>>;

/// The connection of a client that does not finish its TLS handshake in this time, or after it the preface of HTTP/2, is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The connection of a client that does not send the head of its next request in this time is closed. As in kube-apiserver. One of HTTP/2 without
/// streams is closed after at most twice this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long an idle HTTP/2 connection has to end after it was told to.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many connections may be open if nobody sets another number.
const CONNECTIONS_MAX: usize = 100_000;
/// What a client of HTTP/2 sends first.
const PREFACE_BYTES: usize = 24;
/// The largest head of a request. Tokens of users in many groups, impersonation of such users and long selectors are tens of kilobytes. A connection
/// begins with a buffer of 8 KiB, which grows as far as this while more than that arrives at once.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// The most headers of an HTTP/1.1 request: each group of an impersonated user is one.
const HEADERS_MAX: usize = 2048;
/// Idle HTTP/2 connections are pinged to detect dead peers.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long the answer to a ping may take.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The send buffer of one HTTP/2 stream.
const SEND_BYTES_MAX: usize = 64 << 10;
/// How many streams an HTTP/2 connection may have. The watches of a client share one connection.
const STREAMS_MAX: u32 = 1000;

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    connections_max: usize,
}

impl Listener {
    /// Binds an address; port 0 picks a free one.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Listener {
            socket,
            address,
            connections_max: CONNECTIONS_MAX,
        })
    }

    /// Sets how many connections may be open. More are closed at once: the server needs files for other things too.
    #[must_use]
    pub fn connections_max(mut self, most: usize) -> Listener {
        self.connections_max = most;
        self
    }

    /// The address of the socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves. Then it accepts no more connections, ends watches, lets requests finish, and returns when all connections
    /// are closed or `drain` has passed.
    pub async fn serve(
        self,
        api: Api,
        tls: Arc<ServerConfig>,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) {
        let acceptor = TlsAcceptor::from(tls);
        let (stopping, _) = watch::channel(false);
        let mut connections = JoinSet::new();
        let turns = Turns::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) if connections.len() >= self.connections_max => {
                        drop(stream);
                        api.refuse_connection(self.connections_max);
                    }
                    Ok((stream, _)) => {
                        let turn = Turn::of_stranger(&turns);
                        let served = connection(stream, acceptor.clone(), api.clone(), turn.clone(), stopping.subscribe());
                        connections.spawn(InTurn::new(served, turn));
                    }
                    Err(error) => {
                        // Most likely the process is out of file descriptors: wait until some are closed.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                // Removes connections that have ended.
                Some(_) = connections.join_next() => {}
            }
            api.note_connections(connections.len());
        }
        drop(self.socket);
        api.stop_watches();
        stopping.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(drain, all).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "closing connections that did not end within the drain timeout"
            );
        }
    }
}

/// The API for the requests of one connection.
#[derive(Clone)]
struct ConnectedApi {
    api: Api,
    shown: Option<ShownCertificate>,
    peer: Option<PeerAddress>,
    turn: Turn,
}

impl ConnectedApi {
    async fn handle(&self, mut request: Request<Incoming>) -> Response<ResponseBody> {
        if let Some(shown) = &self.shown {
            request.extensions_mut().insert(shown.clone());
        }
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        request.extensions_mut().insert(self.turn.clone());
        self.api.handle(request).await
    }
}

/// Boxed, so that it is compiled with this crate and not once more with every program that serves.
fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    api: Api,
    turn: Turn,
    stopping: watch::Receiver<bool>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(serve_connection(stream, acceptor, api, turn, stopping))
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    api: Api,
    turn: Turn,
    stopping: watch::Receiver<bool>,
) {
    // Events are small and must not wait for more data.
    let _ = stream.set_nodelay(true);
    // Boxed, so that the memory of the handshake is freed before the connection is served: there are many idle connections.
    let handshake = Box::pin(tokio::time::timeout(
        HANDSHAKE_TIMEOUT,
        acceptor.accept(stream),
    ));
    let Ok(Ok(stream)) = handshake.await else {
        return;
    };
    let stream = Box::new(stream);
    let peer = || Some(PeerAddress(stream.get_ref().0.peer_addr().ok()?.ip()));
    let api = ConnectedApi {
        shown: api.shown(stream.get_ref().1.peer_certificates()),
        peer: api.wants_peers().then(peer).flatten(),
        turn,
        api,
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let ended = if http2 {
        Box::pin(serve_http2(stream, api, stopping)).await
    } else {
        serve_http1(stream, api, stopping).await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// Serves HTTP/1.1 requests one after the other. hyper reads the requests and answers them, except for watches: these are taken over from
/// hyper, because a connection that hyper serves keeps 16 KiB of buffers, and there are many idle watches. Futures are boxed here so that
/// their memory is freed while a watch is idle.
async fn serve_http1(
    stream: TlsStream,
    api: ConnectedApi,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), BoxError> {
    let mut io = RewoundStream::new(stream);
    loop {
        let (head, body) = match Box::pin(until_watch(io, &api, &mut stopping)).await? {
            None => return Ok(()),
            Some((taken_from, watch)) => {
                io = taken_from;
                let (head, body) = watch.response.into_parts();
                if let Some(upgrade) = watch.upgrade {
                    return Ok(Box::pin(upgrade.stream(&mut io, body)).await?);
                }
                (takeover::head(&head)?, body)
            }
        };
        if !takeover::stream(&mut io, head, body).await? || *stopping.borrow() {
            return Ok(io.shutdown().await?);
        }
    }
}

/// Lets hyper serve a connection until a watch has to be taken over. `None` if the connection ended before.
async fn until_watch(
    io: RewoundStream<TlsStream>,
    api: &ConnectedApi,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Option<(RewoundStream<TlsStream>, TakenWatch)>, BoxError> {
    let taken = Arc::new(WatchTakeover::default());
    let service = {
        let (api, taken) = (api.clone(), taken.clone());
        // Boxed, because hyper reserves space for the future as long as it serves the connection.
        service_fn(move |request| Box::pin(takeover::answer(api.clone(), taken.clone(), request)))
    };
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    let mut connection = Box::new(builder.serve_connection(TokioIo::new(io), service));
    let mut drains = false;
    let watch = loop {
        tokio::select! {
            ended = &mut *connection => return ended.map(|()| None).map_err(Into::into),
            watch = taken.watch() => break watch,
            () = stopped(stopping), if !drains => {
                drains = true;
                Pin::new(&mut *connection).graceful_shutdown();
            }
        }
    };
    let parts = connection.into_parts();
    let mut io = parts.io.into_inner();
    io.rewind(&parts.read_buf);
    Ok(Some((io, watch)))
}

async fn serve_http2(
    stream: TlsStream,
    api: ConnectedApi,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), BoxError> {
    let stream = with_preface(stream).await?;
    let mut builder = http2::Builder::new(TurnExecutor(api.turn.clone()));
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_send_buf_size(SEND_BYTES_MAX);
    let activity = StreamActivity::default();
    let service = {
        let activity = activity.clone();
        service_fn(move |request| {
            let (api, open) = (api.clone(), activity.begin());
            async move {
                let response = api.handle(request).await;
                Ok::<_, Infallible>(response.map(|body| StreamBody::new(body, open)))
            }
        })
    };
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = activity.idle(IDLE_TIMEOUT) => {
            connection.as_mut().graceful_shutdown();
            loop {
                match tokio::time::timeout(GOODBYE_TIMEOUT, connection.as_mut()).await {
                    Ok(ended) => break ended,
                    // A stream may have begun meanwhile. A client that is silent does not answer the goodbye either.
                    Err(_) if activity.is_open() => {}
                    Err(_) => break Ok(()),
                }
            }
        }
    };
    Ok(ended?)
}

/// Waits for the preface of HTTP/2, and puts it back.
async fn with_preface(stream: TlsStream) -> Result<RewoundStream<TlsStream>, BoxError> {
    let mut stream = RewoundStream::new(stream);
    let mut preface = [0; PREFACE_BYTES];
    let read = stream.read_exact(&mut preface);
    tokio::time::timeout(HANDSHAKE_TIMEOUT, read).await??;
    stream.rewind(&preface);
    Ok(stream)
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    drop(stopping.wait_for(|stopping| *stopping).await);
}
