//! Responses and their bodies.

pub(crate) mod list;
mod list_meta;
pub(crate) mod pack;
mod protobuf;
pub(crate) mod view;
pub(crate) mod warning;
pub(crate) mod watch;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tidings_api::Status;
use tidings_go::quote;
use tidings_json::{Indenter, indent};
use tidings_registry::yaml;
use tidings_schema::protobuf::encode_object;
use tokio::sync::Semaphore;

use crate::core::{Answer, BackupPages, ObjectOutcome};
use crate::edge::audit::AuditTrail;
use crate::edge::media_types;
use crate::edge::negotiate::DocumentFormat;
use list::ListBody;
use pack::GzipEncoder;
use protobuf::ListMessage;
use view::ObjectView;
use watch::WatchBody;

pub(crate) const NOSNIFF: http::HeaderName = http::header::X_CONTENT_TYPE_OPTIONS;
/// A longer body of a response is left out of the audit log.
const AUDITED_BYTES_MAX: usize = 32 << 20;
const JSON: HeaderValue = HeaderValue::from_static(media_types::JSON);
/// How many lists in YAML are made at once; others wait.
const YAML_LISTS_AT_ONCE: usize = 4;
const YAML: HeaderValue = HeaderValue::from_static(media_types::YAML);
const PROTOBUF: HeaderValue = HeaderValue::from_static(media_types::PROTOBUF);
const PROTOBUF_EVENTS: HeaderValue = HeaderValue::from_static(media_types::PROTOBUF_STREAM);

/// How an answer is turned into a response.
#[derive(Debug, Clone)]
pub(crate) struct Rendering {
    pub(crate) view: ObjectView,
    pub(crate) gzip: bool,
}

/// The code of a Status of success, which may not say it; `None` of a failure.
fn success(status: &Status) -> Option<StatusCode> {
    match status.code {
        0 => Some(StatusCode::OK),
        code => StatusCode::from_u16(code)
            .ok()
            .filter(StatusCode::is_success),
    }
}

impl Rendering {
    /// Turns an answer into a response. `Err` is the `Status` of a failure, which the caller writes in its own format: it is never a table (W41).
    pub(crate) async fn render(&self, answer: Answer) -> Result<Response<ResponseBody>, Status> {
        tracing::trace!(target: "tidings::walk", "writes the response");
        let view = &self.view;
        match answer {
            // A Status of success is written like any other document.
            Answer::Status(status) => match success(&status) {
                Some(code) => self.document(code, status.to_json().into()),
                None => Err(status),
            },
            Answer::Document(json) => self.document(StatusCode::OK, Bytes::from(json)),
            Answer::Object(created, object) => {
                let code = match created {
                    ObjectOutcome::Existing => StatusCode::OK,
                    ObjectOutcome::Created => StatusCode::CREATED,
                    ObjectOutcome::Accepted => StatusCode::ACCEPTED,
                };
                view.check(false)?;
                if view.is_protobuf() {
                    return Ok(self.whole(code, view.message(&object)?));
                }
                if view.is_plain(&object) {
                    return self.document(code, object.bytes());
                }
                let mut json = BytesMut::new();
                view.put_object(&object, true, &mut json);
                self.document(code, json.freeze())
            }
            Answer::List(head, items) => {
                view.check(true)?;
                if view.is_protobuf() {
                    let list = ListMessage::new(&head, items, view.clone()).await?;
                    return self.list(ListPieces::Protobuf(list));
                }
                let list = ListPieces::Json(ListBody::new(&head, items, view.clone()));
                match view.format {
                    DocumentFormat::Yaml => Box::pin(self.yaml_list(list)).await,
                    _ => self.list(list),
                }
            }
            Answer::Watch(watch) => {
                let body = ResponseBody::watch(WatchBody::new(view.clone(), *watch));
                Ok(events(view.format, body))
            }
        }
    }

    /// Notes an answer in the trail of a request, and turns it into a response.
    pub(crate) async fn render_noted(
        &self,
        answer: Answer,
        trail: &AuditTrail,
    ) -> Result<Response<ResponseBody>, Status> {
        self.note(trail, &answer).await;
        self.render(answer).await
    }

