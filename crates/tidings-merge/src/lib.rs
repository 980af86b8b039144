//! Server-side apply: which manager owns which fields of an object, and how an applied configuration merges into the object.
//!
//! Several managers write to one object, and each owns a set of fields. A manager that *applies* sends all fields that it wants
//! to set, and owns them. Fields that it applied before and no longer applies are removed, unless another manager owns them
//! too. A field that another manager owns with a different value is a conflict. A manager that *updates* owns the fields that it
//! has changed. The sets are stored in the object, as `metadata.managedFields`.
//!
//! The crate does not know the types of Kubernetes: a [`Schema`] says which values have parts, which lists are sets or maps and
//! which values are atomic. The crate works on JSON and does no I/O.
//!
//! ```
//! use tidings_json::json;
//! use tidings_merge::{Apply, Configuration, FieldSet, Managed, Manager, UnknownSchema};
//!
//! let named = |name: &str| Manager {
//!     name: name.into(),
//!     api_version: "v1".into(),
//!     subresource: String::new(),
//! };
//! let mut managed = Managed::default();
//! let mut apply = |live: &tidings_json::Value, manager: &str, config: tidings_json::Value| {
//!     let nothing = FieldSet::default();
//!     let config = Configuration::new(&config, UnknownSchema, &nothing);
//!     let wish = Apply {
//!         config: &config.map_err(|error| error.to_string())?,
//!         force: false,
//!         now: "2026-01-01T00:00:00Z",
//!     };
//!     let mut object = live.clone();
//!     let applied = managed.apply(&named(manager), &mut object, wish);
//!     applied.map_err(|error| error.to_string())?;
//!     Ok::<_, String>(object)
//! };
//! let first = apply(&json!({}), "one", json!({"data": {"a": "1", "b": "1"}}))?;
//! let refused = apply(&first, "two", json!({"data": {"b": "2"}}));
//! assert_eq!(
//!     refused.unwrap_err(),
//!     r#"Apply failed with 1 conflict: conflict with "one": .data.b"#
//! );
//! let second = apply(&first, "one", json!({"data": {"a": "1"}}))?;
//! assert_eq!(second, json!({"data": {"a": "1"}}));
//! # Ok::<(), String>(())
//! ```

mod compare;
mod configuration;
mod displaced;
mod element;
mod fields;
mod managed;
mod merge;
mod schema;
mod set;
mod typed;
mod written;

pub use compare::Changes;
pub use configuration::Configuration;
pub use displaced::{Displaced, Touched, TouchedPart};
pub use element::{ElementValue, PathElement};
pub use fields::OwnedFields;
pub use managed::{Apply, Conflict, Conflicts, Managed, ManagedFieldsEntry, Manager, Operation};
pub use merge::{merge, without};
pub use schema::{Keys, Scalar, Schema, Shape, UnknownSchema};
pub use set::FieldSet;
pub use typed::{TypeErrors, fields_of};
