//! The schemas of built-in types, in both versions of OpenAPI.

use std::collections::HashMap;

use tidings_json::{Map, Value, json};
use tidings_schema::{
    Descriptions, Field, FieldDescription, FieldKind, ItemType, ListKind, PatchStrategy,
    StructAlternative, Type,
};

use super::{OpenApiVersion, group_version_kind};

/// The name of the schema for bodies of patches.
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// A set of schemas by name, with all schemas to which they refer.
pub(super) struct Schemas<'a> {
    version: OpenApiVersion,
    descriptions: &'a Descriptions,
    made: Map,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(version: OpenApiVersion, descriptions: &'a Descriptions) -> Schemas<'a> {
        Schemas {
            version,
            descriptions,
            made: Map::new(),
        }
    }

    pub(super) fn version(&self) -> OpenApiVersion {
        self.version
    }

    /// The description of a field of a type.
    pub(super) fn describe(&self, package: &str, name: &str, field: &str) -> String {
        let mut fields = self.descriptions.of(package, name).into_iter();
        let described = fields.find_map(|described| {
            let mut fields = described.fields();
            fields.find(|described| described.name == field)
        });
        described.map(|field| field.text).unwrap_or_default()
    }

    /// Adds a schema that is made elsewhere.
    pub(super) fn insert(&mut self, name: String, schema: Value) {
        self.made.insert(name, schema);
    }

    /// Takes a schema out.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.made.remove(name)
    }

    /// All schemas, sorted by name.
    pub(super) fn finish(mut self) -> Map {
        self.made.sort_keys();
        self.made
    }

    /// Adds the schema of a kind of meta/v1, such as DeleteOptions, which belongs to every group and version.
    pub(super) fn put_shared_kind(&mut self, of: &'static Type, group_version_kind: Value) {
        self.put(of);
        let schema = self.made.get_mut(&type_name(of));
        let Some(schema) = schema.and_then(Value::as_object_mut) else {
            return;
        };
        let kinds = schema
            .entry("x-kubernetes-group-version-kind")
            .or_insert_with(|| json!([]));
        if let Some(kinds) = kinds.as_array_mut()
            && !kinds.contains(&group_version_kind)
        {
            kinds.push(group_version_kind);
        }
    }

    /// Adds the schema for bodies of patches.
    pub(super) fn put_patch(&mut self) {
        let patch = json!({"description": "A patch, of the form that its media type names.", "type": "object"});
        self.made.insert(PATCH.to_owned(), patch);
    }

    /// Adds the schema of a type.
    pub(super) fn put(&mut self, of: &'static Type) {
        let name = type_name(of);
        if self.made.contains_key(&name) {
            return;
        }
        self.made.insert(name.clone(), Value::Null); // ends the recursion of types that contain themselves
        let described = self.descriptions.of(of.package, of.name);
        let mut fields: HashMap<&str, FieldDescription<'_>> = HashMap::new();
        if let Some(described) = described {
            fields = described
                .fields()
                .map(|field| (field.name, field))
                .collect();
        }
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in of.members() {
            let property = self.property(of, field, fields.get(field.name));
            properties.insert(field.name.to_owned(), property);
            if field.required {
                required.push(field.name);
            }
        }
        properties.sort_keys();
        let mut schema = Map::new();
        if let Some(described) = described {
            schema.insert("description".into(), described.text().into());
        }
        schema.insert("type".into(), "object".into());
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        if !properties.is_empty() {
            schema.insert("properties".into(), properties.into());
        }
        if of.is_kind && of.package != "meta/v1" {
            let kind = group_version_kind(of.group, of.version, of.name);
            schema.insert("x-kubernetes-group-version-kind".into(), json!([kind]));
        }
        if of.atomic {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        self.made.insert(name, schema.into());
    }

    fn property(
        &mut self,
        of: &'static Type,
        field: &Field,
        described: Option<&FieldDescription<'_>>,
    ) -> Value {
        let mut property = Map::new();
        if let Some(described) = described.filter(|described| !described.text.is_empty()) {
            property.insert("description".into(), described.text.clone().into());
        }
        let default = field
            .default
            .and_then(|text| serde_json::from_str(text).ok());
        if let Some(default) = default.filter(|_: &Value| self.version == OpenApiVersion::V3) {
            property.insert("default".into(), default);
        }
        let item = field.item();
        let item_values = described.map(|described| &described.item_values);
        match field.kind {
            FieldKind::One(_) => self.put_item(&mut property, of, item),
            FieldKind::List(_) => {
                property.insert("type".into(), "array".into());
                property.insert("items".into(), self.element(of, item, item_values));
            }
            FieldKind::Map(_) => {
                property.insert("type".into(), "object".into());
                let element = self.element(of, item, item_values);
                property.insert("additionalProperties".into(), element);
            }
        }
        if let Some(described) = described.filter(|described| !described.values.is_empty()) {
            property.insert("enum".into(), described.values.clone().into());
        }
        put_merging(&mut property, field);
        property.into()
    }

    /// The schema of the elements of a list or map. In OpenAPI 3 the default is Go's zero value, because Go has no absent elements.
    fn element(
        &mut self,
        of: &'static Type,
        item: ItemType,
        values: Option<&Vec<String>>,
    ) -> Value {
        let zero = match item {
            ItemType::String => Some(json!("")),
            ItemType::Bool => Some(json!(false)),
            ItemType::Int32 | ItemType::Int64 => Some(json!(0)),
            ItemType::Struct(_) => Some(json!({})),
            _ => None,
        };
        let mut element = Map::new();
        if let Some(zero) = zero.filter(|_| self.version == OpenApiVersion::V3) {
            element.insert("default".into(), zero);
        }
        self.put_item(&mut element, of, item);
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            element.insert("enum".into(), values.clone().into());
        }
        element.into()
    }

    /// Adds the schema of a single value to `schema`.
    fn put_item(&mut self, schema: &mut Map, around: &'static Type, item: ItemType) {
        let plain = match item {
            ItemType::String => json!({"type": "string"}),
            ItemType::Bytes => json!({"type": "string", "format": "byte"}),
            ItemType::Bool => json!({"type": "boolean"}),
            ItemType::Int32 => json!({"type": "integer", "format": "int32"}),
            ItemType::Int64 => json!({"type": "integer", "format": "int64"}),
            ItemType::Double => json!({"type": "number", "format": "double"}),
            ItemType::Strings => {
                let texts = self.element(around, ItemType::String, None);
                json!({"type": "array", "items": texts})
            }
            ItemType::Struct(of) => {
                self.put(of);
                return self.put_reference(schema, &type_name(of));
            }
            _ => {
                let name = self.put_scalar(around, item);
                return self.put_reference(schema, &name);
            }
        };
        if let Value::Object(plain) = plain {
            schema.extend(plain);
        }
    }

    /// Adds a `$ref`. OpenAPI 3 ignores the members beside a `$ref`, so it is wrapped in `allOf` if there are any.
    pub(super) fn put_reference(&self, schema: &mut Map, name: &str) {
        let reference = json!(self.version.reference(name));
        if self.version == OpenApiVersion::V3 && !schema.is_empty() {
            schema.insert("allOf".into(), json!([{ "$ref": reference }]));
        } else {
            schema.insert("$ref".into(), reference);
        }
    }

    /// Adds the schema of a type whose JSON is not an object with the type's fields, such as Time, and returns its name.
    fn put_scalar(&mut self, around: &'static Type, item: ItemType) -> String {
        let either = |of: &[Value]| match self.version {
            OpenApiVersion::V2 => json!({"type": "string"}),
            OpenApiVersion::V3 => json!({ "oneOf": of }),
        };
        let (integer, number, string) = (
            json!({"type": "integer"}),
            json!({"type": "number"}),
            json!({"type": "string"}),
        );
        let (package, name, mut schema) = match item {
            ItemType::Time => ("meta/v1", "Time", string),
            ItemType::MicroTime => ("meta/v1", "MicroTime", string),
            ItemType::Quantity => ("api/resource", "Quantity", either(&[string, number])),
            ItemType::IntOrString => ("util/intstr", "IntOrString", either(&[integer, string])),
            ItemType::Fields => ("meta/v1", "FieldsV1", json!({"type": "object"})),
            ItemType::Raw if around.package != "apiextensions/v1" => {
                ("pkg/runtime", "RawExtension", json!({"type": "object"}))
            }
            ItemType::Either(of, other) => (of.package, either_name(other), json!({})),
            _ => ("apiextensions/v1", "JSON", json!({})),
        };
        let format = match item {
            ItemType::Time | ItemType::MicroTime => Some("date-time"),
            ItemType::IntOrString => Some("int-or-string"),
            _ => None,
        };
        if let Some(format) = format {
            schema["format"] = format.into();
        }
        if let Some(described) = self.descriptions.of(package, name) {
            schema["description"] = described.text().into();
        }
        let name = full_name(package, name);
        self.made.insert(name.clone(), schema);
        name
    }
}

