//! A scripted server.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use tidings_api::{ListMetadata, ListOptions, Object, WatchEvent};
use tidings_informer::{ListPart, Lister, SourceError, Watcher};
use tidings_kube::{RestClient, RestListWatch};
use tokio::sync::mpsc;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type BodyPiece = Result<Frame<Bytes>, std::io::Error>;

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.query().contains("watch=true")
    }
}

/// What the server does with a request.
pub(crate) enum ScriptStep {
    Answer(Response<StreamBody<BodyPieces>>),
    Fail(BoxError),
    Hang,
}

impl ScriptStep {
    pub(crate) fn header(self, name: &'static str, value: &str) -> ScriptStep {
        let ScriptStep::Answer(mut response) = self else {
            panic!("no answer, no header");
        };
        response.headers_mut().insert(name, value.parse().unwrap());
        ScriptStep::Answer(response)
    }
}

/// An answer with a complete body.
pub(crate) fn answer(code: u16, body: impl Into<Bytes>) -> ScriptStep {
    let (sender, step) = open(code);
    sender.send(Ok(Frame::data(body.into()))).unwrap();
    step
}

/// An answer with a body in pieces of a given size.
pub(crate) fn pieces(body: &[u8], size: usize) -> ScriptStep {
    let (sender, step) = open(200);
    for piece in body.chunks(size.max(1)) {
        let frame = Frame::data(Bytes::copy_from_slice(piece));
        sender.send(Ok(frame)).unwrap();
    }
    step
}

/// An answer with a body that is sent later, and ends when the sender is dropped.
pub(crate) fn open(code: u16) -> (mpsc::UnboundedSender<BodyPiece>, ScriptStep) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let response = Response::builder()
        .status(code)
        .header("content-type", "application/json");
    let body = StreamBody::new(BodyPieces(receiver));
    (sender, ScriptStep::Answer(response.body(body).unwrap()))
}

pub(crate) fn fail(kind: std::io::ErrorKind) -> ScriptStep {
    ScriptStep::Fail(Box::new(std::io::Error::from(kind)))
}

pub(crate) struct BodyPieces(mpsc::UnboundedReceiver<BodyPiece>);

impl Stream for BodyPieces {
    type Item = BodyPiece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<BodyPiece>> {
        self.0.poll_recv(context)
    }
}

type Script = Box<dyn FnMut(&ReceivedRequest) -> ScriptStep + Send>;

#[derive(Clone)]
pub(crate) struct Server {
    script: Arc<Mutex<Script>>,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Server {
    pub(crate) fn new(
        script: impl FnMut(&ReceivedRequest) -> ScriptStep + Send + 'static,
    ) -> Server {
        Server {
            script: Arc::new(Mutex::new(Box::new(script))),
            asked: Arc::default(),
        }
    }

    /// A server that gives these answers one after the other.
    pub(crate) fn script(steps: impl IntoIterator<Item = ScriptStep>) -> Server {
        let mut steps: VecDeque<ScriptStep> = steps.into_iter().collect();
        Server::new(move |_| {
            let over = || ScriptStep::Fail("the script is over".into());
            steps.pop_front().unwrap_or_else(over)
        })
    }

    pub(crate) fn client(&self) -> RestClient {
        RestClient::new(kube::Client::new(self.clone(), "default"))
    }

    pub(crate) fn pods(&self) -> RestListWatch {
        RestListWatch::new(&self.client(), &pods(), "")
    }

    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<StreamBody<BodyPieces>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let asked = ReceivedRequest {
                method: parts.method,
                uri: parts.uri,
                headers: parts.headers,
                body: body.collect().await?.to_bytes(),
            };
            let step = (server.script.lock().unwrap())(&asked);
            server.asked.lock().unwrap().push(asked);
            match step {
                ScriptStep::Answer(response) => Ok(response),
                ScriptStep::Fail(error) => Err(error),
                ScriptStep::Hang => std::future::pending().await,
            }
        })
    }
}

pub(crate) fn pods() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods")
}

pub(crate) const EMPTY: &str =
    r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;

pub(crate) fn event(name: &str, version: u32) -> String {
    format!(
        r#"{{"type":"ADDED","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","resourceVersion":"{version}"}}}}}}{}"#,
        "\n"
    )
}

/// The parts of a list until its end or an error.
pub(crate) async fn list(
    lister: &impl Lister,
    options: ListOptions,
) -> (Vec<Object>, Result<ListMetadata, SourceError>) {
    let mut items = Vec::new();
    let mut parts = match lister.list(options).await {
        Ok(parts) => parts,
        Err(error) => return (items, Err(error)),
    };
    let outcome = loop {
        match next(&mut parts).await {
            Some(Ok(ListPart::Begin(_))) => {}
            Some(Ok(ListPart::Items(more))) => items.extend(more),
            Some(Ok(ListPart::End(metadata))) => break Ok(metadata),
            Some(Err(error)) => break Err(error),
            None => panic!("a list ends with its metadata or an error"),
        }
    };
    assert!(next(&mut parts).await.is_none(), "nothing follows the end");
    (items, outcome)
}

pub(crate) async fn list_error(lister: &impl Lister) -> SourceError {
    list(lister, ListOptions::default()).await.1.unwrap_err()
}

/// The events of a watch until its end or an error.
pub(crate) async fn watch(watcher: &impl Watcher) -> (Vec<WatchEvent>, Result<(), SourceError>) {
    let mut events = Vec::new();
    let mut stream = match watcher.watch(ListOptions::default()).await {
        Ok(stream) => stream,
        Err(error) => return (events, Err(error)),
    };
    let outcome = loop {
        match next(&mut stream).await {
            Some(Ok(batch)) => events.extend(batch),
            Some(Err(error)) => break Err(error),
            None => return (events, Ok(())),
        }
    };
    assert!(
        next(&mut stream).await.is_none(),
        "nothing follows an error"
    );
    (events, outcome)
}

pub(crate) async fn next<T>(stream: &mut Pin<Box<dyn Stream<Item = T> + Send>>) -> Option<T> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}

/// Captures what this thread logs while it exists.
pub(crate) struct Logs {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Logs {
    pub(crate) fn capture() -> Logs {
        let text: Arc<Mutex<Vec<u8>>> = Arc::default();
        let writer = Arc::clone(&text);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || Writer(Arc::clone(&writer)))
            .finish();
        Logs {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
