//! A definition in the form in which upstream checks it. Errors name the fields of that form: what all versions say alike is
//! taken out of them and stands above, as `spec.validation`, `spec.subresources` and so on; that is so for every definition
//! with one version.

use tidings_json::Value;

use super::member::{flag, get, list, text};

pub(super) struct Spec<'a> {
    pub(super) group: &'a str,
    pub(super) scope: &'a str,
    pub(super) names: &'a Value,
    pub(super) conversion: Option<&'a Value>,
    pub(super) preserves_unknown: bool,
    pub(super) versions: Vec<Version<'a>>,
    /// What all versions have in common.
    pub(super) common: Parts<'a>,
    written: &'a Value,
}

pub(super) struct Version<'a> {
    pub(super) name: &'a str,
    pub(super) json: &'a Value,
    /// What is not common to all versions.
    pub(super) own: Parts<'a>,
}

/// What can stand in a version or above all of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Parts<'a> {
    /// The object around the schema.
    pub(super) schema: Option<&'a Value>,
    pub(super) subresources: Option<&'a Value>,
    pub(super) columns: &'a [Value],
    pub(super) fields: &'a [Value],
}

impl<'a> Parts<'a> {
    fn of(version: &'a Value) -> Parts<'a> {
        Parts {
            schema: get(version, "schema"),
            subresources: get(version, "subresources"),
            columns: list(version, "additionalPrinterColumns"),
            fields: list(version, "selectableFields"),
        }
    }

    /// The schema itself.
    pub(super) fn open_api(&self) -> Option<&'a Value> {
        self.schema
            .and_then(|schema| get(schema, "openAPIV3Schema"))
    }

    pub(super) fn has_status(&self) -> bool {
        self.subresources
            .is_some_and(|subresources| get(subresources, "status").is_some())
    }
}

impl<'a> Spec<'a> {
    pub(super) fn of(crd: &'a Value) -> Spec<'a> {
        const NOTHING: &Value = &Value::Null;
        let spec = crd.get("spec").unwrap_or(NOTHING);
        let mut versions: Vec<Version<'_>> = list(spec, "versions")
            .iter()
            .map(|json| Version {
                name: text(json, "name"),
                json,
                own: Parts::of(json),
            })
            .collect();
        let mut common = Parts::default();
        if let Some(first) = versions.first().map(|version| version.own) {
            if versions.iter().all(|v| v.own.schema == first.schema) {
                common.schema = first.schema;
                versions.iter_mut().for_each(|v| v.own.schema = None);
            }
            if versions
                .iter()
                .all(|v| v.own.subresources == first.subresources)
            {
                common.subresources = first.subresources;
                versions.iter_mut().for_each(|v| v.own.subresources = None);
            }
            if versions.iter().all(|v| v.own.columns == first.columns) {
                common.columns = first.columns;
                versions.iter_mut().for_each(|v| v.own.columns = &[]);
            }
            if versions.iter().all(|v| v.own.fields == first.fields) {
                common.fields = first.fields;
                versions.iter_mut().for_each(|v| v.own.fields = &[]);
            }
        }
        Spec {
            group: text(spec, "group"),
            scope: text(spec, "scope"),
            names: spec.get("names").unwrap_or(NOTHING),
            conversion: get(spec, "conversion"),
            preserves_unknown: flag(spec, "preserveUnknownFields"),
            versions,
            common,
            written: spec.get("versions").unwrap_or(NOTHING),
        }
    }

    /// All schemas, each once.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        let own = self.versions.iter().map(|version| &version.own);
        std::iter::once(&self.common)
            .chain(own)
            .filter_map(Parts::open_api)
    }

    /// True if a version has a status subresource.
    pub(super) fn has_any_status(&self) -> bool {
        self.common.has_status() || self.versions.iter().any(|v| v.own.has_status())
    }

    /// What versions have in common is no longer in them.
    pub(super) fn has_status(&self, version: &Version<'_>) -> bool {
        version.own.has_status() || self.common.has_status()
    }

    /// The versions as errors print them.
    pub(super) fn printed_versions(&self) -> String {
        let mut versions = self.written.clone();
        for (version, json) in self
            .versions
            .iter()
            .zip(versions.as_array_mut().into_iter().flatten())
        {
            let Value::Object(json) = json else { continue };
            for (member, is_own) in [
                ("schema", version.own.schema.is_some()),
                ("subresources", version.own.subresources.is_some()),
                ("additionalPrinterColumns", !version.own.columns.is_empty()),
                ("selectableFields", !version.own.fields.is_empty()),
            ] {
                if !is_own {
                    json.remove(member);
                }
            }
        }
        crate::printed::versions(&versions)
    }
}
