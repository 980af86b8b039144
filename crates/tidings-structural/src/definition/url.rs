//! Splits a webhook URL into the parts that checks need, as Go's `net/url` does.

use tidings_api::go;

/// The parts of a URL.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ParsedUrl<'a> {
    pub(super) scheme: String,
    pub(super) user: Option<&'a str>,
    pub(super) host: &'a str,
    pub(super) query: &'a str,
    pub(super) fragment: &'a str,
}

/// Parses a URL.
///
/// # Errors
/// If it is no URL; the text is that of Go's `url.Parse`.
pub(super) fn parse(text: &str) -> Result<ParsedUrl<'_>, String> {
    split(text).map_err(|why| format!("parse {}: {why}", go::quote(text)))
}

fn split(text: &str) -> Result<ParsedUrl<'_>, String> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (scheme, rest) = match rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
    {
        Some(0) if rest.starts_with(':') => return Err("missing protocol scheme".into()),
        Some(at)
            if rest[at..].starts_with(':')
                && rest.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            (rest[..at].to_ascii_lowercase(), &rest[at + 1..])
        }
        _ => (String::new(), rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = ParsedUrl {
        scheme,
        query,
        fragment,
        ..ParsedUrl::default()
    };
    if !rest.starts_with('/') {
        let first = rest.split('/').next().unwrap_or_default();
        if url.scheme.is_empty() && first.contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
        return Ok(url);
    }
    if let Some(after) = rest.strip_prefix("//") {
        let authority = after.split('/').next().unwrap_or_default();
        (url.user, url.host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let port = match url.host.rsplit_once(']') {
            Some((_, port)) => port,
            None => url.host.find(':').map_or("", |at| &url.host[at..]),
        };
        let is_port = port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        if !is_port {
            return Err(format!("invalid port {} after host", go::quote(port)));
        }
        if url.host.contains(' ') {
            return Err("invalid character \" \" in host name".into());
        }
    }
    Ok(url)
}
