//! Discovery: groups, versions and resources, as separate documents and in the aggregated form (W26–W31).

use std::sync::{Arc, OnceLock};

use base64::Engine;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};
use tidings_api::{GroupVersion, GroupVersionKind, Status};
use tidings_json::{Map, Value, json};

use tidings_registry::{Catalog, Kind, Name, Subresource};

use super::negotiate::{self, ObjectForm, ResponseContent};
use super::request::{DiscoveryPage, Query};
use super::respond::{self, ResponseBody};
use super::tagged::TaggedDocument;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The verbs of custom resources, which kube-apiserver lists in another order.
const CUSTOM_VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// Answers a request for a discovery document.
pub(crate) fn answer(
    page: &DiscoveryPage,
    kinds: &Catalog,
    pages: &AggregatedPages,
    parts: &Parts,
    query: &Query,
) -> Result<Response<ResponseBody>, Status> {
    let headers = &parts.headers;
    match page {
        DiscoveryPage::CoreVersions if negotiate::wants_aggregated(headers) => {
            Ok(aggregated(pages.core(kinds), headers))
        }
        DiscoveryPage::Groups if negotiate::wants_aggregated(headers) => {
            Ok(aggregated(pages.others(kinds), headers))
        }
        DiscoveryPage::CoreVersions => document(&core_versions(parts), headers, query),
        DiscoveryPage::Groups => {
            let groups = groups(kinds).map(|group| group_versions(kinds, group));
            let groups: Vec<Value> = groups.collect();
            let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
            document(&list, headers, query)
        }
        DiscoveryPage::Group(name) => {
            let mut group = Map::new();
            group.insert("kind".into(), "APIGroup".into());
            group.insert("apiVersion".into(), "v1".into());
            if let Value::Object(members) = group_versions(kinds, name) {
                group.extend(members);
            }
            document(&group.into(), headers, query)
        }
        DiscoveryPage::Resources { group, version } => {
            let list = resources(kinds, group, version).ok_or_else(Status::no_such_resource)?;
            document(&list, headers, query)
        }
    }
}

fn document(
    value: &Value,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Response<ResponseBody>, Status> {
    let accepted = negotiate::accepted(headers, query, ResponseContent::Description, false)?;
    if accepted.form != ObjectForm::Whole {
        return Err(negotiate::not_acceptable());
    }
    respond::document(value.to_string().as_bytes(), accepted.format)
}

fn core_versions(parts: &Parts) -> Value {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{
            "clientCIDR": "0.0.0.0/0",
            "serverAddress": host.or(authority).unwrap_or_default(),
        }],
    })
}

/// All groups but the core group, in the order of the catalog.
fn groups(kinds: &Catalog) -> impl Iterator<Item = &str> {
    let groups = kinds.groups().map(Name::as_ref);
    groups.filter(|group| !group.is_empty())
}

/// The name and versions of a group, as in `APIGroup`.
fn group_versions(kinds: &Catalog, group: &str) -> Value {
    let version = |version: &Name| json!({"groupVersion": format!("{group}/{version}"), "version": &**version});
    let versions: Vec<Value> = kinds.versions(group).map(version).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// The verbs of a kind, in the order of kube-apiserver.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.review.is_some() {
        return vec!["create"];
    }
    if kind.is_custom() {
        return match kind.terminating {
            true => vec!["delete", "deletecollection", "get", "list", "watch"],
            false => CUSTOM_VERBS.to_vec(),
        };
    }
    let mut verbs = VERBS.to_vec();
    verbs.retain(|verb| *verb != "deletecollection" || kind.collection_delete);
    verbs
}

/// A subresource in discovery.
pub(super) struct ListedSubresource {
    pub(super) name: &'static str,
    /// The kind, if it is not that of the resource.
    pub(super) other_kind: Option<GroupVersionKind<'static>>,
    pub(super) verbs: &'static [&'static str],
}

pub(super) fn subresources(kind: &Kind) -> Vec<ListedSubresource> {
    const CHANGED: &[&str] = &["get", "patch", "update"];
    // Those of built-in kinds are sorted by name.
    let mut order = Subresource::ALL;
    if !kind.is_custom() {
        order.sort_by_key(|part| part.as_str());
    }
    let listed = |part: Subresource| ListedSubresource {
        name: part.as_str(),
        other_kind: part.other_kind(),
        verbs: match part {
            Subresource::Finalize => &["update"],
            Subresource::Token | Subresource::Binding | Subresource::Eviction => &["create"],
            Subresource::Approval | Subresource::Scale | Subresource::Status => CHANGED,
        },
    };
    let has = order.into_iter().filter(|part| kind.has(*part));
    has.map(listed).collect()
}

