//! A layer under the kube client that counts requests and can end the running watch with 410 Expired.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use tokio::sync::oneshot;
use tower::{Layer, Service};

const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version (injected)","reason":"Expired","code":410}}
"#;

/// Shows in a report whether a mode did what its name says.
#[derive(Default)]
pub struct Traffic {
    pub lists: AtomicU64,
    pub streams: AtomicU64,
    pub watches: AtomicU64,
    /// `Some(None)` from the injected error until the watcher speaks to the server again.
    first_after: Mutex<Option<Option<Instant>>>,
    /// Ends the newest watch.
    expire: Mutex<Option<oneshot::Sender<()>>>,
}

impl Traffic {
    /// Ends the newest watch with 410 and asks for the time of the next request.
    pub fn expire_watch(&self) -> bool {
        *self.first_after.lock().unwrap() = Some(None);
        let running = self.expire.lock().unwrap().take();
        running.is_some_and(|running| running.send(()).is_ok())
    }

    /// When the first request after the injected error was sent.
    pub fn spoke(&self) -> Option<Instant> {
        self.first_after.lock().unwrap().flatten()
    }

    fn note(&self, uri: &http::Uri) -> Option<oneshot::Receiver<()>> {
        if let Some(first @ None) = &mut *self.first_after.lock().unwrap() {
            *first = Some(Instant::now());
        }
        let query = uri.query().unwrap_or_default();
        if !query.contains("watch=true") {
            self.lists.fetch_add(1, Relaxed);
            return None;
        }
        let kind = if query.contains("sendInitialEvents=true") {
            &self.streams
        } else {
            &self.watches
        };
        kind.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        *self.expire.lock().unwrap() = Some(sender);
        Some(receiver)
    }
}

#[derive(Clone)]
pub struct Taps(pub Arc<Traffic>);

impl<S> Layer<S> for Taps {
    type Service = Tapped<S>;

    fn layer(&self, inner: S) -> Tapped<S> {
        Tapped {
            inner,
            traffic: self.0.clone(),
        }
    }
}

pub struct Tapped<S> {
    inner: S,
    traffic: Arc<Traffic>,
}

impl<S, B> Service<Request<Body>> for Tapped<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<FaultyBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let expire = self.traffic.note(request.uri());
        let response = self.inner.call(request);
        async move { Ok(response.await?.map(|inner| FaultyBody { inner, expire })) }.boxed()
    }
}

/// Passes a body on until it is told to expire. The server must be silent then:
/// the error line would otherwise land in the middle of another.
pub struct FaultyBody<B> {
    inner: B,
    expire: Option<oneshot::Receiver<()>>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for FaultyBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(expire) = &mut self.expire
            && let Poll::Ready(told) = expire.poll_unpin(context)
        {
            self.expire = None;
            if told.is_ok() {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(EXPIRED)))));
            }
        }
        Pin::new(&mut self.inner).poll_frame(context)
    }
}
