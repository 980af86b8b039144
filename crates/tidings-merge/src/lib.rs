#![doc = include_str!("../README.md")]

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
pub use displaced::Displaced;
pub use element::{ElementValue, PathElement};
pub use fields::OwnedFields;
pub use managed::{Apply, Conflict, Conflicts, Managed, ManagedFieldsEntry, Manager, Operation};
pub use merge::{merge, without};
pub use schema::{ListKeys, MergeShape, Scalar, Schema, UnknownSchema};
pub use set::FieldSet;
pub use typed::{TypeErrors, fields_of};
