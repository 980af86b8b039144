//! Which representation a client speaks and wants: JSON, for now.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use tidings_api::{Reason, Status};

/// W37–W39, as far as JSON goes.
pub(crate) fn acceptable(headers: &HeaderMap) -> Result<(), Status> {
    let accept = match headers.get(ACCEPT).map(|value| value.to_str()) {
        None => return Ok(()),
        Some(accept) => accept.unwrap_or_default(),
    };
    let fits = |clause: &str| {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let json = matches!(media_type, "application/json" | "*/*");
        let transforms = parts.any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            name == "as" || (name == "stream" && value != "watch")
        });
        json && !transforms
    };
    if accept.trim().is_empty() || accept.split(',').any(fits) {
        return Ok(());
    }
    let message = "only the following media types are accepted: application/json";
    Err(Status::failure(406, Reason::NotAcceptable, message))
}

/// W40, as far as JSON goes.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Status> {
    let said = headers
        .get(CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or("?"));
    let media_type = said
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if media_type.is_empty() || media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the body of the request was in an unknown format - accepted media types include: application/json";
    Err(Status::failure(415, Reason::UnsupportedMediaType, message))
}
