//! [`Kind`], the description of a kind of the API: names, subresources, selectable fields, and rules.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidings_api::{FieldPaths, GroupResource, GroupVersion, GroupVersionKind};
use tidings_json::Map;
use tidings_schema::Type;

use super::custom_version::CustomVersion;
use super::member::Member;
use super::name_rule::NameRule;
use super::strategy::{BuiltinStrategy, Strategy};
use crate::table::TablePrinter;

/// A name in the API. Names of built-in kinds are static, so that cloning them is cheap.
pub type Name = Cow<'static, str>;

/// One kind of the API. It is immutable: a custom resource definition that changes makes new kinds, and a running request keeps
/// its kind.
#[derive(Debug)]
pub struct Kind {
    /// The API group; empty for core.
    pub group: Name,
    /// The version in the group.
    pub version: Name,
    /// The value of `kind` in objects.
    pub kind: Name,
    /// The resource in URLs.
    pub plural: Name,
    /// The name that kubectl accepts for one object; derived from the kind if it is empty.
    pub singular: Name,
    /// The value of `kind` in lists; derived from the kind if it is empty.
    pub list_kind: Name,
    /// Short names that kubectl accepts for the resource.
    pub short_names: Vec<Name>,
    /// Groups of resources that kubectl knows, such as `all`.
    pub categories: Vec<Name>,
    /// The package of the internal Go type, which error messages contain.
    pub go_package: &'static str,
    /// Objects are in namespaces.
    pub namespaced: bool,
    /// Objects are namespaces: upstream counts a request for one as being in it.
    pub is_namespace: bool,
    /// The prefix of store keys if it is not the plural: kube-apiserver stores some resources under older names.
    pub store_prefix: Name,
    /// The kind that objects are stored as, by name, and the conversions, if this kind is a view.
    pub(crate) view_of: Option<ViewOf>,
    /// The stored kind and the conversions. The catalog resolves them from `view_of`.
    pub view: Option<KindView>,
    /// How long an object is kept after its last write, if objects expire. The store has to be told, see
    /// [`lifetimes`](crate::lifetimes).
    pub lifetime: Option<Duration>,
    /// The question that objects ask, if they are reviews: they are answered and not stored.
    pub review: Option<Review>,
    /// The Go type of objects; `None` for custom resources.
    pub schema: Option<&'static Type>,
    /// Fields that field selectors may name besides `metadata.name` and `metadata.namespace`. Those of custom resources are in
    /// their strategy.
    pub fields: Vec<SelectableField>,
    /// See [`Kind::field_paths`].
    pub(crate) field_paths: OnceLock<FieldPaths>,
    /// The syntax of object names.
    pub name_rule: NameRule,
    /// What `metadata.generation` counts.
    pub generation: Generation,
    /// Objects have a `status` that only the status subresource changes (W146).
    pub status: bool,
    /// A new object keeps the status that the client sends.
    pub created_with_status: bool,
    /// The member of metadata that a write to the status subresource does not change.
    pub status_keeps: Option<StatusKeeps>,
    /// The subresources that only this kind has.
    pub own_parts: &'static [Subresource],
    /// The `scale` subresource, if the kind has one.
    pub scale: Option<Scale>,
    /// PUT creates an object that does not exist (W145).
    pub create_on_update: bool,
    /// PUT must contain the resourceVersion that it replaces (W143).
    pub conditional_update: bool,
    /// DELETE of the whole collection is allowed.
    pub collection_delete: bool,
    /// DELETE without a propagation policy orphans the dependents.
    pub orphans: bool,
    /// The warning for a DELETE without a propagation policy; empty if there is none.
    pub orphan_warning: &'static str,
    /// DELETE answers with the object (W160).
    pub returns_deleted: bool,
    /// The garbage collector watches the objects.
    pub collected: bool,
    /// Finalizers without a domain are allowed.
    pub bare_finalizers: bool,
    /// The members of objects and lists are sorted by name, and the items of a list have `kind` and `apiVersion`.
    pub sorted_members: bool,
    /// The definition is being deleted: no objects can be created.
    pub terminating: bool,
    /// The warning in every answer; empty if there is none.
    pub warning: Name,
    /// Fields that no update may change.
    pub fixed: Vec<FixedField>,
    /// The table that `kubectl get` shows, of a built-in kind.
    pub printer: &'static TablePrinter,
    /// The object in a bookmark has `spec.replicas: 0`: the field is a pointer in the API, but not in upstream's internal type.
    pub bookmark_replicas: bool,
    /// The rules of this kind only.
    pub strategy: Arc<dyn Strategy>,
    /// The version of a definition that it comes from, if it is a custom resource.
    pub custom: Option<Arc<CustomVersion>>,
    pub(crate) members: Box<[Member]>,
}

/// What the entry of a view says: the group, version and kind that its objects are stored as, and the conversions.
#[derive(Clone, Copy)]
pub(crate) struct ViewOf {
    pub(crate) stored: (&'static str, &'static str, &'static str),
    /// Converts the members of a stored object to this kind.
    pub(crate) show: fn(&mut Map),
    /// Converts the members of an object of this kind to the stored kind.
    pub(crate) store: fn(&mut Map),
}

impl fmt::Debug for ViewOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view of {:?}", self.stored)
    }
}

