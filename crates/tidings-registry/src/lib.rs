#![doc = include_str!("../README.md")]
// Literals read best in tests when they are passed by value.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))]

#[macro_use]
mod table;

mod admitted;
mod apply;
mod catalog;
mod complete;
mod custom;
mod defaults;
mod field_schema;
mod form;
mod kinds;
mod managed;
mod members;
mod model;
mod objects;
mod options;
mod patch;
mod reading;
mod scale;
mod selection;
mod stored;
#[cfg(test)]
mod test_kinds;
mod typed;
pub mod yaml;

pub use admitted::{unknown_fields, with_configuration, without_revision};
pub use apply::Configured;
pub use catalog::{Catalog, builtin, lifetimes, posted_kind, store_prefixes};
pub use custom::{as_read, kinds as custom_kinds};
pub use kinds::{
    CertificateRequest, FLOW_CONTROL, check_review, default_flow_schemas, default_priority_levels,
    read_request,
};
pub use managed::{
    OtherVersion, keep_times, other_owned_versions, settle_owners, track_created, track_updated,
};
pub use model::{
    CustomVersion, DEPTH_MAX, Draft, FixedField, FixedRefusal, Generation, Kind, KindView, Member,
    Meta, NAMESPACE_FINALIZER, Name, NameRule, Review, SCALE, Scale, SelectableField, StatusKeeps,
    Strategy, Subresource, document, stored, unhandled, unrecognized, unregistered,
};
pub use options::{FieldValidation, WriteOptions};
pub use patch::{Patch, PatchTarget, PatchType};
pub use reading::OddField;
pub use scale::{ScaleRequest, ScaleView};
pub use selection::Selection;
pub use table::{Column, TablePrinter};
