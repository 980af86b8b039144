//! Authentication and authorisation.
//!
//! There is one credential, the administrator's bearer token, which allows everything. A request without a token is anonymous and may read
//! only health and version.

use tidings_api::Status;
use tidings_go::quote;

use super::target::Target;

/// Members of this group may do everything.
const MASTERS: &str = "system:masters";
/// The audience of tokens.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How requests are authenticated.
#[derive(Clone)]
pub enum Authentication {
    /// Every request is the administrator's. For a server inside a process, which nobody else can reach.
    Trusted,
    /// A request with this bearer token is the administrator's.
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

/// The user of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Admin,
    Anonymous,
}

impl User {
    pub(crate) fn name(self) -> &'static str {
        match self {
            User::Admin => "admin",
            User::Anonymous => "system:anonymous",
        }
    }

    pub(crate) fn groups(self) -> &'static [&'static str] {
        match self {
            User::Admin => &[MASTERS, "system:authenticated"],
            User::Anonymous => &["system:unauthenticated"],
        }
    }
}

impl Authentication {
    /// True if a token is the administrator's.
    pub(crate) fn knows(&self, presented: &str) -> bool {
        match self {
            Authentication::Trusted => false,
            Authentication::Token(token) => is_same_token(presented.as_bytes(), token.as_bytes()),
        }
    }

    /// The user of a request with this token, or without one (W9).
    ///
    /// # Errors
    /// If the token is wrong.
    pub(crate) fn user(&self, presented: Option<&str>) -> Result<User, Status> {
        match (self, presented) {
            (Authentication::Trusted, _) => Ok(User::Admin),
            (Authentication::Token(_), None) => Ok(User::Anonymous),
            (Authentication::Token(_), Some(presented)) if self.knows(presented) => Ok(User::Admin),
            (Authentication::Token(_), Some(_)) => Err(Status::unauthorized()),
        }
    }
}

/// Compares in constant time: the time does not depend on where the first difference is.
fn is_same_token(presented: &[u8], token: &[u8]) -> bool {
    let difference = presented
        .iter()
        .zip(token)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    difference == 0 && presented.len() == token.len() && !token.is_empty()
}

/// What authorisation needs to know of a request.
#[derive(Debug)]
pub(crate) enum RequestAttributes<'a> {
    /// A verb on a resource.
    Resource { target: &'a Target, verb: &'a str },
    /// A verb on a path that is not the path of a resource.
    Path { path: &'a str, verb: &'a str },
}

/// Refuses requests that the user may not make (W54).
pub(crate) fn authorize(user: User, attributes: &RequestAttributes<'_>) -> Result<(), Status> {
    if user == User::Admin {
        return Ok(());
    }
    let who = format!("User \"{}\" cannot", user.name());
    match attributes {
        RequestAttributes::Path { path, .. } if is_public(path) => Ok(()),
        RequestAttributes::Path { path, verb } => Err(Status::forbidden_path(&format!(
            "{who} {verb} path {}",
            quote(path)
        ))),
        RequestAttributes::Resource { target, verb } => Err(Status::forbidden(
            target.kind.group_resource(),
            target.name().unwrap_or_default(),
            &format!("{who} {}", described(target, verb)),
        )),
    }
}

/// True for the paths that anonymous users may read.
fn is_public(path: &str) -> bool {
    matches!(
        path,
        "/healthz" | "/livez" | "/readyz" | "/version" | "/version/"
    )
}

/// True if members of these groups may access a path, or any resource if `path` is `None`.
pub(crate) fn allows(groups: &[&str], path: Option<&str>) -> bool {
    groups.contains(&MASTERS) || path.is_some_and(is_public)
}

fn described(target: &Target, verb: &str) -> String {
    let kind = &target.kind;
    let resource = match target.subresource {
        Some(subresource) => format!("{}/{}", kind.plural, subresource.as_str()),
        None => kind.plural.to_string(),
    };
    let place = match (target.namespace(), target.name()) {
        (Some(namespace), _) => format!("in the namespace \"{namespace}\""),
        (None, Some(name)) if kind.is_namespace => format!("in the namespace \"{name}\""),
        _ => "at the cluster scope".to_owned(),
    };
    format!(
        "{verb} resource \"{resource}\" in API group \"{}\" {place}",
        kind.group
    )
}
