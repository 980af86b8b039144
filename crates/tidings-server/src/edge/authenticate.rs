//! Finds the bearer token of a request and the user to whom it belongs, and the user as whom the request is made.

use std::sync::Arc;

use base64::Engine;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Extensions, HeaderMap};
use tidings_access::{ImpersonationRequest, User, impersonation_request};
use tidings_api::Status;

use crate::core::{Core, ShownCertificate};

/// The user of a request with these headers, over a connection that has shown a certificate or not. A wrong token is refused; a request without
/// any credential is anonymous (W9).
pub(crate) async fn user(
    core: &Core,
    headers: &HeaderMap,
    extensions: &Extensions,
    path: &str,
) -> Result<Arc<User>, Status> {
    let shown = extensions.get::<ShownCertificate>();
    let Some(value) = headers.get(AUTHORIZATION) else {
        return core
            .identify(shown, websocket_token(headers).as_deref(), path)
            .await;
    };
    // As in kube-apiserver, a request with another scheme than Bearer is anonymous.
    // A token may have any bytes; one that is no text is nobody's.
    let value = String::from_utf8_lossy(value.as_bytes());
    let mut words = value.trim().split(' ');
    let is_bearer = words
        .next()
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
    let presented = words.next().filter(|word| is_bearer && !word.is_empty());
    core.identify(shown, presented, path).await
}

/// Whom a request wants to act as, if it does.
pub(crate) fn impersonation(headers: &HeaderMap) -> Result<Option<ImpersonationRequest>, Status> {
    // Nearly no request does.
    if !headers
        .keys()
        .any(|name| name.as_str().starts_with("impersonate-"))
    {
        return Ok(None);
    }
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())));
    let pairs: Vec<_> = pairs.collect();
    impersonation_request(pairs.iter().map(|(name, value)| (*name, &**value)))
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
