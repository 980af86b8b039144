//! What others need to check tokens of service accounts: the keys, and where they are.

use serde::Serialize;

use crate::key::{JsonWebKeySet, PublicKey};

/// The path of the keys.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// The path of the configuration.
pub const OPENID_PATH: &str = "/.well-known/openid-configuration";

/// The members that OpenID asks for, of those that Kubernetes serves.
#[derive(Serialize)]
struct OpenIdConfiguration<'a> {
    issuer: &'a str,
    jwks_uri: &'a str,
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: Vec<&'static str>,
}

/// The configuration of an issuer whose keys are at a URL, as JSON. `None` if OpenID does not allow such an issuer: others cannot find it, and
/// nothing is served.
pub fn openid_configuration(issuer: &str, keys_at: &str, keys: &[PublicKey]) -> Option<Vec<u8>> {
    let is_right = issuer.starts_with("https://") && !issuer.contains(['?', '#']);
    if !is_right || keys.is_empty() || !keys_at.starts_with("https://") {
        return None;
    }
    let mut algorithms: Vec<&str> = keys.iter().map(|key| key.algorithm().name()).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    serde_json::to_vec(&OpenIdConfiguration {
        issuer,
        jwks_uri: keys_at,
        response_types_supported: ["id_token"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: algorithms,
    })
    .ok()
}

/// The keys as a JSON Web Key Set.
pub fn web_keys(keys: &[PublicKey]) -> Vec<u8> {
    let set = JsonWebKeySet {
        keys: keys.iter().map(PublicKey::to_jwk).collect(),
    };
    serde_json::to_vec(&set).unwrap_or_default()
}
