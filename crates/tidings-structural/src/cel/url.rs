//! URLs of CEL rules. The library `kube-cel` parses them as browsers do, rules expect Go's parser.

use tidings_go::Url;

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

    /// The parts of the URL.
    pub(crate) fn parts(&self) -> Url<'_> {
        Url::parse_request(&self.0).unwrap_or_default()
    }
}
