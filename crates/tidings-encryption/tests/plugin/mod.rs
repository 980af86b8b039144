//! A KMS plugin on a socket, which encrypts by turning bits around.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;

#[derive(Default)]
struct State {
    key: String,
    health: String,
    /// What was encrypted elsewhere.
    known: Vec<(Vec<u8>, Vec<u8>)>,
}

pub(crate) struct Plugin {
    directory: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    pub(crate) encrypted: Arc<AtomicU64>,
    pub(crate) decrypted: Arc<AtomicU64>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswer {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    health: String,
    #[prost(string, tag = "3")]
    key: String,
}

/// Encrypt and Decrypt have their first field and key in the same places.
#[derive(Clone, PartialEq, Message)]
struct Bytes1 {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
    #[prost(string, tag = "2")]
    key: String,
}

fn turned(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 0x55).collect()
}

impl Plugin {
    pub(crate) async fn start(key: &str) -> Plugin {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("kms.sock")).unwrap();
        let plugin = Plugin {
            directory,
            state: Arc::default(),
            encrypted: Arc::default(),
            decrypted: Arc::default(),
        };
        plugin.set_key(key);
        plugin.set_health("ok");
        let (state, encrypted, decrypted) = (
            plugin.state.clone(),
            plugin.encrypted.clone(),
            plugin.decrypted.clone(),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, encrypted, decrypted) =
                    (state.clone(), encrypted.clone(), decrypted.clone());
                let service = service_fn(move |request| {
                    answer(request, state.clone(), encrypted.clone(), decrypted.clone())
                });
                let connection = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        plugin
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("kms.sock")
    }

    /// A provider of a configuration. Calls have much time, because paused time runs on while a socket is read.
    pub(crate) fn provider(&self, name: &str) -> String {
        let socket = self.socket();
        format!(
            "kms: {{apiVersion: v2, name: {name}, endpoint: 'unix://{}', timeout: 600s}}",
            socket.display()
        )
    }

    pub(crate) fn set_key(&self, key: &str) {
        key.clone_into(&mut self.state.lock().unwrap().key);
    }

    pub(crate) fn set_health(&self, health: &str) {
        health.clone_into(&mut self.state.lock().unwrap().health);
    }

    /// It decrypts `sealed` to `plain`.
    pub(crate) fn knows(&self, sealed: &[u8], plain: &[u8]) {
        let mut state = self.state.lock().unwrap();
        state.known.push((sealed.to_vec(), plain.to_vec()));
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
    encrypted: Arc<AtomicU64>,
    decrypted: Arc<AtomicU64>,
) -> Result<Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>, Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let asked = Bytes1::decode(&body[5..]).unwrap_or_default();
    let state = state.lock().unwrap();
    let message = match method.as_str() {
        "Status" => StatusAnswer {
            version: "v2".to_owned(),
            health: state.health.clone(),
            key: state.key.clone(),
        }
        .encode_to_vec(),
        "Encrypt" => {
            encrypted.fetch_add(1, Ordering::Relaxed);
            Bytes1 {
                bytes: turned(&asked.bytes),
                key: state.key.clone(),
            }
            .encode_to_vec()
        }
        _ => {
            decrypted.fetch_add(1, Ordering::Relaxed);
            let known = state
                .known
                .iter()
                .find(|(sealed, _)| *sealed == asked.bytes);
            let bytes = known.map_or_else(|| turned(&asked.bytes), |(_, plain)| plain.clone());
            Bytes1 {
                bytes,
                key: String::new(),
            }
            .encode_to_vec()
        }
    };
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(frame))
        .with_trailers(std::future::ready(Some(Ok::<_, Infallible>(trailers))))
        .boxed();
    let mut response = Response::new(body);
    let kind = http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}
