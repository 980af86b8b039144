//! Acting as another user: what the headers ask for, and what the user needs to be allowed for it.
//!
//! Since Kubernetes 1.36 there are five ways to be allowed. Four of them are constrained: the user needs the verb `impersonate-on:<mode>:<verb>` on
//! what is asked for, and `impersonate:<mode>` on whom they act as. The last one is the verb `impersonate` alone. The first refusal is shown.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use tidings_api::Status;
use tidings_api::validate;
use tidings_go::quote;

use crate::attributes::Attributes;
use crate::authorizer::Verdict;
use crate::user::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODES, UNAUTHENTICATED, User, node, service_account,
    service_account_groups,
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The group of the kinds by which impersonation is allowed, except that of users and groups without a mode.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Where the node of a service account stands in what is known of it.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From so many groups or extra values on, the right to all of them is asked for first.
const MANY: usize = 4;
/// Of how many users it is remembered in which mode they were last allowed.
const REMEMBERED_MAX: usize = 10_000;

/// Whom a request wants to act as: the headers as they are.
pub type ImpersonationRequest = User;

/// As whom a request is made.
#[derive(Debug, Clone)]
pub struct Impersonated {
    /// The user.
    pub user: User,
    /// The verb of the constrained right that allowed it; empty if the verb `impersonate` did.
    pub constraint: String,
}

/// Whom the headers of a request ask to act as, if they do. Names of headers are in small letters.
///
/// # Errors
/// If they name groups, a uid or extra values without a user.
pub fn impersonation_request<'h>(
    headers: impl Iterator<Item = (&'h str, &'h str)>,
) -> Result<Option<ImpersonationRequest>, Status> {
    let (mut wanted, mut names_more) = (User::default(), false);
    // Of several users and uids the first counts.
    let (mut has_name, mut has_uid) = (false, false);
    for (name, value) in headers {
        match name {
            USER if !has_name => {
                wanted.name = value.to_owned();
                has_name = true;
            }
            UID if !has_uid => {
                wanted.uid = value.to_owned();
                names_more |= !value.is_empty();
                has_uid = true;
            }
            GROUP => {
                wanted.groups.push(value.to_owned());
                names_more = true;
            }
            _ => {
                if let Some(key) = name.strip_prefix(EXTRA) {
                    let values = wanted.extra.entry(unescaped(key)).or_default();
                    values.push(value.to_owned());
                    names_more = true;
                }
            }
        }
    }
    match (wanted.name.is_empty(), names_more) {
        (false, _) => Ok(Some(wanted)),
        (true, false) => Ok(None),
        (true, true) => Err(Status::bad_request(format!(
            "requested {} without impersonating a user name",
            go_syntax(&wanted)
        ))),
    }
}

/// A name with `%xx` decoded; unchanged if that is not possible.
fn unescaped(key: &str) -> String {
    let mut decoded = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        match (digit(), digit()) {
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => return key.to_owned(),
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| key.to_owned())
}

/// A user as Go's `%#v` shows it.
fn go_syntax(user: &User) -> String {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
        match texts.is_empty() {
            true => "[]string(nil)".to_owned(),
            false => format!("[]string{{{}}}", texts.join(", ")),
        }
    };
    let extra = match user.extra.is_empty() {
        true => "(nil)".to_owned(),
        false => {
            let pair =
                |(key, values): (&String, &Vec<String>)| format!("{}:{}", quote(key), list(values));
            let pairs: Vec<String> = user.extra.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{}, Extra:map[string][]string{extra}}}",
        quote(&user.name),
        quote(&user.uid),
        list(&user.groups)
    )
}

/// A way to be allowed to act as another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node that it runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Anybody else.
    UserInfo,
    /// By the verb `impersonate`.
    Plain,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Plain,
];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Plain => "",
        }
    }

    /// True if the mode is for such a user.
    fn is_for(self, requestor: &User, wanted: &User) -> bool {
        let only_name =
            wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node(&wanted.name);
        let is_account = service_account(&wanted.name).is_some();
        match self {
            Mode::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
                only_name
                    && service_account(&requestor.name).is_some()
                    && matches!((node, own), (Some(node), Some([own])) if node == own)
            }
            Mode::ArbitraryNode => only_name && node.is_some(),
            Mode::ServiceAccount => only_name && is_account,
            Mode::UserInfo => node.is_none() && !is_account,
            Mode::Plain => true,
        }
    }
}