    async fn note(&self, trail: &AuditTrail, answer: &Answer) {
        if let Answer::Status(status) = answer
            && let Some(code) = success(status)
        {
            trail.status(status, code.as_u16());
        }
        if !trail.wants_response() {
            return;
        }
        let plain = Rendering {
            view: self.view.in_json(),
            gzip: false,
        };
        let Some(shown) = answer.shown_again() else {
            return;
        };
        let Ok(mut response) = plain.render(shown).await else {
            return;
        };
        let mut json = Vec::new();
        while let Some(Ok(frame)) = response.body_mut().frame().await {
            json.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if json.len() > AUDITED_BYTES_MAX {
                return trail.truncate();
            }
        }
        trail.answered(&json);
    }

    /// A response with a JSON document. `json` has no trailing line break.
    fn document(&self, code: StatusCode, json: Bytes) -> Result<Response<ResponseBody>, Status> {
        let packs = self.gzip && json.len() > pack::MIN_BYTES;
        if self.view.format == DocumentFormat::Json && !packs {
            let end = Some(Bytes::from_static(b"\n")); // W5
            return Ok(json_response(code, BodyKind::Bytes(Some(json), end).into()));
        }
        let bytes = formatted(&json, self.view.format).map_err(Status::internal)?;
        Ok(self.whole(code, bytes))
    }

    /// A response with a complete body in the client's format, compressed if it is large.
    fn whole(&self, code: StatusCode, bytes: Vec<u8>) -> Response<ResponseBody> {
        let mut response = typed(code, self.view.format);
        if self.gzip && bytes.len() > pack::MIN_BYTES {
            let mut packer = GzipEncoder::default();
            let mut packed = packer.push(&bytes).to_vec();
            packed.extend_from_slice(&packer.finish());
            pack::mark(&mut response);
            *response.body_mut() = ResponseBody::bytes(packed);
        } else {
            *response.body_mut() = ResponseBody::bytes(bytes);
        }
        response
    }

    /// A response with a list. A list that fits into one chunk is sent with its length; a longer one is encoded while it is sent.
    fn list(&self, list: ListPieces) -> Result<Response<ResponseBody>, Status> {
        let mut body = StreamedList {
            list,
            front: Bytes::new(),
            indenter: (self.view.format == DocumentFormat::PrettyJson).then(Indenter::default),
            packer: None,
            turn: ChunkTurn::default(),
        };
        let enough = if self.gzip { pack::MIN_BYTES } else { 0 };
        let mut front = BytesMut::from(body.next().unwrap_or_default());
        while !body.list.is_done() && front.len() <= enough {
            front.extend_from_slice(&body.next().unwrap_or_default());
        }
        let packs = self.gzip && front.len() > pack::MIN_BYTES;
        let mut response = typed(StatusCode::OK, self.view.format);
        if body.list.is_done() && !packs {
            *response.body_mut() = ResponseBody::bytes(front);
            return Ok(response);
        }
        body.front = front.freeze();
        body.packer = packs.then(GzipEncoder::default);
        *response.body_mut() = BodyKind::List(Box::new(body)).into();
        if packs {
            pack::mark(&mut response);
        }
        Ok(response)
    }

    /// A response with a list in YAML, which cannot be made piece by piece. It takes long, so that it is made on a thread of its own.
    async fn yaml_list(&self, mut list: ListPieces) -> Result<Response<ResponseBody>, Status> {
        static TURNS: Semaphore = Semaphore::const_new(YAML_LISTS_AT_ONCE);
        let _turn = TURNS.acquire().await;
        let made = tokio::task::spawn_blocking(move || {
            let mut json = Vec::new();
            while let Some(bytes) = list.next() {
                json.extend_from_slice(&bytes);
            }
            yaml::from_json(&json)
        });
        let bytes = made.await.map_err(Status::internal)?;
        Ok(self.whole(StatusCode::OK, bytes.map_err(Status::internal)?))
    }
}

