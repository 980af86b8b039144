//! Custom resources (W177-W187): kinds from custom resource definitions.
//!
//! Each version of a definition is a [`Kind`] that carries its [`CustomVersion`]. Both are immutable: a definition that
//! changes makes new ones.
//!
//! An object is stored in the version that was the storage version when it was written. The cache holds it pruned and with the
//! defaults of that version's current schema ([`as_read`]). Other versions are converted from the cached object when a client
//! reads them.

mod columns;
mod finalizers;
mod object;

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use tidings_api::{FieldErrors, FieldFacet, GroupVersion, Object, Status, UnstampedObject};
use tidings_json::{Map, Touched, Value};
use tidings_schema::FieldPath;
use tidings_structural::definition::Definition;

use crate::field_schema::FieldSchema;
use crate::form::ObjectForm;
use crate::model::{
    CustomVersion, Draft, Generation, Kind, Meta, Name, Scale, Strategy, Subresource,
    unsupported_field,
};
use crate::stored::StoredObject;

pub use object::as_read;
use object::check_type;

/// The kinds of all versions of a definition, in its order. `source` is the object that the definition was read from. Objects of
/// a `terminating` definition cannot be created.
pub fn kinds(definition: &Arc<Definition>, source: &Object, terminating: bool) -> Vec<Arc<Kind>> {
    let spec = tidings_json::find_member(source.as_bytes(), &["spec"]);
    let mut hasher = DefaultHasher::new();
    spec.map(|spec| spec.of(source.as_bytes()))
        .hash(&mut hasher);
    let spec_hash = hasher.finish();
    let versions = definition.versions.iter().enumerate();
    let kinds = versions.map(|(at, version)| {
        let custom = Arc::new(CustomVersion {
            definition: definition.clone(),
            source: source.clone(),
            at,
            spec_hash,
            object_head: format!(
                "{{\"apiVersion\":\"{}/{}\",",
                definition.group, version.name
            ),
        });
        Arc::new(kind(custom, terminating))
    });
    kinds.collect()
}

fn kind(custom: Arc<CustomVersion>, terminating: bool) -> Kind {
    let (definition, version) = (&custom.definition, custom.version());
    let names = &definition.names;
    let name = |text: &String| Name::from(text.clone());
    let all = |texts: &[String]| texts.iter().map(name).collect();
    Kind {
        group: name(&definition.group),
        version: name(&version.name),
        kind: name(&names.kind),
        plural: name(&names.plural),
        singular: name(&names.singular),
        list_kind: name(&names.list_kind),
        short_names: all(&names.short_names),
        categories: all(&names.categories),
        go_package: "unstructured",
        namespaced: definition.namespaced,
        store_prefix: format!("{}/{}", definition.group, names.plural).into(),
        generation: match version.status {
            true => Generation::Counted,
            false => Generation::CountedWithStatus,
        },
        conditional_update: true,
        status: version.status,
        scale: version.scale.clone().map(Scale::Defined),
        warning: version.warning.clone().unwrap_or_default().into(),
        bare_finalizers: true,
        sorted_members: true,
        terminating,
        strategy: Arc::new(CustomStrategy(custom.clone())),
        custom: Some(custom),
        ..Kind::plain()
    }
}

/// Objects that a webhook converts between the versions of their definition.
impl Kind {
    /// True if a webhook converts objects between the versions of the kind.
    pub fn is_converted_by_webhook(&self) -> bool {
        let custom = self.custom.as_ref();
        custom.is_some_and(|custom| custom.definition.webhook.is_some())
    }

    /// The JSON of an object that a webhook has converted to this kind: without the fields that it does not have.
    pub fn shown_converted(&self, object: Value) -> Vec<u8> {
        match &self.custom {
            Some(custom) => custom.shown_converted(object),
            None => object.to_string().into_bytes(),
        }
    }

    /// What is stored of an object that a webhook has converted to this kind.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn stored_converted(&self, object: Value) -> Result<UnstampedObject, Status> {
        let json = match &self.custom {
            Some(custom) => custom.stored_converted(object)?,
            None => object.to_string().into_bytes(),
        };
        UnstampedObject::parse(json).map_err(Status::internal)
    }
}

/// The form of objects of a custom resource.
impl ObjectForm for CustomVersion {
    fn read_body(&self, kind: &Arc<Kind>, body: &[u8]) -> Result<Draft, Status> {
        self.read_sent(kind, body)
    }