type AuthorizeFn<'a> = &'a dyn Fn(&Attributes<'_>) -> Verdict;

/// Decides who may act as whom.
#[derive(Debug, Default)]
pub struct Impersonator {
    /// The mode in which a user was last allowed, by a hash of the name: it is tried first.
    ///
    /// Bound: [`REMEMBERED_MAX`].
    last: Mutex<HashMap<u64, Mode>>,
}

impl Impersonator {
    /// The user to act as, if the one who asks may.
    ///
    /// # Errors
    /// With the first refusal, as upstream words it.
    pub fn impersonate(
        &self,
        authorize: AuthorizeFn<'_>,
        wanted: &ImpersonationRequest,
        asked: &Attributes<'_>,
    ) -> Result<Impersonated, Status> {
        let key = tidings_api::fnv1a(asked.user.name.as_bytes());
        let last = self.last().get(&key).copied();
        let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
        let mut first = None;
        for mode in last.into_iter().chain(others) {
            if !mode.is_for(asked.user, wanted) {
                continue;
            }
            match check(mode, authorize, wanted, asked) {
                Ok(user) => {
                    self.remember(key, mode);
                    let constraint = match mode {
                        Mode::Plain => String::new(),
                        mode => format!("impersonate:{}", mode.name()),
                    };
                    return Ok(Impersonated { user, constraint });
                }
                Err(refused) => {
                    first.get_or_insert(refused);
                }
            }
        }
        Err(first.unwrap_or_else(|| Status::internal("no way to impersonate is known")))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Mode>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: u64, mode: Mode) {
        let mut last = self.last();
        if last.len() >= REMEMBERED_MAX && !last.contains_key(&key) {
            last.clear();
        }
        last.insert(key, mode);
    }
}

fn check(
    mode: Mode,
    authorize: AuthorizeFn<'_>,
    wanted: &User,
    asked: &Attributes<'_>,
) -> Result<User, Status> {
    let allowed = |asked: &Attributes<'_>| {
        let verdict = authorize(asked);
        match verdict.is_allowed() {
            true => Ok(()),
            false => Err(asked.forbidden(&verdict.reason)),
        }
    };
    let requestor = asked.user;
    let is_constrained = mode != Mode::Plain;
    let verb = match mode {
        Mode::Plain => "impersonate".to_owned(),
        mode => format!("impersonate:{}", mode.name()),
    };
    if is_constrained {
        let mut on = asked.clone();
        on.verb = format!("impersonate-on:{}:{}", mode.name(), asked.verb).into();
        allowed(&on)?;
    }
    let group = if is_constrained { AUTHENTICATION } else { "" };
    let on = |group, resource| Attributes::resource(requestor, verb.as_str(), group, resource);

    let mut user = wanted.clone();
    let named = match (node(&wanted.name), service_account(&wanted.name)) {
        (Some(node), _) if is_constrained => {
            user.groups = vec![NODES.to_owned()];
            // The right to act as the own node is the right to act as any that is.
            let name = match mode {
                Mode::AssociatedNode => "*",
                _ => node,
            };
            on(group, "nodes").named(name)
        }
        (_, Some((namespace, name))) => {
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
            on(group, "serviceaccounts")
                .in_namespace(namespace)
                .named(name)
        }
        _ => on(group, "users").named(wanted.name.as_str()),
    };
    allowed(&named)?;
    if !wanted.uid.is_empty() {
        allowed(&on(AUTHENTICATION, "uids").named(wanted.uid.as_str()))?;
    }
    check_groups(
        is_constrained,
        &wanted.groups,
        &on(group, "groups"),
        &allowed,
    )?;
    let extras = on(AUTHENTICATION, "userextras");
    check_extra(is_constrained, &wanted.extra, &extras, &allowed)?;

    let implied = match &*user.name {
        ANONYMOUS => UNAUTHENTICATED,
        _ if user.is_in(UNAUTHENTICATED) => return Ok(user),
        _ => AUTHENTICATED,
    };
    if !user.is_in(implied) {
        user.groups.push(implied.to_owned());
    }
    Ok(user)
}

