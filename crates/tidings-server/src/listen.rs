//! Sockets: TLS, HTTP/1.1 and HTTP/2, and draining.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::api::Api;

/// A client that does not finish its handshake, or its request head, in this time is let go.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// HTTP/2 connections are pinged when they are quiet: dead peers are noticed.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
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
    mut stopping: watch::Receiver<bool>,
) {
    // Events are small and are wanted now.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await
    else {
        return;
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX);
    let service = service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, std::convert::Infallible>(api.handle(request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let stop = async { drop(stopping.wait_for(|stopping| *stopping).await) };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
