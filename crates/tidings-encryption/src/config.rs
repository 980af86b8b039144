//! The encryption configuration (`EncryptionConfiguration` of `apiserver.config.k8s.io/v1`): which resources are encrypted, by which keys.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tidings_config::{Checked, ConfigError, ConfigFile, Placed};
use tidings_go::parse_duration;

use crate::cipher::Scheme;

/// How long a call of a KMS plugin may take if the configuration does not say.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// Which resources are encrypted, and how.
#[derive(Debug, Clone)]
pub struct EncryptionConfig {
    pub(crate) rules: Vec<ResourceRule>,
}

/// How some resources are encrypted.
#[derive(Debug, Clone)]
pub(crate) struct ResourceRule {
    pub(crate) resources: Vec<ResourcePattern>,
    /// The first encrypts; all decrypt.
    pub(crate) providers: Vec<ProviderConfig>,
}

/// A resource, those of a group, or all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResourcePattern {
    /// The resource, or `*`.
    resource: String,
    /// The group, or `*`; empty for the core group.
    group: String,
}

/// A way to encrypt.
#[derive(Debug, Clone)]
pub(crate) enum ProviderConfig {
    /// Not at all.
    Identity,
    /// With these keys; the first encrypts.
    Keys(Scheme, Vec<NamedKey>),
    /// With keys that a key management service encrypts.
    Kms(KmsConfig),
}

/// A key and its name.
#[derive(Clone)]
pub(crate) struct NamedKey {
    pub(crate) name: String,
    pub(crate) secret: Vec<u8>,
}

impl fmt::Debug for NamedKey {
    /// Never shows the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedKey({})", self.name)
    }
}

/// A plugin of a key management service.
#[derive(Debug, Clone)]
pub(crate) struct KmsConfig {
    pub(crate) name: String,
    /// The path of its socket.
    pub(crate) socket: String,
    pub(crate) timeout: Duration,
}

impl ResourcePattern {
    fn parse(text: &str) -> ResourcePattern {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        ResourcePattern {
            resource: resource.to_owned(),
            group: group.to_owned(),
        }
    }

    /// True if it means a resource.
    pub(crate) fn means(&self, group: &str, resource: &str) -> bool {
        (self.group == "*" || self.group == group)
            && (self.resource == "*" || self.resource == resource)
    }