fn check_groups(
    is_constrained: bool,
    groups: &[String],
    on: &Attributes<'_>,
    allowed: &dyn Fn(&Attributes<'_>) -> Result<(), Status>,
) -> Result<(), Status> {
    let named = |name: &str| on.clone().named(name.to_owned());
    if is_constrained {
        if groups.iter().any(String::is_empty) {
            return Err(on.forbidden("impersonating the empty string group is not allowed"));
        }
        if groups.iter().any(|group| group == MASTERS) {
            let why = "impersonating the system:masters group is not allowed";
            return Err(named(MASTERS).forbidden(why));
        }
        if groups.len() >= MANY && allowed(&named("*")).is_ok() {
            return Ok(());
        }
    }
    groups.iter().try_for_each(|group| allowed(&named(group)))
}

fn check_extra(
    is_constrained: bool,
    extra: &BTreeMap<String, Vec<String>>,
    on: &Attributes<'_>,
    allowed: &dyn Fn(&Attributes<'_>) -> Result<(), Status>,
) -> Result<(), Status> {
    let of = |key: &str, value: &str| {
        on.clone()
            .subresource(key.to_owned())
            .named(value.to_owned())
    };
    if is_constrained {
        if let Some(why) = extra
            .iter()
            .find_map(|(key, values)| odd_extra(key, values))
        {
            return Err(on.forbidden(&why));
        }
        let is_large = extra.values().map(Vec::len).sum::<usize>() >= MANY || extra.len() >= MANY;
        if is_large && allowed(&of("*", "*")).is_ok() {
            return Ok(());
        }
    }
    for (key, values) in extra {
        values
            .iter()
            .try_for_each(|value| allowed(&of(key, value)))?;
    }
    Ok(())
}

/// Why extra values of a key cannot be asked for in a constrained mode.
fn odd_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    if let Some(why) = not_a_prefixed_path(key) {
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: {why}",
            quote(key)
        ));
    }
    if key.to_lowercase() != key {
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {}",
            quote(key)
        ));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

