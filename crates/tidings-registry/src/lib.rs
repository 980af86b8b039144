//! The kinds of the Kubernetes API, as rules.
//!
//! A [`Kind`] is an entry of a [`Catalog`]: names, subresources, selectable fields, a table, and a [`Strategy`] with the rules of
//! that kind only. All that is special about a built-in kind stands in one file, `src/kinds/<group>/<kind>.rs`. A custom resource
//! is a kind whose strategy is made from its definition.
//!
//! A [`Draft`] is an object that is being written: read from a request or from the store, completed with defaults, changed by
//! patches, checked, and turned into the bytes that are stored, with its managedFields updated.
//!
//! Everything here is pure: no async, no clock, no HTTP, no store. Times are parameters.
//!
//! ```
//! use tidings_registry::{Draft, builtin};
//!
//! let pods = builtin().find("", "v1", "pods").expect("there are pods");
//! let body = br#"{"metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"nginx"}]}}"#;
//! let draft = Draft::read(pods, body)?;
//! assert_eq!(draft.text(&["spec", "restartPolicy"]), "Always", "defaults are filled in");
//! # Ok::<(), tidings_api::Status>(())
//! ```

// Literals read best in tests when they are passed by value.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))]

#[macro_use]
mod table;

mod apply;
mod catalog;
mod complete;
mod custom;
mod defaults;
mod field_schema;
mod kinds;
mod managed;
mod members;
mod model;
mod objects;
mod options;
mod patch;
mod reading;
mod review;
mod scale;
mod selection;
mod stored;
#[cfg(test)]
mod test_kinds;
mod typed;
pub mod yaml;

pub use apply::Configured;
pub use catalog::{Catalog, builtin};
pub use custom::{as_read, kinds as custom_kinds};
pub use field_schema::FieldSchema;
pub use managed::{keep_times, track_created, track_updated};
pub use model::{
    CustomVersion, DEPTH_MAX, Draft, FixedField, FixedRefusal, Generation, Kind, KindView, Member,
    Meta, Name, NameRule, Review, Scale, SelectableField, Strategy, Subresource, document, stored,
    unregistered,
};
pub use options::{FieldValidation, WriteOptions};
pub use patch::{Patch, PatchTarget, PatchType};
pub use review::check_review;
pub use scale::{ScaleRequest, ScaleView};
pub use selection::Selection;
pub use stored::StoredObject;
pub use table::{Column, TablePrinter};
