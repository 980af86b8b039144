//! The built-in Kubernetes types as data.
//!
//! One table describes every stable built-in kind and the types it consists of: the fields, their names in JSON and numbers in
//! protobuf, how lists merge, required fields and defaults. `tools/schema` generates the table from the published definitions.
//! The table is part of the binary and is parsed at its first use.
//!
//! ```
//! let pod = tidings_schema::find("", "v1", "Pod").ok_or("no Pod")?;
//! let spec = pod.field("spec").and_then(|field| field.struct_type()).ok_or("no spec")?;
//! let containers = spec.field("containers").ok_or("no containers")?;
//! assert_eq!(containers.number, 2);
//! assert_eq!(containers.merge_key, Some("name"));
//! # Ok::<(), &str>(())
//! ```
//!
//! [`Descriptions`] has the documentation of the types. [`protobuf`] converts between protobuf bodies and JSON.

mod descriptions;
pub mod protobuf;
mod table;
mod types;

pub use descriptions::{DescribedField, Descriptions, TypeDescription};
pub use types::{Field, FieldKind, Item, ListKey, ListKind, Members, Other, PatchStrategy, Type};

/// The type of a kind.
///
/// The kinds of meta/v1, such as DeleteOptions, are found in every group and version, also in those of custom resources.
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    let table = table::builtin();
    table
        .kind(group, version, kind)
        .or_else(|| table.kind("meta.k8s.io", "v1", kind))
}

/// Every kind, ordered by group, version and name.
pub fn kinds() -> impl Iterator<Item = &'static Type> {
    table::builtin().kinds()
}

/// A type, kind or not, by its Go package and name: `("meta/v1", "ObjectMeta")`.
pub fn find_type(package: &str, name: &str) -> Option<&'static Type> {
    table::builtin().named(package, name)
}
