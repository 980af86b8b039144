//! A definition in the internal form that upstream checks. Errors name the fields of that form: what is equal in all versions is
//! moved out of them to `spec.validation`, `spec.subresources` and so on. In a definition with one version that is everything.

use tidings_json::Value;

use super::member::{flag, get, list, text};

/// `spec` of a definition, in upstream's internal form.
pub(super) struct DefinitionSpec<'a> {
    pub(super) group: &'a str,
    pub(super) scope: &'a str,
    pub(super) names: &'a Value,
    pub(super) conversion: Option<&'a Value>,
    pub(super) preserves_unknown: bool,
    pub(super) versions: Vec<SpecVersion<'a>>,
    /// The parts that are equal in all versions.
    pub(super) common: VersionParts<'a>,
    written: &'a Value,
}

/// A version, with the parts that differ between versions.
pub(super) struct SpecVersion<'a> {
    pub(super) name: &'a str,
    pub(super) json: &'a Value,
    /// The parts that are not equal in all versions.
    pub(super) own: VersionParts<'a>,
}

/// The parts of a version that move to `spec` if all versions have them in common.
#[derive(Clone, Copy, Default)]
pub(super) struct VersionParts<'a> {
    /// The member `schema`, which contains `openAPIV3Schema`.
    pub(super) schema: Option<&'a Value>,
    pub(super) subresources: Option<&'a Value>,
    pub(super) columns: &'a [Value],
    pub(super) fields: &'a [Value],
}

impl<'a> VersionParts<'a> {
    fn of(version: &'a Value) -> VersionParts<'a> {
        VersionParts {
            schema: get(version, "schema"),
            subresources: get(version, "subresources"),
            columns: list(version, "additionalPrinterColumns"),
            fields: list(version, "selectableFields"),
        }
    }

    /// The member `openAPIV3Schema`.
    pub(super) fn open_api(&self) -> Option<&'a Value> {
        self.schema
            .and_then(|schema| get(schema, "openAPIV3Schema"))
    }

    pub(super) fn has_status(&self) -> bool {
        self.subresources
            .is_some_and(|subresources| get(subresources, "status").is_some())
    }
}

impl<'a> DefinitionSpec<'a> {
    pub(super) fn of(crd: &'a Value) -> DefinitionSpec<'a> {
        const NOTHING: &Value = &Value::Null;
        let spec = crd.get("spec").unwrap_or(NOTHING);
        let mut versions: Vec<SpecVersion<'_>> = list(spec, "versions")
            .iter()
            .map(|json| SpecVersion {
                name: text(json, "name"),
                json,
                own: VersionParts::of(json),
            })
            .collect();
        let mut common = VersionParts::default();
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
        DefinitionSpec {
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

    /// All schemas; a schema that all versions share occurs once.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        let own = self.versions.iter().map(|version| &version.own);
        std::iter::once(&self.common)
            .chain(own)
            .filter_map(VersionParts::open_api)
    }

    /// True if any version has a status subresource.
    pub(super) fn has_any_status(&self) -> bool {
        self.common.has_status() || self.versions.iter().any(|v| v.own.has_status())
    }

    /// True if a version has a status subresource, by itself or in common with all versions.
    pub(super) fn has_status(&self, version: &SpecVersion<'_>) -> bool {
        version.own.has_status() || self.common.has_status()
    }

    /// The versions as errors print them, without the common parts.
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
