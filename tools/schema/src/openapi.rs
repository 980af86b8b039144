//! Reads the schemas of OpenAPI v3 documents.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// The schemas of all documents by the full name of their message, such as `k8s.io.api.core.v1.Pod`.
pub(crate) struct OpenApi(BTreeMap<String, Value>);

impl OpenApi {
    /// Reads all documents of a directory.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let mut schemas = BTreeMap::new();
        for entry in dir
            .read_dir()
            .with_context(|| format!("{}", dir.display()))?
        {
            let mut document: Value = serde_json::from_slice(&std::fs::read(entry?.path())?)?;
            let Some(found) = document.pointer_mut("/components/schemas") else {
                continue;
            };
            if let Value::Object(found) = found.take() {
                // `io.k8s.` here is `k8s.io.` in protobuf.
                schemas.extend(found.into_iter().filter_map(|(name, schema)| {
                    Some((format!("k8s.io.{}", name.strip_prefix("io.k8s.")?), schema))
                }));
            }
        }
        Ok(Self(schemas))
    }

    /// The schema of one type.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The full name and the `group/version` of every kind.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().filter_map(|(name, schema)| {
            let kind = schema.get("x-kubernetes-group-version-kind")?.get(0)?;
            let (group, version) = (text(kind, "group")?, text(kind, "version")?);
            let api_version = match group {
                "" => version.to_owned(),
                _ => format!("{group}/{version}"),
            };
            Some((name.as_str(), api_version))
        })
    }
}

/// A member of a schema that is a string.
pub(crate) fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key)?.as_str()
}

/// Whether a schema requires the property.
pub(crate) fn requires(schema: &Value, property: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|name| name == property))
}

/// The schema of a property.
pub(crate) fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    schema.get("properties")?.get(name)?.as_object()
}
