//! Routing: parses the path and the query of a request (W12–W21).

use std::borrow::Cow;

use http::Method;
use tidings_api::Status;
use tidings_registry::{Catalog, Kind, Subresource, posted_kind};

use crate::core::{ServedSet, Target};

/// The route of a path.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// A resource of the API.
    Resource(ResourceRequest),
    /// A path below a served group that is not served (W24): 404 as a Status.
    NoSuchResource,
    /// A subresource that the custom resource does not have: 404 as if the object did not exist.
    NoSuchSubresource(std::sync::Arc<Kind>, String),
    /// A path outside of the API: 404 as text.
    NoSuchPath,
    Health(HealthRequest),
    Version,
    Metrics,
    /// A backup of the store.
    Backup,
    Discovery(DiscoveryPage),
    OpenApi(OpenApiDocument),
    OpenId(OpenIdDocument),
    /// `/`: the list of paths.
    Root,
}

/// A request for a health endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthRequest {
    /// `healthz`, `livez` or `readyz`.
    pub(crate) endpoint: &'static str,
    /// The name of a single check; empty for all checks.
    pub(crate) check: String,
}

/// A discovery document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiscoveryPage {
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` and `/apis/{group}/{version}`.
    Resources { group: String, version: String },
}

/// An OpenAPI document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpenApiDocument {
    /// `/openapi/v2`.
    V2,
    /// `/openapi/v3`: the list of documents.
    V3Index,
    /// `/openapi/v3/{path}`: the document of one group and version.
    V3(String),
}

/// A document for those who check tokens of service accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenIdDocument {
    /// `/.well-known/openid-configuration`.
    Configuration,
    /// `/openid/v1/jwks`.
    Keys,
}

/// A request for a resource.
#[derive(Debug, Clone)]
pub(crate) struct ResourceRequest {
    pub(crate) target: Target,
    /// True for the legacy `/watch/` path (W19).
    pub(crate) forced_watch: bool,
}

/// A verb on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) fn mutates(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

/// The group, the version and the possible plurals of a custom resource that a path may mean.
pub(crate) fn custom_resource_names(path: &str) -> Option<(String, String, Vec<String>)> {
    let segments = segments(path)?;
    let mut segments = segments.iter().map(|segment| segment.to_string());
    if segments.next()? != "apis" {
        return None;
    }
    let (group, version) = (segments.next()?, segments.next()?);
    // The plural is the first segment, or the third one after `namespaces/{namespace}`.
    let plurals: Vec<String> = segments.take(3).collect();
    (!plurals.is_empty()).then_some((group, version, plurals))
}

/// Finds the route of a path.
pub(crate) fn route(path: &str, served: &ServedSet) -> Route {
    tracing::trace!(target: "tidings::walk", "finds the resource in the served set");
    let kinds = &served.catalog;
    let Some(segments) = segments(path) else {
        // An invalid path: below the API it is a missing resource, elsewhere a missing page.
        let api = path.starts_with("/api/") || path.starts_with("/apis/");
        return if api {
            Route::NoSuchResource
        } else {
            Route::NoSuchPath
        };
    };
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    match segments.as_slice() {
        [] => Route::Root,
        ["version"] => Route::Version,
        ["metrics"] => Route::Metrics,
        ["tidings", "backup"] => Route::Backup,
        [".well-known", "openid-configuration"] => Route::OpenId(OpenIdDocument::Configuration),
        ["openid", "v1", "jwks"] => Route::OpenId(OpenIdDocument::Keys),
        ["healthz" | "livez" | "readyz", ..] if !path.ends_with('/') => health(&segments),
        ["api"] => Route::Discovery(DiscoveryPage::CoreVersions),
        ["apis"] => Route::Discovery(DiscoveryPage::Groups),
        ["apis", group] if kinds.has_group(group) => {
            Route::Discovery(DiscoveryPage::Group((*group).to_owned()))
        }
        ["api", "v1"] => resources(kinds, "", "v1"),
        ["apis", group, version] if kinds.has_group(group) => resources(kinds, group, version),
        ["openapi", "v2"] => Route::OpenApi(OpenApiDocument::V2),
        ["openapi", "v3"] => Route::OpenApi(OpenApiDocument::V3Index),
        ["openapi", "v3", rest @ ..] => Route::OpenApi(OpenApiDocument::V3(rest.join("/"))),
        ["api", "v1", rest @ ..] => resource(served, "", "v1", rest),
        ["api", _, ..] => Route::NoSuchResource,
        ["apis", group, version, rest @ ..] if kinds.has_group(group) => {
            match resource(served, group, version, rest) {
                // An unknown resource in the group of a custom resource is 404 as text (W185).
                Route::NoSuchResource if kinds.is_custom(group) => Route::NoSuchPath,
                route => route,
            }
        }
        _ => Route::NoSuchPath,
    }
}

fn resources(kinds: &Catalog, group: &str, version: &str) -> Route {
    if kinds.is_custom(group) && !kinds.has_version(group, version) {
        return Route::NoSuchPath;
    }
    Route::Discovery(DiscoveryPage::Resources {
        group: group.to_owned(),
        version: version.to_owned(),
    })
}

fn health(segments: &[&str]) -> Route {
    let endpoint = match segments[0] {
        "healthz" => "healthz",
        "livez" => "livez",
        _ => "readyz",
    };
    match segments[1..] {
        [] => Route::Health(HealthRequest {
            endpoint,
            check: String::new(),
        }),
        [check] => Route::Health(HealthRequest {
            endpoint,
            check: check.to_owned(),
        }),
        _ => Route::NoSuchPath,
    }
}

/// The decoded segments of a path. `None` if a segment is empty, contains an escaped slash, or is `.` or `..` (W12), except that the last
/// segment may be `.` or `..`: it may be a name, which is checked later. The path may end with one slash.
fn segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    let trimmed = path.strip_prefix('/')?;
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    if trimmed.is_empty() {
        return (path.len() <= 1).then(Vec::new);
    }
    let count = trimmed.split('/').count();
    let decoded = trimmed.split('/').enumerate().map(|(at, segment)| {
        let decoded = percent_decode(segment, false)?;
        let dots = matches!(decoded.as_ref(), "." | "..") && at + 1 < count;
        let odd = decoded.is_empty() || dots || decoded.contains('/');
        (!odd).then_some(decoded)
    });
    decoded.collect()
}

fn resource(served: &ServedSet, group: &str, version: &str, segments: &[&str]) -> Route {
    let (forced_watch, segments) = match segments {
        ["watch", rest @ ..] => (true, rest),
        // Authorisation reads these as a verb.
        ["proxy", ..] => return Route::NoSuchResource,
        rest => (false, rest),
    };
    let (namespace, rest) = match segments {
        // `status` and `finalize` below a namespace are its subresources; anything else is a resource in the namespace (W18).
        ["namespaces", namespace, rest @ ..]
            if !matches!(rest, [] | ["status" | "finalize", ..]) =>
        {
            (Some((*namespace).to_owned()), rest)
        }
        rest => (None, rest),
    };
    let (plural, name, part) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, part] if !forced_watch => (*plural, Some(*name), Some(*part)),
        _ => return Route::NoSuchResource,
    };
    let Some((kind, resource)) = served.find(group, version, plural) else {
        return Route::NoSuchResource;
    };
    let scope_fits = match (kind.namespaced, &namespace, name) {
        (true, None, Some(_)) => false, // an object of a namespaced resource needs its namespace
        (false, Some(_), _) => false,
        _ => true,
    };
    let known = part.and_then(Subresource::named);
    let subresource = known.filter(|part| kind.has(*part));
    let exists = part.is_none() || subresource.is_some();
    if let (Some(name), true, true, false) = (name, kind.is_custom(), scope_fits, exists) {
        return Route::NoSuchSubresource(kind, name.to_owned());
    }
    // A review has no name in its path and cannot be watched.
    let review_fits = kind.review.is_none()
        || (name.is_none() && !forced_watch && namespace.is_some() == kind.namespaced);
    if !scope_fits || !exists || !review_fits {
        return Route::NoSuchResource;
    }
    let name = name.map(ToOwned::to_owned);
    let posted = subresource.and_then(posted_kind);
    let kind = posted.cloned().unwrap_or(kind);
    Route::Resource(ResourceRequest {
        target: Target::new(kind, resource, namespace, name, subresource),
        forced_watch,
    })
}

impl ResourceRequest {
    /// The verb of an HTTP method (W11, W16, W17, W20). `watch` is the query parameter.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> Result<Verb, Status> {
        let target = &self.target;
        let collection = target.name().is_none();
        let finalizes = target.subresource == Some(Subresource::Finalize);
        let one_namespace = target.namespace().is_some() || !target.kind.namespaced;
        match (method.as_str(), collection) {
            ("POST", _) if target.kind.review.is_some() => Ok(Verb::Create),
            _ if target.kind.review.is_some() => Err(Status::method_not_allowed()),
            ("GET", _) if self.forced_watch => Ok(Verb::Watch),
            _ if self.forced_watch => Err(Status::method_not_allowed()),
            ("GET", true) if watch => Ok(Verb::Watch),
            ("GET", true) => Ok(Verb::List),
            ("POST", true) if one_namespace => Ok(Verb::Create),
            ("GET", false) if !finalizes => Ok(Verb::Get),
            ("PUT", false) => Ok(Verb::Update),
            ("PATCH", false) if !finalizes => Ok(Verb::Patch),
            ("DELETE", false) if target.subresource.is_none() => Ok(Verb::Delete),
            ("DELETE", true) if one_namespace && target.kind.collection_delete => {
                Ok(Verb::DeleteCollection)
            }
            _ => Err(Status::method_not_allowed()),
        }
    }
}

/// The decoded query parameters, in order. If a parameter is repeated, the first value counts (W13).
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string. Pairs with a bad escape are left out, as Go does.
    pub(crate) fn parse(query: &str) -> Query {
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((
                percent_decode(name, true)?.into_owned(),
                percent_decode(value, true)?.into_owned(),
            ))
        });
        Query(decoded.collect())
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

/// Decodes `%xx`, and `+` as a space in queries. `None` for bad escapes and for text that is not UTF-8.
pub(crate) fn percent_decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    let escaped = text.contains('%') || (plus_is_space && text.contains('+'));
    if !escaped {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A served set without objects, which is enough for routes.
    fn served() -> ServedSet {
        ServedSet::without_objects()
    }

    fn target(path: &str) -> String {
        match route(path, &served()) {
            Route::Resource(ResourceRequest {
                target,
                forced_watch,
            }) => format!(
                "{}{} ns={} name={} sub={}",
                if forced_watch { "watch " } else { "" },
                target.kind.group_resource(),
                target.namespace().unwrap_or("-"),
                target.name().unwrap_or("-"),
                target.subresource.map_or("-", |part| part.as_str()),
            ),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn w15_w16_w17_collections_and_items() {
        assert_eq!(target("/api/v1/configmaps"), "configmaps ns=- name=- sub=-");
        assert_eq!(
            target("/api/v1/namespaces/a/configmaps/"),
            "configmaps ns=a name=- sub=-"
        );
        assert_eq!(
            target("/api/v1/namespaces/a/configmaps/x"),
            "configmaps ns=a name=x sub=-"
        );
        assert_eq!(
            target("/apis/apps/v1/namespaces/a/deployments/x/status"),
            "deployments.apps ns=a name=x sub=status"
        );
        assert_eq!(
            target("/api/v1/namespaces/a"),
            "namespaces ns=- name=a sub=-"
        );
    }

    #[test]
    fn w18_subresources_of_namespaces_are_not_resources_in_them() {
        assert_eq!(
            target("/api/v1/namespaces/a/status"),
            "namespaces ns=- name=a sub=status"
        );
        assert_eq!(
            target("/api/v1/namespaces/a/finalize"),
            "namespaces ns=- name=a sub=finalize"
        );
        assert_eq!(target("/api/v1/namespaces/a/nosuch"), "NoSuchResource");
        assert_eq!(
            target("/api/v1/namespaces/a/configmaps/x/nosuch"),
            "NoSuchResource"
        );
    }

    #[test]
    fn w19_legacy_watches() {
        assert_eq!(
            target("/api/v1/watch/namespaces/a/configmaps/x"),
            "watch configmaps ns=a name=x sub=-"
        );
        assert_eq!(
            target("/api/v1/watch/configmaps"),
            "watch configmaps ns=- name=- sub=-"
        );
        assert_eq!(
            target("/api/v1/watch/namespaces/default"),
            "watch namespaces ns=- name=default sub=-"
        );
    }

    #[test]
    fn w12_invalid_paths_are_not_found() {
        for path in [
            "/api/v1//configmaps",
            "/api/v1/namespaces/../configmaps",
            "/api/v1/namespaces/a/configmaps/x%2Fy",
        ] {
            assert_eq!(target(path), "NoSuchResource", "{path}");
        }
        assert_eq!(
            target("/api/v1/ConfigMaps"),
            "NoSuchResource",
            "paths are case-sensitive"
        );
    }

    #[test]
    fn w24_paths_outside_of_served_groups_get_404_as_text() {
        assert_eq!(target("/nosuch"), "NoSuchPath");
        assert_eq!(target("/apis/nosuch.example.com/v1/things"), "NoSuchPath");
        assert_eq!(target("/apis/apps/v9/deployments"), "NoSuchResource");
        assert_eq!(target("/api/v1/nosuch"), "NoSuchResource");
    }

    #[test]
    fn w13_the_first_value_of_a_repeated_parameter_counts() {
        let query = Query::parse("limit=1&limit=2&labelSelector=a%3Db+c&bad=%zz&flag");
        assert_eq!(query.get("limit"), Some("1"));
        assert_eq!(query.get("labelSelector"), Some("a=b c"));
        assert_eq!(query.get("bad"), None);
        assert_eq!(query.get("flag"), Some(""));
    }

    #[test]
    fn w16_w17_w20_methods() {
        let verb = |path: &str, method: &str, watch| match route(path, &served()) {
            Route::Resource(target) => target
                .verb(&Method::from_bytes(method.as_bytes()).unwrap(), watch)
                .ok(),
            other => panic!("{other:?}"),
        };
        let (all, one) = ("/api/v1/configmaps", "/api/v1/namespaces/a/configmaps");
        assert_eq!(verb(all, "GET", false), Some(Verb::List));
        assert_eq!(verb(all, "GET", true), Some(Verb::Watch));
        assert_eq!(verb(all, "POST", false), None, "W16");
        assert_eq!(verb(one, "POST", false), Some(Verb::Create));
        let item = "/api/v1/namespaces/a/configmaps/x";
        assert_eq!(verb(item, "GET", true), Some(Verb::Get), "W20");
        assert_eq!(verb(item, "POST", false), None, "W17");
        assert_eq!(verb(item, "HEAD", false), None, "W11");
        assert_eq!(verb("/api/v1/watch/configmaps", "POST", false), None);
    }
}
