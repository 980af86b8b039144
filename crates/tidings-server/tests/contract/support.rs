//! An API server in this process, and helpers that send requests to it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Body;
use serde_json::{Value, json};
use tidings_schema::protobuf::decode_object;
use tidings_server::{Api, ApiOptions, Authentication, Credentials, ResponseBody};
use tidings_storage::{Embedded, EmbeddedOptions, Storage};

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The spec of a workload, with the selector and the Pod template that it must have.
pub(crate) fn pods_of(mut spec: Value) -> Value {
    if spec.get("selector").is_none() {
        spec["selector"] = json!({"matchLabels": {"app": "x"}});
    }
    let containers = json!([{"name": "c", "image": "i"}]);
    spec["template"] =
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
    spec
}

/// The spec of a Job, with a Pod template whose Pods are not restarted.
pub(crate) fn job_of(spec: Value) -> Value {
    let mut spec = pods_of(spec);
    spec["template"]["spec"]["restartPolicy"] = "Never".into();
    spec
}

/// An object with a name and a spec.
pub(crate) fn named_with(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// An API server in this process. Clones are the same server.
#[derive(Clone)]
pub(crate) struct TestServer {
    pub(crate) api: Api,
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    /// The body, decompressed.
    pub(crate) bytes: Vec<u8>,
    /// The body as text.
    pub(crate) text: String,
}

impl TestResponse {
    /// The body as JSON, decoded if it is protobuf.
    pub(crate) fn json(&self) -> Value {
        if self.headers["content-type"] == PROTOBUF {
            return serde_json::from_slice(&decode_object(&self.bytes, None).unwrap()).unwrap();
        }
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The resource version of the object or list.
    pub(crate) fn version(&self) -> u64 {
        self.json()["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// The names of a list's items.
    pub(crate) fn names(&self) -> Vec<String> {
        let list = self.json();
        let items = list["items"]
            .as_array()
            .unwrap_or_else(|| panic!("no list: {}", self.text));
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl TestServer {
    pub(crate) async fn start() -> TestServer {
        TestServer::with(ApiOptions::default()).await
    }

    pub(crate) async fn over(store: impl Storage) -> TestServer {
        TestServer {
            api: Api::start(Arc::new(store), ApiOptions::default())
                .await
                .unwrap(),
        }
    }

    pub(crate) async fn with(options: ApiOptions) -> TestServer {
        let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
        TestServer {
            api: Api::start(store, options).await.unwrap(),
        }
    }

    pub(crate) async fn with_token(token: &str) -> TestServer {
        let mut options = ApiOptions::default();
        options.authentication =
            Authentication::Credentials(Credentials::default().admin_token(token));
        TestServer::with(options).await
    }

    pub(crate) async fn send<B>(&self, request: Request<B>) -> TestResponse
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let response = self.api.handle(request).await;
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = response.into_body();
        let compressed = headers.contains_key("content-encoding");
        let mut bytes = Vec::new();
        while let Some(more) = next_bytes(&mut body).await {
            bytes.extend_from_slice(&more);
        }
        let bytes = decompressed(&bytes, compressed);
        TestResponse {
            code,
            headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
        }
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: impl ToString,
    ) -> TestResponse {
        self.send(
            Request::builder()
                .method(method)
                .uri(path)
                .body(body.to_string())
                .unwrap(),
        )
        .await
    }

    /// Sends a request with headers.
    pub(crate) async fn request_with_headers(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl ToString,
    ) -> TestResponse {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.to_string()).unwrap()).await
    }

    /// Sends a GET that accepts a media type.
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> TestResponse {
        self.request_with_headers("GET", path, &[("accept", accept)], "")
            .await
    }

    /// Sends a PATCH of the given type: `merge`, `json` or `strategic-merge`.
    pub(crate) async fn patch(&self, path: &str, kind: &str, patch: impl ToString) -> TestResponse {
        let media_type = format!("application/{kind}-patch+json");
        self.request_with_headers("PATCH", path, &[("content-type", &media_type)], patch)
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.request("GET", path, "").await
    }

    /// Creates a ConfigMap in the namespace `default` and returns its version.
    pub(crate) async fn create(&self, name: &str, labels: Value) -> u64 {
        let body = json!({"metadata": {"name": name, "labels": labels}, "data": {"k": "0"}});
        let answer = self.request("POST", CONFIGMAPS, body).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        answer.version()
    }

    /// Replaces the labels and data of a ConfigMap and returns its version.
    pub(crate) async fn update(&self, name: &str, labels: Value, value: &str) -> u64 {
        let body = json!({"metadata": {"name": name, "labels": labels}, "data": {"k": value}});
        let answer = self
            .request("PUT", &format!("{CONFIGMAPS}/{name}"), body)
            .await;
        assert_eq!(answer.code, 200, "{}", answer.text);
        answer.version()
    }

    pub(crate) async fn delete(&self, name: &str) {
        let answer = self
            .request("DELETE", &format!("{CONFIGMAPS}/{name}"), "")
            .await;
        assert_eq!(answer.code, 200, "{}", answer.text);
    }

    pub(crate) async fn watch(&self, path: &str) -> TestWatch {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> TestWatch {
        let request = Request::get(path).header("accept", accept);
        let response = self.api.handle(request.body(String::new()).unwrap()).await;
        assert_eq!(response.status(), 200);
        TestWatch {
            framed: response.headers()["content-type"] == format!("{PROTOBUF};stream=watch"),
            body: response.into_body(),
            bytes: Vec::new(),
        }
    }
}

fn decompressed(bytes: &[u8], compressed: bool) -> Vec<u8> {
    let mut text = Vec::new();
    if compressed {
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut text).unwrap();
    } else {
        text.extend_from_slice(bytes);
    }
    text
}

/// An open watch, read event by event.
pub(crate) struct TestWatch {
    /// Events are in protobuf, each after its length (W117).
    framed: bool,
    body: ResponseBody,
    bytes: Vec<u8>,
}

impl TestWatch {
    /// The next event; `None` at the end. Fails after 20 seconds.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                if self.framed {
                    if let Some((event, object)) = self.take_frame() {
                        return Some(json!({"type": event, "object": object}));
                    }
                } else if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.bytes.drain(..=end).collect();
                    return Some(serde_json::from_slice(&line).unwrap());
                }
                let more = next_bytes(&mut self.body).await?;
                self.bytes.extend_from_slice(&more);
            }
        })
        .await
        .expect("an event or the end within 20 s")
    }

    /// The next chunk, as it is sent.
    pub(crate) async fn chunk(&mut self) -> Bytes {
        next_bytes(&mut self.body).await.expect("bytes")
    }

    fn take_frame(&mut self) -> Option<(String, Value)> {
        let length: [u8; 4] = self.bytes.get(..4)?.try_into().unwrap();
        let end = 4 + u32::from_be_bytes(length) as usize;
        self.bytes.get(..end)?;
        let frame: Vec<u8> = self.bytes.drain(..end).skip(4).collect();
        Some(read_event(&frame))
    }
}

