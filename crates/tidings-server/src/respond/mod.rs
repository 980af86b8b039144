//! Responses and their bodies.

pub(crate) mod list;
pub(crate) mod watch;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tidings_api::{Object, Status};

use list::ListBody;
use watch::WatchBody;

pub(crate) const NOSNIFF: http::HeaderName = http::header::X_CONTENT_TYPE_OPTIONS;

/// The body of a response: bytes that are there, a list that is written while it is sent, or a watch.
pub struct ResponseBody(Kind);

enum Kind {
    /// One or two pieces of bytes.
    Bytes(Option<Bytes>, Option<Bytes>),
    List(Box<ListBody>),
    Watch(Box<WatchBody>),
}

impl ResponseBody {
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> ResponseBody {
        ResponseBody(Kind::Bytes(
            Some(bytes.into()).filter(|bytes| !bytes.is_empty()),
            None,
        ))
    }

    pub(crate) fn list(list: ListBody) -> ResponseBody {
        ResponseBody(Kind::List(Box::new(list)))
    }

    pub(crate) fn watch(watch: WatchBody) -> ResponseBody {
        ResponseBody(Kind::Watch(Box::new(watch)))
    }
}

impl ResponseBody {
    /// True if the body goes on until the client or the server ends it.
    pub(crate) fn is_watch(&self) -> bool {
        matches!(&self.0, Kind::Watch(_))
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Kind::Bytes(..) => "ResponseBody::Bytes",
            Kind::List(_) => "ResponseBody::List",
            Kind::Watch(_) => "ResponseBody::Watch",
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
        let bytes = match &mut self.0 {
            Kind::Bytes(first, second) => Poll::Ready(first.take().or_else(|| second.take())),
            Kind::List(list) => Poll::Ready(list.next()),
            Kind::Watch(watch) => watch.poll_next(context),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Bytes(None, None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Bytes(first, second) => {
                let length =
                    |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                SizeHint::with_exact(length(first) + length(second))
            }
            _ => SizeHint::default(),
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A JSON response.
pub(crate) fn json(code: StatusCode, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// An object as it is (W5: with a newline behind it).
pub(crate) fn object(code: StatusCode, object: &Object) -> Response<ResponseBody> {
    json(
        code,
        ResponseBody(Kind::Bytes(
            Some(object.bytes()),
            Some(Bytes::from_static(b"\n")),
        )),
    )
}

/// Bytes of an object that has no resource version (W139).
pub(crate) fn object_bytes(code: StatusCode, bytes: Bytes) -> Response<ResponseBody> {
    json(
        code,
        ResponseBody(Kind::Bytes(Some(bytes), Some(Bytes::from_static(b"\n")))),
    )
}

/// A `Status`, with the header that goes with it (W47).
pub(crate) fn status(status: &Status) -> Response<ResponseBody> {
    let code = StatusCode::from_u16(if status.code == 0 { 200 } else { status.code });
    let mut body = status.to_json();
    body.push(b'\n');
    let mut response = json(
        code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        ResponseBody::bytes(body),
    );
    let headers = response.headers_mut();
    if status.retry_after_seconds() > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(status.retry_after_seconds()));
    }
    response
}

/// W9: a refusal by the authorizer.
pub(crate) fn forbidden(status: &Status) -> Response<ResponseBody> {
    let mut response = self::status(status);
    response
        .headers_mut()
        .insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    response
}

/// Plain text.
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

/// W24.
pub(crate) fn page_not_found() -> Response<ResponseBody> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// W2.
pub(crate) fn no_cache(response: &mut Response<ResponseBody>) {
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
}

/// W10.
pub(crate) fn warn(response: &mut Response<ResponseBody>, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
}
