//! What there is: groups, versions, resources, in the old form and in the aggregated one (W26–W31).

use std::sync::OnceLock;

use base64::Engine;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tidings_api::Status;
use tidings_json::{Map, Value, json};

use crate::negotiate::{self, Form, Offer};
use crate::registry::{Kind, Special};
use crate::request::Query;
use crate::respond::{self, ResponseBody};
use crate::served::{Kinds, Served};

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

/// Of custom resources they are listed in this order.
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

/// A page of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` and `/apis/{group}/{version}`.
    Resources { group: String, version: String },
}

/// Answers with a page.
pub(crate) fn answer(
    page: &Page,
    served: &Served,
    parts: &Parts,
    query: &Query,
) -> Result<Response<ResponseBody>, Status> {
    let headers = &parts.headers;
    let kinds = &served.kinds;
    match page {
        Page::CoreVersions if negotiate::wants_aggregated(headers) => {
            Ok(aggregated(served.discovery.core(kinds), headers))
        }
        Page::Groups if negotiate::wants_aggregated(headers) => {
            Ok(aggregated(served.discovery.others(kinds), headers))
        }
        Page::CoreVersions => document(&core_versions(parts), headers, query),
        Page::Groups => {
            let groups = groups(kinds).into_iter();
            let groups: Vec<Value> = groups.map(|group| described(kinds, group)).collect();
            let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
            document(&list, headers, query)
        }
        Page::Group(name) => {
            let mut group = Map::new();
            group.insert("kind".into(), "APIGroup".into());
            group.insert("apiVersion".into(), "v1".into());
            if let Value::Object(members) = described(kinds, name) {
                group.extend(members);
            }
            document(&group.into(), headers, query)
        }
        Page::Resources { group, version } => {
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
    let accepted = negotiate::accepted(headers, query, Offer::Description, false)?;
    if accepted.form != Form::Whole {
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

/// The groups besides the core group, in order.
fn groups(kinds: &Kinds) -> Vec<&'static str> {
    let mut groups: Vec<&str> = Vec::new();
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        if !groups.contains(&kind.group) {
            groups.push(kind.group);
        }
    }
    groups
}

/// The versions of a group, the preferred one first.
fn versions(kinds: &Kinds, group: &str) -> Vec<&'static str> {
    let mut versions: Vec<&str> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group == group) {
        if !versions.contains(&kind.version) {
            versions.push(kind.version);
        }
    }
    versions
}

fn described(kinds: &Kinds, group: &str) -> Value {
    let version =
        |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let versions: Vec<Value> = versions(kinds, group).iter().map(version).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// The verbs of a kind, sorted.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.review.is_some() {
        return vec!["create"];
    }
    if let Some(live) = kind.live() {
        return match live.terminating {
            true => vec!["delete", "deletecollection", "get", "list", "watch"],
            false => CUSTOM_VERBS.to_vec(),
        };
    }
    let mut verbs = VERBS.to_vec();
    verbs.retain(|verb| *verb != "deletecollection" || kind.collection_delete);
    verbs
}

/// A subresource as discovery names it.
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// Group, version and kind, where they are not those of the resource.
    pub(crate) elsewhere: Option<(&'static str, &'static str, &'static str)>,
    pub(crate) verbs: &'static [&'static str],
}

pub(crate) fn subresources(kind: &Kind) -> Vec<Subresource> {
    const CHANGED: &[&str] = &["get", "patch", "update"];
    let finalize = (kind.special == Special::Namespace).then_some(Subresource {
        name: "finalize",
        elsewhere: None,
        verbs: &["update"],
    });
    let scale = kind.has_scale().then_some(Subresource {
        name: "scale",
        elsewhere: Some(("autoscaling", "v1", "Scale")),
        verbs: CHANGED,
    });
    let status = kind.has_status().then_some(Subresource {
        name: "status",
        elsewhere: None,
        verbs: CHANGED,
    });
    let all = match kind.custom {
        None => [finalize, scale, status],
        Some(_) => [finalize, status, scale],
    };
    all.into_iter().flatten().collect()
}

