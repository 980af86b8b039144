//! Authorisation: who may do what, and who may grant it.

use std::sync::{Arc, LazyLock};

use tidings_access::{
    ANONYMOUS, Attributes, AuthorizationMode, Authorizer, Impersonated, ImpersonationRequest,
    Impersonator, MASTERS, Policy, PolicyRule, RoleReference, User, Verdict, check_escalation,
    covers_everything,
};
use tidings_api::{Status, validate};
use tidings_go::quote;
use tidings_json::Value;
use tidings_registry::Draft;

use super::policy_index::{PolicyIndex, RBAC};
use super::served::ServedSet;
use super::target::Target;
use super::webhook_authorizer::{AccessAnswers, AuthorizationWebhook, WebhookAuthorizer};

/// The user of the administrator's token, of the server's own controllers, and of every request to a server that trusts everybody.
static ADMIN: LazyLock<Arc<User>> =
    LazyLock::new(|| Arc::new(User::new("admin", &[MASTERS]).authenticated()));

/// The administrator.
pub(crate) fn admin() -> Arc<User> {
    ADMIN.clone()
}

/// Decides who may do what, by the modes of authorisation and the roles and bindings in the caches.
pub(crate) struct Access {
    authorizer: Authorizer,
    index: PolicyIndex,
    impersonator: Impersonator,
    webhook: Option<WebhookAuthorizer>,
}

/// Decides, with what the webhook has answered so far to the questions of a request.
pub(crate) struct Decider<'a> {
    access: &'a Access,
    answers: Option<&'a AccessAnswers>,
}

impl Access {
    pub(crate) fn new(
        modes: Vec<AuthorizationMode>,
        webhook: Option<AuthorizationWebhook>,
        served: &ServedSet,
    ) -> Access {
        Access {
            webhook: webhook
                .filter(|_| modes.contains(&AuthorizationMode::Webhook))
                .map(WebhookAuthorizer::new),
            authorizer: Authorizer::new(modes),
            index: PolicyIndex::new(served),
            impersonator: Impersonator::default(),
        }
    }

    /// False for an anonymous user where everybody may do everything.
    pub(crate) fn knows_everybody(&self, user: &User) -> bool {
        user.name != ANONYMOUS || !self.authorizer.has(AuthorizationMode::AlwaysAllow)
    }

    /// True if roles and bindings decide.
    pub(crate) fn has_rbac(&self) -> bool {
        self.authorizer.has(AuthorizationMode::Rbac)
    }

    /// The roles and bindings, if they decide.
    fn policy(&self) -> Arc<Policy> {
        match self.has_rbac() {
            true => self.index.current(),
            false => Arc::default(),
        }
    }

    /// Room for the answers of the webhook to one request. `None` if there is no webhook.
    pub(super) fn answers(&self) -> Option<Arc<AccessAnswers>> {
        self.webhook.as_ref().map(|_| Arc::default())
    }

    /// Decides with these answers of the webhook.
    pub(crate) fn with<'a>(&'a self, answers: Option<&'a AccessAnswers>) -> Decider<'a> {
        Decider {
            access: self,
            answers,
        }
    }

    /// True if a webhook may have to be asked for a decision.
    pub(crate) fn asks_webhook(&self) -> bool {
        self.webhook.is_some()
    }

    /// Asks the webhook what has no answer yet. False if there is nothing to ask.
    pub(super) async fn complete(&self, answers: &AccessAnswers) -> bool {
        match &self.webhook {
            Some(webhook) => answers.complete(webhook).await,
            None => false,
        }
    }

