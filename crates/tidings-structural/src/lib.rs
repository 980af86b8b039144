//! Structural schemas of custom resources, as kube-apiserver 1.36 reads them.
//!
//! A [`Schema`] is compiled once from the `openAPIV3Schema` of a CustomResourceDefinition; all its errors are reported together,
//! with the paths and texts of kube-apiserver. A compiled schema then handles objects, as JSON:
//!
//! | step | method |
//! |---|---|
//! | drop unknown fields and nulls | [`Schema::prune`] |
//! | decode and clean the metadata of embedded resources | [`Schema::coerce`] |
//! | set defaults | [`Schema::default`] |
//! | check types, bounds, formats, list keys and rules; an update may keep errors in unchanged values | [`Schema::validate`] |
//!
//! Rules (`x-kubernetes-validations`) are written in CEL. They are parsed by `cel`, checked for names, types and worst-case cost
//! here when the schema is compiled, and evaluated here with a budget; the Kubernetes functions are those of `kube-cel`.
//!
//! [`definition`] handles the CustomResourceDefinitions around schemas: their defaults, their checks, and which names they get.
//!
//! [`View`] tells server-side apply how lists and maps merge, and [`JsonPath`] reads the paths of printer columns and selectable
//! fields. There is no I/O, no clock and no async code here.
//!
//! ```
//! use tidings_json::json;
//! use tidings_api::FieldErrors;
//! use tidings_structural::{CompileOptions, Schema};
//!
//! let schema = Schema::compile(
//!     &json!({
//!         "type": "object",
//!         "properties": {
//!             "spec": {
//!                 "type": "object",
//!                 "required": ["size"],
//!                 "properties": {
//!                     "size": {"type": "integer", "minimum": 1},
//!                     "color": {"type": "string", "default": "red"},
//!                 },
//!                 "x-kubernetes-validations": [{"rule": "self.color != 'blue' || self.size < 5"}],
//!             },
//!         },
//!     }),
//!     "spec.versions[0].schema.openAPIV3Schema",
//!     CompileOptions::default(),
//! )
//! .expect("it is structural");
//!
//! let mut object = json!({"spec": {"size": 0, "stray": true}});
//! assert_eq!(schema.prune(&mut object), ["spec.stray"]);
//! schema.default(&mut object);
//! assert_eq!(object, json!({"spec": {"size": 0, "color": "red"}}));
//!
//! let mut errors = FieldErrors::new();
//! schema.validate(&object, None, &mut errors);
//! assert_eq!(
//!     errors.to_string(),
//!     "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"
//! );
//! ```

mod cel;
mod correlate;
mod defaults;
pub mod definition;
mod field_path;
mod format;
mod json_path;
mod lists;
mod meta;
mod node;
mod object_meta;
mod pattern;
mod printed;
#[cfg(test)]
mod published;
mod rules;
mod schema;
mod shape;
mod structure;
mod text;
mod tolerated;
mod value;
mod view;

pub use json_path::{JsonPath, JsonPathError};
pub use schema::{CompileOptions, Malformed, Schema, check_simple_json_path};
pub use view::{ListKind, Shape, View};
