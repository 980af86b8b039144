//! Issuers of tokens: their keys, which are read when they are needed, and the users of their tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidings_access::User;
use tidings_identity::{Audiences, JsonWebKeySet, ParsedToken, PublicKey, TokenTimes};
use tidings_webhook::Webhook;
use tokio::time::Instant;

use crate::config::{AnonymousRule, AuthenticationConfig, IssuerConfig};

/// How long an issuer may take to answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long keys are used before they are read again, if a token names one that is not known; and how long a failure is believed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How many keys an issuer may have.
const KEYS_MAX: usize = 1000;
/// How much the clock of an issuer may be ahead, in seconds. As in kube-apiserver.
const AHEAD_SECONDS_MAX: i64 = 300;

/// The issuers of a configuration. Must be used within a tokio runtime.
#[derive(Debug)]
pub struct TokenIssuers {
    issuers: Vec<TokenIssuer>,
    anonymous: Option<AnonymousRule>,
}

#[derive(Debug)]
struct TokenIssuer {
    config: IssuerConfig,
    keys: IssuerKeys,
}

/// The keys of an issuer.
#[derive(Debug)]
enum IssuerKeys {
    /// From a file.
    Given(Arc<[PublicKey]>),
    /// From the issuer.
    Read {
        service: Box<Webhook>,
        current: Mutex<ReadKeys>,
        /// Held while they are read, so that one request does it for all.
        reading: tokio::sync::Mutex<()>,
    },
}

/// What is known of the keys of an issuer.
#[derive(Debug, Clone, Default)]
struct ReadKeys {
    keys: Arc<[PublicKey]>,
    /// When they were read, or could not be.
    at: Option<Instant>,
    error: Option<String>,
}

/// What an issuer says of itself.
#[derive(Deserialize)]
struct IssuerDocument {
    issuer: String,
    jwks_uri: String,
}

/// The claims that every token has.
#[derive(Deserialize)]
struct KnownClaims {
    iss: String,
    #[serde(default)]
    aud: Audiences,
    #[serde(flatten)]
    times: TokenTimes,
}

/// Reads keys in JSON, as an issuer serves them. Those of kinds that are not known are left out.
///
/// # Errors
/// If it is no set of keys, or none can be used.
pub fn read_keys(json: &[u8]) -> Result<Vec<PublicKey>, String> {
    let set: JsonWebKeySet =
        serde_json::from_slice(json).map_err(|_| "it is no JSON Web Key Set".to_owned())?;
    let signs = set
        .keys
        .iter()
        .filter(|key| matches!(&*key.usage, "" | "sig"));
    let keys = signs
        .filter_map(|key| PublicKey::from_jwk(key).ok())
        .take(KEYS_MAX);
    let keys: Vec<PublicKey> = keys.collect();
    match keys.is_empty() {
        true => Err("it has no key that can be used: RSA, or ECDSA with P-256 or P-384".to_owned()),
        false => Ok(keys),
    }
}

impl TokenIssuers {
    /// The issuers of a configuration. `given` are keys of issuers that are not asked for them.
    ///
    /// # Errors
    /// If an issuer cannot be called.
    pub fn new(
        config: AuthenticationConfig,
        mut given: HashMap<String, Vec<PublicKey>>,
    ) -> Result<TokenIssuers, String> {
        let issuer = |config: IssuerConfig| {
            let keys = match given.remove(&config.url) {
                Some(keys) => IssuerKeys::Given(keys.into()),
                None => IssuerKeys::Read {
                    service: Box::new(Webhook::at(&config.url, config.authorities.clone())?),
                    current: Mutex::default(),
                    reading: tokio::sync::Mutex::default(),
                },
            };
            Ok(TokenIssuer { config, keys })
        };
        let issuers = config.issuers.into_iter().map(issuer);
        let issuers: Result<Vec<_>, String> = issuers.collect();
        Ok(TokenIssuers {
            issuers: issuers?,
            anonymous: config.anonymous,
        })
    }

    /// Who may ask without a credential, if the configuration says so.
    pub fn anonymous(&self) -> Option<&AnonymousRule> {
        self.anonymous.as_ref()
    }

    /// The user of a token of one of the issuers. `None` if it is of none.
    ///
    /// # Errors
    /// Why it is not believed, in upstream's words.
    pub async fn user(&self, token: &str, now: i64) -> Option<Result<User, String>> {
        let parsed = ParsedToken::parse(token)?;
        let claimed = match parsed.claimed_issuer()?.as_str() {
            // An old name of the same issuer.
            "accounts.google.com" => "https://accounts.google.com".to_owned(),
            issuer => issuer.to_owned(),
        };
        let issuer = self
            .issuers
            .iter()
            .find(|issuer| issuer.config.url == claimed)?;
        Some(issuer.user(&parsed, now).await)
    }
}

