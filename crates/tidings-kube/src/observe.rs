//! A client whose requests are observed: which were answered, and what was written.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use tidings_api::Object;
use tidings_json::find_member;
use tokio::time::Instant;
use tower_service::Service;

/// The largest answer to a write that is read; servers have lower limits.
const OBJECT_BYTES_MAX: usize = 64 << 20;

/// A request that is given up after this long without an answer counts as unanswered.
const SILENCE_SUSPICIOUS: Duration = Duration::from_secs(5);

/// Sees every request of a client that [`RestClient::observed_by`](crate::RestClient::observed_by) made. Called in the task of the
/// request; must not block.
pub trait RequestObserver: Send + Sync + 'static {
    /// There was no answer: the connection failed, the caller gave up after five seconds of silence, or a proxy answered that there is no
    /// server (502, 503, 504).
    fn unanswered(&self) {}

    /// A write succeeded.
    fn wrote(&self, write: &ObservedWrite) {
        let _ = write;
    }

    /// Nobody knows what a write did: its answer was lost or broke off, is compressed, the server failed (500 to 504), or the caller did not
    /// wait for it.
    fn in_doubt(&self, write: &ObservedWrite) {
        let _ = write;
    }
}

/// The name in the body of a create, as an extension of its request: the path does not have it.
#[derive(Debug, Clone)]
pub(crate) struct CreatedName(String);

impl CreatedName {
    pub(crate) fn of(body: &[u8]) -> Option<CreatedName> {
        let quoted = find_member(body, &["metadata", "name"])?;
        let name = serde_json::from_slice(quoted.of(body)).ok();
        name.map(CreatedName)
    }
}

/// A successful write of a client.
#[derive(Debug, Clone)]
pub struct ObservedWrite {
    /// The API group; empty for core.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name in the path, or in the body of a create by [`RestClient`](crate::RestClient); empty if the server has chosen it, if nobody
    /// knows it, or if the write was to a collection.
    pub name: String,
    /// True for DELETE.
    pub is_deletion: bool,
    /// The object that the server answered with, without `metadata.managedFields`. A deletion that is complete is mostly answered with a Status instead.
    pub object: Option<Object>,
}

impl ObservedWrite {
    /// Reads the path and query of a write, `/apis/apps/v1/namespaces/default/deployments/web/status`. `None` for paths that are not of
    /// objects or of their status, and for dry runs.
    fn of_uri(uri: &Uri, is_deletion: bool) -> Option<ObservedWrite> {
        if uri.query().is_some_and(|query| query.contains("dryRun=")) {
            return None;
        }
        let mut segments = uri.path().trim_matches('/').split('/');
        let group = match segments.next()? {
            "api" => "",
            "apis" => segments.next()?,
            _ => return None,
        };
        segments.next()?; // the version
        let rest: Vec<&str> = segments.collect();
        let (namespace, resource, name) = match rest.as_slice() {
            ["namespaces", name, "status" | "finalize"] => ("", "namespaces", *name),
            ["namespaces", namespace, resource] => (*namespace, *resource, ""),
            ["namespaces", namespace, resource, name]
            | ["namespaces", namespace, resource, name, "status"] => (*namespace, *resource, *name),
            [resource] => ("", *resource, ""),
            [resource, name] | [resource, name, "status"] => ("", *resource, *name),
            _ => return None,
        };
        Some(ObservedWrite {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_deletion,
            object: None,
        })
    }
}

/// A client whose requests an observer sees.
#[derive(Clone)]
pub(crate) struct ObservedClient {
    pub(crate) client: kube::Client,
    pub(crate) observer: Arc<dyn RequestObserver>,
}

