//! Names of resources and kinds.

use std::fmt;

/// A resource and its group, as error texts name it (W48): `pods`, `deployments.apps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        qualified(f, self.resource, self.group)
    }
}

/// A group and a version, as `apiVersion` spells them: `v1`, `apps/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupVersion<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
}

impl<'a> GroupVersion<'a> {
    /// Reads an `apiVersion`. `None` if it has more than one slash.
    pub fn parse(api_version: &'a str) -> Option<GroupVersion<'a>> {
        match api_version.split_once('/') {
            None => Some(GroupVersion {
                group: "",
                version: api_version,
            }),
            Some((group, version)) if !version.contains('/') => {
                Some(GroupVersion { group, version })
            }
            Some(_) => None,
        }
    }
}

impl fmt::Display for GroupVersion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A kind with its group and version. Its text is the qualified kind of error messages (W48): `ConfigMap`,
/// `Widget.example.com`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupVersionKind<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
}

impl<'a> GroupVersionKind<'a> {
    /// The group and the version.
    pub fn group_version(&self) -> GroupVersion<'a> {
        GroupVersion {
            group: self.group,
            version: self.version,
        }
    }
}

impl fmt::Display for GroupVersionKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        qualified(f, self.kind, self.group)
    }
}

fn qualified(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() {
        f.write_str(name)
    } else {
        write!(f, "{name}.{group}")
    }
}