impl TokenIssuer {
    async fn user(&self, token: &ParsedToken<'_>, now: i64) -> Result<User, String> {
        let verify = |why: &str| format!("oidc: verify token: {why}");
        let claims = self.claims(token).await?;
        let known: KnownClaims = serde_json::from_value(Value::Object(claims.clone()))
            .map_err(|_| verify("oidc: failed to unmarshal claims"))?;
        let is_same =
            known.iss == self.config.url || format!("https://{}", known.iss) == self.config.url;
        if !is_same {
            return Err(verify(&format!(
                "oidc: id token issued by a different provider, expected {:?} got {:?}",
                self.config.url, known.iss
            )));
        }
        let Some(expires) = known.times.exp else {
            return Err(verify(
                "oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)",
            ));
        };
        if now as f64 > expires.0 {
            return Err(verify("oidc: token is expired"));
        }
        if known
            .times
            .nbf
            .is_some_and(|from| ((now + AHEAD_SECONDS_MAX) as f64) < from.0)
        {
            return Err(verify(
                "oidc: current time before the nbf (not before) time",
            ));
        }
        let wanted = &self.config.audiences;
        if !wanted.iter().any(|audience| known.aud.0.contains(audience)) {
            let why = format!(
                "oidc: expected audience in {} got {}",
                quoted(wanted),
                quoted(&known.aud.0)
            );
            return Err(verify(&why));
        }
        self.config.mappings.user(&claims)
    }

    /// The claims of a token, if the issuer has signed it.
    async fn claims(&self, token: &ParsedToken<'_>) -> Result<Map<String, Value>, String> {
        let failed = |why: &str| format!("oidc: verify token: failed to verify signature: {why}");
        let IssuerKeys::Read {
            service,
            current,
            reading,
        } = &self.keys
        else {
            let IssuerKeys::Given(keys) = &self.keys else {
                return Err(failed("no keys"));
            };
            return token.verify(keys).map_err(failed);
        };
        let known = || {
            current
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        };
        let is_fresh =
            |known: &ReadKeys| known.at.is_some_and(|at| at.elapsed() < READ_AGAIN_AFTER);
        let has_key = |known: &ReadKeys| {
            let named = token.claimed_key();
            !known.keys.is_empty()
                && (named.is_empty() || known.keys.iter().any(|key| key.id() == named))
        };
        let mut found = known();
        if !has_key(&found) && !is_fresh(&found) {
            let _turn = reading.lock().await;
            found = known();
            if !is_fresh(&found) {
                found = self.read(service, found.keys).await;
                *current.lock().unwrap_or_else(PoisonError::into_inner) = found.clone();
            }
        }
        match (&found.error, found.keys.is_empty()) {
            (Some(error), true) => Err(format!(
                "oidc: authenticator for issuer {:?} is not initialized: {error}",
                self.config.url
            )),
            _ => token.verify(&found.keys).map_err(failed),
        }
    }

    /// Reads the keys. Those before stay if that fails.
    async fn read(&self, service: &Webhook, before: Arc<[PublicKey]>) -> ReadKeys {
        let read = self.try_read(service).await;
        let (keys, error) = match read {
            Ok(keys) => (keys.into(), None),
            Err(error) => {
                tracing::warn!(issuer = self.config.url, %error, "the keys of an issuer cannot be read");
                (before, Some(error))
            }
        };
        ReadKeys {
            keys,
            at: Some(Instant::now()),
            error,
        }
    }

    async fn try_read(&self, service: &Webhook) -> Result<Vec<PublicKey>, String> {
        let url = match &self.config.discovery_url {
            Some(url) => url.clone(),
            None => format!(
                "{}/.well-known/openid-configuration",
                self.config.url.trim_end_matches('/')
            ),
        };
        let document: IssuerDocument = serde_json::from_slice(&get(service, &url).await?)
            .map_err(|_| format!("{url} is no configuration of an issuer"))?;
        if document.issuer != self.config.url {
            return Err(format!(
                "{url} is of the issuer {:?}, expected {:?}",
                document.issuer, self.config.url
            ));
        }
        if !document.jwks_uri.starts_with("https://") {
            return Err(format!("{url} names keys that are not at https://"));
        }
        let keys = get(service, &document.jwks_uri).await?;
        read_keys(&keys).map_err(|why| format!("{}: {why}", document.jwks_uri))
    }
}

async fn get(service: &Webhook, url: &str) -> Result<Vec<u8>, String> {
    let uri: Uri = url.parse().map_err(|_| format!("{url} is no URL"))?;
    let answer = service
        .get(uri, DEADLINE)
        .await
        .map_err(|error| error.to_string())?;
    match answer.code {
        200 => Ok(answer.body.to_vec()),
        code => Err(format!("{url} answered {code}")),
    }
}

fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| tidings_go::quote(text)).collect();
    format!("[{}]", texts.join(" "))
}
