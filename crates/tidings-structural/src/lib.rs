#![doc = include_str!("../README.md")]

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
mod pattern_cache;
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

pub use cel::{
    AccessCheck, CelAuthorizer, CelDecision, CelEnvironment, CelExpression, CelFault, CelInput,
    CelProgram, CelType, CelValue,
};
pub use json_path::{JsonPath, JsonPathError};
pub use schema::{CompileOptions, Malformed, Schema, check_simple_json_path};
pub use view::{ListKind, SchemaShape, SchemaView};
