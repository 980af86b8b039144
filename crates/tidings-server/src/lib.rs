#![doc = include_str!("../README.md")]

mod controllers;
mod core;
mod edge;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod pki;
mod serving;
mod signer;

pub use crate::core::{
    Authentication, AuthorizationWebhook, Credentials, CredentialsError, ServiceAccountOptions,
    ServiceResolver, WatchLimits,
};
pub use controllers::{ControllerError, ControllerSet};
pub use edge::{
    Api, ApiOptions, AuditDelivery, AuditFileOptions, AuditLog, AuditMode, AuditWebhookOptions,
    Listener, ResponseBody, StartError,
};
pub use pki::{Pki, PkiError};
pub use serving::{ServerNames, ServingCertificates, ServingError};
pub use signer::{ClientSigner, SignerError};
pub use tidings_access::{AuthorizationMode, ReviewVersion};
pub use tidings_audit::AuditPolicy;
pub use tidings_config::{ConfigError, ConfigFile, FollowedFile};
pub use tidings_identity as identity;
pub use tidings_oidc::read_keys;
pub use tidings_plugins::{PluginError, PluginSet};
pub use tidings_registry::{lifetimes, store_prefixes};
pub use tidings_webhook::Webhook;
