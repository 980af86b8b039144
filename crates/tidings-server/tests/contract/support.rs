//! A server in this process, and questions to it.

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
use tidings_server::{Api, ApiOptions, Authentication, ResponseBody};
use tidings_storage::{Embedded, EmbeddedOptions, Storage};

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The spec of something that makes Pods, with what it must have.
pub(crate) fn pods_of(mut spec: Value) -> Value {
    if spec.get("selector").is_none() {
        spec["selector"] = json!({"matchLabels": {"app": "x"}});
    }
    let containers = json!([{"name": "c", "image": "i"}]);
    spec["template"] =
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
    spec
}

/// The same for a Job, whose Pods end.
pub(crate) fn job_of(spec: Value) -> Value {
    let mut spec = pods_of(spec);
    spec["template"]["spec"]["restartPolicy"] = "Never".into();
    spec
}

/// An object of that name.
pub(crate) fn named_with(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A server with an empty store in memory.
pub(crate) struct Server {
    pub(crate) api: Api,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    /// The body, unpacked.
    pub(crate) bytes: Vec<u8>,
    /// The same as text.
    pub(crate) text: String,
}

impl Answer {
    /// What the body says, if it is JSON or protobuf.
    pub(crate) fn json(&self) -> Value {
        if self.headers["content-type"] == PROTOBUF {
            return decode_object(&self.bytes, None).unwrap().into();
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

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with(ApiOptions::default()).await
    }

    pub(crate) async fn over(store: impl Storage) -> Server {
        Server {
            api: Api::start(Arc::new(store), ApiOptions::default())
                .await
                .unwrap(),
        }
    }

    pub(crate) async fn with(options: ApiOptions) -> Server {
        let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
        Server {
            api: Api::start(store, options).await.unwrap(),
        }
    }

    pub(crate) async fn with_token(token: &str) -> Server {
        let mut options = ApiOptions::default();
        options.authentication = Authentication::Token(token.to_owned());
        Server::with(options).await
    }

    pub(crate) async fn send<B>(&self, request: Request<B>) -> Answer
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let response = self.api.handle(request).await;
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = response.into_body();
        let packed = headers.contains_key("content-encoding");
        let mut bytes = Vec::new();
        while let Some(more) = next_bytes(&mut body).await {
            bytes.extend_from_slice(&more);
        }
        let bytes = unpacked(&bytes, packed);
        Answer {
            code,
            headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
        }
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: impl ToString) -> Answer {
        self.send(
            Request::builder()
                .method(method)
                .uri(path)
                .body(body.to_string())
                .unwrap(),
        )
        .await
    }

    /// A request with headers of its own.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl ToString,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.to_string()).unwrap()).await
    }

    /// A GET that accepts a media type.
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.ask("GET", path, &[("accept", accept)], "").await
    }

    /// A PATCH of the given type: `merge`, `json` or `strategic-merge`.
    pub(crate) async fn patch(&self, path: &str, kind: &str, patch: impl ToString) -> Answer {
        let media_type = format!("application/{kind}-patch+json");
        self.ask("PATCH", path, &[("content-type", &media_type)], patch)
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "").await
    }

    /// Creates a ConfigMap in the namespace `default` and returns its version.
    pub(crate) async fn create(&self, name: &str, labels: Value) -> u64 {
        let body = json!({"metadata": {"name": name, "labels": labels}, "data": {"k": "0"}});
        let answer = self.request("POST", CONFIGMAPS, body).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        answer.version()
    }

    /// Replaces its labels and data and returns its version.
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

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let request = Request::get(path).header("accept", accept);
        let response = self.api.handle(request.body(String::new()).unwrap()).await;
        assert_eq!(response.status(), 200);
        Watch {
            framed: response.headers()["content-type"] == format!("{PROTOBUF};stream=watch"),
            body: response.into_body(),
            bytes: Vec::new(),
        }
    }
}

fn unpacked(bytes: &[u8], packed: bool) -> Vec<u8> {
    let mut text = Vec::new();
    if packed {
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut text).unwrap();
    } else {
        text.extend_from_slice(bytes);
    }
    text
}

/// A watch of the server, read event by event.
pub(crate) struct Watch {
    /// Events are protobuf, each behind its length (W117).
    framed: bool,
    body: ResponseBody,
    bytes: Vec<u8>,
}

impl Watch {
    /// The next event; `None` at the end. Waits no longer than anything here should take.
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

    /// The next bytes as they are sent.
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
    assert!(rest.is_empty(), "nothing behind the object");
    let (body, rest) = delimited(extension, 0x0a);
    assert!(rest.is_empty(), "nothing beside the object");
    let event = String::from_utf8(event.to_vec()).unwrap();
    (event, decode_object(body, None).unwrap().into())
}

/// A field of bytes with the given tag, and what is behind it.
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

impl Watch {
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

    /// True if nothing is there to read now.
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
