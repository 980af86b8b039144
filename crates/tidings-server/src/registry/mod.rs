//! What kinds exist, and the rules for their objects.

mod convert;
mod defaults;
mod definitions;
pub(crate) mod draft;
mod fixed;
mod kinds;
pub(crate) mod managed;
pub(crate) mod meta;
pub(crate) mod reading;
mod rules;
mod scalars;
pub(crate) mod stored;
pub(crate) mod strategic;
mod workloads;

use std::sync::{Arc, LazyLock};

use tidings_api::{GroupResource, GroupVersion, GroupVersionKind};
use tidings_schema::Type;

use crate::custom::{Custom, Live};
use crate::printers::Printer;
pub(crate) use kinds::{KINDS, custom_kind};

/// What the objects of the kinds are made of, in the order of [`KINDS`].
static SCHEMAS: LazyLock<Vec<Option<&'static Type>>> = LazyLock::new(|| {
    let find = |kind: &&Kind| tidings_schema::find(kind.group, kind.version, kind.kind);
    KINDS.iter().map(find).collect()
});

/// The form of a top-level member of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An object of this Go type; what is in it is not looked at.
    Object(&'static str),
    /// An array of this Go type, `[]v1.Subject`; an empty one is the same as an absent one.
    Array(&'static str),
    /// A whole number of this Go type, `int32`; zero is the same as absent.
    Number(&'static str),
    /// A map of text to text.
    Strings,
    /// A map of text to base64.
    Bytes,
    Bool,
    /// A bool of which `false` is the same as absent.
    Flag,
    String,
    /// Text of a Go type with a name, `v1.SecretType`.
    Named(&'static str),
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
    IpAddress,
}

/// What `metadata.generation` counts (W136).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
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

/// The `scale` subresource of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) selector: ScaleSelector,
}

/// The form of `spec.selector`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScaleSelector {
    /// A map of labels.
    Map,
    /// An object with `matchLabels` and `matchExpressions`.
    LabelSelector,
}

/// The kind that another one is a view of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredAs {
    /// `v1` Event.
    CoreEvent,
    /// `autoscaling/v2` HorizontalPodAutoscaler.
    AutoscalerV2,
}

/// A question, of which there is one kind each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    /// What somebody may do in a namespace.
    LocalSubjectAccess,
    /// What whoever asks may do.
    SelfSubjectAccess,
    /// All that whoever asks may do.
    SelfSubjectRules,
    /// What somebody may do.
    SubjectAccess,
    /// Who asks.
    SelfSubject,
    /// Whose a token is.
    Token,
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
    Node,
    Definition,
}

