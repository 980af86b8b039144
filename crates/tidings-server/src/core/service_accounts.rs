//! Tokens of service accounts: how they are signed and believed, and the objects that they depend on.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidings_api::{Object, ObjectKey, Status};
use tidings_go::parse_time;
use tidings_identity::{
    AccountTokens, BOOTSTRAP_NAMESPACE, BootstrapSecret, KeyError, PublicKey, SignedToken,
    SigningKey, TokenIssuer, TokenObject, TokenObjectKind, TokenObjects, TokenUser,
    bootstrap_secret, bootstrap_user,
};
use tidings_json::Value;
use tidings_registry::Kind;

use super::authentication::AUDIENCE;
use super::clock;
use super::resource::Resource;
use super::served::ServedSet;

/// Of how many tokens it is remembered that their signature is right: to check one takes a tenth of a millisecond.
const SIGNED_MAX: usize = 10_000;

/// True if tokens end with an object of this kind, and whoever deletes it wants to know that they have ended. Pods are deleted too often for that.
pub(super) fn ends_tokens(kind: &Kind) -> bool {
    kind.group.is_empty() && matches!(&*kind.plural, "serviceaccounts" | "secrets")
}

/// How tokens of service accounts are made and believed.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServiceAccountOptions {
    /// The issuers that are believed. The first stands in new tokens.
    pub issuers: Vec<String>,
    /// The key that signs. `None`: one that is made at the start, so that tokens are of no use after it.
    pub signing_key: Option<SigningKey>,
    /// More keys that are believed.
    pub keys: Vec<PublicKey>,
    /// The audiences of the server. Empty: the issuers.
    pub audiences: Vec<String>,
    /// The longest life of a token.
    pub life_max: Option<Duration>,
    /// Tokens of Pods that ask for 3607 seconds live a year, as kube-apiserver lets them.
    pub extend: bool,
    /// Where others find the keys. `None`: on this server.
    pub keys_at: Option<String>,
    /// Believe bootstrap tokens.
    pub bootstrap_tokens: bool,
}

impl Default for ServiceAccountOptions {
    fn default() -> Self {
        ServiceAccountOptions {
            issuers: vec![AUDIENCE.to_owned()],
            signing_key: None,
            keys: Vec::new(),
            audiences: Vec::new(),
            life_max: None,
            extend: true,
            keys_at: None,
            bootstrap_tokens: false,
        }
    }
}

impl fmt::Debug for ServiceAccountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccountOptions")
            .field("issuers", &self.issuers)
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

/// Makes and believes tokens of service accounts.
pub(crate) struct ServiceAccounts {
    pub(super) issuer: TokenIssuer,
    tokens: AccountTokens,
    objects: AccountObjects,
    /// Tokens whose signature is right, by their hash.
    signed: Mutex<HashMap<[u8; 32], SignedToken>>,
    pub(super) life_max: Option<i64>,
    pub(super) extend: bool,
    keys_at: Option<String>,
    bootstrap_tokens: bool,
}

impl ServiceAccounts {
    pub(super) fn new(
        options: ServiceAccountOptions,
        served: &ServedSet,
    ) -> Result<ServiceAccounts, KeyError> {
        let key = match options.signing_key {
            Some(key) => key,
            None => SigningKey::from_pkcs8(&SigningKey::generate()?)?,
        };
        let mut issuers = options.issuers;
        if issuers.is_empty() {
            issuers.push(AUDIENCE.to_owned());
        }
        let issuer = TokenIssuer::new(&issuers[0], key);
        let mut keys = options.keys;
        if !keys.contains(issuer.public_key()) {
            keys.insert(0, issuer.public_key().clone());
        }
        let audiences = match options.audiences.is_empty() {
            true => issuers.clone(),
            false => options.audiences,
        };
        Ok(ServiceAccounts {
            issuer,
            tokens: AccountTokens::new(issuers, keys, audiences),
            objects: AccountObjects::new(served),
            signed: Mutex::default(),
            life_max: options
                .life_max
                .and_then(|life| i64::try_from(life.as_secs()).ok()),
            extend: options.extend,
            keys_at: options.keys_at,
            bootstrap_tokens: options.bootstrap_tokens,
        })
    }

    /// The audiences of the server.
    pub(crate) fn audiences(&self) -> &[String] {
        self.tokens.audiences()
    }

    /// The keys that check tokens.
    pub(crate) fn keys(&self) -> &[PublicKey] {
        self.tokens.keys()
    }

    /// The issuer of new tokens.
    pub(crate) fn issuer(&self) -> &str {
        self.issuer.issuer()
    }

    /// Where others find the keys, if that is not on this server.
    pub(crate) fn keys_at(&self) -> Option<&str> {
        self.keys_at.as_deref()
    }