/// A kind that is a view: the kind that its objects are stored as, and the conversions.
#[derive(Clone)]
pub struct KindView {
    /// The kind that the objects are stored as.
    pub stored: Arc<Kind>,
    /// Converts the members of a stored object to this kind.
    pub show: fn(&mut Map),
    /// Converts the members of an object of this kind to the stored kind.
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
    /// The paths of its value; the first path that exists counts.
    pub paths: &'static [&'static [&'static str]],
    /// The value if no path exists.
    pub absent: &'static str,
}

/// A member of metadata that a write to the status subresource does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusKeeps {
    /// `labels`
    Labels,
    /// `ownerReferences`
    OwnerReferences,
}

impl StatusKeeps {
    /// The name of the member.
    pub(crate) fn name(self) -> &'static str {
        match self {
            StatusKeeps::Labels => "labels",
            StatusKeeps::OwnerReferences => "ownerReferences",
        }
    }
}

/// What `metadata.generation` counts (W136).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Nothing: it keeps the value that the client sent at creation, mostly absent.
    None,
    /// 1 at creation; a change of anything but metadata and status adds 1.
    Counted,
    /// As `Counted`, and a changed status counts too: it is an ordinary member.
    CountedWithStatus,
    /// As `Counted`, and changed labels count too.
    CountedWithLabels,
    /// As `Counted`, and changed annotations count too.
    CountedWithAnnotations,
    /// As `Counted`, but creation keeps the value that the client sent: the first change makes it 1.
    CountedFromZero,
    /// 1 at creation, and no change counts.
    Fixed,
}

/// Where the `scale` subresource finds replicas and selector.
#[derive(Debug, Clone)]
pub enum Scale {
    /// `spec.replicas`, `status.replicas`, and a selector that is a map of labels.
    LabelMap,
    /// `spec.replicas`, `status.replicas`, and a selector with `matchLabels` and `matchExpressions`.
    LabelSelector,
    /// At the paths that the custom resource definition names (W182).
    Defined(tidings_structural::definition::Scale),
}

/// A field that an update may not change.
#[derive(Debug, Clone, Copy)]
pub struct FixedField {
    /// The names of the members that lead to it.
    pub path: &'static [&'static str],
    /// The error for a change.
    pub refusal: FixedRefusal,
}

/// The error for the change of a fixed field.
#[derive(Debug, Clone, Copy)]
pub enum FixedRefusal {
    /// Invalid: `field is immutable`.
    Immutable,
    /// Invalid, with this message.
    Invalid(&'static str),
    /// Forbidden, with this message.
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
    /// Which user a token belongs to.
    Token,
    /// What a new token of a service account is.
    NewToken,
    /// That a Pod goes to a node.
    Binding,
    /// That a Pod goes, if its disruption budget allows it.
    Eviction,
}

/// A part of an object with its own URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subresource {
    /// `status`.
    Status,
    /// `scale`.
    Scale,
    /// `finalize`, of namespaces.
    Finalize,
    /// `token`, of service accounts.
    Token,
    /// `approval`, of certificate signing requests.
    Approval,
    /// `binding`, of Pods.
    Binding,
    /// `eviction`, of Pods.
    Eviction,
}

/// The kind of the objects that are read and written at the subresource `scale`.
pub const SCALE: GroupVersionKind<'static> = GroupVersionKind {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
};

/// The kind of the objects that are written at the subresource `token`.
const TOKEN_REQUEST: GroupVersionKind<'static> = GroupVersionKind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenRequest",
};

/// The kind of the objects that are written at the subresource `binding`.
const BINDING: GroupVersionKind<'static> = GroupVersionKind {
    group: "",
    version: "v1",
    kind: "Binding",
};

/// The kind of the objects that are written at the subresource `eviction`.
const EVICTION: GroupVersionKind<'static> = GroupVersionKind {
    group: "policy",
    version: "v1",
    kind: "Eviction",
};

impl Subresource {
    /// Every subresource.
    pub const ALL: [Subresource; 7] = [
        Subresource::Status,
        Subresource::Scale,
        Subresource::Finalize,
        Subresource::Token,
        Subresource::Approval,
        Subresource::Binding,
        Subresource::Eviction,
    ];

    /// The subresource with this name in URLs.
    pub fn named(name: &str) -> Option<Subresource> {
        let mut all = Subresource::ALL.into_iter();
        all.find(|part| part.as_str() == name)
    }

    /// The kind of what is read and written at its URL, if that is not an object of the resource.
    pub fn other_kind(self) -> Option<GroupVersionKind<'static>> {
        match self {
            Subresource::Scale => Some(SCALE),
            Subresource::Token => Some(TOKEN_REQUEST),
            Subresource::Binding => Some(BINDING),
            Subresource::Eviction => Some(EVICTION),
            Subresource::Status | Subresource::Finalize | Subresource::Approval => None,
        }
    }

    /// The name in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
            Subresource::Token => "token",
            Subresource::Approval => "approval",
            Subresource::Binding => "binding",
            Subresource::Eviction => "eviction",
        }
    }
}

