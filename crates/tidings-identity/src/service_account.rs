//! Tokens of service accounts: made for an account, with audiences and an end, and bound to an object or not; and the tokens without an end that
//! kube-controller-manager writes into Secrets.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tidings_access::{User, service_account, service_account_groups, service_account_user};
use tidings_go::quote;
use uuid::Uuid;

use crate::key::{KeyError, PublicKey, SigningKey};
use crate::same::is_same_secret;
use crate::token::{Audiences, LEEWAY_SECONDS, ParsedToken, TokenTimes, sign};

/// The issuer of tokens in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// The label of a Secret whose token is not believed any more.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// An object that a token names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl ObjectRef {
    fn json(&self) -> Value {
        let mut members = Map::new();
        for (name, text) in [("name", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                members.insert(name.into(), text.as_str().into());
            }
        }
        members.into()
    }
}

/// What a token of a service account says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountClaims {
    /// The namespace of the account, and of the Pod or Secret.
    pub namespace: String,
    /// The account.
    pub account: ObjectRef,
    /// The Pod that the token is bound to.
    pub pod: Option<ObjectRef>,
    /// The Secret that the token is bound to.
    pub secret: Option<ObjectRef>,
    /// The Node that the token is bound to, or that of the Pod.
    pub node: Option<ObjectRef>,
    /// For whom the token is.
    pub audiences: Vec<String>,
    /// How long it is valid.
    pub seconds: i64,
    /// After how long its use is told of, though it is valid.
    pub warn_after: Option<i64>,
}

/// Makes tokens of service accounts.
#[derive(Debug, Clone)]
pub struct TokenIssuer {
    issuer: String,
    key: SigningKey,
}

impl TokenIssuer {
    /// Signs with a key, in the name of an issuer.
    pub fn new(issuer: impl Into<String>, key: SigningKey) -> TokenIssuer {
        TokenIssuer {
            issuer: issuer.into(),
            key,
        }
    }

    /// The name in tokens.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The key that checks the tokens.
    pub fn public_key(&self) -> &PublicKey {
        self.key.public()
    }

    /// A token. Its id is the second part of the answer, which logs may show.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn issue(&self, claims: &AccountClaims, now: i64) -> Result<(String, String), KeyError> {
        let id = Uuid::new_v4().to_string();
        let mut private = Map::new();
        private.insert("namespace".into(), claims.namespace.as_str().into());
        for (name, object) in [
            ("node", &claims.node),
            ("pod", &claims.pod),
            ("secret", &claims.secret),
            ("serviceaccount", &Some(claims.account.clone())),
        ] {
            if let Some(object) = object {
                private.insert(name.into(), object.json());
            }
        }
        if let Some(seconds) = claims.warn_after {
            private.insert("warnafter".into(), (now + seconds).into());
        }
        let subject = service_account_user(&claims.namespace, &claims.account.name);
        let all = json!({
            "aud": claims.audiences,
            "exp": now + claims.seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": id,
            "kubernetes.io": private,
            "nbf": now,
            "sub": subject,
        });
        Ok((sign(&all, &self.key)?, id))
    }
}

/// A kind of object that a token can depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenObjectKind {
    /// The account itself.
    ServiceAccount,
    /// A Pod that the token is bound to.
    Pod,
    /// A Secret that the token is bound to, or that holds it.
    Secret,
    /// A Node that the token is bound to.
    Node,
}

/// What of an object decides whether a token is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenObject {
    /// The uid.
    pub uid: String,
    /// When its deletion was asked for, in seconds since 1970.
    pub deleted_at: Option<i64>,
    /// Of a Secret: the token that it holds.
    pub token: Option<Vec<u8>>,
    /// Of a Secret: its token is not believed any more.
    pub is_invalid: bool,
}

impl TokenObject {
    /// What a Secret holds: the token in its `data`, decoded, and its labels.
    #[must_use]
    pub fn with_secret<'l>(
        mut self,
        token: Option<Vec<u8>>,
        mut labels: impl Iterator<Item = (&'l str, &'l str)>,
    ) -> TokenObject {
        self.token = token;
        self.is_invalid = labels.any(|(name, value)| name == INVALID_SINCE && !value.is_empty());
        self
    }
}

