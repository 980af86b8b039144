//! A resource version as a reflector keeps it.

use tidings_api::ResourceVersion;

/// The text that is sent back to the server, and its number where it is one.
///
/// Versions are decimal numbers and can be compared within a resource; a server that sends something else gets it back as it
/// was, and is not checked for going back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    text: Box<str>,
    number: Option<u64>,
}

impl Version {
    /// From the text of a server.
    pub fn new(text: &str) -> Version {
        Version {
            number: text.parse().ok().map(ResourceVersion::get),
            text: text.into(),
        }
    }

    /// As the server wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As a number.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Unset or "0": no version in particular.
    pub fn is_unset(&self) -> bool {
        matches!(&*self.text, "" | "0")
    }

    /// True if both are numbers and this one is smaller.
    pub fn is_before(&self, other: &Version) -> bool {
        matches!((self.number, other.number), (Some(this), Some(other)) if this < other)
    }

    /// True if this state includes that of `other`: equal, or a larger number.
    pub fn includes(&self, other: &Version) -> bool {
        self == other
            || matches!((self.number, other.number), (Some(this), Some(other)) if this >= other)
    }
}

impl From<&str> for Version {
    fn from(text: &str) -> Version {
        Version::new(text)
    }
}

impl From<ResourceVersion> for Version {
    fn from(version: ResourceVersion) -> Version {
        Version::new(&version.to_string())
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
