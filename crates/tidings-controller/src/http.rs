//! The port of a manager: health, metrics, figures.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::managed::ManagerState;

/// Connections that are served at a time; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the port until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, state: Arc<ManagerState>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for health and metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let response = answer(&request, &state);
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // A client that goes away is no trouble.
            let _ = served.await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, state: &ManagerState) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
    }
    match request.uri().path() {
        "/healthz" => checked(&state.not_healthy()),
        "/readyz" => checked(&state.not_ready()),
        "/metrics" => {
            let mut metrics = String::new();
            match encode(&mut metrics, &state.registry) {
                Ok(()) => of_type(
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    metrics,
                ),
                Err(_) => text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the metrics cannot be written\n".into(),
                ),
            }
        }
        "/debug/controllers" => of_type("application/json", format!("{:#}\n", state.figures())),
        "/debug/shards" => of_type("application/json", format!("{:#}\n", state.shards())),
        _ => text(
            StatusCode::NOT_FOUND,
            "try /healthz, /readyz, /metrics, /debug/controllers or /debug/shards\n".into(),
        ),
    }
}

/// The answer of a check: the reasons why it fails, one a line.
fn checked(reasons: &[String]) -> Response<Full<Bytes>> {
    match reasons {
        [] => text(StatusCode::OK, "ok\n".into()),
        reasons => {
            let message = format!("{}\n", reasons.join("\n"));
            text(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }
}

fn text(code: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = of_type("text/plain; charset=utf-8", body);
    *response.status_mut() = code;
    response
}

fn of_type(media_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let value = header::HeaderValue::from_static(media_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}