impl ObservedClient {
    /// Sends a request and tells the observer of it. The object of an answered write is an extension of the response.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let observer = &*self.observer;
        let is_deletion = request.method() == Method::DELETE;
        let writes =
            is_deletion || [Method::POST, Method::PUT, Method::PATCH].contains(request.method());
        let mut write = writes
            .then(|| ObservedWrite::of_uri(request.uri(), is_deletion))
            .flatten();
        let created = request.extensions().get::<CreatedName>();
        if let (Some(write), Some(CreatedName(name))) = (&mut write, created) {
            write.name.clone_from(name);
        }
        let mut awaited = AwaitedAnswer {
            observer,
            since: Instant::now(),
            has_head: false,
            write,
        };
        let answer = self.client.send(request).await;
        awaited.has_head = true;
        let code = answer.as_ref().ok().map(|response| response.status());
        if code.is_none_or(is_unavailable) {
            observer.unanswered();
        }
        match answer {
            Ok(response) if response.status().is_success() && awaited.write.is_some() => {
                awaited.tell(response).await
            }
            answer => {
                // A refusal is certain: nothing was done.
                if code.is_some_and(|code| !code.is_server_error()) {
                    awaited.write = None;
                }
                answer
            }
        }
    }

    /// A `kube::Client` that sends through this one.
    pub(crate) fn into_kube(self) -> kube::Client {
        let namespace = self.client.default_namespace().to_owned();
        kube::Client::new(self, namespace)
    }
}

impl fmt::Debug for ObservedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObservedClient")
    }
}

impl Service<Request<Body>> for ObservedClient {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { client.send(request).await })
    }
}

/// A request that waits for its answer. One that is given up after a long silence had no answer; a write that is given up, or whose answer
/// breaks off, is in doubt.
struct AwaitedAnswer<'a> {
    observer: &'a dyn RequestObserver,
    since: Instant,
    has_head: bool,
    /// The write, until its outcome is known.
    write: Option<ObservedWrite>,
}

impl Drop for AwaitedAnswer<'_> {
    fn drop(&mut self) {
        if !self.has_head && self.since.elapsed() >= SILENCE_SUSPICIOUS {
            self.observer.unanswered();
        }
        if let Some(write) = &self.write {
            self.observer.in_doubt(write);
        }
    }
}

impl AwaitedAnswer<'_> {
    /// Reads the answer to a write, tells the observer, and passes the answer on.
    async fn tell(&mut self, response: Response<Body>) -> Result<Response<Body>, kube::Error> {
        let (head, body) = response.into_parts();
        if head.headers.contains_key(CONTENT_ENCODING) {
            // Whoever asked for compression unpacks it: the write was done, what the server has now is in doubt.
            return Ok(Response::from_parts(head, body));
        }
        let body = Limited::new(body, OBJECT_BYTES_MAX).collect().await;
        let body: Bytes = body.map_err(kube::Error::Service)?.to_bytes();
        let Some(mut write) = self.write.take() else {
            return Ok(Response::from_parts(head, Body::from(body)));
        };
        let object = Object::parse_without_managed_fields(&body).ok();
        // A Status has no name of an object; lists of deleted collections have neither.
        let is_stored = |object: &&Object| !object.name().is_empty() && !object.uid().is_empty();
        write.object = object.as_ref().filter(is_stored).cloned();
        self.observer.wrote(&write);
        let mut response = Response::from_parts(head, Body::from(body));
        if let Some(object) = object {
            response.extensions_mut().insert(object);
        }
        Ok(response)
    }
}

fn is_unavailable(code: StatusCode) -> bool {
    matches!(code.as_u16(), 502..=504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_writes_are_read() {
        let read = |path: &str| {
            let write = ObservedWrite::of_uri(&path.parse().unwrap(), false)?;
            Some([write.group, write.resource, write.namespace, write.name])
        };
        let of = |parts: [&str; 4]| Some(parts.map(str::to_owned));
        let deployment = "/apis/apps/v1/namespaces/default/deployments/web";
        assert_eq!(
            read(deployment),
            of(["apps", "deployments", "default", "web"])
        );
        assert_eq!(
            read(&format!("{deployment}/status")),
            of(["apps", "deployments", "default", "web"])
        );
        assert_eq!(
            read("/api/v1/namespaces/default/pods"),
            of(["", "pods", "default", ""])
        );
        assert_eq!(read("/api/v1/namespaces"), of(["", "namespaces", "", ""]));
        assert_eq!(
            read("/api/v1/namespaces/default"),
            of(["", "namespaces", "", "default"])
        );
        assert_eq!(
            read("/api/v1/namespaces/default/finalize"),
            of(["", "namespaces", "", "default"])
        );
        assert_eq!(read("/api/v1/nodes/n1"), of(["", "nodes", "", "n1"]));
        for other in ["/eviction", "/scale", "/proxy/a/b", "?dryRun=All"] {
            assert_eq!(read(&format!("{deployment}{other}")), None, "{other}");
        }
        assert_eq!(read("/version"), None);
        assert_eq!(read("/apis"), None);
    }
}
