//! What a request asks for, read from its path alone as kube-apiserver does: authorisation comes before anybody knows whether there is such a
//! resource.

use std::borrow::Cow;

use http::Method;
use tidings_access::{Attributes, ResourceAttributes, ResourceOrPath, User};
use tidings_api::{FieldSelector, validate};
use tidings_go::query_bool;

use super::request::{Query, percent_decode};

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestInfo<'a> {
    pub(super) verb: &'static str,
    /// The version of the API, if the path is that of a resource.
    pub(super) api_version: String,
    on: RequestTarget<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RequestTarget<'a> {
    Resource(ResourceAttributes<'a>),
    Path(Cow<'a, str>),
}

/// Parts of a path that name what is done and not what it is done to.
const SPECIAL: [&str; 2] = ["proxy", "watch"];

impl<'a> RequestInfo<'a> {
    pub(super) fn new(method: &Method, path: &'a str, query: &Query) -> RequestInfo<'a> {
        let decoded = percent_decode(path, false).unwrap_or(Cow::Borrowed(path));
        match resource(method, &decoded, query) {
            Some((verb, api_version, on)) => RequestInfo {
                verb,
                api_version,
                on: RequestTarget::Resource(on),
            },
            None => RequestInfo {
                verb: method_name(method),
                api_version: String::new(),
                on: RequestTarget::Path(decoded),
            },
        }
    }

    /// What a user asks for with the request.
    pub(super) fn attributes<'b>(&'b self, user: &'b User) -> Attributes<'b> {
        let on = match &self.on {
            RequestTarget::Resource(on) => ResourceOrPath::Resource(ResourceAttributes {
                group: Cow::Borrowed(&on.group),
                resource: Cow::Borrowed(&on.resource),
                subresource: Cow::Borrowed(&on.subresource),
                namespace: Cow::Borrowed(&on.namespace),
                name: Cow::Borrowed(&on.name),
                version: Cow::Borrowed(&on.version),
                field_selector: Cow::Borrowed(&on.field_selector),
                label_selector: Cow::Borrowed(&on.label_selector),
            }),
            RequestTarget::Path(path) => ResourceOrPath::Path(Cow::Borrowed(path)),
        };
        Attributes {
            user,
            verb: self.verb.into(),
            on,
        }
    }
}

fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        "CONNECT" => "connect",
        "TRACE" => "trace",
        _ => "unknown",
    }
}

/// The verb and the resource of a path below `/api/{version}/` or `/apis/{group}/{version}/`.
fn resource(
    method: &Method,
    path: &str,
    query: &Query,
) -> Option<(&'static str, String, ResourceAttributes<'static>)> {
    let trimmed = path.trim_matches('/');
    let mut parts: Vec<&str> = trimmed.split('/').collect();
    if parts.len() < 3 {
        return None;
    }
    let group = match parts[0] {
        "api" => String::new(),
        "apis" if parts.len() > 3 => parts.remove(1).to_owned(),
        _ => return None,
    };
    let version = parts[1].to_owned();
    parts.drain(..2);
    let special = SPECIAL.into_iter().find(|verb| *verb == parts[0]);
    let mut verb = match (special, method.as_str()) {
        (Some(special), _) => {
            parts.remove(0);
            special
        }
        (_, "POST") => "create",
        (_, "GET" | "HEAD") => "get",
        (_, "PUT") => "update",
        (_, "PATCH") => "patch",
        (_, "DELETE") => "delete",
        _ => "",
    };
    let mut namespace = "";
    if let ["namespaces", name, rest @ ..] = parts.as_slice() {
        namespace = name;
        // Those are parts of the namespace itself.
        if !matches!(rest, [] | ["status" | "finalize", ..]) {
            parts.drain(..2);
        }
    }
    let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
    let has_subresource = special != Some("proxy");
    let (subresource, mut name) = (
        if has_subresource {
            part(2)
        } else {
            String::new()
        },
        part(1),
    );
    if name.is_empty() && verb == "get" {
        let watches = query.get("watch").is_some_and(query_bool);
        verb = if watches { "watch" } else { "list" };
        let selector = query.get("fieldSelector").unwrap_or_default();
        let selector = FieldSelector::parse(selector).unwrap_or_default();
        let named = selector.required_value("metadata.name").unwrap_or_default();
        if validate::path_segment(named).is_empty() {
            name = named.to_owned();
        }
    }
    if name.is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    let selector = |parameter: &str| match verb {
        "list" | "watch" | "deletecollection" => {
            query.get(parameter).unwrap_or_default().to_owned()
        }
        _ => String::new(),
    };
    let on = ResourceAttributes {
        group: group.into(),
        resource: part(0).into(),
        subresource: subresource.into(),
        namespace: namespace.to_owned().into(),
        name: name.into(),
        version: version.clone().into(),
        field_selector: selector("fieldSelector").into(),
        label_selector: selector("labelSelector").into(),
    };
    Some((verb, version, on))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let info = RequestInfo::new(&method, path, &Query::parse(query));
        match info.on {
            RequestTarget::Path(path) => format!("{} path {path}", info.verb),
            RequestTarget::Resource(on) => format!(
                "{} {}|{}|{} in {} name {}",
                info.verb, on.group, on.resource, on.subresource, on.namespace, on.name
            ),
        }
    }

    #[test]
    fn w54_paths_are_read_as_kube_apiserver_reads_them() {
        for (method, uri, expected) in [
            ("GET", "/", "get path /"),
            ("GET", "/api", "get path /api"),
            ("GET", "/api/v1", "get path /api/v1"),
            ("GET", "/apis/apps/v1", "get path /apis/apps/v1"),
            ("POST", "/healthz/x", "post path /healthz/x"),
            ("GET", "/api/v1/pods", "list |pods| in  name "),
            ("HEAD", "/api/v1/nosuch", "list |nosuch| in  name "),
            ("GET", "/api/v1/pods?watch=1", "watch |pods| in  name "),
            ("GET", "/api/v1/pods?watch=false", "list |pods| in  name "),
            (
                "GET",
                "/api/v1/pods?fieldSelector=metadata.name%3Da",
                "list |pods| in  name a",
            ),
            ("GET", "/api/v1/watch/pods", "watch |pods| in  name "),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods/x",
                "watch |pods| in a name x",
            ),
            ("GET", "/api/v1/namespaces", "list |namespaces| in  name "),
            (
                "GET",
                "/api/v1/namespaces/a",
                "get |namespaces| in a name a",
            ),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update |namespaces|finalize in a name a",
            ),
            (
                "PUT",
                "/api/v1/namespaces/a/status",
                "update |namespaces|status in a name a",
            ),
            (
                "POST",
                "/api/v1/namespaces/a/pods",
                "create |pods| in a name ",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods",
                "deletecollection |pods| in a name ",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods/x",
                "delete |pods| in a name x",
            ),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/a/deployments/x/scale",
                "patch apps|deployments|scale in a name x",
            ),
            (
                "POST",
                "/api/v1/namespaces/a/pods/x/exec",
                "create |pods|exec in a name x",
            ),
            (
                "GET",
                "/apis/g/v1/namespaces/a%2Fb/pods",
                "get g|b| in a name pods",
            ),
            ("OPTIONS", "/api/v1/pods", " |pods| in  name "),
        ] {
            assert_eq!(show(method, uri), expected, "{method} {uri}");
        }
    }
}