fn not_a_prefixed_path(key: &str) -> Option<String> {
    let Some((domain, path)) = key.split_once('/') else {
        return Some("must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned());
    };
    let wrong = validate::dns1123_subdomain(domain);
    if let Some(why) = wrong.into_iter().next() {
        return Some(why);
    }
    if path.is_empty() {
        return Some("must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned());
    }
    let is_odd = |byte: u8| !byte.is_ascii_alphanumeric() && !b"/-._~%!$&'()*+,;=:".contains(&byte);
    path.bytes().any(is_odd).then(|| "Invalid path".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorizer::authorize_by_rbac;
    use crate::policy::Policy;

    fn request(headers: &[(&str, &str)]) -> Result<Option<User>, Status> {
        impersonation_request(headers.iter().copied())
    }

    #[test]
    fn headers_name_a_user_or_are_refused() {
        assert_eq!(request(&[("accept", "x")]).unwrap(), None);
        let wanted = request(&[
            (USER, "bob"),
            (GROUP, "a"),
            (GROUP, "b"),
            ("impersonate-extra-acme.io%2fteam", "x"),
            ("impersonate-extra-acme.io%2fteam", "y"),
            (UID, "7"),
        ]);
        let wanted = wanted.unwrap().unwrap();
        assert_eq!((&*wanted.name, &*wanted.uid), ("bob", "7"));
        assert_eq!(wanted.groups, ["a", "b"]);
        assert_eq!(wanted.extra["acme.io/team"], ["x", "y"]);
        let refused = request(&[(GROUP, "a"), ("impersonate-extra-k", "v")]).unwrap_err();
        assert_eq!(
            refused.message,
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string{"k":[]string{"v"}}} without impersonating a user name"#
        );
    }

    fn policy(rules: &str) -> Policy {
        let mut policy = Policy::default();
        let role = format!(r#"{{"rules":{rules}}}"#);
        policy.put_cluster_role("r", role.as_bytes());
        let binding = br#"{"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"ann"}]}"#;
        policy.put_binding("", "b", binding);
        policy
    }

    fn ask(policy: &Policy, headers: &[(&str, &str)]) -> Result<User, String> {
        let ann = User::new("ann", &[AUTHENTICATED]);
        let asked = Attributes::resource(&ann, "list", "", "pods").in_namespace("n");
        let wanted = request(headers).unwrap().unwrap();
        let authorize = |asked: &Attributes<'_>| authorize_by_rbac(policy, asked);
        let answer = Impersonator::default().impersonate(&authorize, &wanted, &asked);
        answer
            .map(|impersonated| impersonated.user)
            .map_err(|status| status.message)
    }

    #[test]
    fn the_verb_impersonate_is_enough_for_what_it_names() {
        let known = policy(
            r#"[{"verbs":["impersonate"],"apiGroups":[""],"resources":["users","serviceaccounts"]},
                {"verbs":["impersonate"],"apiGroups":[""],"resources":["groups"],"resourceNames":["a"]},
                {"verbs":["impersonate"],"apiGroups":["authentication.k8s.io"],"resources":["userextras/k"]}]"#,
        );
        let bob = ask(&known, &[(USER, "bob")]).unwrap();
        assert_eq!(bob.groups, [AUTHENTICATED]);
        let bob = ask(
            &known,
            &[(USER, "bob"), (GROUP, "a"), ("impersonate-extra-k", "v")],
        );
        assert_eq!(bob.unwrap().groups, ["a", AUTHENTICATED]);
        let account = ask(&known, &[(USER, "system:serviceaccount:n:s")]).unwrap();
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            AUTHENTICATED,
        ];
        assert_eq!(account.groups, groups);
        let anonymous = ask(&known, &[(USER, ANONYMOUS)]).unwrap();
        assert_eq!(anonymous.groups, [UNAUTHENTICATED]);
        // The refusal is that of the first mode that is tried.
        let first = r#"pods is forbidden: User "ann" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "n""#;
        for refused in [
            [(USER, "bob"), (GROUP, "b")],
            [(USER, "bob"), (UID, "1")],
            [(USER, "bob"), ("impersonate-extra-other", "v")],
        ] {
            assert_eq!(ask(&known, &refused).unwrap_err(), first);
        }
    }

    #[test]
    fn constrained_modes_need_the_verb_on_what_is_asked_for_and_on_whom() {
        let known = policy(
            r#"[{"verbs":["impersonate-on:user-info:list"],"apiGroups":[""],"resources":["pods"]},
                {"verbs":["impersonate:user-info"],"apiGroups":["authentication.k8s.io"],"resources":["users","groups"]},
                {"verbs":["impersonate-on:arbitrary-node:list"],"apiGroups":[""],"resources":["pods"]},
                {"verbs":["impersonate:arbitrary-node"],"apiGroups":["authentication.k8s.io"],"resources":["nodes"],"resourceNames":["n1"]}]"#,
        );
        assert!(ask(&known, &[(USER, "bob"), (GROUP, "a")]).is_ok());
        let node = ask(&known, &[(USER, "system:node:n1")]).unwrap();
        assert_eq!(node.groups, [NODES, AUTHENTICATED]);
        assert_eq!(
            ask(&known, &[(USER, "system:node:n2")]).unwrap_err(),
            r#"nodes.authentication.k8s.io "n2" is forbidden: User "ann" cannot impersonate:arbitrary-node resource "nodes" in API group "authentication.k8s.io" at the cluster scope"#
        );
        assert_eq!(
            ask(&known, &[(USER, "bob"), (GROUP, MASTERS)]).unwrap_err(),
            r#"groups.authentication.k8s.io "system:masters" is forbidden: User "ann" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#
        );
    }
}
