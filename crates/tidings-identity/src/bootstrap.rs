//! Bootstrap tokens: Secrets in `kube-system` whose token lets a machine join a cluster.

use tidings_access::User;

use crate::same::is_same_secret;

/// The namespace of the Secrets.
pub const BOOTSTRAP_NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
const BOOTSTRAP_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of all of them, and the beginning of the groups that a Secret may add.
const BOOTSTRAPPERS: &str = "system:bootstrappers";

/// The id and the secret of a token such as `abcdef.0123456789abcdef`. `None` if it is no bootstrap token.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is_small = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (id.len() == 6 && secret.len() == 16 && is_small(id) && is_small(secret))
        .then_some((id, secret))
}

/// The name of the Secret that holds a token. `None` if it is no bootstrap token.
pub fn bootstrap_secret(token: &str) -> Option<String> {
    Some(format!("bootstrap-token-{}", parts(token)?.0))
}

/// A Secret with a bootstrap token.
pub trait BootstrapSecret {
    /// Its type.
    fn kind(&self) -> &str;
    /// True if its deletion was asked for.
    fn is_deleted(&self) -> bool;
    /// A member of its data, decoded; empty if there is none.
    fn data(&self, name: &str) -> Vec<u8>;
    /// True if a time, in RFC 3339, is over. A text that is no time is.
    fn is_over(&self, time: &str) -> bool;
}

/// The user of a token, if a Secret holds it and lets it authenticate.
pub fn bootstrap_user(token: &str, secret: &dyn BootstrapSecret) -> Option<User> {
    let (id, part) = parts(token)?;
    let text = |name: &str| String::from_utf8(secret.data(name)).ok();
    if secret.is_deleted() || secret.kind() != BOOTSTRAP_TYPE {
        return None;
    }
    let held = secret.data("token-secret");
    let is_same = is_same_secret(part.as_bytes(), &held);
    let expires = text("expiration")?;
    let may = text("usage-bootstrap-authentication")? == "true";
    if !is_same
        || text("token-id")? != id
        || !may
        || (!expires.is_empty() && secret.is_over(&expires))
    {
        return None;
    }
    let mut user = User::new(format!("system:bootstrap:{id}"), &[BOOTSTRAPPERS]);
    let more = text("auth-extra-groups")?;
    for group in more.split(',').filter(|_| !more.is_empty()) {
        // As upstream: one wrong group makes the token of no use.
        if !is_bootstrap_group(group) {
            return None;
        }
        if !user.is_in(group) {
            user.groups.push(group.to_owned());
        }
    }
    user.groups.sort();
    Some(user.authenticated())
}

fn is_bootstrap_group(group: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let Some(rest) = group
        .strip_prefix(BOOTSTRAPPERS)
        .and_then(|rest| rest.strip_prefix(':'))
    else {
        return false;
    };
    rest.len() <= 256
        && rest.bytes().last().is_some_and(part)
        && rest
            .bytes()
            .all(|byte| part(byte) || byte == b':' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Clone)]
    struct Secret(BTreeMap<&'static str, &'static str>);

    impl BootstrapSecret for Secret {
        fn kind(&self) -> &str {
            BOOTSTRAP_TYPE
        }

        fn is_deleted(&self) -> bool {
            false
        }

        fn data(&self, name: &str) -> Vec<u8> {
            self.0.get(name).copied().unwrap_or_default().into()
        }

        fn is_over(&self, time: &str) -> bool {
            time < "2026"
        }
    }

    #[test]
    fn a_bootstrap_token_is_the_user_of_its_secret() {
        let token = "abcdef.0123456789abcdef";
        assert_eq!(bootstrap_secret(token).unwrap(), "bootstrap-token-abcdef");
        assert_eq!(bootstrap_secret("ABCDEF.0123456789abcdef"), None);
        let right = Secret(BTreeMap::from([
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:b"),
            ("expiration", "2027-01-01T00:00:00Z"),
        ]));
        let user = bootstrap_user(token, &right).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(
            user.groups,
            [
                "system:bootstrappers",
                "system:bootstrappers:b",
                "system:authenticated"
            ]
        );
        for (name, wrong) in [
            ("token-id", "abcdee"),
            ("token-secret", "0123456789abcdee"),
            ("usage-bootstrap-authentication", "yes"),
            ("auth-extra-groups", "system:masters"),
            ("expiration", "2025-01-01T00:00:00Z"),
        ] {
            let mut secret = right.clone();
            secret.0.insert(name, wrong);
            assert_eq!(bootstrap_user(token, &secret), None, "{name}");
        }
    }
}
