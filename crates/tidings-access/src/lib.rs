#![doc = include_str!("../README.md")]

mod attributes;
mod authorizer;
mod covers;
mod defaults;
mod impersonation;
mod policy;
mod rule;
mod token_file;
mod user;
mod webhook;

pub use attributes::{Attributes, ResourceAttributes, ResourceOrPath};
pub use authorizer::{
    AuthorizationMode, Authorizer, Decision, Verdict, WebhookAnswer, authorize_by_rbac,
};
pub use covers::{check_escalation, covers_everything};
pub use defaults::{DefaultObject, default_objects, missing_rules, missing_subjects};
pub use impersonation::{Impersonated, ImpersonationRequest, Impersonator, impersonation_request};
pub use policy::{Policy, RoleNotFound, RoleReference};
pub use rule::PolicyRule;
pub use token_file::{TokenFile, TokenFileError};
pub use user::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODES, UNAUTHENTICATED, User, node, service_account,
    service_account_groups, service_account_user,
};
pub use webhook::{AccessQuestion, ReviewVersion, read_answer};
