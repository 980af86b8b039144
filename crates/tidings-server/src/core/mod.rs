//! The API server without HTTP: typed commands on resources that the edge has found.
//!
//! A [`Call`] has a target, a user and a field manager; a [`Command`] says what to do with the target. [`Core::perform`] performs the command
//! and returns an [`Answer`]. All writes go through [`Resource::commit`]; reads come from caches.

mod access;
mod admission;
mod answer;
mod apply;
mod authentication;
mod backup;
mod binding;
mod call;
mod certificates;
mod client_certificate;
pub(crate) mod clock;
mod command;
mod continue_token;
mod counts;
mod create;
mod credentials_error;
mod delete;
mod edit;
mod eviction;
mod failure;
mod flow_control;
mod get;
mod identify;
mod list;
mod long_work;
mod names;
mod namespaces;
mod patch;
mod perform;
mod plugins;
mod policy_index;
mod quotas;
mod resource;
mod review;
mod rewrite;
mod served;
mod service_accounts;
mod state;
mod target;
mod token_request;
mod update;
mod walk;
mod watch;
mod watch_limits;
mod webhook_authorizer;

pub(crate) use access::{Decider, admin};
pub use admission::ServiceResolver;
pub(crate) use admission::{AdmissionCounts, SentOptions};
pub(crate) use answer::{Answer, ListHead, ObjectOutcome, OpenWatch};
pub use authentication::{Authentication, Credentials};
pub(crate) use backup::BackupPages;
pub(crate) use call::Call;
pub(crate) use certificates::CLIENT_SIGNER;
pub(crate) use client_certificate::ShownCertificate;
pub(crate) use command::Command;
#[cfg(feature = "fuzzing")]
pub(crate) use continue_token::ContinueToken;
pub use credentials_error::CredentialsError;
pub(crate) use delete::{DeleteOptions, Preconditions, PropagationPolicy};
pub(crate) use flow_control::{FlowControl, FlowFigures, FlowIds, FlowPermit};
pub(crate) use list::{ListCommand, parse_version};
pub(crate) use long_work::do_long_work;
pub(crate) use policy_index::RBAC;
pub(crate) use resource::{Resource, ResourceId};
pub(crate) use served::{CustomResource, ServedSet};
pub use service_accounts::ServiceAccountOptions;
pub(crate) use service_accounts::ServiceAccounts;
pub(crate) use state::{Core, CoreOptions};
pub(crate) use target::Target;
pub(crate) use walk::{ListItems, SnapshotWalk};
pub(crate) use watch::{WatchCommand, too_old};
pub use watch_limits::WatchLimits;
pub use webhook_authorizer::AuthorizationWebhook;
