//! Resource versions.

use std::fmt;
use std::str::FromStr;

use tidings_go as go;

/// A position in the server's one log of changes (W78). It only grows. Zero is before every change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// A resource version from its number.
    pub const fn new(number: u64) -> ResourceVersion {
        ResourceVersion(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ResourceVersion {
    type Err = go::ParseNumberError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        go::parse_uint(text).map(ResourceVersion)
    }
}
