//! A resource version as text and, where possible, as a number.

use tidings_api::ResourceVersion;

/// A resource version: the server's text, and its number if it is one.
///
/// Kubernetes versions are decimal numbers and can be compared within a resource. A version that is not a number is sent back to
/// the server unchanged, and is never compared by size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerVersion {
    text: Box<str>,
    number: Option<u64>,
}

impl ServerVersion {
    /// Parses the server's text.
    pub fn new(text: &str) -> ServerVersion {
        ServerVersion {
            number: text.parse().ok().map(ResourceVersion::get),
            text: text.into(),
        }
    }

    /// The server's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// True for "" and "0", which mean any version.
    pub fn is_unset(&self) -> bool {
        matches!(&*self.text, "" | "0")
    }

    /// True if both are numbers and this one is smaller.
    pub fn is_before(&self, other: &ServerVersion) -> bool {
        matches!((self.number, other.number), (Some(this), Some(other)) if this < other)
    }

    /// True if a state at this version includes `other`: equal text, or a number that is not smaller.
    pub fn includes(&self, other: &ServerVersion) -> bool {
        self == other
            || matches!((self.number, other.number), (Some(this), Some(other)) if this >= other)
    }
}

impl From<&str> for ServerVersion {
    fn from(text: &str) -> ServerVersion {
        ServerVersion::new(text)
    }
}

impl From<ResourceVersion> for ServerVersion {
    fn from(version: ResourceVersion) -> ServerVersion {
        ServerVersion::new(&version.to_string())
    }
}

impl std::fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