/// W27: `APIResourceList`. `None` if there is no such version.
fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let here = |kind: &&'static Kind| kind.group == group && kind.version == version;
    let kinds: Vec<&'static Kind> = kinds.iter().filter(here).collect();
    let first = kinds.first()?;
    let mut resources = Vec::new();
    for kind in &kinds {
        resources.push(resource(kind));
        for subresource in subresources(kind) {
            let mut entry = Map::new();
            let name = format!("{}/{}", kind.plural, subresource.name);
            entry.insert("name".into(), name.into());
            entry.insert("singularName".into(), "".into());
            entry.insert("namespaced".into(), kind.namespaced.into());
            if let Some((group, version, _)) = subresource.elsewhere {
                entry.insert("group".into(), group.into());
                entry.insert("version".into(), version.into());
            }
            let shown = subresource.elsewhere.map_or(kind.kind, |(_, _, kind)| kind);
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
    list.insert(
        "groupVersion".into(),
        first.group_version().to_string().into(),
    );
    list.insert("resources".into(), resources.into());
    Some(list.into())
}

fn resource(kind: &'static Kind) -> Value {
    let mut entry = Map::new();
    entry.insert("name".into(), kind.plural.into());
    entry.insert("singularName".into(), singular(kind).into());
    entry.insert("namespaced".into(), kind.namespaced.into());
    entry.insert("kind".into(), kind.kind.into());
    entry.insert("verbs".into(), verbs(kind).into());
    put_names(&mut entry, kind);
    if kind.review.is_none() {
        entry.insert("storageVersionHash".into(), storage_hash(kind).into());
    }
    entry.into()
}

fn singular(kind: &Kind) -> String {
    match kind.live() {
        Some(live) => live.definition.names.singular.clone(),
        None => kind.kind.to_lowercase(),
    }
}

fn put_names(entry: &mut Map, kind: &Kind) {
    if let Some(live) = kind.live() {
        let names = &live.definition.names;
        for (name, texts) in [
            ("shortNames", &names.short_names),
            ("categories", &names.categories),
        ] {
            if !texts.is_empty() {
                entry.insert(name.into(), texts.as_slice().into());
            }
        }
        return;
    }
    if !kind.short_names.is_empty() {
        entry.insert("shortNames".into(), kind.short_names.into());
    }
    if !kind.categories.is_empty() {
        entry.insert("categories".into(), kind.categories.into());
    }
}

/// W28: tells clients whether objects are stored in another form than before.
fn storage_hash(kind: &'static Kind) -> String {
    let stored = kind.stored();
    let text = match kind.live() {
        Some(live) => format!("{}/{}", live.stored_version(), kind.kind),
        None => format!("{}/{}/{}", stored.group, stored.version, stored.kind),
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// A document that does not change, with its tag.
#[derive(Debug)]
pub(crate) struct Tagged {
    bytes: Bytes,
    /// SHA-512 in upper-case hexadecimal digits.
    pub(crate) hash: String,
}

impl Tagged {
    pub(crate) fn new(value: &Value) -> Tagged {
        let mut json = value.to_string().into_bytes();
        json.push(b'\n');
        Tagged::of_bytes(json)
    }

    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Tagged {
        Tagged {
            hash: hash(&bytes),
            bytes: bytes.into(),
        }
    }

    /// The document, or 304 if the client has it.
    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response<ResponseBody> {
        answer_tagged(&self.hash, headers, || self.bytes.clone())
    }
}

/// SHA-512 in upper-case hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02X}"));
    digits.collect()
}

/// A document whose tag is its hash, or 304 if the client has it.
pub(crate) fn answer_tagged(
    hash: &str,
    headers: &HeaderMap,
    document: impl FnOnce() -> Bytes,
) -> Response<ResponseBody> {
    let tag = format!("\"{hash}\"");
    let known = headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    let known = known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag));
    let (code, body) = if known {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (StatusCode::OK, document())
    };
    let mut response = respond::json_response(code, ResponseBody::bytes(body));
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// W29.
fn aggregated(document: &Tagged, headers: &HeaderMap) -> Response<ResponseBody> {
    let mut response = document.answer(headers);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// The aggregated pages of what is served, made when somebody asks for them.
#[derive(Debug, Default)]
pub(crate) struct Aggregated {
    core: OnceLock<Tagged>,
    others: OnceLock<Tagged>,
}

impl Aggregated {
    fn core(&self, kinds: &Kinds) -> &Tagged {
        self.core.get_or_init(|| aggregated_list(kinds, &[""]))
    }

    fn others(&self, kinds: &Kinds) -> &Tagged {
        self.others
            .get_or_init(|| aggregated_list(kinds, &groups(kinds)))
    }
}

/// W30.
fn aggregated_list(kinds: &Kinds, groups: &[&str]) -> Tagged {
    let groups = groups.iter();
    let items: Vec<Value> = groups.map(|group| aggregated_group(kinds, group)).collect();
    Tagged::new(&json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }))
}

fn aggregated_group(kinds: &Kinds, group: &str) -> Value {
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({"name": group})
    };
    let version = |version: &&str| {
        let here = |kind: &&'static Kind| kind.group == group && kind.version == *version;
        let resources = kinds.iter().filter(here);
        let resources: Vec<Value> = resources.map(aggregated_resource).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = versions(kinds, group).iter().map(version).collect();
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &'static Kind) -> Value {
    let response_kind = |elsewhere: Option<(&str, &str, &str)>| {
        let (group, version, kind) = elsewhere.unwrap_or(("", "", kind.kind));
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = Map::new();
    entry.insert("resource".into(), kind.plural.into());
    entry.insert("responseKind".into(), response_kind(None));
    let scope = if kind.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    entry.insert("scope".into(), scope.into());
    entry.insert("singularResource".into(), singular(kind).into());
    entry.insert("verbs".into(), verbs(kind).into());
    put_names(&mut entry, kind);
    let subresources: Vec<Value> = subresources(kind)
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource.name,
                "responseKind": response_kind(subresource.elsewhere),
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
    use crate::registry;

    #[test]
    fn w28_the_hash_of_a_storage_version() {
        let hash =
            |group, version, plural| storage_hash(registry::find(group, version, plural).unwrap());
        assert_eq!(hash("", "v1", "configmaps"), "qFsyl6wFWjQ=");
        assert_eq!(
            hash("autoscaling", "v1", "horizontalpodautoscalers"),
            "qwQve8ut294="
        );
        assert_eq!(hash("events.k8s.io", "v1", "events"), "r2yiGXH7wu8=");
    }
}
