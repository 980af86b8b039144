//! The configurations in the caches, compiled when they change.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tidings_admission::{Webhook, WebhookConfiguration};
use tidings_json::Value;

use super::super::resource::Resource;
use super::super::served::ServedSet;

/// Everything that is configured, in the order in which it is asked.
#[derive(Default)]
pub(super) struct Configured {
    pub(super) mutating: Vec<Arc<Webhook>>,
    pub(super) validating: Vec<Arc<Webhook>>,
}

impl Configured {
    pub(super) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }
}

/// Follows the caches when somebody asks.
pub(super) struct AdmissionIndex {
    mutating: Option<Arc<Resource>>,
    validating: Option<Arc<Resource>>,
    current: RwLock<Arc<Configured>>,
    /// The positions of the logs of the caches when they were read.
    read: Mutex<Option<[u64; 2]>>,
}

const GROUP: &str = "admissionregistration.k8s.io";

impl AdmissionIndex {
    pub(super) fn new(served: &ServedSet) -> AdmissionIndex {
        let resource = |plural: &str| served.find(GROUP, "v1", plural)?.1;
        AdmissionIndex {
            mutating: resource("mutatingwebhookconfigurations"),
            validating: resource("validatingwebhookconfigurations"),
            current: RwLock::default(),
            read: Mutex::default(),
        }
    }

    /// What the caches have now.
    pub(super) fn current(&self) -> Arc<Configured> {
        let resources = [&self.mutating, &self.validating];
        let ends = resources.map(|resource| {
            let resource = resource.as_ref();
            resource.map_or(0, |resource| resource.cache().log_end())
        });
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if *read != Some(ends) {
            let configured = Configured {
                mutating: webhooks(self.mutating.as_ref()),
                validating: webhooks(self.validating.as_ref()),
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
    let Some(resource) = resource else {
        return Vec::new();
    };
    let snapshot = resource.cache().snapshot();
    let mut configurations = Vec::new();
    for (key, object) in snapshot.state.iter() {
        let json: Value = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
        match WebhookConfiguration::read(&json) {
            Ok(configuration) => configurations.push(configuration),
            Err(error) => {
                tracing::error!(name = key.name(), %error, "a configuration of webhooks cannot be read");
            }
        }
    }
    configurations.sort_by(|one, other| one.name.cmp(&other.name));
    let webhooks = configurations
        .into_iter()
        .flat_map(|configuration| configuration.webhooks);
    webhooks.map(Arc::new).collect()
}
