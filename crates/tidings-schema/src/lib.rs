//! The built-in Kubernetes types as data.
//!
//! One table describes every stable built-in kind and the types it is made of: which fields there are, how JSON and
//! protobuf name them, how lists merge, what is required and what defaults to what. `tools/schema` writes the table
//! from the published definitions; it is part of the binary and is parsed when it is first asked for something.
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
//! [`Descriptions`] says what the types mean. [`protobuf`] turns bodies into the JSON that the rest of the server works on, and JSON into bodies.

mod descriptions;
pub mod protobuf;
mod table;
mod types;

pub use descriptions::{Described, DescribedField, Descriptions};
pub use types::{Field, FieldKind, Item, Key, ListKind, Members, Other, PatchStrategy, Type};

/// The type of a kind.
///
/// Every group version knows the kinds of meta/v1, such as DeleteOptions, as its own, those of custom resources
/// included: they are found whatever the group and version.
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

/// Any type, kind or not, by the Go package it is from and its name there: `("meta/v1", "ObjectMeta")`.
pub fn find_type(package: &str, name: &str) -> Option<&'static Type> {
    table::builtin().named(package, name)
}