/// The `APIResourceList` of a group and version (W27). `None` if it is not served.
fn resources(kinds: &Catalog, group: &str, version: &str) -> Option<Value> {
    if !kinds.has_version(group, version) {
        return None;
    }
    let mut resources = Vec::new();
    for kind in kinds.of_version(group, version) {
        resources.push(resource(kind));
        for subresource in subresources(kind) {
            let mut entry = Map::new();
            let name = format!("{}/{}", kind.plural, subresource.name);
            entry.insert("name".into(), name.into());
            entry.insert("singularName".into(), "".into());
            entry.insert("namespaced".into(), kind.namespaced.into());
            if let Some(other) = subresource.other_kind {
                entry.insert("group".into(), other.group.into());
                entry.insert("version".into(), other.version.into());
            }
            let shown = subresource
                .other_kind
                .map_or(&*kind.kind, |other| other.kind);
            entry.insert("kind".into(), shown.into());
            entry.insert("verbs".into(), subresource.verbs.into());
            resources.push(Value::Object(entry));
        }
    }
    let mut list = Map::new();
    list.insert("kind".into(), "APIResourceList".into());
    if !group.is_empty() {
        list.insert("apiVersion".into(), "v1".into());
    }
    let group_version = GroupVersion { group, version }.to_string();
    list.insert("groupVersion".into(), group_version.into());
    list.insert("resources".into(), resources.into());
    Some(list.into())
}

fn resource(kind: &Arc<Kind>) -> Value {
    let mut entry = Map::new();
    entry.insert("name".into(), (*kind.plural).into());
    entry.insert("singularName".into(), (*kind.singular()).into());
    entry.insert("namespaced".into(), kind.namespaced.into());
    entry.insert("kind".into(), (*kind.kind).into());
    entry.insert("verbs".into(), verbs(kind).into());
    put_names(&mut entry, kind);
    if kind.review.is_none() {
        entry.insert("storageVersionHash".into(), storage_hash(kind).into());
    }
    entry.into()
}

fn put_names(entry: &mut Map, kind: &Kind) {
    for (name, texts) in [
        ("shortNames", &kind.short_names),
        ("categories", &kind.categories),
    ] {
        if !texts.is_empty() {
            let texts: Vec<&str> = texts.iter().map(Name::as_ref).collect();
            entry.insert(name.into(), texts.into());
        }
    }
}

/// The `storageVersionHash`, which changes when objects are stored in another version (W28).
fn storage_hash(kind: &Arc<Kind>) -> String {
    let stored = tidings_registry::stored(kind);
    let GroupVersion { group, version } = stored.stored_version();
    let text = format!("{group}/{version}/{}", stored.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// The response with an aggregated discovery document (W29).
fn aggregated(document: &TaggedDocument, headers: &HeaderMap) -> Response<ResponseBody> {
    let mut response = document.answer(headers);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// The aggregated discovery documents of a served set, each made at its first request.
#[derive(Debug, Default)]
pub(crate) struct AggregatedPages {
    core: OnceLock<TaggedDocument>,
    others: OnceLock<TaggedDocument>,
}

impl AggregatedPages {
    fn core(&self, kinds: &Catalog) -> &TaggedDocument {
        self.core
            .get_or_init(|| aggregated_list(kinds, std::iter::once("")))
    }

    fn others(&self, kinds: &Catalog) -> &TaggedDocument {
        self.others
            .get_or_init(|| aggregated_list(kinds, groups(kinds)))
    }
}

/// The `APIGroupDiscoveryList` of some groups (W30).
fn aggregated_list<'a>(kinds: &Catalog, groups: impl Iterator<Item = &'a str>) -> TaggedDocument {
    let items: Vec<Value> = groups.map(|group| aggregated_group(kinds, group)).collect();
    TaggedDocument::new(&json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }))
}

fn aggregated_group(kinds: &Catalog, group: &str) -> Value {
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({"name": group})
    };
    let version = |version: &Name| {
        let resources = kinds.of_version(group, version).map(aggregated_resource);
        let resources: Vec<Value> = resources.collect();
        json!({"version": &**version, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = kinds.versions(group).map(version).collect();
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &Arc<Kind>) -> Value {
    let response_kind = |other: Option<GroupVersionKind<'_>>| match other {
        Some(other) => json!({"group": other.group, "version": other.version, "kind": other.kind}),
        None => json!({"group": "", "version": "", "kind": &*kind.kind}),
    };
    let mut entry = Map::new();
    entry.insert("resource".into(), (*kind.plural).into());
    entry.insert("responseKind".into(), response_kind(None));
    let scope = if kind.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    entry.insert("scope".into(), scope.into());
    entry.insert("singularResource".into(), (*kind.singular()).into());
    entry.insert("verbs".into(), verbs(kind).into());
    put_names(&mut entry, kind);
    let subresources: Vec<Value> = subresources(kind)
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource.name,
                "responseKind": response_kind(subresource.other_kind),
                "verbs": subresource.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".into(), subresources.into());
    }
    entry.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_registry::builtin;

    #[test]
    fn w28_the_hash_of_a_storage_version() {
        let hash =
            |group, version, plural| storage_hash(builtin().find(group, version, plural).unwrap());
        assert_eq!(hash("", "v1", "configmaps"), "qFsyl6wFWjQ=");
        assert_eq!(
            hash("autoscaling", "v1", "horizontalpodautoscalers"),
            "qwQve8ut294="
        );
        assert_eq!(hash("events.k8s.io", "v1", "events"), "r2yiGXH7wu8=");
    }
}
