//! URLs of CEL rules as Go parses them. The library `kube-cel` parses as browsers do: it drops default ports and adds a path.

use std::sync::Arc;

use super::val::Val;
use crate::format::is_request_uri;

/// A parsed URL. Its parts are kept as written, except that the scheme is lower case and the path is escaped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CelUrl {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl CelUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// If it is no URL; the text is that of Go's `url.ParseRequestURI`.
    pub(crate) fn parse(text: &str) -> Result<CelUrl, String> {
        if !is_request_uri(text) {
            let why = match text {
                "" => "empty url",
                text if text.starts_with(':') => "missing protocol scheme",
                _ => "invalid URI for request",
            };
            let text = tidings_api::go::quote(text);
            return Err(format!(
                "URL parse error during conversion from string: parse {text}: {why}"
            ));
        }
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if !text.starts_with('/') => (scheme, rest),
            _ => ("", text),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match before.strip_prefix("//") {
            Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
            None if before.starts_with('/') => ("", before),
            None => ("", ""),
        };
        Ok(CelUrl {
            text: text.to_owned(),
            scheme: scheme.to_lowercase(),
            host: host
                .rsplit_once('@')
                .map_or(host, |(_, host)| host)
                .to_owned(),
            path: escape_path(path),
            query: query.to_owned(),
        })
    }

    fn split_host(&self) -> (&str, &str) {
        if let Some(rest) = self.host.strip_prefix('[') {
            let (name, after) = rest.split_once(']').unwrap_or((rest, ""));
            return (name, after.strip_prefix(':').unwrap_or_default());
        }
        self.host.rsplit_once(':').unwrap_or((&self.host, ""))
    }

    /// The result of a function such as `getHost`; `None` if URLs have no such function.
    pub(crate) fn part<'a>(&self, function: &str) -> Option<Val<'a>> {
        Some(match function {
            "getScheme" => Val::text(self.scheme.as_str()),
            "getHost" => Val::text(self.host.as_str()),
            "getHostname" => Val::text(self.split_host().0),
            "getPort" => Val::text(self.split_host().1),
            "getEscapedPath" => Val::text(self.path.as_str()),
            "getQuery" => self.values(),
            _ => return None,
        })
    }

    fn values<'a>(&self) -> Val<'a> {
        let mut entries: Vec<(String, Vec<Val<'a>>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (unescape(key), unescape(value));
            match entries.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(Val::text(value)),
                None => entries.push((key, vec![Val::text(value)])),
            }
        }
        let entries = entries
            .into_iter()
            .map(|(key, values)| (Val::text(key), Val::List(Arc::new(values))));
        Val::Map(Arc::new(entries.collect()))
    }
}

/// Percent-encodes the bytes that a path may not contain.
fn escape_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match (
            bytes[at],
            hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()),
        ) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