/// Finds the objects that a token depends on.
pub trait TokenObjects {
    /// The object, if it exists.
    fn find(&self, kind: TokenObjectKind, namespace: &str, name: &str) -> Option<TokenObject>;
}

/// Which tokens of service accounts are believed.
#[derive(Debug, Clone)]
pub struct AccountTokens {
    issuers: Vec<String>,
    keys: Vec<PublicKey>,
    audiences: Vec<String>,
}

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    /// The user.
    pub user: User,
    /// For which of the audiences that were asked for.
    pub audiences: Vec<String>,
}

/// A token whose signature and issuer are right.
#[derive(Debug, Clone)]
pub struct SignedToken {
    claims: Arc<SignedClaims>,
}

#[derive(Debug)]
enum SignedClaims {
    Current(Claims),
    Legacy(LegacyClaims, String),
}

#[derive(Debug, Deserialize)]
struct Claims {
    #[serde(default)]
    iss: String,
    #[serde(default)]
    sub: String,
    #[serde(default)]
    aud: Audiences,
    #[serde(default)]
    jti: String,
    #[serde(flatten)]
    times: TokenTimes,
    #[serde(rename = "kubernetes.io", default)]
    private: PrivateClaims,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PrivateClaims {
    namespace: String,
    serviceaccount: ObjectRef,
    pod: Option<ObjectRef>,
    secret: Option<ObjectRef>,
    node: Option<ObjectRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LegacyClaims {
    iss: String,
    sub: String,
    aud: Audiences,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    uid: String,
}

impl AccountTokens {
    /// Believes tokens of these issuers that one of the keys has signed. Tokens that name no audience are for `audiences`.
    pub fn new(
        issuers: Vec<String>,
        keys: Vec<PublicKey>,
        audiences: Vec<String>,
    ) -> AccountTokens {
        AccountTokens {
            issuers,
            keys,
            audiences,
        }
    }

    /// The keys that check tokens.
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// The audiences of the server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Checks the signature of a token. `None` if it claims another issuer. It is the same whenever it is asked, and takes the most time.
    ///
    /// # Errors
    /// If the signature is wrong.
    pub fn check_signature(&self, token: &str) -> Option<Result<SignedToken, String>> {
        let parsed = ParsedToken::parse(token)?;
        let issuer = parsed.claimed_issuer()?;
        let claims = if issuer == LEGACY_ISSUER {
            let claims = parsed.verify::<LegacyClaims>(&self.keys);
            claims.map(|claims| SignedClaims::Legacy(claims, token.to_owned()))
        } else if self.issuers.contains(&issuer) {
            parsed
                .verify::<Claims>(&self.keys)
                .map(SignedClaims::Current)
        } else {
            return None;
        };
        let signed = claims.map(|claims| SignedToken {
            claims: Arc::new(claims),
        });
        Some(signed.map_err(ToOwned::to_owned))
    }

    /// The user of a token, if it is valid now for one of the wanted audiences (those of the server, if none are named) and everything that it
    /// depends on is there.
    ///
    /// # Errors
    /// In upstream's words.
    pub fn user(
        &self,
        token: &SignedToken,
        wanted: &[String],
        now: i64,
        objects: &dyn TokenObjects,
    ) -> Result<TokenUser, String> {
        let (issuer, of_token) = match &*token.claims {
            SignedClaims::Current(claims) => (&claims.iss, &claims.aud.0),
            SignedClaims::Legacy(claims, _) => (&claims.iss, &claims.aud.0),
        };
        // It was read before the signature was checked; a payload with two of them could say something else.
        if issuer != LEGACY_ISSUER && !self.issuers.contains(issuer) {
            return Err(format!("token issuer {} is invalid", quote(issuer)));
        }
        let of_token = if of_token.is_empty() {
            &self.audiences
        } else {
            of_token
        };
        let wanted = match wanted {
            [] => self.audiences.as_slice(),
            wanted => wanted,
        };
        let audiences = intersection(of_token, wanted);
        if audiences.is_empty() {
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quote_list(of_token),
                quote_list(wanted)
            ));
        }
        let user = match &*token.claims {
            SignedClaims::Current(claims) => claims.user(now, objects)?,
            SignedClaims::Legacy(claims, token) => claims.user(token, objects)?,
        };
        Ok(TokenUser { user, audiences })
    }
}

