//! `tidings` under the name etcd: answers `/health` and `/version`, and stores nothing. The kube-apiserver beside it keeps objects in memory.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::flags::KnownFlags;

/// All flags of etcd 3.6.
const FLAGS: KnownFlags = KnownFlags(include_str!("etcd_flags.txt"));
/// The name under which it is started.
pub(crate) const NAME: &str = "etcd";
const VERSION: &str = "3.6.6";

/// Runs until it is told to stop.
pub(crate) fn run(arguments: Vec<String>) -> anyhow::Result<()> {
    if arguments
        .iter()
        .any(|argument| matches!(argument.as_str(), "--help" | "-h"))
    {
        println!(
            "Tidings as {NAME}: answers /health and /version, and stores nothing.\n\nFlags, of which --listen-client-urls has an effect:\n"
        );
        FLAGS.names().for_each(|name| println!("  --{name}"));
        return Ok(());
    }
    if arguments.iter().any(|argument| argument == "--version") {
        println!("etcd Version: {VERSION}");
        return Ok(());
    }
    let given = FLAGS.read(NAME, arguments)?;
    let urls = given
        .get("listen-client-urls")
        .unwrap_or("http://localhost:2379");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(urls))
}

async fn serve(urls: &str) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut listeners = Vec::new();
    for url in urls.split(',') {
        let Some(address) = url.strip_prefix("http://") else {
            bail!("--listen-client-urls {url} cannot be listened on: write http://HOST:PORT");
        };
        let address = address
            .trim_end_matches('/')
            .replace("localhost", "127.0.0.1");
        let address: SocketAddr = address
            .parse()
            .with_context(|| format!("--listen-client-urls {url} has no IP address and port"))?;
        let listener = TcpListener::bind(address).await;
        listeners.push(listener.with_context(|| format!("{address} cannot be listened on"))?);
    }
    for listener in listeners {
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = service_fn(async |request| Ok::<_, Infallible>(answer(&request)));
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), answer));
            }
        });
    }
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}

fn answer(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (code, body) = match request.uri().path() {
        "/health" => (
            StatusCode::OK,
            r#"{"health":"true","reason":""}"#.to_owned(),
        ),
        "/version" => (
            StatusCode::OK,
            format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"3.6.0","storage":"3.6.0"}}"#),
        ),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response
}
