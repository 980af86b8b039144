//! Which objects a list or watch is about.

use std::borrow::Cow;
use std::sync::Arc;

use tidings_api::{FieldSelector, LabelSelector, Object, ObjectKey, SelectorError, Status, go};

use crate::cache::wake::Scope;
use crate::custom::Live;
use crate::registry::Kind;

/// Which objects of a resource are meant.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    kind: &'static Kind,
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    labels: LabelSelector,
    /// What of the field selector the two above do not say.
    fields: FieldSelector,
    /// A field selector was given, whatever it says.
    by_fields: bool,
    /// What the definition says about fields, if the kind is a custom resource.
    live: Option<Arc<Live>>,
}

impl Selection {
    /// From the path and the selectors of a request (W66, W67).
    pub(crate) fn new(
        kind: &'static Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> Result<Selection, Status> {
        let labels =
            LabelSelector::parse(labels).map_err(|error| Status::bad_request(error.to_string()))?;
        let fields =
            FieldSelector::parse(fields).map_err(|error| Status::bad_request(error.to_string()))?;
        let live = kind.live().filter(|_| !fields.is_empty());
        for term in fields.terms() {
            check_field(kind, live.as_deref(), &term.field)?;
        }
        let wanted_name = fields.required_value("metadata.name");
        let named = |path: &str| {
            fields.matches(|field| {
                if field == "metadata.name" {
                    path.to_owned().into()
                } else {
                    "".into()
                }
            })
        };
        let only_names = fields
            .terms()
            .iter()
            .all(|term| term.field == "metadata.name");
        if name.is_some_and(|path| {
            wanted_name.is_some_and(|selected| path != selected) || (only_names && !named(path))
        }) {
            return Err(Status::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        let wanted_namespace = fields
            .required_value("metadata.namespace")
            .filter(|_| kind.namespaced);
        Ok(Selection {
            kind,
            namespace: namespace.or(wanted_namespace).map(Into::into),
            name: name.or(wanted_name).map(Into::into),
            by_fields: !fields.is_empty(),
            live,
            labels,
            fields,
        })
    }

    /// Only whether the selectors can be read.
    pub(crate) fn check_syntax(labels: &str, fields: &str) -> Result<(), Status> {
        let bad = |error: SelectorError| Status::bad_request(error.to_string());
        LabelSelector::parse(labels).map_err(bad)?;
        FieldSelector::parse(fields).map_err(bad)?;
        Ok(())
    }

    /// True if the object is meant.
    pub(crate) fn selects(&self, object: &Object) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| object.namespace() == namespace)
            && self
                .name
                .as_deref()
                .is_none_or(|name| object.name() == name)
            && (self.labels.is_empty() || self.labels.matches(object.labels()))
            && (self.fields.is_empty() || self.fields.matches(|field| self.value(object, field)))
    }

    fn value<'o>(&self, object: &'o Object, field: &str) -> Cow<'o, str> {
        match field {
            "metadata.name" => object.name(),
            "metadata.namespace" => object.namespace(),
            field => {
                if let Some(live) = &self.live {
                    return custom_value(live, object, field).into();
                }
                let Some(known) = self.kind.fields.iter().find(|known| known.name == field) else {
                    return Cow::Borrowed("");
                };
                known
                    .paths
                    .iter()
                    .find_map(|path| object.field(path))
                    .unwrap_or(Cow::Borrowed(known.absent))
            }
        }
    }

    /// True if the selection depends on what a definition says.
    pub(crate) fn is_by_definition(&self) -> bool {
        self.live.is_some() && !self.fields.is_empty()
    }

    /// Every object within the scope is meant.
    pub(crate) fn is_whole_scope(&self) -> bool {
        self.labels.is_empty() && !self.by_fields
    }

    /// Where a watch of these objects waits.
    pub(crate) fn scope(&self) -> Scope {
        match (&self.namespace, &self.name) {
            (None, None) => Scope::All,
            (Some(namespace), None) => Scope::Namespace(namespace.clone()),
            (None, Some(name)) if !self.kind.namespaced => Scope::Object(ObjectKey::new("", name)),
            (None, Some(name)) => Scope::Name(name.clone()),
            (Some(namespace), Some(name)) => Scope::Object(ObjectKey::new(namespace, name)),
        }
    }

    /// What the keys of the objects begin with: those of a namespace stand together.
    pub(crate) fn key_prefix(&self) -> String {
        match &self.namespace {
            Some(namespace) if self.kind.namespaced => format!("{namespace}/"),
            _ => String::new(),
        }
    }

    /// The one object that is meant, if path or selectors name it.
    pub(crate) fn single_key(&self) -> Option<ObjectKey> {
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => Some(ObjectKey::new(namespace, name)),
            (None, Some(name)) if !self.kind.namespaced => Some(ObjectKey::new("", name)),
            _ => None,
        }
    }
}

/// A field that a definition makes selectable.
fn custom_value(live: &Live, object: &Object, field: &str) -> String {
    let mut fields = live.version().fields.iter();
    let Some(known) = fields.find(|known| known.name == field) else {
        return String::new();
    };
    let whole: tidings_json::Value = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
    known.path.first_text(&whole)
}

/// W67: which fields a kind can be selected by.
fn check_field(kind: &Kind, live: Option<&Live>, field: &str) -> Result<(), Status> {
    if let Some(live) = live {
        let own = live
            .version()
            .fields
            .iter()
            .any(|known| known.name == field);
        return match own || matches!(field, "metadata.name" | "metadata.namespace") {
            true => Ok(()),
            false => Err(Status::bad_request(format!(
                "field label not supported: {field}"
            ))),
        };
    }
    // Kinds with fields of their own that are in no namespace do not know of namespaces.
    let in_namespaces = kind.namespaced || kind.fields.is_empty();
    let everywhere = field == "metadata.name" || (field == "metadata.namespace" && in_namespaces);
    let known = everywhere || kind.fields.iter().any(|known| known.name == field);
    if known {
        return Ok(());
    }
    Err(Status::bad_request(if kind.kind == "Job" {
        format!("field label {} not supported for Job", go::quote(field))
    } else if !kind.fields.is_empty() {
        format!("field label not supported: {field}")
    } else {
        format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            go::quote(field)
        )
    }))
}
