//! Finds a resource by the names that kubectl accepts: `po`, `pods`, `Pod`, `deployments.apps`, `deployments.v1.apps`.

use bytes::Bytes;
use http::Request;
use http::header::ACCEPT;
use http_body_util::{BodyExt, Limited};
use kube::core::ApiResource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidings_informer::SourceError;

use crate::client::RestClient;

/// A resource that was found on the server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Resolved {
    /// Its group, version, kind and plural name.
    pub resource: ApiResource,
    /// True if its objects are in namespaces.
    pub namespaced: bool,
}

/// Why no resource was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Discovery failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The server has no resource of that name.
    #[error("the server doesn't have a resource type {0:?}")]
    Unknown(String),
    /// The resource exists, but cannot be listed and watched.
    #[error("the resource {0:?} cannot be listed and watched")]
    NotWatchable(String),
}

/// Asks for aggregated discovery; servers before 1.26 answer with plain JSON.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/// The largest discovery document. A cluster with thousands of custom resources has a few megabytes.
const BYTES_MAX: usize = 32 << 20;

/// Finds a resource as kubectl does: by plural, singular, short name or kind, in any case, with or without version and group. If
/// several groups have it, the first in the server's order counts.
///
/// # Errors
/// If discovery fails, the server has no such resource, or it cannot be watched.
pub async fn resolve(client: &RestClient, word: &str) -> Result<Resolved, ResolveError> {
    let (name, qualifier) = word.split_once('.').unwrap_or((word, ""));
    let name = name.to_lowercase();
    let mut unwatchable = false;
    for path in ["/api", "/apis"] {
        for group in groups(client, path).await? {
            for version in &group.versions {
                let full = format!("{}.{}", version.version, group.metadata.name);
                if ![group.metadata.name.as_str(), &full, ""].contains(&qualifier) {
                    continue;
                }
                let Some(found) = version
                    .resources
                    .iter()
                    .find(|resource| resource.is_called(&name))
                else {
                    continue;
                };
                if !["list", "watch"]
                    .iter()
                    .all(|verb| found.verbs.iter().any(|known| known == verb))
                {
                    unwatchable = true;
                    continue;
                }
                return Ok(found.resolved(&group.metadata.name, &version.version));
            }
        }
    }
    let word = word.to_owned();
    Err(if unwatchable {
        ResolveError::NotWatchable(word)
    } else {
        ResolveError::Unknown(word)
    })
}

/// The groups under a path: from one aggregated answer, or one by one from servers before 1.26.
async fn groups(client: &RestClient, path: &str) -> Result<Vec<DiscoveredGroup>, SourceError> {
    #[derive(Deserialize)]
    struct DiscoveryAnswer {
        kind: String,
        #[serde(default)]
        items: Vec<DiscoveredGroup>,
        #[serde(default)]
        versions: Vec<String>,
        #[serde(default)]
        groups: Vec<LegacyGroup>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LegacyGroup {
        name: String,
        versions: Vec<LegacyVersion>,
    }
    #[derive(Deserialize)]
    struct LegacyVersion {
        version: String,
    }
    let answer: DiscoveryAnswer = get(client, path).await?;
    if answer.kind == "APIGroupDiscoveryList" {
        return Ok(answer.items);
    }
    let core = (!answer.versions.is_empty()).then(|| (String::new(), answer.versions));
    let others = answer.groups.into_iter().map(|group| {
        let versions = group.versions.into_iter().map(|version| version.version);
        (group.name, versions.collect())
    });
    let mut groups = Vec::new();
    for (name, versions) in core.into_iter().chain(others) {
        let mut group = DiscoveredGroup {
            metadata: GroupMetadata { name },
            versions: Vec::new(),
        };
        for version in versions {
            let separator = if group.metadata.name.is_empty() {
                ""
            } else {
                "/"
            };
            let path = format!("{path}{separator}{}/{version}", group.metadata.name);
            let list: LegacyResourceList = get(client, &path).await?;
            let resources = list.resources.into_iter();
            group.versions.push(DiscoveredVersion {
                version,
                resources: resources
                    .filter(|resource| !resource.name.contains('/'))
                    .map(DiscoveredResource::from)
                    .collect(),
            });
        }
        groups.push(group);
    }
    Ok(groups)
}

async fn get<T: DeserializeOwned>(client: &RestClient, path: &str) -> Result<T, SourceError> {
    let request = Request::get(path)
        .header(ACCEPT, AGGREGATED)
        .body(Bytes::new())
        .map_err(SourceError::transport)?;
    let body = client.request(request).await?.into_body();
    let body = Limited::new(body, BYTES_MAX)
        .collect()
        .await
        .map_err(SourceError::transport)?;
    serde_json::from_slice(&body.to_bytes()).map_err(|_| {
        SourceError::Unexpected(format!(
            "something that is not a list of resources at {path}"
        ))
    })
}

/// A group of aggregated discovery.
#[derive(Debug, Deserialize)]
struct DiscoveredGroup {
    #[serde(default)]
    metadata: GroupMetadata,
    #[serde(default)]
    versions: Vec<DiscoveredVersion>,
}

#[derive(Debug, Deserialize, Default)]
struct GroupMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct DiscoveredVersion {
    version: String,
    #[serde(default)]
    resources: Vec<DiscoveredResource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveredResource {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ResponseKind {
    kind: String,
}

/// The resources of one version, from a server without aggregated discovery.
#[derive(Debug, Deserialize)]
struct LegacyResourceList {
    resources: Vec<LegacyResource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    singular_name: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
}

impl From<LegacyResource> for DiscoveredResource {
    fn from(old: LegacyResource) -> DiscoveredResource {
        DiscoveredResource {
            resource: old.name,
            response_kind: Some(ResponseKind { kind: old.kind }),
            scope: if old.namespaced {
                "Namespaced"
            } else {
                "Cluster"
            }
            .to_owned(),
            singular_resource: old.singular_name,
            short_names: old.short_names,
            verbs: old.verbs,
        }
    }
}

impl DiscoveredResource {
    fn kind(&self) -> &str {
        self.response_kind.as_ref().map_or("", |kind| &kind.kind)
    }

    fn is_called(&self, name: &str) -> bool {
        self.resource == name
            || self.singular_resource == name
            || self.short_names.iter().any(|short| short == name)
            || self.kind().to_lowercase() == name
    }

    fn resolved(&self, group: &str, version: &str) -> Resolved {
        let api_version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        Resolved {
            resource: ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version,
                kind: self.kind().to_owned(),
                plural: self.resource.clone(),
            },
            namespaced: self.scope == "Namespaced",
        }
    }
}