/// The type and the object of a `WatchEvent` in protobuf.
pub(crate) fn read_event(frame: &[u8]) -> (String, Value) {
    let (event, rest) = delimited(frame, 0x0a);
    let (extension, rest) = delimited(rest, 0x12);
    assert!(rest.is_empty(), "bytes after the object");
    let (body, rest) = delimited(extension, 0x0a);
    assert!(rest.is_empty(), "bytes beside the object");
    let event = String::from_utf8(event.to_vec()).unwrap();
    let object = decode_object(body, None).unwrap();
    (event, serde_json::from_slice(&object).unwrap())
}

/// The content of a length-delimited field with the given tag, and the rest of the message.
fn delimited(message: &[u8], tag: u8) -> (&[u8], &[u8]) {
    assert_eq!(message[0], tag);
    let (mut length, mut at) = (0, 1);
    loop {
        let byte = message[at];
        length |= usize::from(byte & 0x7f) << (7 * (at - 1));
        at += 1;
        if byte < 0x80 {
            return message[at..].split_at(length);
        }
    }
}

impl TestWatch {
    /// The next event as `TYPE name@version`; bookmarks as `BOOKMARK @version`.
    pub(crate) async fn brief(&mut self) -> String {
        let event = self.next().await.expect("an event");
        let meta = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}@{}",
            text(&event["type"]),
            text(&meta["name"]),
            text(&meta["resourceVersion"])
        )
    }

    /// True if no event comes within 50 milliseconds.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(50), self.next())
            .await
            .is_err()
    }
}

async fn next_bytes(body: &mut ResponseBody) -> Option<Bytes> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    let frame: Result<_, Infallible> = frame;
    frame.unwrap().into_data().ok()
}
