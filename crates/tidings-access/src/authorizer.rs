//! Decisions: what the modes of authorisation say, one after the other.

use std::fmt;
use std::str::FromStr;

use crate::attributes::Attributes;
use crate::policy::{Policy, aggregate};
use crate::rule::PolicyRule;
use crate::user::User;

/// What a mode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The user may.
    Allow,
    /// The user may not, whatever later modes would say.
    Deny,
    /// This mode does not know; if none does, the user may not.
    NoOpinion,
}

/// A decision, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// Why, for people; may be empty.
    pub reason: String,
    /// What went wrong while it was decided; empty if nothing did. A request that is not allowed then fails instead of being refused.
    pub error: String,
}

impl Verdict {
    fn new(decision: Decision, reason: impl Into<String>) -> Verdict {
        Verdict {
            decision,
            reason: reason.into(),
            error: String::new(),
        }
    }

    /// True if the user may.
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }
}

/// A way to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthorizationMode {
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody may do anything.
    AlwaysDeny,
    /// By roles and bindings.
    Rbac,
    /// By a service that is asked.
    Webhook,
}

/// What a webhook has answered to a question. `None`: it was not asked yet; the decision is provisional then, and to be made again.
pub type WebhookAnswer<'a> = &'a dyn Fn(&Attributes<'_>) -> Option<Verdict>;

impl fmt::Display for AuthorizationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthorizationMode::AlwaysAllow => "AlwaysAllow",
            AuthorizationMode::AlwaysDeny => "AlwaysDeny",
            AuthorizationMode::Rbac => "RBAC",
            AuthorizationMode::Webhook => "Webhook",
        })
    }
}

impl FromStr for AuthorizationMode {
    type Err = String;

    fn from_str(text: &str) -> Result<AuthorizationMode, String> {
        match text {
            "AlwaysAllow" => Ok(AuthorizationMode::AlwaysAllow),
            "AlwaysDeny" => Ok(AuthorizationMode::AlwaysDeny),
            "RBAC" => Ok(AuthorizationMode::Rbac),
            "Webhook" => Ok(AuthorizationMode::Webhook),
            "Node" | "ABAC" => Err(format!(
                "{text} is not built: choose from AlwaysAllow, AlwaysDeny, RBAC and Webhook"
            )),
            _ => Err(
                "choose from AlwaysAllow, AlwaysDeny, RBAC and Webhook, several with commas".into(),
            ),
        }
    }
}

/// Decides by several modes: the first that allows or denies counts. Members of `system:masters` may do everything.
#[derive(Debug, Clone)]
pub struct Authorizer {
    modes: Vec<AuthorizationMode>,
}

impl Authorizer {
    /// An authorizer with these modes.
    pub fn new(modes: Vec<AuthorizationMode>) -> Authorizer {
        Authorizer { modes }
    }

    /// True if a mode is among those that decide.
    pub fn has(&self, mode: AuthorizationMode) -> bool {
        self.modes.contains(&mode)
    }

    /// True if the user may, without saying why.
    pub fn allows(
        &self,
        policy: &Policy,
        asked: &Attributes<'_>,
        webhook: WebhookAnswer<'_>,
    ) -> bool {
        match self.modes.as_slice() {
            _ if asked.user.is_master() => true,
            [AuthorizationMode::Rbac] => policy.allows(asked),
            _ => self.authorize(policy, asked, webhook).is_allowed(),
        }
    }

    /// Decides.
    pub fn authorize(
        &self,
        policy: &Policy,
        asked: &Attributes<'_>,
        webhook: WebhookAnswer<'_>,
    ) -> Verdict {
        if asked.user.is_master() {
            return Verdict::new(Decision::Allow, "");
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for mode in &self.modes {
            let verdict = match mode {
                AuthorizationMode::AlwaysAllow => Verdict::new(Decision::Allow, ""),
                AuthorizationMode::AlwaysDeny => {
                    Verdict::new(Decision::NoOpinion, "Everything is forbidden.")
                }
                AuthorizationMode::Rbac => authorize_by_rbac(policy, asked),
                AuthorizationMode::Webhook => match webhook(asked) {
                    Some(verdict) => verdict,
                    None => return Verdict::new(Decision::NoOpinion, ""),
                },
            };
            if verdict.decision != Decision::NoOpinion {
                return verdict;
            }
            reasons.push(verdict.reason);
            errors.push(verdict.error);
        }
        reasons.retain(|reason| !reason.is_empty());
        errors.retain(|error| !error.is_empty());
        Verdict {
            decision: Decision::NoOpinion,
            reason: reasons.join("\n"),
            error: match errors.is_empty() {
                true => String::new(),
                false => aggregate(&errors),
            },
        }
    }

    /// The rules of a user in a namespace, and what could not be found out.
    pub fn rules_for(
        &self,
        policy: &Policy,
        user: &User,
        namespace: &str,
    ) -> (Vec<PolicyRule>, Option<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        let all = || vec!["*".to_owned()];
        for mode in &self.modes {
            match mode {
                AuthorizationMode::AlwaysAllow => rules.extend([
                    PolicyRule {
                        verbs: all(),
                        api_groups: all(),
                        resources: all(),
                        ..PolicyRule::default()
                    },
                    PolicyRule {
                        verbs: all(),
                        paths: all(),
                        ..PolicyRule::default()
                    },
                ]),
                AuthorizationMode::AlwaysDeny => {}
                AuthorizationMode::Rbac => {
                    let (held, missing) = policy.rules_for(user, namespace);
                    rules.extend(held);
                    errors.extend(missing.iter().map(ToString::to_string));
                }
                AuthorizationMode::Webhook => errors
                    .push("webhook authorizer does not support user rule resolution".to_owned()),
            }
        }
        let error = (!errors.is_empty()).then(|| aggregate(&errors));
        (rules, error)
    }
}

/// Decides by roles and bindings alone.
pub fn authorize_by_rbac(policy: &Policy, asked: &Attributes<'_>) -> Verdict {
    match policy.allowed_by(asked) {
        Ok(binding) => Verdict::new(Decision::Allow, format!("RBAC: allowed by {binding}")),
        Err(missing) if missing.is_empty() => Verdict::new(Decision::NoOpinion, ""),
        Err(missing) => {
            let reason = format!("RBAC: {}", aggregate(&missing));
            Verdict::new(Decision::NoOpinion, reason)
        }
    }
}