    /// The user of a token of a service account. `None` if it is none.
    pub(super) async fn user(
        &self,
        token: &str,
        wanted: &[String],
    ) -> Option<Result<TokenUser, String>> {
        let signed = match self.signed(token)? {
            Ok(signed) => signed,
            Err(why) => return Some(Err(why)),
        };
        let user = || {
            let now = clock::timestamp().as_second();
            self.tokens.user(&signed, wanted, now, &self.objects)
        };
        let first = user();
        if first.is_ok() {
            return Some(first);
        }
        // A token may have been made a moment ago by another server, for objects that the caches do not have yet.
        match self.objects.refresh().await {
            Ok(()) => Some(user()),
            Err(_) => Some(first),
        }
    }

    fn signed(&self, token: &str) -> Option<Result<SignedToken, String>> {
        let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
        let hash: [u8; 32] = digest.as_ref().try_into().unwrap_or_default();
        let signed = || {
            let signed = self.signed.lock();
            signed.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = signed().get(&hash) {
            return Some(Ok(known.clone()));
        }
        let checked = self.tokens.check_signature(token)?;
        if let Ok(right) = &checked {
            let mut signed = signed();
            if signed.len() >= SIGNED_MAX {
                signed.clear();
            }
            signed.insert(hash, right.clone());
        }
        Some(checked)
    }

    /// The user of a bootstrap token, if they are believed and this is one.
    pub(super) async fn bootstrap_user(&self, token: &str) -> Option<tidings_access::User> {
        let name = bootstrap_secret(token).filter(|_| self.bootstrap_tokens)?;
        let key = ObjectKey::new(BOOTSTRAP_NAMESPACE, &name);
        // The Secret may have been made a moment ago.
        let secret = self.objects.secrets.current(&key).await.ok()??;
        bootstrap_user(token, &StoredSecret::new(&secret))
    }
}

/// The resources of the objects that tokens depend on.
struct AccountObjects {
    accounts: Arc<Resource>,
    pods: Arc<Resource>,
    secrets: Arc<Resource>,
    nodes: Arc<Resource>,
}

impl AccountObjects {
    fn new(served: &ServedSet) -> AccountObjects {
        let resource = |plural: &str| {
            let found = served.find("", "v1", plural);
            let found = found.and_then(|(_, resource)| resource);
            found.expect("the kinds of the core group are built in")
        };
        AccountObjects {
            accounts: resource("serviceaccounts"),
            pods: resource("pods"),
            secrets: resource("secrets"),
            nodes: resource("nodes"),
        }
    }

    fn all(&self) -> [&Arc<Resource>; 4] {
        [&self.accounts, &self.pods, &self.secrets, &self.nodes]
    }

    async fn refresh(&self) -> Result<(), Status> {
        for resource in self.all() {
            resource.refresh().await?;
        }
        Ok(())
    }
}

impl TokenObjects for AccountObjects {
    fn find(&self, kind: TokenObjectKind, namespace: &str, name: &str) -> Option<TokenObject> {
        let resource = match kind {
            TokenObjectKind::ServiceAccount => &self.accounts,
            TokenObjectKind::Pod => &self.pods,
            TokenObjectKind::Secret => &self.secrets,
            TokenObjectKind::Node => &self.nodes,
        };
        let object = resource.get(&ObjectKey::new(namespace, name))?;
        let deleted_at = || {
            let time = object.field(&["metadata", "deletionTimestamp"])?;
            Some(parse_time(&time).ok()?.as_second())
        };
        let found = TokenObject {
            uid: object.uid().into_owned(),
            deleted_at: object.is_terminating().then(deleted_at).flatten(),
            ..TokenObject::default()
        };
        if kind != TokenObjectKind::Secret {
            return Some(found);
        }
        let secret = StoredSecret::new(&object);
        let labels = object.labels();
        Some(found.with_secret(secret.member("token"), labels.iter()))
    }
}

/// A Secret as it is stored.
struct StoredSecret {
    json: Value,
    is_deleted: bool,
}

impl StoredSecret {
    fn new(object: &Object) -> StoredSecret {
        StoredSecret {
            json: serde_json::from_slice(object.as_bytes()).unwrap_or_default(),
            is_deleted: object.is_terminating(),
        }
    }

    fn member(&self, name: &str) -> Option<Vec<u8>> {
        STANDARD.decode(self.json["data"][name].as_str()?).ok()
    }
}

impl BootstrapSecret for StoredSecret {
    fn kind(&self) -> &str {
        self.json["type"].as_str().unwrap_or_default()
    }

    fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    fn data(&self, name: &str) -> Vec<u8> {
        self.member(name).unwrap_or_default()
    }

    fn is_over(&self, time: &str) -> bool {
        let time = parse_time(time);
        time.map_or(true, |time| time < clock::timestamp())
    }
}
