//! What expressions ask: whether a user may do something.

use std::sync::Arc;

use tidings_access::{Attributes, Decision, ResourceOrPath, User};
use tidings_structural::{AccessCheck, CelAuthorizer, CelDecision};

use super::super::access::Access;
use super::super::webhook_authorizer::AccessAnswers;
use super::Admitting;

/// Decides what expressions ask, by the modes of authorisation of the server.
pub(super) struct Authorizing {
    access: Arc<Access>,
    answers: Option<Arc<AccessAnswers>>,
    user: User,
}

impl Authorizing {
    pub(super) fn new(admitting: &Admitting<'_>) -> Authorizing {
        Authorizing {
            access: admitting.context.access.clone(),
            answers: admitting.answers.clone(),
            user: admitting.request.user.clone(),
        }
    }
}

impl CelAuthorizer for Authorizing {
    fn decide(&self, check: &AccessCheck) -> CelDecision {
        let account = check.service_account.as_ref();
        let account = account.map(|(namespace, name)| service_account(namespace, name));
        let user = account.as_ref().unwrap_or(&self.user);
        let asked = match &check.path {
            Some(path) => Attributes {
                user,
                verb: check.verb.as_str().into(),
                on: ResourceOrPath::Path(path.as_str().into()),
            },
            None => {
                let mut asked =
                    Attributes::resource(user, &check.verb, &check.group, &check.resource)
                        .in_namespace(&check.namespace)
                        .named(&check.name);
                if let ResourceOrPath::Resource(on) = &mut asked.on {
                    on.version = "*".into();
                    on.subresource = check.subresource.as_str().into();
                    on.field_selector = check.field_selector.as_deref().unwrap_or("").into();
                    on.label_selector = check.label_selector.as_deref().unwrap_or("").into();
                }
                asked
            }
        };
        let verdict = self.access.with(self.answers.as_deref()).authorize(&asked);
        CelDecision {
            allowed: verdict.decision == Decision::Allow,
            error: (!verdict.error.is_empty()).then_some(verdict.error),
            reason: verdict.reason,
        }
    }
}

/// A service account as it would ask.
fn service_account(namespace: &str, name: &str) -> User {
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: groups.to_vec(),
        ..User::default()
    }
}

/// What `authorizer.requestResource` asks about.
pub(super) fn request_resource(admitting: &Admitting<'_>) -> AccessCheck {
    let request = &admitting.request;
    AccessCheck {
        group: request.on.group.clone(),
        resource: request.on.resource.clone(),
        subresource: request.subresource.to_owned(),
        namespace: request.namespace.to_owned(),
        name: request.name.to_owned(),
        ..AccessCheck::default()
    }
}
