//! Webhooks, as their configurations describe them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tidings_api::LabelSelector;
use tidings_json::Value;

use crate::condition::{Conditions, MatchCondition};
use crate::form::{FailurePolicy, MatchPolicy, Meta, NotReadable, or_default, read, selector};
use crate::matching::MatchResources;
use crate::review::ReviewVersion;
use crate::rule::Rule;

/// What a webhook does besides answering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum SideEffects {
    /// Nobody knows.
    #[default]
    Unknown,
    /// Nothing.
    None,
    /// Something.
    Some,
    /// Nothing if nothing is stored.
    NoneOnDryRun,
}

/// How a webhook is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// The URL, if it is not a Service.
    pub url: Option<String>,
    /// The Service.
    pub service: Option<Service>,
    /// Whose certificates are believed, in PEM; empty: those that the machine believes.
    pub ca_bundle: Vec<u8>,
}

/// A Service and a path of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Service {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The path.
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    /// The port.
    #[serde(deserialize_with = "or_default")]
    pub port: u16,
}

/// A webhook of a configuration.
#[derive(Debug)]
pub struct Webhook {
    /// The name.
    pub name: String,
    /// The name of the configuration.
    pub configuration: String,
    /// Identifies it among all webhooks.
    pub id: String,
    /// How it is reached.
    pub client: ClientConfig,
    /// What is done if it fails.
    pub failure_policy: FailurePolicy,
    /// How long an answer may take, in seconds.
    pub timeout_seconds: u32,
    /// What it does besides answering.
    pub side_effects: SideEffects,
    /// True if it is asked again when a later one has changed the object.
    pub reinvoked: bool,
    /// The first version that it understands and this crate speaks; `None` if there is none.
    pub version: Option<ReviewVersion>,
    /// Which requests it is for.
    pub matching: MatchResources,
    conditions: Conditions,
}

/// All webhooks of a configuration.
#[derive(Debug)]
pub struct WebhookConfiguration {
    /// Its name: webhooks are asked in the order of the names of their configurations.
    pub name: String,
    /// The webhooks, in their order.
    pub webhooks: Vec<Webhook>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ConfigurationForm {
    metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    webhooks: Vec<WebhookForm>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WebhookForm {
    name: String,
    client_config: ClientForm,
    #[serde(deserialize_with = "or_default")]
    rules: Vec<Rule>,
    #[serde(deserialize_with = "or_default")]
    failure_policy: FailurePolicy,
    #[serde(deserialize_with = "or_default")]
    match_policy: MatchPolicy,
    #[serde(deserialize_with = "selector")]
    namespace_selector: LabelSelector,
    #[serde(deserialize_with = "selector")]
    object_selector: LabelSelector,
    #[serde(deserialize_with = "or_default")]
    side_effects: SideEffects,
    timeout_seconds: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    admission_review_versions: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    reinvocation_policy: String,
    #[serde(deserialize_with = "or_default")]
    match_conditions: Vec<MatchCondition>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClientForm {
    url: Option<String>,
    service: Option<Service>,
    #[serde(deserialize_with = "or_default")]
    ca_bundle: String,
}

/// How long an answer may take if the configuration does not say so.
const TIMEOUT_SECONDS: u32 = 10;
/// The port of a Service if the configuration does not say so.
const PORT: u16 = 443;

impl WebhookConfiguration {
    /// Reads a stored configuration.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(object: &Value) -> Result<WebhookConfiguration, NotReadable> {
        let form: ConfigurationForm = read(object)?;
        let Meta { name, uid } = form.metadata;
        let webhooks = form.webhooks.into_iter().enumerate();
        let webhooks = webhooks.map(|(at, webhook)| {
            let id = format!("{uid}/{at}/{}", webhook.name);
            webhook.compiled(&name, id)
        });
        Ok(WebhookConfiguration {
            webhooks: webhooks.collect::<Result<_, _>>()?,
            name,
        })
    }
}

impl ClientForm {
    pub(crate) fn config(self) -> Result<ClientConfig, NotReadable> {
        let ca_bundle = STANDARD
            .decode(self.ca_bundle)
            .map_err(|error| NotReadable(format!("the caBundle is not in base64: {error}")))?;
        let service = self.service.map(|mut service| {
            if service.port == 0 {
                service.port = PORT;
            }
            service
        });
        Ok(ClientConfig {
            url: self.url,
            service,
            ca_bundle,
        })
    }
}

impl WebhookForm {
    fn compiled(self, configuration: &str, id: String) -> Result<Webhook, NotReadable> {
        let mut versions = self.admission_review_versions.iter();
        Ok(Webhook {
            configuration: configuration.to_owned(),
            id,
            client: self.client_config.config()?,
            failure_policy: self.failure_policy,
            timeout_seconds: self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS),
            side_effects: self.side_effects,
            reinvoked: self.reinvocation_policy == "IfNeeded",
            version: versions.find_map(|version| ReviewVersion::named(version)),
            matching: MatchResources {
                resource_rules: self.rules,
                exclude_resource_rules: Vec::new(),
                match_policy: self.match_policy,
                namespace_selector: self.namespace_selector,
                object_selector: self.object_selector,
            },
            conditions: Conditions::compile(&self.match_conditions, self.failure_policy),
            name: self.name,
        })
    }
}

impl Webhook {
    /// What must hold besides.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// True if the webhook may be asked when nothing is stored.
    pub fn may_be_asked_dry(&self) -> bool {
        matches!(
            self.side_effects,
            SideEffects::None | SideEffects::NoneOnDryRun
        )
    }
}
