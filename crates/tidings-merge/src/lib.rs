//! Server-side apply: who owns which fields of an object, and what becomes of the object when somebody applies.
//!
//! Several managers write to one object. Each has a set of fields that it owns. One who *applies* says everything it wants to
//! have: what it says is its own, what it said before and no longer says goes, unless another owns it too, and what another
//! owns with a different value is a conflict. One who *updates* owns what it has changed. The sets are kept in the object, as
//! `metadata.managedFields`.
//!
//! The crate knows nothing of Kubernetes' types: a [`Schema`] says how values are taken apart, which lists are sets or maps and
//! which values are taken as one. It works on JSON and is pure.
//!
//! ```
//! use tidings_json::json;
//! use tidings_merge::{Apply, Configuration, FieldSet, Managed, Manager, Unknown};
//!
//! let named = |name: &str| Manager {
//!     name: name.into(),
//!     api_version: "v1".into(),
//!     subresource: String::new(),
//! };
//! let mut managed = Managed::default();
//! let mut apply = |live: &tidings_json::Value, manager: &str, config: tidings_json::Value| {
//!     let nothing = FieldSet::default();
//!     let config = Configuration::new(&config, Unknown, &nothing);
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
pub use element::{Element, Part};
pub use fields::Fields;
pub use managed::{Apply, Conflict, Conflicts, Entry, Managed, Manager, Operation};
pub use merge::{merge, without};
pub use schema::{Keys, Scalar, Schema, Shape, Unknown};
pub use set::FieldSet;
pub use typed::{TypeErrors, fields_of};
