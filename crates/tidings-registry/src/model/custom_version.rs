//! A version of a custom resource definition.

use std::sync::Arc;

use tidings_api::{GroupVersion, Object};
use tidings_json::Value;
use tidings_structural::definition::{DefinedVersion, Definition};

/// One version of a custom resource definition.
#[derive(Debug)]
pub struct CustomVersion {
    /// The definition.
    pub definition: Arc<Definition>,
    /// The CustomResourceDefinition object that the definition was read from.
    pub(crate) source: Object,
    /// The position of the version in the definition.
    pub(crate) at: usize,
    /// A hash of the `spec` of the definition.
    pub spec_hash: u64,
    /// The first bytes of objects of this version. Members are sorted by name, so apiVersion comes first.
    pub(crate) object_head: String,
}

impl CustomVersion {
    /// The version in the definition.
    pub fn version(&self) -> &DefinedVersion {
        &self.definition.versions[self.at]
    }

    /// True if the schemas are compiled that objects of this version are written with.
    pub fn is_compiled(&self) -> bool {
        self.version().schema.is_compiled() && self.definition.storage().schema.is_compiled()
    }

    /// Compiles the schemas that objects of this version are written with. That takes milliseconds.
    pub fn compile(&self) {
        self.version().schema.compile();
        self.definition.storage().schema.compile();
    }

    /// The `openAPIV3Schema` of the version, as the definition has it.
    pub fn open_api(&self) -> Value {
        let definition: Value = serde_json::from_slice(self.source.as_bytes()).unwrap_or_default();
        let path = format!("/spec/versions/{}/schema/openAPIV3Schema", self.at);
        definition.pointer(&path).cloned().unwrap_or_default()
    }

    /// The group and the version in which objects are stored.
    pub(crate) fn stored_version(&self) -> GroupVersion<'_> {
        GroupVersion {
            group: &self.definition.group,
            version: &self.definition.storage().name,
        }
    }
}
