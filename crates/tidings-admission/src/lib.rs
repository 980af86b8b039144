#![doc = include_str!("../README.md")]

mod check;
mod condition;
mod conversion;
mod form;
mod matching;
mod mutation;
mod policy;
mod request;
mod review;
mod rule;
mod webhook;

pub use check::{
    WebhookKind, check_binding, check_mutating_binding, check_mutating_policy, check_policy,
    check_webhooks,
};
pub use condition::{Conditions, MATCH_COST_MAX, MatchVerdict, Variables};
pub use conversion::{ConversionFailure, ConversionProblem, ConversionReview, WebhookConversion};
pub use form::{FailurePolicy, MatchPolicy, NotReadable};
pub use matching::MatchResources;
pub use mutation::{Change, MutatingPolicy};
pub use policy::{
    Decision, MissingParams, ParamRef, Policy, PolicyBase, PolicyBinding, Verdict as PolicyVerdict,
};
pub use request::{AdmissionRequest, Operation, ResourceKind};
pub use review::{Review, ReviewAnswer, ReviewVersion};
pub use rule::Rule;
pub use webhook::{ClientConfig, Service, SideEffects, Webhook, WebhookConfiguration};
