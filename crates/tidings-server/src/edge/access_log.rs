//! The access log: a line for each request, under the target `tidings::access` at level DEBUG. Never a body, a token or a query.

use std::time::Duration;

use http::Response;
use http::request::Parts;
use tidings_access::{ResourceOrPath, User};

use super::request_info::RequestInfo;
use super::respond::ResponseBody;

/// True if somebody reads it.
pub(super) fn is_on() -> bool {
    tracing::enabled!(target: "tidings::access", tracing::Level::DEBUG)
}

/// Writes the line of a request. That of a watch is written when it is open.
pub(super) fn write(
    info: &RequestInfo<'_>,
    parts: &Parts,
    user: Option<&User>,
    response: &Response<ResponseBody>,
    took: Duration,
) {
    if !is_on() {
        return;
    }
    let id = response.headers().get("audit-id");
    let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
    let nobody = User::default();
    let user = user.unwrap_or(&nobody);
    let asked = info.attributes(user);
    let (resource, namespace, name) = match &asked.on {
        ResourceOrPath::Resource(on) => (on.full_name(), &*on.namespace, &*on.name),
        ResourceOrPath::Path(_) => (String::new(), "", ""),
    };
    tracing::debug!(
        target: "tidings::access",
        id,
        user = user.name,
        verb = info.verb,
        resource,
        namespace,
        name,
        path = parts.uri.path(),
        status = response.status().as_u16(),
        duration_ms = took.as_secs_f64() * 1000.0,
        "request"
    );
}
