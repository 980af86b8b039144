//! Checks configurations when they are written, in upstream's words.

mod parts;
mod webhooks;

pub use webhooks::{WebhookKind, check_webhooks};
