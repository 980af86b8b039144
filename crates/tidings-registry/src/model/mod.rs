//! What the registry is about: kinds, their rules, and drafts of objects.

mod custom_version;
mod draft;
mod kind;
mod member;
mod meta;
mod name_rule;
mod refusal;
mod strategy;

pub use custom_version::CustomVersion;
pub(crate) use draft::document_with_duplicates;
pub use draft::{DEPTH_MAX, Draft, document, unregistered};
pub(crate) use kind::ViewOf;
pub use kind::{
    FixedField, FixedRefusal, Generation, Kind, KindView, Name, Review, SCALE, Scale,
    SelectableField, StatusKeeps, Subresource, stored,
};
pub use member::Member;
pub use meta::{Meta, NAMESPACE_FINALIZER};
pub(crate) use meta::{STANDARD_FINALIZERS, texts};
pub use name_rule::NameRule;
pub use refusal::{unhandled, unrecognized};
pub use strategy::Strategy;
pub(crate) use strategy::{check_builtin_field, unsupported_field};
