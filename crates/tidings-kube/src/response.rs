//! Checks responses, and makes Status errors of failed ones.

use std::time::{Duration, SystemTime};

use http::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use tidings_api::{Reason, Status};
use tidings_informer::SourceError;
use tidings_schema::protobuf;

/// The largest error body that is read. A Status is smaller, and other bodies are ignored.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// How long reading an error body may take.
const ERROR_LONGEST: Duration = Duration::from_secs(10);

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Protobuf,
}

impl BodyFormat {
    /// The format that the headers name; others are rejected (B128). A response without a content type passes as JSON: the splitter checks
    /// its bytes.
    pub(crate) fn of(headers: &HeaderMap) -> Result<BodyFormat, SourceError> {
        let Some(header) = headers.get(CONTENT_TYPE) else {
            return Ok(BodyFormat::Json);
        };
        let media_type = header.to_str().unwrap_or("?");
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        match &*media_type.to_ascii_lowercase() {
            "application/json" => Ok(BodyFormat::Json),
            "application/vnd.kubernetes.protobuf" => Ok(BodyFormat::Protobuf),
            _ => {
                let shown: String = media_type.chars().take(100).collect();
                Err(SourceError::Unexpected(format!(
                    "content of the type {shown:?}"
                )))
            }
        }
    }
}

/// The wait in `Retry-After`: seconds, or a date minus the server's `Date`.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let now = date
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or_else(SystemTime::now);
    Some(then.duration_since(now).unwrap_or_default())
}

/// The Status of a failed response: the one in its body, or one made from its code (B127).
pub(crate) async fn failure(response: Response<Body>, attempted: &str) -> Status {
    let (parts, body) = response.into_parts();
    let code = parts.status.as_u16();
    let mut status = match tokio::time::timeout(ERROR_LONGEST, read(body)).await {
        Ok(Some(bytes)) => parse(&bytes, code),
        _ => None,
    }
    .unwrap_or_else(|| from_code(code, attempted));
    if status.code == 0 {
        status.code = code;
    }
    if status.reason.is_none() {
        status.reason = Some(reason(code));
    }
    if status.retry_after_seconds() == 0
        && let Some(wait) = retry_after(&parts.headers)
        && !wait.is_zero()
    {
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        status.details.get_or_insert_default().retry_after_seconds = seconds;
    }
    status
}

/// The complete body; `None` if it is too long or the connection breaks.
async fn read(mut body: Body) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > ERROR_BYTES_MAX {
            return None;
        }
        bytes.extend_from_slice(&data);
    }
    Some(bytes)
}

fn parse(bytes: &[u8], code: u16) -> Option<Status> {
    if protobuf::is_protobuf(bytes) {
        return parse_json(&protobuf::decode_object(bytes, None).ok()?, code);
    }
    parse_json(bytes, code)
}

fn parse_json(bytes: &[u8], code: u16) -> Option<Status> {
    /// The fields that identify a Status: its kind, or (one in upstream has none) its `status` and `code`.
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct StatusProbe {
        kind: String,
        status: String,
        code: u16,
    }
    let probe: StatusProbe = serde_json::from_slice(bytes).ok()?;
    let kindless = probe.kind.is_empty() && probe.code == code;
    let failed = probe.status == "Failure" && (probe.kind == "Status" || kindless);
    if !failed {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

/// The reason for a code, as in upstream. Upstream has none for 410, which means an expired version here.
fn reason(code: u16) -> Reason {
    match code {
        400 => Reason::BadRequest,
        401 => Reason::Unauthorized,
        403 => Reason::Forbidden,
        404 => Reason::NotFound,
        405 => Reason::MethodNotAllowed,
        406 => Reason::NotAcceptable,
        409 => Reason::Conflict,
        410 => Reason::Expired,
        413 => Reason::RequestEntityTooLarge,
        415 => Reason::UnsupportedMediaType,
        422 => Reason::Invalid,
        429 => Reason::TooManyRequests,
        503 => Reason::ServiceUnavailable,
        504 => Reason::Timeout,
        500.. => Reason::InternalError,
        _ => Reason::Unknown,
    }
}

fn from_code(code: u16, attempted: &str) -> Status {
    let reason = reason(code);
    let message = match reason {
        Reason::BadRequest => "the server rejected our request for an unknown reason",
        Reason::Unauthorized => "the server has asked for the client to provide credentials",
        Reason::Forbidden => "the server does not allow access to the requested resource",
        Reason::NotFound => "the server could not find the requested resource",
        Reason::MethodNotAllowed => {
            "the server does not allow this method on the requested resource"
        }
        Reason::NotAcceptable => {
            "the server was unable to respond with a content type that the client supports"
        }
        Reason::Conflict => "the server reported a conflict",
        Reason::Expired => "the requested version is gone",
        Reason::UnsupportedMediaType => {
            "the body of the request was in a format that the server does not support"
        }
        Reason::TooManyRequests => {
            "the server has received too many requests and has asked us to try again later"
        }
        Reason::ServiceUnavailable => "the server is currently unable to handle the request",
        Reason::Timeout => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        Reason::InternalError => "an error on the server has prevented the request from succeeding",
        _ => "the server did not say more than its status code",
    };
    Status::failure(code, reason, format!("{message} ({attempted}: {code})"))
}
