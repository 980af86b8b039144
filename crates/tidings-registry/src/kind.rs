//! A kind of the API: all that requests need to know of it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tidings_api::{GroupResource, GroupVersion, GroupVersionKind, Object};
use tidings_json::Map;
use tidings_schema::Type;

use crate::custom::CustomVersion;
use crate::member::{Member, Members};
use crate::strategy::{BuiltinStrategy, Strategy};
use crate::table::TablePrinter;

/// A name of the API. That of a built-in kind costs nothing to clone.
pub type Name = Cow<'static, str>;

/// One kind of the API, immutable. A definition that changes makes new kinds; a request keeps the one that it was resolved to.
#[derive(Debug)]
pub struct Kind {
    /// The API group; empty for core.
    pub group: Name,
    /// The version in the group.
    pub version: Name,
    /// What `kind` says.
    pub kind: Name,
    /// The resource in URLs.
    pub plural: Name,
    /// The name that kubectl takes for one object; derived from the kind if it is empty.
    pub singular: Name,
    /// What `kind` says of a list; derived from the kind if it is empty.
    pub list_kind: Name,
    /// Short names that kubectl takes for the resource.
    pub short_names: Vec<Name>,
    /// Groups of resources that kubectl knows, such as `all`.
    pub categories: Vec<Name>,
    /// The package of its internal Go type, which error texts name.
    pub go_package: &'static str,
    /// Its objects are in namespaces.
    pub namespaced: bool,
    /// Where its objects stand in the store, if that is not under the plural: some places of kube-apiserver are older than its names.
    pub store_prefix: Name,
    /// The kind that its objects are stored as, if this one is another view of them.
    pub view: Option<KindView>,
    /// The question that its objects ask, if they are reviews: they are answered and not stored.
    pub review: Option<Review>,
    /// The Go type that the objects are made of; `None` for custom resources.
    pub schema: Option<&'static Type>,
    /// Go types of top-level members that are texts with a type of their own, which the table of types does not tell.
    pub named_texts: &'static [(&'static str, &'static str)],
    /// Fields that field selectors may name besides `metadata.name` and `metadata.namespace`; a custom resource's are in its strategy.
    pub fields: Vec<SelectableField>,
    /// How names of objects must look.
    pub name_rule: NameRule,
    /// What `metadata.generation` counts.
    pub generation: Generation,
    /// There is a `status` that only its subresource changes (W146).
    pub status: bool,
    /// A new object keeps the status that the client sends.
    pub created_with_status: bool,
    /// Metadata that a write to the status leaves as it was, by its name in JSON.
    pub status_keeps: Option<&'static str>,
    /// There is a `finalize` subresource.
    pub finalize: bool,
    /// The `scale` subresource.
    pub scale: Option<Scale>,
    /// PUT creates an object that does not exist (W145).
    pub create_on_update: bool,
    /// PUT must name the version that it replaces (W143).
    pub conditional_update: bool,
    /// DELETE works on the whole collection.
    pub collection_delete: bool,
    /// DELETE leaves the dependents of the object unless it says otherwise.
    pub orphans: bool,
    /// A warning for a DELETE that says nothing about dependents; empty if there is none.
    pub orphan_warning: &'static str,
    /// DELETE answers with the object (W160).
    pub returns_deleted: bool,
    /// The garbage collector follows its objects.
    pub collected: bool,
    /// A finalizer without a domain is only warned of.
    pub bare_finalizers: bool,
    /// Objects cannot be created any more: the definition is being deleted.
    pub terminating: bool,
    /// A warning that comes with every answer; empty if there is none.
    pub warning: Name,
    /// Fields that stay as they were created.
    pub fixed: Vec<FixedField>,
    /// What `kubectl get` shows of a built-in kind.
    pub printer: &'static TablePrinter,
    /// `spec.replicas` of a bookmark's object is 0, though the field is a pointer: the original's internal type has no pointer there.
    pub bookmark_replicas: bool,
    /// The rules that the kind has for itself.
    pub strategy: Arc<dyn Strategy>,
    pub(crate) members: Members,
}

