//! Finds the bearer token of a request and the user to whom it belongs.

use base64::Engine;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use tidings_api::Status;

use crate::core::{Authentication, User};

/// The user of a request with these headers. A wrong token is refused; a request without a token is anonymous (W9).
pub(crate) fn user(authentication: &Authentication, headers: &HeaderMap) -> Result<User, Status> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return authentication.user(websocket_token(headers).as_deref());
    };
    // As in kube-apiserver, a request with another scheme than Bearer is anonymous.
    let presented = value.to_str().ok().and_then(|value| {
        let mut words = value.trim().split(' ');
        let bearer = words.next()?.eq_ignore_ascii_case("bearer");
        words
            .next()
            .filter(|presented| bearer && !presented.is_empty())
    });
    authentication.user(presented)
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

/// The token in a subprotocol: browsers cannot set the Authorization header of a WebSocket request (W125).
pub(crate) fn protocol_token(protocol: &str) -> Option<String> {
    let encoded = protocol.strip_prefix("base64url.bearer.authorization.k8s.io.")?;
    let decoded =
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('='));
    Some(String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default())
}

/// The token in the subprotocols of a WebSocket request. As in kube-apiserver, the client must offer another subprotocol too.
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
