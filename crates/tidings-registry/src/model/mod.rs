//! What the registry is about: kinds, their rules, and drafts of objects.

mod custom_version;
mod draft;
mod kind;
mod member;
mod meta;
mod strategy;

pub use custom_version::CustomVersion;
pub use draft::{DEPTH_MAX, Draft, document, unregistered};
pub(crate) use draft::{document_with_duplicates, odd};
pub use kind::{
    FixedField, FixedRefusal, Generation, Kind, KindView, Name, NameRule, Review, Scale,
    SelectableField, Subresource, stored,
};
pub use member::Member;
pub use meta::Meta;
pub(crate) use meta::strings;
pub use strategy::Strategy;
pub(crate) use strategy::{check_builtin_field, unsupported_field};