    fn read_value(&self, kind: &Arc<Kind>, value: Value, _: &Touched) -> Result<Draft, String> {
        match value {
            Value::Object(members) => self.read_members(kind, members),
            other => Err(tidings_go::mismatch(&other, "", &kind.kind)),
        }
    }

    fn read_object(&self, kind: &Arc<Kind>, object: &Object) -> Result<Draft, Status> {
        let stored = StoredObject::read(&self.shown(kind, object)).map_err(Status::internal)?;
        self.read_stored(kind, stored)
    }

    fn read_stored(&self, kind: &Arc<Kind>, stored: StoredObject) -> Result<Draft, Status> {
        let StoredObject {
            mut members,
            managed,
        } = stored;
        let meta = match members.remove("metadata") {
            Some(Value::Object(meta)) => {
                Meta::read(meta, &FieldPath::Top, &Touched::Whole, &mut Vec::new())
            }
            _ => Ok(Meta::default()),
        };
        members.remove("kind");
        members.remove("apiVersion");
        let mut meta = meta.map_err(Status::internal)?;
        meta.managed_fields = managed;
        Ok(Draft::new(kind.clone(), meta, members))
    }

    fn write(&self, draft: &Draft) -> Result<UnstampedObject, Status> {
        UnstampedObject::parse(self.stored_bytes(draft)?).map_err(Status::internal)
    }

    fn is_same(&self, one: &Draft, other: &Draft) -> bool {
        one.meta == other.meta && one.members == other.members
    }

    fn shown<'a>(&self, kind: &Kind, object: &'a Object) -> Cow<'a, [u8]> {
        match self.shows_as_stored(kind, object) {
            true => object.as_bytes().into(),
            false => self.in_this_version(object).into(),
        }
    }

    fn shows_as_stored(&self, _: &Kind, object: &Object) -> bool {
        object.as_bytes().starts_with(self.object_head.as_bytes())
    }

    fn stored_version<'k>(&'k self, _: &'k Kind) -> GroupVersion<'k> {
        self.stored_version()
    }

    fn check_type(&self, kind: &Kind, members: &Map) -> Result<(), Status> {
        check_type(kind, members)
    }

    fn field_schema<'k>(&'k self, _: &'k Kind) -> FieldSchema<'k> {
        FieldSchema::CustomResource(self.version().schema.view())
    }

    fn member_names<'k>(&'k self, _: &'k Kind) -> Vec<&'k str> {
        let view = self.version().schema.view();
        view.fields().map(|(name, _)| name).collect()
    }
}

/// The rules of a custom resource: those of its schema.
#[derive(Debug)]
struct CustomStrategy(Arc<CustomVersion>);

impl Strategy for CustomStrategy {
    fn check_field(&self, _: &Kind, field: &str) -> Result<(), String> {
        let mut fields = self.0.version().fields.iter();
        let known = matches!(field, "metadata.name" | "metadata.namespace")
            || fields.any(|known| known.name == field);
        match known {
            true => Ok(()),
            false => Err(unsupported_field(field)),
        }
    }

    fn field(&self, kind: &Kind, name: &str) -> Option<FieldFacet> {
        let mut fields = self.0.version().fields.iter();
        let known = fields.find(|known| known.name == name)?;
        let all = kind.field_paths();
        // A definition is refused if a field that can be selected by is not a member of members.
        let path = known.path.members().and_then(|path| all.position(&path));
        Some(FieldFacet::new(all, path, ""))
    }

    fn columns(&self, _: &Kind) -> Vec<String> {
        columns::definitions(&self.0)
    }

    fn cells(&self, _: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
        columns::cells(&self.0, object, now)
    }

    fn created_warnings(&self, object: &Object) -> Vec<String> {
        finalizers::warnings(object)
    }

    fn prepare_update(&self, new: &mut Draft, old: &Draft, subresource: Option<Subresource>) {
        if subresource == Some(Subresource::Status) {
            new.meta = Meta {
                managed_fields: std::mem::take(&mut new.meta.managed_fields),
                managed_reset: new.meta.managed_reset,
                ..old.meta.clone()
            };
        }
    }

    fn check(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        self.0.check_schema(new, old, subresource, errors);
    }
}