/// What makes a kind another view of stored objects.
#[derive(Clone)]
pub struct KindView {
    /// The kind that the objects are stored as.
    pub stored: Arc<Kind>,
    /// Makes the members of a stored object those of this kind.
    pub show: fn(&mut Map),
    /// Makes the members of an object of this kind those that are stored.
    pub store: fn(&mut Map),
}

impl fmt::Debug for KindView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view of {}", self.stored.group_version_kind())
    }
}

/// A field that field selectors may name.
#[derive(Debug, Clone, Copy)]
pub struct SelectableField {
    /// The name in selectors.
    pub name: &'static str,
    /// The members that lead to it; the first path that leads to a value counts.
    pub paths: &'static [&'static [&'static str]],
    /// Its value if it is absent.
    pub absent: &'static str,
}

/// How names of objects must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain.
    Subdomain,
    /// A DNS label.
    Label,
    /// Anything that can be a segment of a path.
    Segment,
    /// An IP address.
    IpAddress,
}

/// What `metadata.generation` counts (W136).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Nothing: it stays what the client sent at creation, mostly absent.
    None,
    /// 1 at creation; a change of anything but metadata and status adds 1.
    Counted,
    /// As `Counted`, and changed labels count too.
    CountedWithLabels,
    /// As `Counted`, and changed annotations count too.
    CountedWithAnnotations,
    /// As `Counted`, but creation leaves it as the client sent it: the first change makes it 1.
    CountedFromZero,
    /// 1 at creation, and no change counts.
    Fixed,
}

/// Where the `scale` subresource finds its numbers.
#[derive(Debug, Clone)]
pub enum Scale {
    /// `spec.replicas`, `status.replicas`, and a selector that is a map of labels.
    LabelMap,
    /// `spec.replicas`, `status.replicas`, and a selector with `matchLabels` and `matchExpressions`.
    LabelSelector,
    /// At the paths that a definition names (W182).
    Defined(tidings_structural::definition::Scale),
}

/// A field that an update may not change.
#[derive(Debug, Clone, Copy)]
pub struct FixedField {
    /// The members that lead to it.
    pub path: &'static [&'static str],
    /// How a change is refused.
    pub refusal: FixedRefusal,
}

/// How the change of a fixed field is refused.
#[derive(Debug, Clone, Copy)]
pub enum FixedRefusal {
    /// As invalid, with the usual words.
    Immutable,
    /// As invalid, with these words.
    Invalid(&'static str),
    /// As forbidden, with these words.
    Forbidden(&'static str),
}

/// The question that a review asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// What a user may do in a namespace.
    LocalSubjectAccess,
    /// What the asking user may do.
    SelfSubjectAccess,
    /// All that the asking user may do.
    SelfSubjectRules,
    /// What a user may do.
    SubjectAccess,
    /// Who the asking user is.
    SelfSubject,
    /// Whose a token is.
    Token,
}

/// A part of an object with an URL of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subresource {
    /// `status`.
    Status,
    /// `scale`.
    Scale,
    /// `finalize`, of namespaces.
    Finalize,
}

impl Subresource {
    /// The name in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
        }
    }
}

impl Kind {
    /// What most kinds have; an entry of a table changes what is different.
    pub(crate) fn plain() -> Kind {
        Kind {
            group: "".into(),
            version: "v1".into(),
            kind: "".into(),
            plural: "".into(),
            singular: "".into(),
            list_kind: "".into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            go_package: "",
            namespaced: true,
            store_prefix: "".into(),
            view: None,
            review: None,
            schema: None,
            named_texts: &[],
            fields: Vec::new(),
            name_rule: NameRule::Subdomain,
            generation: Generation::None,
            status: false,
            created_with_status: false,
            status_keeps: None,
            finalize: false,
            scale: None,
            create_on_update: false,
            conditional_update: false,
            collection_delete: true,
            orphans: false,
            orphan_warning: "",
            returns_deleted: false,
            collected: true,
            bare_finalizers: false,
            terminating: false,
            warning: "".into(),
            fixed: Vec::new(),
            printer: &crate::table::DEFAULT,
            bookmark_replicas: false,
            strategy: Arc::new(BuiltinStrategy),
            members: Members::default(),
        }
    }