/// Adds the extensions that say how lists and objects are merged.
fn put_merging(property: &mut Map, field: &Field) {
    if field.list_declared {
        match &field.list {
            ListKind::Atomic => {
                property.insert("x-kubernetes-list-type".into(), "atomic".into());
            }
            ListKind::Set => {
                property.insert("x-kubernetes-list-type".into(), "set".into());
            }
            ListKind::Map(keys) => {
                property.insert("x-kubernetes-list-type".into(), "map".into());
                property.insert("x-kubernetes-list-map-keys".into(), keys.to_vec().into());
            }
        }
    }
    let by_itself = match field.kind {
        FieldKind::One(ItemType::Struct(of)) => of.atomic,
        _ => false,
    };
    if field.atomic != by_itself {
        let map_type = if field.atomic { "atomic" } else { "granular" };
        property.insert("x-kubernetes-map-type".into(), map_type.into());
    }
    if let Some(key) = field.merge_key {
        property.insert("x-kubernetes-patch-merge-key".into(), key.into());
    }
    let PatchStrategy {
        merge,
        retain_keys,
        replace,
    } = field.patch_strategy;
    let strategies = [
        (merge, "merge"),
        (retain_keys, "retainKeys"),
        (replace, "replace"),
    ];
    let strategies: Vec<&str> = strategies
        .iter()
        .filter_map(|(is, name)| is.then_some(*name))
        .collect();
    if !strategies.is_empty() {
        let strategies = strategies.join(",");
        property.insert("x-kubernetes-patch-strategy".into(), strategies.into());
    }
}

fn either_name(other: StructAlternative) -> &'static str {
    match other {
        StructAlternative::Bool => "JSONSchemaPropsOrBool",
        StructAlternative::List => "JSONSchemaPropsOrArray",
        StructAlternative::Strings => "JSONSchemaPropsOrStringArray",
    }
}

/// The full name of a type.
pub(super) fn type_name(of: &Type) -> String {
    full_name(of.package, of.name)
}

fn full_name(package: &str, name: &str) -> String {
    let prefix = match package {
        "meta/v1" => "io.k8s.apimachinery.pkg.apis",
        "api/resource" | "util/intstr" => "io.k8s.apimachinery.pkg",
        "pkg/runtime" => "io.k8s.apimachinery",
        "apiextensions/v1" => "io.k8s.apiextensions-apiserver.pkg.apis",
        _ => "io.k8s.api",
    };
    format!("{prefix}.{}.{name}", package.replace('/', "."))
}
