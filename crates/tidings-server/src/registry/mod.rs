//! What kinds exist, and the rules for their objects.

pub(crate) mod draft;
mod kinds;
pub(crate) mod meta;
mod rules;

use tidings_api::{GroupResource, GroupVersion, GroupVersionKind};

pub(crate) use kinds::KINDS;

/// The form of a top-level member of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An object of this Go type; what is in it is not looked at.
    Object(&'static str),
    /// A map of text to text.
    Strings,
    /// A map of text to base64.
    Bytes,
    Bool,
    String,
    /// Anything.
    Any,
}

/// A top-level member of an object besides kind, apiVersion and metadata.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// What stands there if the client sends nothing, as JSON; empty if the member is then left out.
    pub(crate) absent: &'static str,
}

/// A field that field selectors may name, besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelectableField {
    pub(crate) name: &'static str,
    /// The members that lead to it; the first path that leads to something counts.
    pub(crate) paths: &'static [&'static [&'static str]],
    /// Its value if it is absent.
    pub(crate) absent: &'static str,
}

/// How names of objects must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    Label,
    /// Anything that can be a segment of a path.
    Segment,
}

/// Rules that one kind has for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    None,
    ConfigMap,
    Secret,
    Namespace,
    Pod,
    Event,
    Deployment,
}

/// One kind of the API: all that requests need to know of it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) members: &'static [Member],
    pub(crate) fields: &'static [SelectableField],
    pub(crate) name_rule: NameRule,
    /// `metadata.generation` counts changes of everything but metadata and status (W136).
    pub(crate) generation: bool,
    /// There is a `status` that only its subresource changes (W146).
    pub(crate) status: bool,
    /// PUT creates what does not exist (W145).
    pub(crate) create_on_update: bool,
    /// PUT must name the version that it replaces (W143).
    pub(crate) conditional_update: bool,
    /// DELETE answers with the object (W160).
    pub(crate) returns_deleted: bool,
    pub(crate) special: Special,
    /// What a bookmark's object has besides kind, apiVersion and metadata (W109): `,"spec":{}`.
    pub(crate) bookmark: &'static str,
}

impl Kind {
    pub(crate) fn group_resource(&self) -> GroupResource<'static> {
        GroupResource {
            group: self.group,
            resource: self.plural,
        }
    }

    pub(crate) fn group_version(&self) -> GroupVersion<'static> {
        GroupVersion {
            group: self.group,
            version: self.version,
        }
    }

    pub(crate) fn group_version_kind(&self) -> GroupVersionKind<'static> {
        GroupVersionKind {
            group: self.group,
            version: self.version,
            kind: self.kind,
        }
    }

    /// What the keys of its objects begin with in the store.
    pub(crate) fn prefix(&self) -> String {
        format!("{}/", self.group_resource())
    }

    /// What its objects begin with: the kind and apiVersion, which items of a list leave out (W70).
    pub(crate) fn object_head(&self) -> String {
        format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
            self.kind,
            self.group_version()
        )
    }
}

/// The kind of a resource.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

/// True if the group has any kind.
pub(crate) fn serves_group(group: &str) -> bool {
    KINDS.iter().any(|kind| kind.group == group)
}

/// Where a kind stands in [`KINDS`]: tables beside it use the same order.
pub(crate) fn position(kind: &Kind) -> usize {
    KINDS
        .iter()
        .position(|other| std::ptr::eq(other, kind))
        .unwrap_or_default()
}