/// Converts a JSON document into a format, including the trailing line break of that format.
fn formatted(json: &[u8], format: DocumentFormat) -> Result<Vec<u8>, String> {
    match format {
        DocumentFormat::Json => Ok([json, b"\n"].concat()),
        DocumentFormat::PrettyJson => Ok(indent(json)),
        DocumentFormat::Yaml => yaml::from_json(json),
        DocumentFormat::Protobuf => encode_object(json).map_err(|error| error.to_string()),
    }
}

/// The body of a response: complete bytes, a list or a backup that is encoded while it is sent, or a watch.
pub struct ResponseBody {
    kind: BodyKind,
    /// Ends with the body: after its last frame, or when the client has gone.
    trail: Option<Box<AuditTrail>>,
}

enum BodyKind {
    /// Complete bytes in one or two parts.
    Bytes(Option<Bytes>, Option<Bytes>),
    List(Box<StreamedList>),
    Watch(Box<WatchBody>),
    Backup(Box<BackupPages>),
}

/// A list that is encoded chunk by chunk.
enum ListPieces {
    Json(ListBody),
    Protobuf(ListMessage),
}

impl ListPieces {
    fn next(&mut self) -> Option<Bytes> {
        match self {
            ListPieces::Json(list) => list.next(),
            ListPieces::Protobuf(list) => list.next(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            ListPieces::Json(list) => list.is_done(),
            ListPieces::Protobuf(list) => list.is_done(),
        }
    }
}

/// A list that is indented or compressed while it is sent.
struct StreamedList {
    list: ListPieces,
    /// The bytes that were encoded to find out whether the list is long.
    front: Bytes,
    indenter: Option<Indenter>,
    packer: Option<GzipEncoder>,
    turn: ChunkTurn,
}

/// Lets other tasks have their turn before each chunk. A connection would otherwise be sent chunks until its socket is full, which takes
/// milliseconds: a thousand clients that list at once would make all others wait for seconds.
#[derive(Debug, Default)]
pub(crate) struct ChunkTurn {
    has_waited: bool,
}

impl ChunkTurn {
    /// Ready every second time.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.has_waited = !self.has_waited;
        if self.has_waited {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl StreamedList {
    fn next(&mut self) -> Option<Bytes> {
        if self.front.is_empty() {
            let bytes = self.list.next();
            return match (bytes, &mut self.indenter) {
                (Some(bytes), Some(indenter)) => {
                    let mut indented = Vec::new();
                    indenter.push(&bytes, &mut indented);
                    Some(indented.into())
                }
                (bytes, _) => bytes,
            };
        }
        Some(std::mem::take(&mut self.front))
    }

    fn next_packed(&mut self) -> Option<Bytes> {
        loop {
            let bytes = self.next();
            let Some(packer) = &mut self.packer else {
                return bytes;
            };
            match bytes {
                // The encoder may hold back its output.
                Some(bytes) => match packer.push(&bytes) {
                    packed if packed.is_empty() => {}
                    packed => return Some(packed),
                },
                None => return self.packer.take().map(GzipEncoder::finish),
            }
        }
    }
}

impl From<BodyKind> for ResponseBody {
    fn from(kind: BodyKind) -> ResponseBody {
        ResponseBody { kind, trail: None }
    }
}

impl ResponseBody {
    /// True if the body is not made while it is sent.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(&self.kind, BodyKind::Bytes(..))
    }

    /// Ends a trail at the end of the body.
    pub(crate) fn at_end(&mut self, trail: Box<AuditTrail>) {
        self.trail = Some(trail);
    }

    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> ResponseBody {
        BodyKind::Bytes(Some(bytes.into()).filter(|bytes| !bytes.is_empty()), None).into()
    }

    pub(crate) fn watch(watch: WatchBody) -> ResponseBody {
        BodyKind::Watch(Box::new(watch)).into()
    }

    pub(crate) fn backup(backup: BackupPages) -> ResponseBody {
        BodyKind::Backup(Box::new(backup)).into()
    }

    /// True if the body is a watch in protobuf: each event follows its length (W117).
    pub(crate) fn is_framed(&self) -> bool {
        matches!(&self.kind, BodyKind::Watch(watch) if watch.is_framed())
    }

    /// True if the body is a watch.
    pub(crate) fn is_watch(&self) -> bool {
        matches!(&self.kind, BodyKind::Watch(_))
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.kind {
            BodyKind::Bytes(..) => "ResponseBody::Bytes",
            BodyKind::List(_) => "ResponseBody::List",
            BodyKind::Watch(_) => "ResponseBody::Watch",
            BodyKind::Backup(_) => "ResponseBody::Backup",
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut self.kind {
            BodyKind::Bytes(first, second) => Poll::Ready(first.take().or_else(|| second.take())),
            BodyKind::List(list) => list.turn.poll(context).map(|()| list.next_packed()),
            BodyKind::Watch(watch) => watch.poll_next(context),
            BodyKind::Backup(backup) => backup.poll_next(context),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, BodyKind::Bytes(None, None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Bytes(first, second) => {
                let length =
                    |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                SizeHint::with_exact(length(first) + length(second))
            }
            _ => SizeHint::default(),
        }
    }
}

/// A JSON response.
pub(crate) fn json_response(code: StatusCode, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A response with a `Status`, and the header `Retry-After` if it has one (W47).
pub(crate) fn status(status: &Status, format: DocumentFormat) -> Response<ResponseBody> {
    let code = StatusCode::from_u16(if status.code == 0 { 200 } else { status.code });
    let json = status.to_json();
    let (body, media_type) = match formatted(&json, format) {
        Ok(body) => (body, media_type(format)),
        Err(_) => (json, JSON),
    };
    let mut response = json_response(
        code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        ResponseBody::bytes(body),
    );
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type);
    if status.retry_after_seconds() > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(status.retry_after_seconds()));
    }
    response
}

/// The response to a request that the authorizer refuses (W9).
pub(crate) fn forbidden(status: &Status, format: DocumentFormat) -> Response<ResponseBody> {
    let mut response = self::status(status, format);
    response
        .headers_mut()
        .insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    response
}

/// A response with plain text.
pub(crate) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::bytes(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    response
}

/// A response with a JSON document in the given format. `json` has no trailing line break.
pub(crate) fn document(
    json: &[u8],
    format: DocumentFormat,
) -> Result<Response<ResponseBody>, Status> {
    let mut response = typed(StatusCode::OK, format);
    *response.body_mut() = ResponseBody::bytes(formatted(json, format).map_err(Status::internal)?);
    Ok(response)
}

/// A response with a Content-Type and without a body.
fn typed(code: StatusCode, format: DocumentFormat) -> Response<ResponseBody> {
    let mut response = json_response(code, ResponseBody::bytes(Bytes::new()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, media_type(format));
    response
}

fn media_type(format: DocumentFormat) -> HeaderValue {
    match format {
        DocumentFormat::Json | DocumentFormat::PrettyJson => JSON,
        DocumentFormat::Yaml => YAML,
        DocumentFormat::Protobuf => PROTOBUF,
    }
}

/// The response of a watch (W91).
pub(crate) fn events(format: DocumentFormat, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = json_response(StatusCode::OK, body);
    if format == DocumentFormat::Protobuf {
        response.headers_mut().insert(CONTENT_TYPE, PROTOBUF_EVENTS);
    }
    response
}

/// The response to a path outside of the API (W24).
pub(crate) fn page_not_found() -> Response<ResponseBody> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A failure before anybody knows what is asked for, in upstream's words.
pub(crate) fn internal_server_error(uri: &Uri, error: &str) -> Response<ResponseBody> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let said = format!("Internal Server Error: {}: {error}\n", quote(path));
    // Upstream avoids answers that a browser takes for HTML.
    let said = said
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    text(StatusCode::INTERNAL_SERVER_ERROR, said)
}

/// Forbids caching, unless the response has a Cache-Control header (W2).
pub(crate) fn no_cache(response: &mut Response<ResponseBody>) {
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
}