    /// Decides, as often as it takes until the webhook has answered all questions.
    pub(crate) async fn decide<T>(&self, decide: impl Fn(&Decider<'_>) -> T) -> T {
        let Some(webhook) = &self.webhook else {
            return decide(&self.with(None));
        };
        let answers = AccessAnswers::default();
        loop {
            let decided = decide(&self.with(Some(&answers)));
            if !Box::pin(answers.complete(webhook)).await {
                return decided;
            }
        }
    }

    /// The rules of a user in a namespace, and what could not be found out.
    pub(crate) fn rules_for(
        &self,
        user: &User,
        namespace: &str,
    ) -> (Vec<PolicyRule>, Option<String>) {
        self.authorizer.rules_for(&self.policy(), user, namespace)
    }
}

impl Decider<'_> {
    /// Decides.
    pub(crate) fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
        let answer = |asked: &Attributes<'_>| self.answers?.find(asked);
        let authorizer = &self.access.authorizer;
        match asked.user.is_master() {
            // Asked most: the administrator and the server's own programs.
            true => authorizer.authorize(&Policy::default(), asked, &answer),
            false => authorizer.authorize(&self.access.policy(), asked, &answer),
        }
    }

    /// True if the user may, without saying why.
    pub(crate) fn allows(&self, asked: &Attributes<'_>) -> bool {
        let answer = |asked: &Attributes<'_>| self.answers?.find(asked);
        let Access { authorizer, .. } = self.access;
        asked.user.is_master() || authorizer.allows(&self.access.policy(), asked, &answer)
    }

    /// Refuses what the user may not do (W54).
    pub(crate) fn check(&self, asked: &Attributes<'_>) -> Result<(), Status> {
        if self.allows(asked) {
            return Ok(());
        }
        let verdict = self.authorize(asked);
        match verdict.error.is_empty() {
            true => Err(asked.forbidden(&verdict.reason)),
            false => Err(Status::internal(verdict.error)),
        }
    }

    /// Refuses an update or apply that would create the object if the user may not create it.
    pub(crate) fn check_create(&self, user: &User, target: &Target) -> Result<(), Status> {
        let kind = &target.kind;
        let asked = Attributes::resource(user, "create", &kind.group, &kind.plural)
            .in_namespace(target.key.namespace())
            .named(target.key.name());
        self.check(&asked)
    }

    /// The user that a request wants to act as, if the one who asks may.
    pub(crate) fn impersonate(
        &self,
        wanted: &ImpersonationRequest,
        asked: &Attributes<'_>,
    ) -> Result<Impersonated, Status> {
        let authorize = |asked: &Attributes<'_>| self.authorize(asked);
        let impersonator = &self.access.impersonator;
        impersonator.impersonate(&authorize, wanted, asked)
    }

    /// Refuses a role or binding that grants more than the user has. `named` is the name in the path of the request, if it has one.
    pub(crate) fn check_grant(
        &self,
        user: &User,
        named: &str,
        new: &Draft,
        old: Option<&Draft>,
    ) -> Result<(), Status> {
        if user.is_master() || old.is_some_and(|old| changes_only_owners(new, old)) {
            return Ok(());
        }
        let namespace = new.meta.namespace.as_str();
        let resource = &*new.kind.plural;
        let forbidden = |why: &str| {
            let resource = new.kind.group_resource();
            Status::forbidden(resource, &new.meta.name, why)
        };
        let is_allowed = |verb, resource, name| {
            let asked = Attributes::resource(user, verb, RBAC, resource)
                .in_namespace(namespace)
                .named(name);
            self.authorize(&asked).is_allowed()
        };
        let policy = self.access.policy();
        let check = |rules: &[PolicyRule]| {
            let checked = check_escalation(&policy, user, namespace, rules);
            checked.map_err(|why| forbidden(&why))
        };
        if matches!(&*new.kind.kind, "ClusterRole" | "Role") {
            if is_allowed("escalate", resource, named) {
                return Ok(());
            }
            let rules: Vec<PolicyRule> = member(new, "rules");
            check(&rules)?;
            let aggregates = |draft: &Draft| {
                let selectors = draft.at(&["aggregationRule", "clusterRoleSelectors"]);
                selectors
                    .and_then(Value::as_array)
                    .is_some_and(|all| !all.is_empty())
            };
            let is_aggregated = aggregates(new) || old.is_some_and(aggregates);
            if is_aggregated && !covers_everything(&policy, user, namespace) {
                return Err(forbidden(
                    "must have cluster-admin privileges to use the aggregationRule",
                ));
            }
            return Ok(());
        }
        let role: RoleReference = member(new, "roleRef");
        let roles = match &*role.kind {
            "ClusterRole" => "clusterroles",
            _ => "roles",
        };
        if is_allowed("bind", roles, &role.name) {
            return Ok(());
        }
        match &*role.kind {
            "ClusterRole" => check_name(&role.name)?,
            "Role" if namespace.is_empty() => {
                return Err(Status::bad_request("Namespace parameter required."));
            }
            "Role" => check_name(&role.name)?,
            kind => {
                // kube-apiserver answers 500, though the mistake is the client's.
                let why = format!("unsupported role reference kind: {}", quote(kind));
                return Err(Status::bad_request(why));
            }
        }
        let Ok(rules) = policy.rules_of(&role, namespace) else {
            // Named as kube-apiserver names it: the role with the resource of the request.
            return Err(Status::not_found(new.kind.group_resource(), &role.name));
        };
        check(&rules)
    }
}

/// Refuses a name that no object can have, as upstream's store does.
pub(super) fn check_name(name: &str) -> Result<(), Status> {
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let wrong = validate::path_segment(name);
    if wrong.is_empty() {
        return Ok(());
    }
    let name = quote(name);
    let why = wrong.join("; ");
    Err(Status::bad_request(format!(
        "Name parameter invalid: {name}: {why}"
    )))
}

/// A member of a draft; empty if it cannot be read, which its validation tells.
fn member<T: Default + serde::de::DeserializeOwned>(draft: &Draft, name: &str) -> T {
    let json = draft.members.get(name).map(Value::to_string);
    let read = json.map(|json| serde_json::from_str::<Option<T>>(&json));
    read.and_then(Result::ok).flatten().unwrap_or_default()
}

/// True if a write changes nothing but who owns the object and what keeps it.
fn changes_only_owners(new: &Draft, old: &Draft) -> bool {
    let bare = |draft: &Draft| {
        let mut meta = draft.meta.clone();
        meta.owner_references.clone_from(&old.meta.owner_references);
        meta.finalizers.clone_from(&old.meta.finalizers);
        meta.managed_fields.clone_from(&old.meta.managed_fields);
        meta.managed_sent.clone_from(&old.meta.managed_sent);
        meta.managed_reset = old.meta.managed_reset;
        meta
    };
    new.members == old.members && bare(new) == bare(old)
}
