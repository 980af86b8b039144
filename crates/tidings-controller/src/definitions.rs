//! Installing CustomResourceDefinitions.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidings_kube::{ApiResource, ObjectPath, RestClient, SourceError};
use tokio::time::{Instant, sleep};

use crate::times::FAR;

/// How often the conditions of a definition are read.
const POLL: Duration = Duration::from_millis(50);

/// Why definitions were not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The server cannot be reached or refuses the definition.
    #[error("the definition {name} cannot be applied")]
    Refused {
        /// The name of the definition.
        name: String,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// The server does not serve the definition in time.
    #[error("the definition {name} is not established after {longest:?}: {why}")]
    NotEstablished {
        /// The name of the definition.
        name: String,
        /// How long was waited.
        longest: Duration,
        /// What its conditions say.
        why: String,
    },
    /// The value is no definition.
    #[error("a definition cannot be written as JSON, or has no name")]
    NoDefinition,
}

/// Applies CustomResourceDefinitions and waits until the server serves their resources. A definition is what `K::crd()` of kube's
/// `CustomResource` returns, or the same as JSON. Fields of other managers are taken over.
///
/// ```no_run
/// use std::time::Duration;
///
/// use serde_json::json;
/// use tidings_controller::{InstallError, install_definitions};
/// use tidings_kube::RestClient;
///
/// # async fn run(client: RestClient) -> Result<(), InstallError> {
/// // With kube's derive it is `Gadget::crd()`.
/// let gadgets = json!({
///     "apiVersion": "apiextensions.k8s.io/v1",
///     "kind": "CustomResourceDefinition",
///     "metadata": {"name": "gadgets.example.com"},
///     "spec": {
///         "group": "example.com",
///         "scope": "Namespaced",
///         "names": {"kind": "Gadget", "plural": "gadgets"},
///         "versions": [{"name": "v1", "served": true, "storage": true,
///             "schema": {"openAPIV3Schema": {"type": "object"}}}],
///     },
/// });
/// install_definitions(&client, "my-operator", [gadgets], Duration::from_secs(30)).await
/// # }
/// ```
///
/// # Errors
/// If a definition is refused, or not established in time: with what its conditions say.
pub async fn install_definitions(
    client: &RestClient,
    manager: &str,
    definitions: impl IntoIterator<Item = impl Serialize>,
    longest: Duration,
) -> Result<(), InstallError> {
    let resource = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let deadline = Instant::now() + longest.min(FAR);
    let mut names = Vec::new();
    for definition in definitions {
        let definition =
            serde_json::to_value(&definition).map_err(|_| InstallError::NoDefinition)?;
        let name = definition["metadata"]["name"]
            .as_str()
            .ok_or(InstallError::NoDefinition)?;
        let name = name.to_owned();
        let path = ObjectPath::new(&resource, "", &name);
        let applied = client.apply_object(&path, manager, true, &definition).await;
        applied.map_err(|source| InstallError::Refused {
            name: name.clone(),
            source,
        })?;
        names.push(name);
    }
    for name in names {
        let path = ObjectPath::new(&resource, "", &name);
        loop {
            // A server that is away for a moment is asked again.
            let object = client.get_object(&path).await.ok().flatten();
            let conditions = object
                .map(|object| conditions(object.as_bytes()))
                .unwrap_or_default();
            if conditions
                .iter()
                .any(|condition| condition.is("Established"))
            {
                break;
            }
            if Instant::now() >= deadline {
                let why = why_not(&conditions);
                return Err(InstallError::NotEstablished { name, longest, why });
            }
            sleep(POLL).await;
        }
    }
    Ok(())
}

/// A condition of a definition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DefinitionCondition {
    r#type: String,
    status: String,
    message: String,
}

impl DefinitionCondition {
    fn is(&self, kind: &str) -> bool {
        self.r#type == kind && self.status == "True"
    }
}

fn conditions(json: &[u8]) -> Vec<DefinitionCondition> {
    let definition: Value = serde_json::from_slice(json).unwrap_or_default();
    let conditions = definition["status"]["conditions"].clone();
    serde_json::from_value(conditions).unwrap_or_default()
}

fn why_not(conditions: &[DefinitionCondition]) -> String {
    let refusals = conditions
        .iter()
        .filter(|condition| condition.status == "False");
    let texts: Vec<String> = refusals
        .map(|condition| format!("{} is False: {}", condition.r#type, condition.message))
        .collect();
    match texts.is_empty() {
        true => "it has no conditions yet".to_owned(),
        false => texts.join("; "),
    }
}
