//! Who makes a request.

use std::collections::BTreeMap;
use std::fmt;

/// Members of this group may do everything.
pub const MASTERS: &str = "system:masters";
/// Every user that has shown a valid credential.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Every user that has shown none.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of a request without a credential.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of nodes.
pub const NODES: &str = "system:nodes";

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
const NODE: &str = "system:node:";

/// Who makes a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// An id that, unlike the name, is never given to another user; empty if there is none.
    pub uid: String,
    /// The groups, in the order in which they were found.
    pub groups: Vec<String>,
    /// More that is known of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user with groups.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> User {
        User {
            name: name.into(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        }
    }

    /// The user of a request without a credential.
    pub fn anonymous() -> User {
        User::new(ANONYMOUS, &[UNAUTHENTICATED])
    }

    /// True if the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// True if the user may do everything.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Adds the group of all users that have shown a credential, unless the user is in it or in its opposite.
    #[must_use]
    pub fn authenticated(mut self) -> User {
        if !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The namespace and the name of the service account that a user name means.
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_label = tidings_api::validate::dns1123_label(namespace).is_empty();
    let is_name = tidings_api::validate::dns1123_subdomain(name).is_empty();
    (is_label && is_name).then_some((namespace, name))
}

/// The user name of a service account.
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// The groups of the service accounts of a namespace.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        SERVICE_ACCOUNTS.to_owned(),
        format!("{SERVICE_ACCOUNTS}:{namespace}"),
    ]
}

/// The name of the node that a user name means.
pub fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE)?;
    tidings_api::validate::dns1123_subdomain(name)
        .is_empty()
        .then_some(name)
}