    /// The group and the resource.
    pub fn group_resource(&self) -> GroupResource<'_> {
        GroupResource {
            group: &self.group,
            resource: &self.plural,
        }
    }

    /// The group and the version.
    pub fn group_version(&self) -> GroupVersion<'_> {
        GroupVersion {
            group: &self.group,
            version: &self.version,
        }
    }

    /// The group, the version and the kind.
    pub fn group_version_kind(&self) -> GroupVersionKind<'_> {
        GroupVersionKind {
            group: &self.group,
            version: &self.version,
            kind: &self.kind,
        }
    }

    /// The definition and version that it comes from, if it is a custom resource.
    pub fn custom(&self) -> Option<&CustomVersion> {
        self.strategy.custom()
    }

    /// True if a definition brought it.
    pub fn is_custom(&self) -> bool {
        self.custom().is_some()
    }

    /// The name that kubectl takes for one object.
    pub fn singular(&self) -> Name {
        match self.singular.is_empty() {
            true => self.kind.to_lowercase().into(),
            false => self.singular.clone(),
        }
    }

    /// What `kind` says of a list.
    pub fn list_kind(&self) -> Name {
        match self.list_kind.is_empty() {
            true => format!("{}List", self.kind).into(),
            false => self.list_kind.clone(),
        }
    }

    /// The first bytes of the keys of its objects in the store.
    pub fn store_prefix(&self) -> String {
        match self.store_prefix.is_empty() {
            true => format!("{}/", self.plural),
            false => format!("{}/", self.store_prefix),
        }
    }

    /// The first bytes of its objects: the kind and apiVersion, which items of a list leave out (W70).
    pub fn object_head(&self) -> String {
        format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
            self.kind,
            self.group_version()
        )
    }

    /// The length of [`Kind::object_head`].
    pub fn object_head_len(&self) -> usize {
        let group = match self.group.len() {
            0 => 0,
            length => length + "/".len(),
        };
        let rest = "{\"kind\":\"\",\"apiVersion\":\"\",".len();
        rest + self.kind.len() + group + self.version.len()
    }

    /// True if the kind has a subresource.
    pub fn has(&self, subresource: Subresource) -> bool {
        match subresource {
            Subresource::Status => self.status,
            Subresource::Scale => self.scale.is_some(),
            Subresource::Finalize => self.finalize,
        }
    }

    /// The members that lead to the number of copies that an object is to have.
    pub fn replicas_path(&self) -> Vec<String> {
        match &self.scale {
            Some(Scale::Defined(scale)) => scale.spec_replicas.members.clone(),
            _ => vec!["spec".into(), "replicas".into()],
        }
    }

    /// True if objects are stored, as this kind or as another one; reviews are not.
    pub fn is_stored(&self) -> bool {
        self.review.is_none()
    }

    /// The JSON of a stored object as this kind shows it.
    pub fn shown<'a>(&self, object: &'a Object) -> Cow<'a, [u8]> {
        match &self.view {
            Some(view) => crate::view::shown(self, view, object).into(),
            None => self.strategy.shown(self, object),
        }
    }

    /// True if an object is shown as it is stored, so that its bytes can be sent from where they stand.
    pub fn shows_as_stored(&self, object: &Object) -> bool {
        self.view.is_none() && self.strategy.shows_as_stored(object)
    }

    /// The top-level members of an object besides kind, apiVersion and metadata, in order. Custom resources have none here.
    pub fn members(&self) -> &[Member] {
        self.members.of(self)
    }

    /// The members of an object in which nothing is set, as a bookmark shows it (W109).
    pub fn unset_members(&self) -> Map {
        let members = self.members().iter();
        members
            .filter_map(|member| Some((member.name.to_owned(), member.unset.clone()?)))
            .collect()
    }
}

/// The kind that objects of a kind are stored as: mostly itself.
pub fn stored(kind: &Arc<Kind>) -> &Arc<Kind> {
    kind.view.as_ref().map_or(kind, |view| &view.stored)
}
