//! URLs of CEL rules. The library `kube-cel` parses them as browsers do, rules expect Go's parser.

use std::sync::Arc;

use tidings_go::Url;

use super::val::Val;

/// A text that is a URL.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CelUrl(String);

impl CelUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks that a text is a URL.
    ///
    /// # Errors
    /// If it is none; the text is that of Go's `url.ParseRequestURI`.
    pub(crate) fn parse(text: &str) -> Result<CelUrl, String> {
        match Url::parse_request(text) {
            Ok(_) => Ok(CelUrl(text.to_owned())),
            Err(why) => Err(format!(
                "URL parse error during conversion from string: {why}"
            )),
        }
    }

    /// The result of a function such as `getHost`; `None` if URLs have no such function.
    pub(crate) fn part<'a>(&self, function: &str) -> Option<Val<'a>> {
        let url = Url::parse_request(&self.0).unwrap_or_default();
        Some(match function {
            "getScheme" => Val::text(url.scheme),
            "getHost" => Val::text(url.host),
            "getHostname" => Val::text(url.hostname()),
            "getPort" => Val::text(url.port()),
            "getEscapedPath" => Val::text(url.escaped_path()),
            "getQuery" => {
                let entries = url.query_values().into_iter().map(|(key, values)| {
                    let values = values.into_iter().map(Val::text).collect();
                    (Val::text(key), Val::List(Arc::new(values)))
                });
                Val::Map(Arc::new(entries.collect()))
            }
            _ => return None,
        })
    }
}
