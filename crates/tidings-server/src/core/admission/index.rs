//! The configurations in the caches, compiled when they change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tidings_admission::{
    MutatingPolicy, NotReadable, Policy, PolicyBase, PolicyBinding, Webhook, WebhookConfiguration,
};
use tidings_json::Value;
use tidings_plugins::PluginSet;

use super::super::long_work::do_long_work;
use super::super::resource::Resource;
use super::super::served::ServedSet;

/// Everything that is configured, in the order in which it is asked.
#[derive(Default)]
pub(super) struct Configured {
    pub(super) mutating: Vec<Arc<Webhook>>,
    pub(super) validating: Vec<Arc<Webhook>>,
    /// Policies that change objects and are bound, with their bindings.
    pub(super) mutating_policies: Vec<(MutatingPolicy, Vec<PolicyBinding>)>,
    /// Policies that are bound, with their bindings.
    pub(super) policies: Vec<(Policy, Vec<PolicyBinding>)>,
}

impl Configured {
    pub(super) fn is_empty(&self) -> bool {
        self.mutating.is_empty()
            && self.validating.is_empty()
            && self.policies.is_empty()
            && self.mutating_policies.is_empty()
    }
}

/// Follows the caches when somebody asks.
pub(super) struct AdmissionIndex {
    mutating: Option<Arc<Resource>>,
    validating: Option<Arc<Resource>>,
    policies: Option<Arc<Resource>>,
    bindings: Option<Arc<Resource>>,
    mutating_policies: Option<Arc<Resource>>,
    mutating_bindings: Option<Arc<Resource>>,
    current: RwLock<Arc<Configured>>,
    /// The positions of the logs of the caches when they were read.
    read: Mutex<Option<[u64; 6]>>,
}

const GROUP: &str = "admissionregistration.k8s.io";

impl AdmissionIndex {
    /// What is configured for a plugin that is not enabled is not read.
    pub(super) fn new(served: &ServedSet, plugins: &PluginSet) -> AdmissionIndex {
        let resource = |plugin: &str, plural: &str| {
            let enabled = plugins.has(plugin);
            enabled.then(|| served.find(GROUP, "v1", plural)?.1)?
        };
        let (policies, mutating) = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy");
        AdmissionIndex {
            mutating: resource("MutatingAdmissionWebhook", "mutatingwebhookconfigurations"),
            validating: resource(
                "ValidatingAdmissionWebhook",
                "validatingwebhookconfigurations",
            ),
            policies: resource(policies, "validatingadmissionpolicies"),
            bindings: resource(policies, "validatingadmissionpolicybindings"),
            mutating_policies: resource(mutating, "mutatingadmissionpolicies"),
            mutating_bindings: resource(mutating, "mutatingadmissionpolicybindings"),
            current: RwLock::default(),
            read: Mutex::default(),
        }
    }

    /// What the caches have now.
    pub(super) fn current(&self) -> Arc<Configured> {
        let resources = [
            &self.mutating,
            &self.validating,
            &self.policies,
            &self.bindings,
            &self.mutating_policies,
            &self.mutating_bindings,
        ];
        let ends = resources.map(|resource| {
            let resource = resource.as_ref();
            resource.map_or(0, |resource| resource.cache().log_end())
        });
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if *read != Some(ends) {
            let configured = Configured {
                mutating: webhooks(self.mutating.as_ref()),
                validating: webhooks(self.validating.as_ref()),
                policies: bound(
                    self.policies.as_ref(),
                    self.bindings.as_ref(),
                    Policy::read,
                    |policy| &policy.base,
                ),
                mutating_policies: bound(
                    self.mutating_policies.as_ref(),
                    self.mutating_bindings.as_ref(),
                    MutatingPolicy::read,
                    |policy| &policy.base,
                ),
            };
            let slot = self.current.write();
            *slot.unwrap_or_else(PoisonError::into_inner) = Arc::new(configured);
            // What came while they were read is read again by the next request.
            *read = Some(ends);
        }
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All webhooks, in the order of the names of their configurations.
fn webhooks(resource: Option<&Arc<Resource>>) -> Vec<Arc<Webhook>> {
    let mut configurations = all(resource, WebhookConfiguration::read);
    configurations.sort_by(|one, other| one.name.cmp(&other.name));
    let webhooks = configurations
        .into_iter()
        .flat_map(|configuration| configuration.webhooks);
    webhooks.map(Arc::new).collect()
}

/// The policies that are bound, in the order of their names. Others are not compiled.
fn bound<P>(
    policies: Option<&Arc<Resource>>,
    bindings: Option<&Arc<Resource>>,
    read: impl Fn(&Value) -> Result<P, NotReadable>,
    base: impl Fn(&P) -> &PolicyBase,
) -> Vec<(P, Vec<PolicyBinding>)> {
    let mut bound: HashMap<String, Vec<PolicyBinding>> = HashMap::new();
    for binding in all(bindings, PolicyBinding::read) {
        bound
            .entry(binding.policy.clone())
            .or_default()
            .push(binding);
    }
    if bound.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    // In the order of the keys, which are the names.
    for policy in do_long_work(|| all(policies, read)) {
        if let Some(mut bindings) = bound.remove(&base(&policy).name) {
            bindings.sort_by(|one, other| one.name.cmp(&other.name));
            found.push((policy, bindings));
        }
    }
    found.sort_by(|(one, _), (other, _)| base(one).name.cmp(&base(other).name));
    found
}

/// All objects of a resource, as `read` reads them. Those that cannot be read are told of in the log.
fn all<T>(
    resource: Option<&Arc<Resource>>,
    read: impl Fn(&Value) -> Result<T, NotReadable>,
) -> Vec<T> {
    let mut found = Vec::new();
    let snapshot = resource.map(|resource| resource.cache().snapshot());
    for (key, object) in snapshot.iter().flat_map(|snapshot| snapshot.state.iter()) {
        let json: Value = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
        match read(&json) {
            Ok(one) => found.push(one),
            Err(error) => {
                tracing::error!(name = key.name(), %error, "an object that configures admission cannot be read");
            }
        }
    }
    found
}
