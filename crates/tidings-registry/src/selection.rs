//! The objects that a list or watch selects: by kind, namespace, name and selectors.

use std::borrow::Cow;
use std::sync::Arc;

use tidings_api::{FieldSelector, LabelSelector, Object, ObjectKey, SelectorError, Status};

use crate::model::Kind;

/// The objects of a kind that a list or watch selects.
#[derive(Debug, Clone)]
pub struct Selection {
    kind: Arc<Kind>,
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// A selection from the path and the selectors of a request (W66, W67).
    ///
    /// # Errors
    /// If a selector cannot be read, names a field that the kind cannot be selected by, or contradicts the path.
    pub fn new(
        kind: &Arc<Kind>,
        namespace: Option<&str>,
        name: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> Result<Selection, Status> {
        let labels =
            LabelSelector::parse(labels).map_err(|error| Status::bad_request(error.to_string()))?;
        let fields =
            FieldSelector::parse(fields).map_err(|error| Status::bad_request(error.to_string()))?;
        for term in fields.terms() {
            let checked = kind.strategy.check_field(kind, &term.field);
            checked.map_err(Status::bad_request)?;
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
            kind: kind.clone(),
            namespace: namespace.or(wanted_namespace).map(Into::into),
            name: name.or(wanted_name).map(Into::into),
            labels,
            fields,
        })
    }

    /// Checks only that the selectors can be read.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn check_syntax(labels: &str, fields: &str) -> Result<(), Status> {
        let bad = |error: SelectorError| Status::bad_request(error.to_string());
        LabelSelector::parse(labels).map_err(bad)?;
        FieldSelector::parse(fields).map_err(bad)?;
        Ok(())
    }

    /// True if the object is selected.
    pub fn selects(&self, object: &Object) -> bool {
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
            field => self.kind.strategy.field_value(&self.kind, object, field),
        }
    }

    /// True if the selection depends on the selectable fields of a custom resource definition.
    pub fn is_by_definition(&self) -> bool {
        self.kind.is_custom() && !self.fields.is_empty()
    }

    /// True if there are no selectors: namespace and name alone decide.
    pub fn is_whole_scope(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The namespace, if only objects of one namespace are selected.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name, if only objects of one name are selected.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The prefix of the keys of all selected objects.
    pub fn key_prefix(&self) -> String {
        match &self.namespace {
            Some(namespace) if self.kind.namespaced => format!("{namespace}/"),
            _ => String::new(),
        }
    }

    /// The key of the object, if path or selectors select a single one.
    pub fn single_key(&self) -> Option<ObjectKey> {
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => Some(ObjectKey::new(namespace, name)),
            (None, Some(name)) if !self.kind.namespaced => Some(ObjectKey::new("", name)),
            _ => None,
        }
    }
}