/// Texts as Go prints a list of them with `%q`.
fn quote_list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

/// The texts of one list that are in another, in the order of the first.
pub fn intersection(one: &[String], other: &[String]) -> Vec<String> {
    let both = one.iter().filter(|text| other.contains(text));
    both.cloned().collect()
}

impl Claims {
    fn user(&self, now: i64, objects: &dyn TokenObjects) -> Result<User, String> {
        let times = self.times.check(now);
        times.map_err(|why| format!("service account token {why}"))?;
        let PrivateClaims {
            namespace,
            serviceaccount: account,
            ..
        } = &self.private;
        let is_gone = |object: &TokenObject| {
            let deleted = object.deleted_at;
            deleted.is_some_and(|deleted| deleted < now - LEEWAY_SECONDS)
        };
        let found = objects.find(TokenObjectKind::ServiceAccount, namespace, &account.name);
        let found =
            found.ok_or_else(|| format!("serviceaccounts {} not found", quote(&account.name)))?;
        if found.uid != account.uid {
            return Err(format!(
                "service account UID ({}) does not match claim ({})",
                found.uid, account.uid
            ));
        }
        if is_gone(&found) {
            let name = &account.name;
            return Err(format!(
                "service account {namespace}/{name} has been deleted"
            ));
        }
        let check = |kind, namespace: &str, bound: &ObjectRef| {
            let invalidated = || "service account token has been invalidated".to_owned();
            let found = objects.find(kind, namespace, &bound.name);
            let found = found.ok_or_else(invalidated)?;
            if found.uid != bound.uid {
                let what = match kind {
                    TokenObjectKind::Pod => "pod",
                    TokenObjectKind::Node => "node",
                    TokenObjectKind::Secret | TokenObjectKind::ServiceAccount => "secret",
                };
                return Err(format!(
                    "{what} UID ({}) does not match service account {what} ref claim ({})",
                    found.uid, bound.uid
                ));
            }
            match is_gone(&found) {
                true => Err(invalidated()),
                false => Ok(()),
            }
        };
        let PrivateClaims {
            pod, secret, node, ..
        } = &self.private;
        if let Some(secret) = secret {
            check(TokenObjectKind::Secret, namespace, secret)?;
        }
        if let Some(pod) = pod {
            check(TokenObjectKind::Pod, namespace, pod)?;
        }
        if let (Some(node), None) = (node, pod) {
            check(TokenObjectKind::Node, "", node)?;
        }
        let mut user = account_user(namespace, &account.name, &account.uid);
        let mut put = |name: &str, value: String| {
            if !value.is_empty() {
                let name = format!("authentication.kubernetes.io/{name}");
                user.extra.insert(name, vec![value]);
            }
        };
        for (kind, object) in [("pod", pod), ("node", node)] {
            if let Some(object) = object {
                put(&format!("{kind}-name"), object.name.clone());
                put(&format!("{kind}-uid"), object.uid.clone());
            }
        }
        if !self.jti.is_empty() {
            put("credential-id", format!("JTI={}", self.jti));
        }
        debug_assert!(self.sub.is_empty() || self.sub == user.name);
        Ok(user)
    }
}

