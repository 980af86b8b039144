//! The options of `tidings serve` about tokens of service accounts and bootstrap tokens, under kube-apiserver's names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tidings_server::ServiceAccountOptions;
use tidings_server::identity::{PublicKey, SigningKey, public_keys};

use crate::units::parse_duration;

/// The shortest and the longest life that may be given as the longest one, as in kube-apiserver.
const LIFE_MAX_RANGE: std::ops::RangeInclusive<u64> = 3600..=1 << 32;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tokens of service accounts")]
pub(crate) struct ServiceAccountArguments {
    /// The private key, in PEM, that signs tokens of service accounts. Servers that share an etcd need the same one [default: pki/sa.key in the
    /// data directory, made at the first start]
    #[arg(long, value_name = "PATH")]
    service_account_signing_key_file: Option<PathBuf>,

    /// More keys, in PEM, whose tokens are believed; can be given several times
    #[arg(long, value_name = "PATH")]
    service_account_key_file: Vec<PathBuf>,

    /// The issuer in tokens; can be given several times, tokens of all are believed and new ones have the first
    #[arg(long, default_value = "https://kubernetes.default.svc", value_parser = parse_issuer, value_name = "URL")]
    service_account_issuer: Vec<String>,

    /// Where others find the keys that check tokens, if that is not on this server
    #[arg(long, value_parser = parse_https, value_name = "URL")]
    service_account_jwks_uri: Option<String>,

    /// The longest life of a token, at least 1h
    #[arg(long, value_parser = parse_life, value_name = "DURATION")]
    service_account_max_token_expiration: Option<Duration>,

    /// Tokens that a Pod asks for with 3607 seconds live a year, as kube-apiserver lets them
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    service_account_extend_token_expiration: bool,

    /// The audiences of the server, for one of which a token must be [default: the issuers]
    #[arg(long, value_delimiter = ',', value_name = "AUDIENCE,…")]
    api_audiences: Vec<String>,

    /// Believe bootstrap tokens: Secrets of the type bootstrap.kubernetes.io/token in kube-system
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    enable_bootstrap_token_auth: bool,
}

/// An issuer that is a URL is read by others: it must be one that they can read.
fn parse_issuer(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("write a URL, as https://kubernetes.default.svc".to_owned());
    }
    match text.contains("://") {
        true => parse_https(text),
        false if text.contains(':') => {
            Err("an issuer with a colon must be a URL that begins with https://".to_owned())
        }
        false => Ok(text.to_owned()),
    }
}

fn parse_https(text: &str) -> Result<String, String> {
    match text.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(text.to_owned()),
        _ => Err("write a URL that begins with https://".to_owned()),
    }
}

fn parse_life(text: &str) -> Result<Duration, String> {
    let life = parse_duration(text)?;
    match LIFE_MAX_RANGE.contains(&life.as_secs()) {
        true => Ok(life),
        false => Err("must be at least 1h and at most 2^32 seconds".to_owned()),
    }
}

impl ServiceAccountArguments {
    /// The issuers in tokens.
    pub(crate) fn issuers(&self) -> &[String] {
        &self.service_account_issuer
    }

    /// Reads the keys. Without a signing key, the caller says which one is used.
    pub(crate) fn options(&self) -> anyhow::Result<ServiceAccountOptions> {
        let mut options = ServiceAccountOptions::default();
        options.issuers.clone_from(&self.service_account_issuer);
        options.audiences.clone_from(&self.api_audiences);
        options.life_max = self.service_account_max_token_expiration;
        options.extend = self.service_account_extend_token_expiration;
        options.keys_at.clone_from(&self.service_account_jwks_uri);
        options.bootstrap_tokens = self.enable_bootstrap_token_auth;
        if let Some(path) = &self.service_account_signing_key_file {
            let key = signing_key(path);
            let key = key.context("--service-account-signing-key-file cannot be used")?;
            options.signing_key = Some(key);
        }
        for path in &self.service_account_key_file {
            let keys = keys(path).context("--service-account-key-file cannot be used")?;
            options.keys.extend(keys);
        }
        if options.audiences.iter().any(String::is_empty) {
            bail!("--api-audiences has an empty audience: remove the comma too much");
        }
        Ok(options)
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
}

fn signing_key(path: &Path) -> anyhow::Result<SigningKey> {
    let key = SigningKey::from_pem(&read(path)?);
    key.with_context(|| format!("{} has no usable key", path.display()))
}

fn keys(path: &Path) -> anyhow::Result<Vec<PublicKey>> {
    let keys = public_keys(&read(path)?);
    keys.with_context(|| format!("{} has no usable key", path.display()))
}
