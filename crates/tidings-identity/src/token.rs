//! JSON Web Tokens in their compact form, with a signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::key::{Algorithm, KeyError, PublicKey, SigningKey};

/// The longest token that is looked at. Headers of requests are bounded too.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Clocks may differ by this much.
pub(crate) const LEEWAY_SECONDS: i64 = 60;

/// A token that was taken apart. Its signature is not checked yet.
#[derive(Clone, Copy)]
pub struct ParsedToken<'t> {
    token: &'t str,
    header: &'t str,
    payload: &'t str,
    signature: &'t str,
}

/// What a header says.
#[derive(Debug, Deserialize)]
struct Header {
    alg: Algorithm,
    #[serde(default)]
    kid: String,
    /// What must be understood. Nothing is.
    crit: Option<Value>,
}

fn decode(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

impl<'t> ParsedToken<'t> {
    /// Takes a token apart. `None` if it is no JSON Web Token in compact form.
    pub fn parse(token: &'t str) -> Option<ParsedToken<'t>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let mut parts = token.split('.');
        let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
        parts.next().is_none().then_some(ParsedToken {
            token,
            header,
            payload,
            signature,
        })
    }

    /// The token.
    pub fn text(&self) -> &'t str {
        self.token
    }

    /// The issuer that the token claims. Nobody has checked it.
    pub fn claimed_issuer(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Issuer {
            iss: String,
        }
        let payload = decode(self.payload)?;
        let claimed: Issuer = serde_json::from_slice(&payload).ok()?;
        Some(claimed.iss)
    }

    /// The name of the key that the token claims; empty if it names none.
    pub fn claimed_key(&self) -> String {
        let header = decode(self.header).unwrap_or_default();
        let header: Option<Header> = serde_json::from_slice(&header).ok();
        header.map(|header| header.kid).unwrap_or_default()
    }

    /// The claims, if one of the keys has signed them.
    ///
    /// # Errors
    /// If none has, or the claims cannot be read.
    pub fn verify<C: DeserializeOwned>(&self, keys: &[PublicKey]) -> Result<C, &'static str> {
        let header = decode(self.header).ok_or("the header of the token is not in base64")?;
        let header: Header = serde_json::from_slice(&header)
            .map_err(|_| "the header of the token names no algorithm that is known")?;
        if header.crit.is_some() {
            return Err("the token has critical headers, which are not known");
        }
        let signature =
            decode(self.signature).ok_or("the signature of the token is not in base64")?;
        let signed = &self.token[..self.header.len() + 1 + self.payload.len()];
        let meant = |key: &&PublicKey| header.kid.is_empty() || key.id() == header.kid;
        let mut meant = keys.iter().filter(meant).peekable();
        if meant.peek().is_none() {
            return Err("invalid signature, no keys found");
        }
        if !meant.any(|key| key.verifies(header.alg, signed.as_bytes(), &signature)) {
            return Err("error in cryptographic primitive");
        }
        let payload = decode(self.payload).ok_or("the claims of the token are not in base64")?;
        serde_json::from_slice(&payload).map_err(|_| "the claims of the token cannot be read")
    }
}

/// Signs claims.
///
/// # Errors
/// If the key cannot sign.
pub fn sign(claims: &Value, key: &SigningKey) -> Result<String, KeyError> {
    let public = key.public();
    let header = json!({ "alg": public.algorithm().name(), "kid": public.id() });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// Times of a token, in seconds since 1970. Fractions are cut off.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct TokenTimes {
    /// When it expires.
    pub exp: Option<NumericDate>,
    /// From when on it is valid.
    pub nbf: Option<NumericDate>,
    /// When it was made.
    pub iat: Option<NumericDate>,
}

/// A number of seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
pub struct NumericDate(pub f64);

impl TokenTimes {
    /// What is wrong with the times, in upstream's words after `service account token `.
    pub fn check(&self, now: i64) -> Result<(), &'static str> {
        let (now, leeway) = (now as f64, LEEWAY_SECONDS as f64);
        if self.nbf.is_some_and(|nbf| now + leeway < nbf.0) {
            return Err("is not valid yet");
        }
        if self.exp.is_some_and(|exp| now - leeway > exp.0) {
            return Err("has expired");
        }
        if self.iat.is_some_and(|iat| now + leeway < iat.0) {
            return Err("is issued in the future");
        }
        Ok(())
    }
}

/// The audiences of a token: one text or several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "OneOrMany")]
pub struct Audiences(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Audiences {
    fn from(given: OneOrMany) -> Audiences {
        match given {
            OneOrMany::One(audience) => Audiences(vec![audience]),
            OneOrMany::Many(audiences) => Audiences(audiences),
        }
    }
}
