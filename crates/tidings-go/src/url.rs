//! URLs as `net/url` parses them. Parsers that follow browsers drop default ports and add a path.

use crate::quote;

/// The parts of a URL, as they are written; only the scheme is in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url<'a> {
    /// `https`; empty if there is none.
    pub scheme: String,
    /// The user and password before `@`.
    pub user: Option<&'a str>,
    /// The host, with its port.
    pub host: &'a str,
    /// The path. Empty if the URL is opaque, as `mailto:a@b`.
    pub path: &'a str,
    /// What follows `?`.
    pub query: &'a str,
    /// What follows `#`.
    pub fragment: &'a str,
}

impl<'a> Url<'a> {
    /// `url.Parse`.
    ///
    /// # Errors
    /// With Go's message, if the text is no URL.
    pub fn parse(text: &'a str) -> Result<Url<'a>, String> {
        split(text).map_err(|why| format!("parse {}: {why}", quote(text)))
    }

    /// `url.ParseRequestURI`: an absolute URL, or a path from the root.
    ///
    /// # Errors
    /// With Go's message, if the text is neither.
    pub fn parse_request(text: &'a str) -> Result<Url<'a>, String> {
        let url = is_request_uri(text).then(|| split(text).ok()).flatten();
        url.ok_or_else(|| {
            let why = match text {
                "" => "empty url",
                text if text.starts_with(':') => "missing protocol scheme",
                _ => "invalid URI for request",
            };
            format!("parse {}: {why}", quote(text))
        })
    }

    /// `url.Hostname`: the host without port and brackets.
    pub fn hostname(&self) -> &'a str {
        self.split_host().0
    }

    /// `url.Port`: empty if there is none.
    pub fn port(&self) -> &'a str {
        self.split_host().1
    }

    fn split_host(&self) -> (&'a str, &'a str) {
        if let Some(rest) = self.host.strip_prefix('[') {
            let (name, after) = rest.split_once(']').unwrap_or((rest, ""));
            return (name, after.strip_prefix(':').unwrap_or_default());
        }
        self.host.rsplit_once(':').unwrap_or((self.host, ""))
    }

    /// `url.EscapedPath`.
    pub fn escaped_path(&self) -> String {
        escape_path(self.path)
    }

    /// `url.Query`: the names with their values, in the order of their first occurrence.
    pub fn query_values(&self) -> Vec<(String, Vec<String>)> {
        let mut entries: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (unescape(key), unescape(value));
            match entries.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => entries.push((key, vec![value])),
            }
        }
        entries
    }
}

fn split(text: &str) -> Result<Url<'_>, String> {
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
    let mut url = Url {
        scheme,
        path: if rest.starts_with('/') { rest } else { "" },
        query,
        fragment,
        ..Url::default()
    };
    if !rest.starts_with('/') {
        let first = rest.split('/').next().unwrap_or_default();
        if url.scheme.is_empty() && first.contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
        return Ok(url);
    }
    if let Some(after) = rest.strip_prefix("//") {
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        url.path = path;
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
            return Err(format!("invalid port {} after host", quote(port)));
        }
        if url.host.contains(' ') {
            return Err("invalid character \" \" in host name".into());
        }
    }
    Ok(url)
}

/// True for URLs that Go's `url.ParseRequestURI` accepts: an absolute URL, or a path from the root.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let (rest, has_scheme) = match text.find(':') {
        Some(at) if is_scheme(&text[..at]) => (&text[at + 1..], true),
        Some(0) => return false,
        // The first path segment has a colon, but no valid scheme before it.
        Some(at) if !text[..at].contains('/') && !text.starts_with('/') => return false,
        _ => (text, false),
    };
    if !has_scheme && !rest.starts_with('/') {
        return false;
    }
    if has_scheme && rest.is_empty() {
        return false;
    }
    if !rest.starts_with('/') {
        // An opaque part, such as in `mailto:a@b`.
        return has_scheme;
    }
    let before_query = rest.split('?').next().unwrap_or_default();
    let (host, path) = match before_query.strip_prefix("//") {
        Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
        None => ("", before_query),
    };
    escapes_are_valid(path) && is_authority(host)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn escapes_are_valid(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn is_authority(text: &str) -> bool {
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let port = if let Some(rest) = host.strip_prefix('[') {
        let Some((_, after)) = rest.split_once(']') else {
            return false;
        };
        match after.strip_prefix(':') {
            Some(port) => port,
            None if after.is_empty() => "",
            None => return false,
        }
    } else {
        host.rsplit_once(':').map_or("", |(_, port)| port)
    };
    port.bytes().all(|b| b.is_ascii_digit())
        && !host.bytes().any(|b| b" <>\"\\^`{|}".contains(&b))
        && !host.contains('%')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_cut_as_go_cuts_them() {
        let url = Url::parse("HTTPS://u:p@h.example:443/a b/%2F?q=1&q=x%20y&z#f").unwrap();
        assert_eq!(
            (&*url.scheme, url.user, url.host),
            ("https", Some("u:p"), "h.example:443")
        );
        assert_eq!((url.hostname(), url.port()), ("h.example", "443"));
        assert_eq!((url.path, &*url.escaped_path()), ("/a b/%2F", "/a%20b/%2F"));
        let values = [("q", vec!["1", "x y"]), ("z", vec![""])];
        let found = url.query_values();
        let found: Vec<_> = found
            .iter()
            .map(|(k, v)| (&**k, v.iter().map(|v| &**v).collect()))
            .collect();
        assert_eq!(found, values);
        assert_eq!(url.fragment, "f");
        let brackets = Url::parse("http://[::1]:80").unwrap();
        assert_eq!(
            (brackets.hostname(), brackets.port(), brackets.path),
            ("::1", "80", "")
        );
    }

    #[test]
    fn wrong_urls_fail_with_gos_words() {
        for (text, why) in [
            (":80", r#"parse ":80": missing protocol scheme"#),
            ("a:b:c/", ""),
            (
                "http://h:x/",
                r#"parse "http://h:x/": invalid port ":x" after host"#,
            ),
            (
                "1a:b",
                r#"parse "1a:b": first path segment in URL cannot contain colon"#,
            ),
        ] {
            assert_eq!(Url::parse(text).err().unwrap_or_default(), why);
        }
        for (text, why) in [
            ("", r#"parse "": empty url"#),
            ("a/b", r#"parse "a/b": invalid URI for request"#),
            (
                "http://h/%zz",
                r#"parse "http://h/%zz": invalid URI for request"#,
            ),
            ("/a", ""),
            ("mailto:a@b", ""),
        ] {
            assert_eq!(Url::parse_request(text).err().unwrap_or_default(), why);
        }
    }
}