    /// True if everything that `other` means is meant too.
    fn covers(&self, other: &ResourcePattern) -> bool {
        (self.group == "*" || self.group == other.group)
            && (self.resource == "*" || self.resource == other.resource)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenConfig {
    #[serde(rename = "apiVersion")]
    _version: Checked,
    #[serde(rename = "kind")]
    _kind: Checked,
    #[serde(default)]
    resources: Vec<Placed<WrittenRule>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    #[serde(default)]
    resources: Vec<Placed<String>>,
    #[serde(default)]
    providers: Vec<Placed<WrittenProvider>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProvider {
    #[serde(default)]
    aesgcm: Option<Placed<WrittenKeys>>,
    #[serde(default)]
    aescbc: Option<Placed<WrittenKeys>>,
    #[serde(default)]
    secretbox: Option<Placed<WrittenKeys>>,
    #[serde(default)]
    identity: Option<WrittenIdentity>,
    #[serde(default)]
    kms: Option<Placed<WrittenKms>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenIdentity {}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKeys {
    #[serde(default)]
    keys: Vec<Placed<WrittenKey>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenKms {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    timeout: String,
    #[serde(rename = "cachesize", default)]
    cache_size: Option<i32>,
}

impl EncryptionConfig {
    /// A configuration by which nothing is encrypted.
    pub fn none() -> EncryptionConfig {
        EncryptionConfig { rules: Vec::new() }
    }

    /// Reads a configuration. Errors never quote a key.
    ///
    /// # Errors
    /// With the line, and what to change.
    pub fn read(file: &ConfigFile) -> Result<EncryptionConfig, ConfigError> {
        let file = file.clone().secret();
        let written: WrittenConfig =
            file.read("apiserver.config.k8s.io/v1", "EncryptionConfiguration")?;
        if written.resources.is_empty() {
            return Err(file
                .wrong("resources is empty: name at least one resource and how it is encrypted"));
        }
        let mut reader = ConfigReader {
            file: &file,
            kms_names: HashSet::new(),
        };
        let rules = written.resources.iter().map(|rule| reader.rule(rule));
        Ok(EncryptionConfig {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }
}

struct ConfigReader<'a> {
    file: &'a ConfigFile,
    kms_names: HashSet<String>,
}

impl ConfigReader<'_> {
    fn rule(&mut self, written: &Placed<WrittenRule>) -> Result<ResourceRule, ConfigError> {
        if written.resources.is_empty() {
            return Err(self
                .file
                .wrong_at(written, "resources is empty: name at least one resource"));
        }
        if written.providers.is_empty() {
            let why = "providers is empty: name at least one, as - identity: {}";
            return Err(self.file.wrong_at(written, why));
        }
        let mut resources: Vec<ResourcePattern> = Vec::new();
        for resource in &written.resources {
            let pattern = self.resource(resource)?;
            if resources.contains(&pattern) {
                return Err(self
                    .file
                    .wrong_at(resource, "a resource is named twice: remove one of the two"));
            }
            let overlaps =
                |other: &ResourcePattern| other.covers(&pattern) || pattern.covers(other);
            if resources.iter().any(overlaps) {
                let why = "it means a resource that another name of this list means too: remove one of the two";
                return Err(self.file.wrong_at(resource, why));
            }
            resources.push(pattern);
        }
        let providers = written
            .providers
            .iter()
            .map(|provider| self.provider(provider));
        let providers: Vec<_> = providers.collect::<Result<_, _>>()?;
        if let Some(ProviderConfig::Keys(Scheme::AesCbc, _)) = providers.first() {
            let why =
                "aescbc is only for reading: put aesgcm, secretbox, kms or identity before it";
            return Err(self.file.wrong_at(&written.providers[0], why));
        }
        Ok(ResourceRule {
            resources,
            providers,
        })
    }

    fn resource(&self, written: &Placed<String>) -> Result<ResourcePattern, ConfigError> {
        let wrong = |why: &str| Err(self.file.wrong_at(written, why));
        let text = written.as_str();
        let pattern = ResourcePattern::parse(text);
        if text.chars().any(char::is_uppercase) {
            return wrong(
                "a resource has no capital letters: write its plural, as secrets or deployments.apps",
            );
        }
        if text == "*" {
            return wrong("write '*.' for all resources of the core group, or '*.*' for all");
        }
        if pattern.resource.is_empty() {
            return wrong(
                "a name is empty: write the plural of a resource, as secrets or deployments.apps",
            );
        }
        if matches!(
            text,
            "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations"
        ) {
            return wrong("it is no resource that clients can read: remove it");
        }
        if pattern.group == "events.k8s.io" {
            return wrong("these are stored as events of the core group: write events");
        }
        if pattern.group == "extensions" {
            return wrong("the group extensions is gone: remove it");
        }
        if pattern.group == "*" && pattern.resource != "*" {
            return wrong(
                "a resource of all groups cannot be named: write its group, or '*.*' for all resources",
            );
        }
        Ok(pattern)
    }

    fn provider(
        &mut self,
        written: &Placed<WrittenProvider>,
    ) -> Result<ProviderConfig, ConfigError> {
        let one_too_many = "several providers in one element: write each as an element of its own, with a - in front";
        let mut found = Vec::new();
        let keys = [
            (Scheme::AesGcm, &written.aesgcm),
            (Scheme::AesCbc, &written.aescbc),
            (Scheme::Secretbox, &written.secretbox),
        ];
        for (scheme, keys) in keys {
            if let Some(keys) = keys {
                found.push(ProviderConfig::Keys(scheme, self.keys(scheme, keys)?));
            }
        }
        if written.identity.is_some() {
            found.push(ProviderConfig::Identity);
        }
        if let Some(kms) = &written.kms {
            found.push(ProviderConfig::Kms(self.kms(kms)?));
        }
        if found.len() > 1 {
            return Err(self.file.wrong_at(written, one_too_many));
        }
        found.pop().ok_or_else(|| {
            let why = "it names no provider: write aesgcm, secretbox, aescbc, kms, or identity: {}";
            self.file.wrong_at(written, why)
        })
    }

    fn keys(
        &self,
        scheme: Scheme,
        written: &Placed<WrittenKeys>,
    ) -> Result<Vec<NamedKey>, ConfigError> {
        if written.keys.is_empty() {
            return Err(self
                .file
                .wrong_at(written, "keys is empty: add a key with name and secret"));
        }
        let mut names = HashSet::new();
        let key = |key: &Placed<WrittenKey>| {
            let wrong = |why: String| Err(self.file.wrong_at(key, why));
            if key.name.is_empty() {
                return wrong("a key has no name".to_owned());
            }
            if key.name.contains(':') {
                return wrong(
                    "the name of a key cannot have a colon, which ends it in front of values"
                        .to_owned(),
                );
            }
            if !names.insert(key.name.clone()) {
                return wrong(
                    "a name of a key is there twice: the second one would never be used".to_owned(),
                );
            }
            let Ok(secret) = STANDARD.decode(&key.secret) else {
                return wrong("the secret of a key is not in base64: write the output of `head -c 32 /dev/urandom | base64`".to_owned());
            };
            if !scheme.key_lengths().contains(&secret.len()) {
                let lengths = scheme.key_lengths().iter().map(usize::to_string);
                let lengths = lengths.collect::<Vec<_>>().join(" or ");
                return wrong(format!(
                    "the secret of a key has {} bytes, {} needs {lengths}",
                    secret.len(),
                    scheme.name()
                ));
            }
            Ok(NamedKey {
                name: key.name.clone(),
                secret,
            })
        };
        written.keys.iter().map(key).collect()
    }

    fn kms(&mut self, written: &Placed<WrittenKms>) -> Result<KmsConfig, ConfigError> {
        let wrong = |why: &str| Err(self.file.wrong_at(written, why));
        match written.api_version.as_str() {
            "v2" => {}
            "" | "v1" => {
                return wrong(
                    "version 1 of KMS is not built: use a plugin of version 2, and write apiVersion: v2",
                );
            }
            _ => return wrong("the apiVersion of kms must be v2"),
        }
        if written.cache_size.is_some() {
            return wrong("cachesize is not for version 2 of KMS: remove it");
        }
        if written.name.is_empty() || written.name.contains(':') {
            return wrong("kms needs a name without a colon");
        }
        if !self.kms_names.insert(written.name.clone()) {
            return wrong("the name of a kms provider is there twice: each needs its own");
        }
        let socket = written
            .endpoint
            .strip_prefix("unix://")
            .filter(|path| !path.is_empty());
        let Some(socket) = socket else {
            return wrong("the endpoint of kms must be a socket, as unix:///run/kms.sock");
        };
        let timeout = match written.timeout.as_str() {
            "" => Ok(KMS_TIMEOUT),
            text => parse_duration(text),
        };
        match timeout {
            Ok(timeout) if !timeout.is_zero() => Ok(KmsConfig {
                name: written.name.clone(),
                socket: socket.to_owned(),
                timeout,
            }),
            _ => wrong("the timeout of kms must be a duration above zero, as 3s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<EncryptionConfig, String> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n{text}"
        );
        let file = ConfigFile::new("e.yaml", text.as_bytes()).unwrap();
        EncryptionConfig::read(&file).map_err(|error| error.to_string())
    }

    const SECRET: &str = "c2VjcmV0IGlzIHNlY3VyZQ=="; // 16 bytes

    #[test]
    fn the_documented_configuration_is_read() {
        let config = read(&format!(
            "resources:
- resources: [events]
  providers:
  - identity: {{}}
- resources: [secrets, pandas.awesome.bears.example]
  providers:
  - aesgcm: {{keys: [{{name: key1, secret: {SECRET}}}]}}
  - identity: {{}}
- resources: ['*.apps']
  providers:
  - kms: {{apiVersion: v2, name: k, endpoint: 'unix:///run/kms.sock', timeout: 5s}}
- resources: ['*.*']
  providers:
  - identity: {{}}
  - aescbc: {{keys: [{{name: key3, secret: {SECRET}}}]}}
"
        ))
        .unwrap();
        let means = |rule: usize, group: &str, resource: &str| {
            let mut patterns = config.rules[rule].resources.iter();
            patterns.any(|pattern| pattern.means(group, resource))
        };
        assert!(means(0, "", "events") && !means(0, "apps", "events"));
        assert!(means(1, "awesome.bears.example", "pandas"));
        assert!(means(2, "apps", "deployments") && !means(2, "", "secrets"));
        assert!(means(3, "", "secrets"));
        assert!(!format!("{config:?}").contains("secret is"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_without_keys() {
        let rule = |providers: &str| {
            format!("resources:\n- resources: [secrets]\n  providers:\n{providers}")
        };
        for (text, expected) in [
            ("resources: []\n".to_owned(), "e.yaml: resources is empty"),
            (rule("  - {}\n"), "e.yaml, line 6: it names no provider"),
            (
                rule(
                    "  - identity: {}\n    aesgcm: {keys: [{name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}\n",
                ),
                "line 6: several providers",
            ),
            (rule("  - aesgcm: {keys: []}\n"), "line 6: keys is empty"),
            (
                rule("  - aesgcm: {keys: [{secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}\n"),
                "line 6: a key has no name",
            ),
            (
                rule("  - aesgcm:\n      keys:\n      - name: a\n        secret: hunter2!\n"),
                "line 8: the secret of a key is not in base64",
            ),
            (
                rule(
                    "  - secretbox:\n      keys:\n      - {name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==}\n",
                ),
                "line 8: the secret of a key has 16 bytes, secretbox needs 32",
            ),
            (
                rule("  - aescbc: {keys: [{name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}\n"),
                "line 6: aescbc is only for reading",
            ),
            (
                rule("  - kms: {name: a, endpoint: 'unix:///x'}\n"),
                "line 6: version 1 of KMS is not built",
            ),
            (
                rule("  - kms: {apiVersion: v2, name: a, endpoint: 'tcp://x'}\n"),
                "line 6: the endpoint of kms must be a socket",
            ),
            (rule("  - rot13: {}\n"), "unknown field `rot13`"),
            (
                "resources:\n- resources: [Secrets]\n  providers: [{identity: {}}]\n".to_owned(),
                "line 4: a resource has no capital letters",
            ),
            (
                "resources:\n- resources: ['*']\n  providers: [{identity: {}}]\n".to_owned(),
                "line 4: write '*.' for all",
            ),
            (
                "resources:\n- resources: [secrets, '*.']\n  providers: [{identity: {}}]\n"
                    .to_owned(),
                "line 4: it means a resource that another name",
            ),
            (
                "resources:\n- resources: [secrets, secrets]\n  providers: [{identity: {}}]\n"
                    .to_owned(),
                "line 4: a resource is named twice",
            ),
            (
                "resources:\n- resources: [events.events.k8s.io]\n  providers: [{identity: {}}]\n"
                    .to_owned(),
                "line 4: these are stored as events",
            ),
            (
                "resources:\n- resources: ['pods.*']\n  providers: [{identity: {}}]\n".to_owned(),
                "line 4: a resource of all groups",
            ),
        ] {
            let said = read(&text).unwrap_err();
            assert!(said.contains(expected), "{said}\n{text}");
            assert!(
                !said.contains("hunter2") && !said.contains("c2Vj"),
                "{said}"
            );
        }
    }
}
