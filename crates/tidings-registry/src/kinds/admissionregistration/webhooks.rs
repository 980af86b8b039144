//! The rules of the configurations of webhooks.

use tidings_admission::{WebhookKind, check_webhooks};
use tidings_api::FieldErrors;
use tidings_json::Value;

use crate::model::{Draft, Strategy, Subresource};

/// The rules of configurations of webhooks that change objects, or refuse them.
#[derive(Debug)]
pub(super) struct WebhooksStrategy(pub(super) WebhookKind);

impl Strategy for WebhooksStrategy {
    fn check(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let members = |draft: &Draft| Value::Object(draft.members.clone());
        let old = old.map(members);
        check_webhooks(self.0, &members(new), old.as_ref(), errors);
    }

    fn is_slow_to_check(&self) -> bool {
        true // conditions are compiled
    }
}
