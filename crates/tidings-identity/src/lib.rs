#![doc = include_str!("../README.md")]

mod bootstrap;
mod discovery;
mod key;
mod same;
mod service_account;
mod token;

pub use bootstrap::{BOOTSTRAP_NAMESPACE, BootstrapSecret, bootstrap_secret, bootstrap_user};
pub use discovery::{JWKS_PATH, OPENID_PATH, openid_configuration, web_keys};
pub use key::{Algorithm, JsonWebKey, JsonWebKeySet, KeyError, PublicKey, SigningKey, public_keys};
pub use same::is_same_secret;
pub use service_account::{
    AccountClaims, AccountTokens, ObjectRef, SignedToken, TokenIssuer, TokenObject,
    TokenObjectKind, TokenObjects, TokenUser, intersection,
};
pub use token::{Audiences, NumericDate, ParsedToken, TokenTimes, sign};
