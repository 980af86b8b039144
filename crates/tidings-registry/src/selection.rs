//! The objects that a list or watch selects: by kind, namespace, name and selectors.

use std::sync::Arc;

use tidings_api::{
    Facet, FieldFacet, FieldSelector, LabelSelector, Object, ObjectKey, SelectorError,
    ShardSelector, Status,
};

use crate::model::Kind;

/// The objects of a kind that a list or watch selects.
#[derive(Debug, Clone)]
pub struct Selection {
    kind: Arc<Kind>,
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    labels: LabelSelector,
    fields: Arc<[FieldTest]>,
    shard: Option<Arc<ShardSelector>>,
    /// The selectors as they were written. Selections with equal texts select the same objects of a kind.
    texts: Arc<(Box<str>, Box<str>)>,
}

/// The comparison of a field with a value.
#[derive(Debug)]
struct FieldTest {
    field: ComparedField,
    value: Box<str>,
    negated: bool,
}

#[derive(Debug)]
enum ComparedField {
    Name,
    Namespace,
    /// `None` has no value in any object.
    OfKind(Option<FieldFacet>),
}

impl FieldTest {
    fn holds(&self, object: &Object) -> bool {
        let is_equal = match &self.field {
            ComparedField::Name => object.name() == *self.value,
            ComparedField::Namespace => object.namespace() == *self.value,
            ComparedField::OfKind(Some(field)) => field.value(object) == *self.value,
            ComparedField::OfKind(None) => self.value.is_empty(),
        };
        is_equal != self.negated
    }
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
        let texts = Arc::new((labels.into(), fields.into()));
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
        let tests = fields.terms().iter().map(|term| FieldTest {
            field: match term.field.as_str() {
                "metadata.name" => ComparedField::Name,
                "metadata.namespace" => ComparedField::Namespace,
                field => ComparedField::OfKind(kind.strategy.field(kind, field)),
            },
            value: term.value.as_str().into(),
            negated: term.negated,
        });
        Ok(Selection {
            kind: kind.clone(),
            namespace: namespace.or(wanted_namespace).map(Into::into),
            name: name.or(wanted_name).map(Into::into),
            labels,
            fields: tests.collect(),
            shard: None,
            texts,
        })
    }

    /// The objects of a shard among the selected ones. The empty text is no shard.
    ///
    /// # Errors
    /// If the shard selector cannot be read. Upstream answers 500; we answer 400, because it is the client's mistake.
    pub fn sharded(mut self, shard: &str) -> Result<Selection, Status> {
        if !shard.is_empty() {
            let shard = ShardSelector::parse(shard);
            let shard = shard.map_err(|error| Status::bad_request(error.to_string()))?;
            self.shard = Some(Arc::new(shard));
        }
        Ok(self)
    }

    /// The shard, if only objects of one are selected.
    pub fn shard(&self) -> Option<&Arc<ShardSelector>> {
        self.shard.as_ref()
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
            && self.fields.iter().all(|test| test.holds(object))
            && self
                .shard
                .as_ref()
                .is_none_or(|shard| shard.matches(object))
    }

    /// A facet and the value of it that all selected objects have, for a lookup; `None` if selectors require no exact value.
    pub fn required_value(&self) -> Option<(Facet, &str)> {
        if let Some(name) = &self.name {
            return Some((Facet::Name, name));
        }
        let fields = self.fields.iter().filter(|test| !test.negated);
        let mut fields = fields.filter_map(|test| match &test.field {
            ComparedField::OfKind(Some(field)) => Some((Facet::Field(field.clone()), &*test.value)),
            _ => None,
        });
        let label = || {
            let (key, value) = self.labels.required_label()?;
            Some((Facet::Label(key.into()), value))
        };
        fields.next().or_else(label)
    }

    /// Names the selectors: selections of a resource with equal names and namespaces select the same objects.
    pub fn selectors_name(&self) -> String {
        let (kind, (labels, fields)) = (&self.kind, &*self.texts);
        let shard = self.shard.as_ref().map(ToString::to_string);
        let shard = shard.unwrap_or_default();
        format!(
            "{}/{} {labels:?} {fields:?} {shard}",
            kind.group, kind.version
        )
    }

    /// True if the selection depends on the selectable fields of a custom resource definition.
    pub fn is_by_definition(&self) -> bool {
        self.kind.is_custom() && !self.fields.is_empty()
    }

    /// True if all objects of the namespace or cluster are selected.
    pub fn is_everything(&self) -> bool {
        let is_whole = self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none();
        is_whole && self.name.is_none()
    }

    /// The namespace, if only objects of one namespace are selected.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
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