impl LegacyClaims {
    fn user(&self, token: &str, objects: &dyn TokenObjects) -> Result<User, String> {
        for (claim, value) in [
            ("sub", &self.sub),
            ("namespace", &self.namespace),
            ("secretName", &self.secret),
            ("serviceAccountName", &self.account),
            ("serviceAccountUID", &self.uid),
        ] {
            if value.is_empty() {
                return Err(format!("{claim} claim is missing"));
            }
        }
        let (namespace, account) = (&self.namespace, &self.account);
        if service_account(&self.sub) != Some((namespace, account)) {
            return Err("sub claim is invalid".into());
        }
        let secret = objects.find(TokenObjectKind::Secret, namespace, &self.secret);
        let secret = secret.filter(|secret| secret.deleted_at.is_none());
        let secret = secret.ok_or("Token has been invalidated")?;
        let same = |held: &Vec<u8>| is_same_secret(token.as_bytes(), held);
        if !secret.token.as_ref().is_some_and(same) {
            return Err("Token does not match server's copy".into());
        }
        let found = objects.find(TokenObjectKind::ServiceAccount, namespace, account);
        let found = found.ok_or_else(|| format!("serviceaccounts {} not found", quote(account)))?;
        if found.deleted_at.is_some() {
            return Err(format!(
                "ServiceAccount {namespace}/{account} has been deleted"
            ));
        }
        if found.uid != self.uid {
            return Err(format!(
                "ServiceAccount UID ({}) does not match claim ({})",
                found.uid, self.uid
            ));
        }
        if secret.is_invalid {
            let name = &self.secret;
            return Err(format!(
                "the token in secret {namespace}/{name} for service account {namespace}/{account} has been marked invalid. Use tokens from the \
                 TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily \
                 allow use of this token"
            ));
        }
        Ok(account_user(namespace, account, &self.uid))
    }
}

