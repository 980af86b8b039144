//! Sockets: TLS, HTTP/1.1 and HTTP/2, and draining.

mod rewound;
mod takeover;
mod websocket;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::edge::Api;
use rewound::RewoundStream;
use takeover::{TakenWatch, WatchTakeover};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Boxed: it is 1.5 KiB, and a future keeps room for every place that it is moved through.
type TlsStream = Box<tokio_rustls::server::TlsStream<TcpStream>>;

/// A client that does not finish its handshake in this time is let go.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// So is one that has not sent the head of its next request, as the API server does it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The head of an HTTP/1.1 request may be this large; a connection keeps a buffer of this size.
const HEAD_BYTES_MAX: usize = 8192;
/// HTTP/2 connections are pinged when they are quiet: dead peers are noticed.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// What a stream of an HTTP/2 connection may have waiting for its reader.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Watches share a connection: one client may have this many.
const STREAMS_MAX: u32 = 1000;

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds an address; port 0 picks a free one.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Listener { socket, address })
    }

    /// The address that it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves. Then it accepts nothing more, tells watches to end, lets requests finish, and returns when
    /// all is done or `drain` has passed.
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
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => {
                        let connection = serve_connection(stream, acceptor.clone(), api.clone(), stopping.subscribe());
                        connections.spawn(connection);
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: wait for some to be given back.
                        tracing::warn!(%error, "a connection cannot be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                // Reap connections that have ended.
                Some(_) = connections.join_next() => {}
            }
        }
        drop(self.socket);
        api.stop_watches();
        stopping.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(drain, all).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "connections are cut: they did not end in time"
            );
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    api: Api,
    stopping: watch::Receiver<bool>,
) {
    // Events are small and are wanted now.
    let _ = stream.set_nodelay(true);
    // What the handshake needs is boxed and gone before the connection starts: idle connections are many.
    let handshake = Box::pin(tokio::time::timeout(
        HANDSHAKE_TIMEOUT,
        acceptor.accept(stream),
    ));
    let Ok(Ok(stream)) = handshake.await else {
        return;
    };
    let stream = Box::new(stream);
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

/// Serves HTTP/1.1 requests one after the other. hyper reads the requests and answers them, except for watches: they are taken
/// over, because a connection that hyper serves keeps 16 KiB of buffers, and idle watches are many. What is boxed here is not
/// there while a watch is idle.
async fn serve_http1(
    stream: TlsStream,
    api: Api,
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

/// Lets hyper serve a connection until a watch is to be taken over. `None` if it has ended before.
async fn until_watch(
    io: RewoundStream<TlsStream>,
    api: &Api,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Option<(RewoundStream<TlsStream>, TakenWatch)>, BoxError> {
    let taken = Arc::new(WatchTakeover::default());
    let service = {
        let (api, taken) = (api.clone(), taken.clone());
        // Boxed, because hyper keeps the place of the future as long as it serves the connection.
        service_fn(move |request| Box::pin(takeover::answer(api.clone(), taken.clone(), request)))
    };
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX);
    let mut connection = Box::new(builder.serve_connection(TokioIo::new(io), service));
    let watch = tokio::select! {
        ended = &mut *connection => return ended.map(|()| None).map_err(Into::into),
        watch = taken.watch() => watch,
        () = stopped(stopping) => {
            std::pin::Pin::new(&mut *connection).graceful_shutdown();
            return connection.await.map(|()| None).map_err(Into::into);
        }
    };
    let parts = connection.into_parts();
    let mut io = parts.io.into_inner();
    io.rewind(&parts.read_buf);
    Ok(Some((io, watch)))
}

async fn serve_http2(
    stream: TlsStream,
    api: Api,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), BoxError> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(SEND_BYTES_MAX);
    let service = service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(api.handle(request).await) }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    Ok(ended?)
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    drop(stopping.wait_for(|stopping| *stopping).await);
}
