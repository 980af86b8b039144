//! The variable `authorizer`: expressions ask what a user may do.

use std::fmt;
use std::sync::Arc;

use tidings_api::validate;

use super::decl::{DeclType, TypeKind};

pub(super) const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
pub(super) const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
const DECISION: &str = "kubernetes.authorization.Decision";
/// The member of `authorizer` that asks about the object of the request.
pub(super) const REQUEST_RESOURCE: &str = "requestResource";
/// What asking costs, as upstream counts it.
const CHECK_COST: u64 = 350_000;

/// Decides what expressions ask.
pub trait CelAuthorizer: Send + Sync {
    /// Decides one question.
    fn decide(&self, check: &AccessCheck) -> CelDecision;
}

/// What an expression asks: whether somebody may do something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessCheck {
    /// The namespace and name of the service account that is asked about; `None`: the user of the request.
    pub service_account: Option<(String, String)>,
    /// The path, if the question is not about a resource.
    pub path: Option<String>,
    /// The group of the resource.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The part of the object; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// What is to be done.
    pub verb: String,
    /// Which objects, by fields.
    pub field_selector: Option<String>,
    /// Which objects, by labels.
    pub label_selector: Option<String>,
}

/// What was decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CelDecision {
    /// True if it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// Why it could not be decided.
    pub error: Option<String>,
}

/// A value of one of the types of authorisation.
#[derive(Clone)]
pub(crate) struct Access {
    authorizer: Arc<dyn CelAuthorizer>,
    /// What `authorizer.requestResource` asks about.
    request: Arc<AccessCheck>,
    step: AccessStep,
    check: AccessCheck,
}

#[derive(Clone)]
enum AccessStep {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision(CelDecision),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}

impl Access {
    pub(super) fn new(authorizer: Arc<dyn CelAuthorizer>, request: Arc<AccessCheck>) -> Access {
        Access {
            authorizer,
            request,
            step: AccessStep::Authorizer,
            check: AccessCheck::default(),
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self.step {
            AccessStep::Authorizer => AUTHORIZER,
            AccessStep::Path => PATH_CHECK,
            AccessStep::Group => GROUP_CHECK,
            AccessStep::Resource => RESOURCE_CHECK,
            AccessStep::Decision(_) => DECISION,
        }
    }

    /// The member `requestResource`; `None` if there is none.
    pub(super) fn member(&self, name: &str) -> Option<Access> {
        let has = matches!(self.step, AccessStep::Authorizer) && name == REQUEST_RESOURCE;
        has.then(|| Access {
            step: AccessStep::Resource,
            check: AccessCheck {
                service_account: self.check.service_account.clone(),
                ..(*self.request).clone()
            },
            ..self.clone()
        })
    }

    /// Calls a function of the value. `None` if it has no such function.
    pub(super) fn call(&self, name: &str, args: &[&str]) -> Option<Result<AccessAnswer, String>> {
        if let AccessStep::Decision(decision) = &self.step {
            return match (name, args) {
                ("allowed", []) => Some(Ok(AccessAnswer::Bool(decision.allowed))),
                ("errored", []) => Some(Ok(AccessAnswer::Bool(decision.error.is_some()))),
                ("reason", []) => Some(Ok(AccessAnswer::Text(decision.reason.clone()))),
                ("error", []) => {
                    let error = decision.error.clone();
                    Some(Ok(AccessAnswer::Text(error.unwrap_or_default())))
                }
                _ => None,
            };
        }
        let mut next = self.clone();
        let check = &mut next.check;
        match (&self.step, name, args) {
            (AccessStep::Authorizer, "path", [path]) => {
                check.path = Some((*path).to_owned());
                next.step = AccessStep::Path;
            }
            (AccessStep::Authorizer, "group", [group]) => {
                (*group).clone_into(&mut check.group);
                next.step = AccessStep::Group;
            }
            (AccessStep::Authorizer, "serviceAccount", [namespace, name]) => {
                if !validate::dns1123_subdomain(name).is_empty() {
                    return Some(Err("Invalid service account name".to_owned()));
                }
                if !validate::dns1123_label(namespace).is_empty() {
                    return Some(Err("Invalid service account namespace".to_owned()));
                }
                check.service_account = Some(((*namespace).to_owned(), (*name).to_owned()));
            }
            (AccessStep::Group, "resource", [resource]) => {
                (*resource).clone_into(&mut check.resource);
                next.step = AccessStep::Resource;
            }
            (AccessStep::Resource, "subresource", [part]) => {
                (*part).clone_into(&mut check.subresource);
            }
            (AccessStep::Resource, "namespace", [namespace]) => {
                (*namespace).clone_into(&mut check.namespace);
            }
            (AccessStep::Resource, "name", [name]) => (*name).clone_into(&mut check.name),
            (AccessStep::Resource, "fieldSelector", [selector]) => {
                check.field_selector = Some((*selector).to_owned());
            }
            (AccessStep::Resource, "labelSelector", [selector]) => {
                check.label_selector = Some((*selector).to_owned());
            }
            (AccessStep::Path | AccessStep::Resource, "check", [verb]) => {
                (*verb).clone_into(&mut check.verb);
                next.step = AccessStep::Decision(self.authorizer.decide(check));
            }
            _ => return None,
        }
        Some(Ok(AccessAnswer::Access(Arc::new(next))))
    }
}

/// The result of a function.
pub(super) enum AccessAnswer {
    Access(Arc<Access>),
    Bool(bool),
    Text(String),
}

/// The result type of a function of one of the types; `None` if it has no such function.
pub(super) fn result(target: &str, name: &str, args: usize) -> Option<Arc<DeclType>> {
    let opaque = |name: &'static str| Some(TypeKind::Opaque(name).plain());
    match (target, name, args) {
        (AUTHORIZER, "path", 1) => opaque(PATH_CHECK),
        (AUTHORIZER, "group", 1) => opaque(GROUP_CHECK),
        (AUTHORIZER, "serviceAccount", 2) => opaque(AUTHORIZER),
        (GROUP_CHECK, "resource", 1)
        | (
            RESOURCE_CHECK,
            "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector",
            1,
        ) => opaque(RESOURCE_CHECK),
        (PATH_CHECK | RESOURCE_CHECK, "check", 1) => opaque(DECISION),
        (DECISION, "allowed" | "errored", 0) => Some(TypeKind::Bool.plain()),
        (DECISION, "reason" | "error", 0) => Some(TypeKind::String.plain()),
        _ => None,
    }
}

/// True for the types of this file.
pub(super) fn is_type(name: &str) -> bool {
    name.starts_with("kubernetes.authorization.")
}

/// The functions of the types of this file.
pub(super) const FUNCTIONS: [&str; 14] = [
    "path",
    "group",
    "serviceAccount",
    "resource",
    "subresource",
    "namespace",
    "name",
    "fieldSelector",
    "labelSelector",
    "check",
    "allowed",
    "errored",
    "reason",
    "error",
];

/// What a call costs.
pub(super) fn cost(name: &str) -> u64 {
    match name {
        "check" => CHECK_COST,
        _ => 1,
    }
}
