//! The form of an `AuthenticationConfiguration` in its file.

use serde::Deserialize;
use tidings_config::{Checked, Placed};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenConfig {
    #[serde(rename = "apiVersion")]
    _version: Checked,
    #[serde(rename = "kind")]
    _kind: Checked,
    #[serde(default)]
    pub(crate) jwt: Vec<Placed<WrittenAuthenticator>>,
    pub(crate) anonymous: Option<Placed<WrittenAnonymous>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenAnonymous {
    #[serde(default)]
    pub(crate) enabled: bool,
    #[serde(default)]
    pub(crate) conditions: Vec<WrittenCondition>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenCondition {
    pub(crate) path: String,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WrittenAuthenticator {
    pub(crate) issuer: WrittenIssuer,
    #[serde(default)]
    pub(crate) claim_validation_rules: Vec<Placed<WrittenClaimRule>>,
    pub(crate) claim_mappings: WrittenMappings,
    #[serde(default)]
    pub(crate) user_validation_rules: Vec<Placed<WrittenUserRule>>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WrittenIssuer {
    pub(crate) url: Placed<String>,
    #[serde(rename = "discoveryURL", default)]
    pub(crate) discovery_url: Option<Placed<String>>,
    #[serde(default)]
    pub(crate) certificate_authority: Option<Placed<String>>,
    #[serde(default)]
    pub(crate) audiences: Vec<Placed<String>>,
    #[serde(default)]
    pub(crate) audience_match_policy: String,
    #[serde(default)]
    pub(crate) egress_selector_type: Option<Placed<String>>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WrittenClaimRule {
    #[serde(default)]
    pub(crate) claim: String,
    #[serde(default)]
    pub(crate) required_value: String,
    #[serde(default)]
    pub(crate) expression: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenUserRule {
    #[serde(default)]
    pub(crate) expression: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenMappings {
    pub(crate) username: Placed<WrittenMapping>,
    #[serde(default)]
    pub(crate) groups: Option<Placed<WrittenMapping>>,
    #[serde(default)]
    pub(crate) uid: Option<Placed<WrittenMapping>>,
    #[serde(default)]
    pub(crate) extra: Vec<Placed<WrittenExtra>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenMapping {
    #[serde(default)]
    pub(crate) claim: String,
    #[serde(default)]
    pub(crate) prefix: Option<String>,
    #[serde(default)]
    pub(crate) expression: String,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WrittenExtra {
    #[serde(default)]
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) value_expression: String,
}
