//! Who asks, and whether they may.
//!
//! There is one credential, a bearer token, and it may do everything. Whoever shows none is anonymous and may see health and
//! version only.

use base64::Engine;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use tidings_api::Status;

use crate::request::{Route, Target, Verb, route};
use crate::served::Kinds;

/// What the administrator is called.
pub(crate) const ADMIN: &str = "admin";
/// Who is of this group may do everything.
const MASTERS: &str = "system:masters";
pub(crate) const ADMIN_GROUPS: [&str; 2] = [MASTERS, "system:authenticated"];
/// Whom tokens are meant for.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How requests are authenticated.
#[derive(Clone)]
pub enum Authentication {
    /// Every request is the administrator's: for use inside a process, where there is no stranger.
    Trusted,
    /// The administrator shows this bearer token.
    Token(String),
}

impl std::fmt::Debug for Authentication {
    /// Never shows the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Authentication::Trusted => "Trusted",
            Authentication::Token(_) => "Token(…)",
        })
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Admin,
    Anonymous,
}

impl Authentication {
    /// True if a token is the administrator's.
    pub(crate) fn knows(&self, shown: &str) -> bool {
        match self {
            Authentication::Trusted => false,
            Authentication::Token(token) => same(shown.as_bytes(), token.as_bytes()),
        }
    }

    /// Who sends these headers. A wrong token is refused, none is anonymous (W9).
    pub(crate) fn user(&self, headers: &HeaderMap) -> Result<User, Status> {
        let Authentication::Token(token) = self else {
            return Ok(User::Admin);
        };
        let Some(value) = headers.get(AUTHORIZATION) else {
            return match websocket_token(headers) {
                None => Ok(User::Anonymous),
                Some(shown) if same(shown.as_bytes(), token.as_bytes()) => Ok(User::Admin),
                Some(_) => Err(Status::unauthorized()),
            };
        };
        let shown = value.to_str().ok().and_then(|value| {
            let mut words = value.trim().split(' ');
            let bearer = words.next()?.eq_ignore_ascii_case("bearer");
            words.next().filter(|shown| bearer && !shown.is_empty())
        });
        match shown {
            // Another scheme is no bearer token at all: anonymous, as the API server has it.
            None => Ok(User::Anonymous),
            Some(shown) if same(shown.as_bytes(), token.as_bytes()) => Ok(User::Admin),
            Some(_) => Err(Status::unauthorized()),
        }
    }
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

/// The token that a subprotocol carries, because browsers cannot set headers of WebSockets (W125).
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

/// Compares without telling by its duration where the first difference is.
fn same(shown: &[u8], token: &[u8]) -> bool {
    let difference = shown
        .iter()
        .zip(token)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    difference == 0 && shown.len() == token.len() && !token.is_empty()
}

/// W54: what anonymous users may not do.
pub(crate) fn authorize(user: User, route: &Route, verb: &str, path: &str) -> Result<(), Status> {
    if user == User::Admin {
        return Ok(());
    }
    let who = "User \"system:anonymous\" cannot";
    match route {
        Route::Health(health) if health.check.is_empty() => Ok(()),
        Route::Version => Ok(()),
        Route::Resource(target) => {
            let name = target.name.as_deref().unwrap_or_default();
            Err(Status::forbidden(
                target.kind.group_resource(),
                name,
                &format!("{who} {}", described(target, verb)),
            ))
        }
        _ => Err(Status::forbidden_path(&format!(
            "{who} {verb} path {}",
            tidings_api::go::quote(path)
        ))),
    }
}

/// Whether somebody of these groups may do something: to a resource, or by a verb to a path.
pub(crate) fn allows(groups: &[&str], path: Option<(&str, &str)>) -> bool {
    let public = |(verb, path): (&str, &str)| {
        authorize(User::Anonymous, &route(path, &Kinds::builtin()), verb, path).is_ok()
    };
    groups.contains(&MASTERS) || path.is_some_and(public)
}

fn described(target: &Target, verb: &str) -> String {
    let resource = match &target.subresource {
        Some(subresource) => format!("{}/{subresource}", target.kind.plural),
        None => target.kind.plural.to_owned(),
    };
    let place = match (&target.namespace, &target.name) {
        (Some(namespace), _) => format!("in the namespace \"{namespace}\""),
        // Upstream takes a Namespace object as being in itself.
        (None, Some(name)) if target.kind.plural == "namespaces" => {
            format!("in the namespace \"{name}\"")
        }
        _ => "at the cluster scope".to_owned(),
    };
    format!(
        "{verb} resource \"{resource}\" in API group \"{}\" {place}",
        target.kind.group
    )
}

/// The verb of a request that is not of a resource, or that no verb fits.
pub(crate) fn method_verb(method: &http::Method, verb: Option<Verb>) -> String {
    verb.map_or_else(
        || method.as_str().to_lowercase(),
        |verb| verb.name().to_owned(),
    )
}
