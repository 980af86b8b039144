//! Checks configurations when they are written, in upstream's words.

mod parts;
mod policies;
mod webhooks;

pub use policies::{check_binding, check_mutating_binding, check_mutating_policy, check_policy};
pub use webhooks::{WebhookKind, check_webhooks};