/// One kind of the API: all that requests need to know of it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    /// The package of its internal Go type, which error texts name.
    pub(crate) go_package: &'static str,
    pub(crate) namespaced: bool,
    /// What its objects are stored as, if it is another view of them.
    pub(crate) stored_as: Option<StoredAs>,
    /// What its objects ask, if they are questions: these are answered and not stored, and POST is all there is.
    pub(crate) review: Option<Review>,
    pub(crate) members: &'static [Member],
    pub(crate) fields: &'static [SelectableField],
    pub(crate) name_rule: NameRule,
    pub(crate) generation: Generation,
    /// There is a `status` that only its subresource changes (W146).
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// PUT creates what does not exist (W145).
    pub(crate) create_on_update: bool,
    /// PUT must name the version that it replaces (W143).
    pub(crate) conditional_update: bool,
    /// DELETE works on the whole collection.
    pub(crate) collection_delete: bool,
    /// DELETE leaves what belongs to the object, if it does not say otherwise.
    pub(crate) orphans: bool,
    /// Why its clients should use another kind; empty if they should not.
    pub(crate) deprecated: &'static str,
    /// DELETE answers with the object (W160).
    pub(crate) returns_deleted: bool,
    pub(crate) special: Special,
    /// What `kubectl get` shows.
    pub(crate) printer: &'static Printer,
    /// What a bookmark's object has besides kind, apiVersion and metadata (W109): `,"spec":{}`.
    pub(crate) bookmark: &'static str,
    /// What a definition says of it, if it is a custom resource.
    pub(crate) custom: Option<&'static Custom>,
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

    /// What the keys of its objects begin with in the store: kube-apiserver's places, some of them older than its names.
    pub(crate) fn prefix(&self) -> String {
        if self.custom.is_some() {
            return format!("{}/{}/", self.group, self.plural);
        }
        let place = match (self.group, self.plural) {
            ("", "endpoints") => "services/endpoints",
            ("", "nodes") => "minions",
            ("", "replicationcontrollers") => "controllers",
            ("", "services") => "services/specs",
            ("networking.k8s.io", "ingresses") => "ingress",
            (_, plural) => plural,
        };
        format!("{place}/")
    }

    /// What its objects begin with: the kind and apiVersion, which items of a list leave out (W70).
    pub(crate) fn object_head(&self) -> String {
        format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
            self.kind,
            self.group_version()
        )
    }

    /// How long [`Kind::object_head`] is.
    pub(crate) fn object_head_len(&self) -> usize {
        let group = match self.group.len() {
            0 => 0,
            length => length + "/".len(),
        };
        let rest = "{\"kind\":\"\",\"apiVersion\":\"\",".len();
        rest + self.kind.len() + group + self.version.len()
    }

    /// What its definition says now, if it is a custom resource.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.custom.and_then(Custom::live)
    }

    /// True if there is a `status` that only its subresource changes (W146).
    pub(crate) fn has_status(&self) -> bool {
        match self.live() {
            Some(live) => live.version().status,
            None => self.status,
        }
    }

    pub(crate) fn has_scale(&self) -> bool {
        match self.live() {
            Some(live) => live.version().scale.is_some(),
            None => self.scale.is_some(),
        }
    }

    /// The members that lead to the number of copies that an object is to have.
    pub(crate) fn replicas(&self) -> Vec<String> {
        let live = self.live();
        let scale = live.as_ref().and_then(|live| live.version().scale.as_ref());
        match scale {
            Some(scale) => scale.spec_replicas.members.clone(),
            None => vec!["spec".into(), "replicas".into()],
        }
    }

    /// What clients are told with every answer.
    pub(crate) fn warning(&self) -> Vec<String> {
        if let Some(live) = self.live() {
            return live.version().warning.iter().cloned().collect();
        }
        let warning = Some(self.deprecated).filter(|text| !text.is_empty());
        warning.map(ToOwned::to_owned).into_iter().collect()
    }

    /// What its objects are made of.
    pub(crate) fn schema(&'static self) -> Option<&'static Type> {
        let place = KINDS.iter().position(|kind| std::ptr::eq(*kind, self))?;
        SCHEMAS.get(place).copied().flatten()
    }

    /// The kind that its objects are stored as: mostly itself.
    pub(crate) fn stored(&'static self) -> &'static Kind {
        let stored = match self.stored_as {
            None => None,
            Some(StoredAs::CoreEvent) => find("", "v1", "events"),
            Some(StoredAs::AutoscalerV2) => find("autoscaling", "v2", "horizontalpodautoscalers"),
        };
        stored.unwrap_or(self)
    }
}

/// The kind of a resource.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    find_among(&KINDS, group, version, plural)
}

/// The same among other kinds.
pub(crate) fn find_among(
    kinds: &[&'static Kind],
    group: &str,
    version: &str,
    plural: &str,
) -> Option<&'static Kind> {
    let kinds = kinds.iter().copied();
    kinds
        .filter(|kind| kind.plural == plural)
        .find(|kind| kind.group == group && kind.version == version)
}

/// The kind of namespaces.
pub(crate) fn namespaces() -> &'static Kind {
    static FOUND: LazyLock<&'static Kind> = LazyLock::new(|| only(Special::Namespace));
    *FOUND
}

/// The kind of the definitions of custom resources.
pub(crate) fn definitions() -> &'static Kind {
    static FOUND: LazyLock<&'static Kind> = LazyLock::new(|| only(Special::Definition));
    *FOUND
}

fn only(special: Special) -> &'static Kind {
    let mut kinds = KINDS.iter().copied();
    let found = kinds.find(|kind| kind.special == special);
    found.unwrap_or(KINDS[0])
}