fn account_user(namespace: &str, name: &str, uid: &str) -> User {
    let mut user = User::new(service_account_user(namespace, name), &[]);
    user.uid = uid.to_owned();
    user.groups = service_account_groups(namespace);
    user.authenticated()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known(Vec<(TokenObjectKind, &'static str, TokenObject)>);

    impl TokenObjects for Known {
        fn find(&self, kind: TokenObjectKind, _: &str, name: &str) -> Option<TokenObject> {
            let known = self.0.iter();
            let mut found = known.filter(|known| (known.0, known.1) == (kind, name));
            found.next().map(|known| known.2.clone())
        }
    }

    fn object(uid: &str) -> TokenObject {
        TokenObject {
            uid: uid.into(),
            ..TokenObject::default()
        }
    }

    fn issuer() -> (TokenIssuer, AccountTokens) {
        let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
        let issuer = TokenIssuer::new("https://i", key);
        let keys = vec![issuer.public_key().clone()];
        let tokens = AccountTokens::new(vec!["https://i".into()], keys, vec!["api".into()]);
        (issuer, tokens)
    }

    fn claims() -> AccountClaims {
        AccountClaims {
            namespace: "n".into(),
            account: ObjectRef {
                name: "a".into(),
                uid: "1".into(),
            },
            audiences: vec!["api".into(), "x".into()],
            seconds: 600,
            ..AccountClaims::default()
        }
    }

    #[test]
    fn a_token_is_its_account_until_it_expires_or_something_is_gone() {
        let (issuer, tokens) = issuer();
        let mut claims = claims();
        claims.pod = Some(ObjectRef {
            name: "p".into(),
            uid: "2".into(),
        });
        let (token, id) = issuer.issue(&claims, 1000).unwrap();
        let signed = tokens.check_signature(&token).unwrap().unwrap();
        let all = || {
            vec![
                (TokenObjectKind::ServiceAccount, "a", object("1")),
                (TokenObjectKind::Pod, "p", object("2")),
            ]
        };
        let user = tokens.user(&signed, &[], 1000, &Known(all())).unwrap();
        assert_eq!(user.user.name, "system:serviceaccount:n:a");
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            "system:authenticated",
        ];
        assert_eq!(user.user.groups, groups);
        assert_eq!(user.audiences, ["api"]);
        let extra = &user.user.extra;
        let of = |name: &str| extra[&format!("authentication.kubernetes.io/{name}")][0].clone();
        assert_eq!((of("pod-name"), of("pod-uid")), ("p".into(), "2".into()));
        assert_eq!(of("credential-id"), format!("JTI={id}"));

        let refused = |wanted: &[&str], now, objects: Vec<_>| {
            let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
            tokens
                .user(&signed, &wanted, now, &Known(objects))
                .unwrap_err()
        };
        assert_eq!(
            refused(&["y"], 1000, all()),
            r#"token audiences ["api" "x"] is invalid for the target audiences ["y"]"#
        );
        assert_eq!(
            refused(&[], 1661, all()),
            "service account token has expired"
        );
        assert!(
            tokens
                .user(&signed, &["x".into()], 1659, &Known(all()))
                .is_ok()
        );
        assert_eq!(
            refused(&[], 900, all()),
            "service account token is not valid yet"
        );
        assert_eq!(
            refused(&[], 1000, all()[..1].to_vec()),
            "service account token has been invalidated"
        );
        assert_eq!(
            refused(&[], 1000, all()[1..].to_vec()),
            r#"serviceaccounts "a" not found"#
        );
        let mut other = all();
        other[0].2 = object("9");
        assert_eq!(
            refused(&[], 1000, other),
            "service account UID (9) does not match claim (1)"
        );
        let mut deleted = all();
        deleted[1].2.deleted_at = Some(1000);
        assert!(
            tokens
                .user(&signed, &[], 1060, &Known(deleted.clone()))
                .is_ok()
        );
        assert_eq!(
            refused(&[], 1061, deleted),
            "service account token has been invalidated"
        );
    }

    #[test]
    fn foreign_and_changed_tokens_are_refused() {
        let (issuer, tokens) = issuer();
        let (other, _) = self::issuer();
        let (token, _) = issuer.issue(&claims(), 1000).unwrap();
        let (foreign, _) = other.issue(&claims(), 1000).unwrap();
        assert!(tokens.check_signature(&foreign).unwrap().is_err());
        assert!(tokens.check_signature("a.b.c").is_none());
        assert!(tokens.check_signature("secret").is_none());
        // No byte of a token can be changed: each is signed, or the signature.
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            let checked = tokens.check_signature(&changed);
            // The last character of base64 has bits that say nothing; the decoder refuses other ones.
            assert!(!matches!(checked, Some(Ok(_))), "byte {at}");
        }
        let none = r#"{"alg":"none"}"#;
        use base64::Engine;
        let none = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(none);
        let payload = token.split('.').nth(1).unwrap();
        assert!(
            tokens
                .check_signature(&format!("{none}.{payload}."))
                .unwrap()
                .is_err()
        );
    }

    #[test]
    fn a_token_in_a_secret_is_believed_as_long_as_the_secret_holds_it() {
        let (issuer, tokens) = issuer();
        let claims = json!({
            "iss": LEGACY_ISSUER, "sub": "system:serviceaccount:n:a",
            "kubernetes.io/serviceaccount/namespace": "n",
            "kubernetes.io/serviceaccount/secret.name": "s",
            "kubernetes.io/serviceaccount/service-account.name": "a",
            "kubernetes.io/serviceaccount/service-account.uid": "1",
        });
        let token = sign(&claims, &issuer.key).unwrap();
        let signed = tokens.check_signature(&token).unwrap().unwrap();
        let account = (TokenObjectKind::ServiceAccount, "a", object("1"));
        let holds = |token: &str| {
            let held = Some(token.as_bytes().to_vec());
            (
                TokenObjectKind::Secret,
                "s",
                object("3").with_secret(held, std::iter::empty()),
            )
        };
        let ask = |objects| {
            tokens
                .user(&signed, &[], 0, &Known(objects))
                .map(|user| user.user.name)
        };
        assert_eq!(
            ask(vec![account.clone(), holds(&token)]).unwrap(),
            "system:serviceaccount:n:a"
        );
        let other = ask(vec![account.clone(), holds("other")]).unwrap_err();
        assert_eq!(other, "Token does not match server's copy");
        assert_eq!(
            ask(vec![account.clone()]).unwrap_err(),
            "Token has been invalidated"
        );
        let labels = [(INVALID_SINCE, "2026-01-01")];
        let marked = object("3").with_secret(Some(token.into()), labels.into_iter());
        let marked = ask(vec![account, (TokenObjectKind::Secret, "s", marked)]).unwrap_err();
        assert!(marked.contains("has been marked invalid"), "{marked}");
    }
}
