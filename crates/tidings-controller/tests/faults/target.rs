//! What the path and query of a request mean.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;

/// What a path and query mean.
pub(crate) struct Target {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    pub(crate) query: BTreeMap<String, String>,
}

pub(crate) fn target(request: &Request<Bytes>) -> Option<Target> {
    let segments: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let part = |at: usize| (*rest.get(at).unwrap_or(&"")).to_owned();
    let query = request.uri().query().unwrap_or_default().split('&');
    let query = query.filter_map(|pair| pair.split_once('='));
    Some(Target {
        resource: match group {
            "" => part(0),
            group => format!("{}.{group}", part(0)),
        },
        namespace: namespace.to_owned(),
        name: part(1),
        subresource: part(2),
        query: query
            .map(|(name, value)| {
                (
                    name.to_owned(),
                    value.replace("%3D", "=").replace("%2F", "/"),
                )
            })
            .collect(),
    })
}
