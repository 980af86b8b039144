#![doc = include_str!("../README.md")]

mod descriptions;
mod field_path;
mod fit;
pub mod protobuf;
mod table;
mod types;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

pub use descriptions::{Descriptions, FieldDescription, TypeDescription};
pub use field_path::{FieldPath, NOTE_CHARS_MAX, NOTES_MAX};
pub use fit::fit;
pub use types::{
    Field, FieldKind, ItemType, ListKey, ListKind, Members, PatchStrategy, StructAlternative, Type,
};

/// The type of a kind.
///
/// The kinds of meta/v1, such as DeleteOptions, are found in every group and version, also in those of custom resources.
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    let table = table::builtin();
    table
        .kind(group, version, kind)
        .or_else(|| table.kind("meta.k8s.io", "v1", kind))
}

/// A number that differs between versions of the types and their descriptions.
pub fn fingerprint() -> u64 {
    static FINGERPRINT: LazyLock<u64> = LazyLock::new(|| {
        let mut hasher = DefaultHasher::new();
        (table::TEXT, descriptions::PACKED).hash(&mut hasher);
        hasher.finish()
    });
    *FINGERPRINT
}

/// Every kind, ordered by group, version and name.
pub fn kinds() -> impl Iterator<Item = &'static Type> {
    table::builtin().kinds()
}

/// A type, kind or not, by its Go package and name: `("meta/v1", "ObjectMeta")`.
pub fn find_type(package: &str, name: &str) -> Option<&'static Type> {
    table::builtin().named(package, name)
}