impl Kind {
    /// The paths of the fields by which objects can be selected, in stored objects. A view has those of the stored kind, so that what is
    /// kept with an object serves both.
    pub(crate) fn field_paths(&self) -> &FieldPaths {
        self.field_paths.get_or_init(|| {
            if let Some(custom) = &self.custom {
                let fields = custom.version().fields.iter();
                return FieldPaths::new(fields.filter_map(|field| field.path.members()));
            }
            let mut paths: Vec<&[&str]> = Vec::new();
            for path in self.fields.iter().flat_map(|field| field.paths) {
                if !paths.contains(path) {
                    paths.push(path);
                }
            }
            let stored = self.view.as_ref().map(|view| view.stored.field_paths());
            let is_stored =
                |all: &&FieldPaths| paths.iter().all(|path| all.position(path).is_some());
            match stored.filter(is_stored) {
                Some(stored) => stored.clone(),
                None => FieldPaths::new(paths),
            }
        })
    }

    /// A kind with the values that most kinds have. Entries override some of them.
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
            is_namespace: false,
            store_prefix: "".into(),
            view_of: None,
            view: None,
            lifetime: None,
            review: None,
            schema: None,
            fields: Vec::new(),
            field_paths: OnceLock::new(),
            name_rule: NameRule::Subdomain,
            generation: Generation::None,
            status: false,
            created_with_status: false,
            status_keeps: None,
            own_parts: &[],
            scale: None,
            create_on_update: false,
            conditional_update: false,
            collection_delete: true,
            orphans: false,
            orphan_warning: "",
            returns_deleted: false,
            collected: true,
            bare_finalizers: false,
            sorted_members: false,
            terminating: false,
            warning: "".into(),
            fixed: Vec::new(),
            printer: &crate::table::DEFAULT,
            bookmark_replicas: false,
            strategy: Arc::new(BuiltinStrategy),
            custom: None,
            members: Box::default(),
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

    /// True if the kind comes from a custom resource definition.
    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    /// The name that kubectl accepts for one object.
    pub fn singular(&self) -> Name {
        match self.singular.is_empty() {
            true => self.kind.to_lowercase().into(),
            false => self.singular.clone(),
        }
    }

    /// The value of `kind` in lists.
    pub fn list_kind(&self) -> Name {
        match self.list_kind.is_empty() {
            true => format!("{}List", self.kind).into(),
            false => self.list_kind.clone(),
        }
    }

    /// The prefix of the keys of objects in the store.
    pub fn store_prefix(&self) -> String {
        match self.store_prefix.is_empty() {
            true => format!("{}/", self.plural),
            false => format!("{}/", self.store_prefix),
        }
    }

    /// The first bytes of the JSON of an object: kind and apiVersion, which items of a list leave out (W70).
    pub fn object_head(&self) -> String {
        format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
            self.kind,
            self.group_version()
        )
    }

    /// The JSON of an object after its [`Kind::object_head`]; `None` if it does not begin so.
    pub fn strip_head<'j>(&self, json: &'j [u8]) -> Option<&'j [u8]> {
        let rest = json.strip_prefix(b"{\"kind\":\"")?;
        let rest = rest.strip_prefix(self.kind.as_bytes())?;
        let mut rest = rest.strip_prefix(b"\",\"apiVersion\":\"")?;
        if !self.group.is_empty() {
            rest = rest
                .strip_prefix(self.group.as_bytes())?
                .strip_prefix(b"/")?;
        }
        let rest = rest.strip_prefix(self.version.as_bytes())?;
        rest.strip_prefix(b"\",")
    }

    /// True if the kind has a subresource.
    pub fn has(&self, subresource: Subresource) -> bool {
        match subresource {
            Subresource::Status => self.status,
            Subresource::Scale => self.scale.is_some(),
            Subresource::Finalize
            | Subresource::Token
            | Subresource::Approval
            | Subresource::Binding
            | Subresource::Eviction => self.own_parts.contains(&subresource),
        }
    }

    /// The path of the desired number of replicas in an object.
    pub(crate) fn replicas_path(&self) -> Vec<String> {
        match &self.scale {
            Some(Scale::Defined(scale)) => scale.spec_replicas.members.clone(),
            _ => vec!["spec".into(), "replicas".into()],
        }
    }

    /// True if objects are stored, as this kind or as another one. Reviews are not.
    pub fn is_stored(&self) -> bool {
        self.review.is_none()
    }

    /// The top-level members of objects besides kind, apiVersion and metadata, in order. Empty for custom resources.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The members of an object in which nothing is set, as a bookmark shows it (W109).
    pub fn unset_members(&self) -> Map {
        let members = self.members().iter();
        members
            .filter_map(|member| Some((member.name.to_owned(), member.unset.clone()?)))
            .collect()
    }
}

/// The kind that objects are stored as: the kind itself, unless it is a view.
pub fn stored(kind: &Arc<Kind>) -> &Arc<Kind> {
    kind.view.as_ref().map_or(kind, |view| &view.stored)
}
