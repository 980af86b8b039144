//! The bearer token of a request.

use base64::Engine;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use tidings_api::Status;

use crate::core::{Authentication, User};

/// The user who sends these headers. A wrong token is refused, none is anonymous (W9).
pub(crate) fn user(authentication: &Authentication, headers: &HeaderMap) -> Result<User, Status> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return authentication.user(websocket_token(headers).as_deref());
    };
    // Another scheme than bearer is no token at all: anonymous, as the API server has it.
    let shown = value.to_str().ok().and_then(|value| {
        let mut words = value.trim().split(' ');
        let bearer = words.next()?.eq_ignore_ascii_case("bearer");
        words.next().filter(|shown| bearer && !shown.is_empty())
    });
    authentication.user(shown)
}

/// The subprotocols that a WebSocket client offers.
pub(crate) fn websocket_protocols(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect()
}

/// The token in a subprotocol: browsers cannot set headers of WebSockets (W125).
pub(crate) fn protocol_token(protocol: &str) -> Option<String> {
    let encoded = protocol.strip_prefix("base64url.bearer.authorization.k8s.io.")?;
    let decoded =
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('='));
    Some(String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default())
}

/// The token among the subprotocols; another one must be offered besides.
fn websocket_token(headers: &HeaderMap) -> Option<String> {
    let websocket = headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let protocols = websocket_protocols(headers);
    let token = protocols
        .iter()
        .find_map(|protocol| protocol_token(protocol));
    token.filter(|_| websocket && protocols.len() > 1)
}
