//! A schema that is compiled when it is first used: of hundreds of definitions most have no objects.

use std::ops::Deref;
use std::sync::OnceLock;

use tidings_api::Object;
use tidings_json::{Value, json};

use super::member::at;
use crate::schema::{CompileOptions, Schema};
use crate::tolerated::ToleratedFaults;

/// The schema of a version. It was compiled once, to see that it can be served, and is compiled again when the first object is read or
/// written.
#[derive(Debug)]
pub struct LazySchema {
    compiled: OnceLock<Box<Schema>>,
    /// The CustomResourceDefinition, and the position of the version in it.
    source: Option<(Object, usize)>,
}

impl LazySchema {
    /// A schema that stays compiled.
    pub(super) fn kept(schema: Schema) -> LazySchema {
        LazySchema {
            compiled: OnceLock::from(Box::new(schema)),
            source: None,
        }
    }

    /// A schema that is compiled again from the definition.
    pub(super) fn of_source(definition: &Object, at: usize) -> LazySchema {
        LazySchema {
            compiled: OnceLock::new(),
            source: Some((definition.clone(), at)),
        }
    }

    /// True if it is compiled now.
    pub fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// Compiles it, if that is not done yet: the first use would do so.
    pub fn compile(&self) -> &Schema {
        self.compiled.get_or_init(|| {
            let source = self.source.as_ref();
            let (definition, at) = source.expect("a schema without a source is compiled");
            let definition: Value =
                serde_json::from_slice(definition.as_bytes()).unwrap_or_default();
            let compiled = compile(&definition["spec"]["versions"][*at], *at);
            Box::new(compiled.expect("it was compiled before, from the same text"))
        })
    }
}

impl Deref for LazySchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        self.compile()
    }
}

/// True if a version has a status subresource.
pub(super) fn has_status(version: &Value) -> bool {
    at(version, &["subresources", "status"]).is_some()
}

/// Compiles the schema of a version.
pub(super) fn compile(version: &Value, index: usize) -> Result<Schema, String> {
    let open_api = at(version, &["schema", "openAPIV3Schema"]);
    let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
    // A version without a schema prunes all fields.
    let nothing = json!({"type": "object"});
    let options = CompileOptions::default()
        .with_status_subresource(has_status(version))
        .tolerating(ToleratedFaults::SERVABLE);
    let schema = Schema::compile(open_api.unwrap_or(&nothing), &path, options);
    schema.map_err(|errors| errors.to_string())
}
