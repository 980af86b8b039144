//! The types of variables that have no schema: the claims of a token, a user, a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::authorizer;
use super::decl::{DeclType, TypeKind};

/// The type of a variable, or of a member of one.
#[derive(Debug, Clone)]
pub enum CelType {
    /// Anything.
    Any,
    /// A text.
    Text,
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A time.
    Time,
    /// Texts.
    Texts,
    /// Texts by name.
    TextByName,
    /// Lists of texts by name.
    TextsByName,
    /// Anything, by name.
    AnyByName,
    /// These members and no others.
    Members(Vec<(&'static str, CelType)>),
    /// Asks whether a user may do something.
    Authorizer,
}

impl CelType {
    pub(super) fn decl(&self) -> Arc<DeclType> {
        let text = || TypeKind::String.plain();
        match self {
            CelType::Any => TypeKind::Dyn.plain(),
            CelType::Text => text(),
            CelType::Bool => TypeKind::Bool.plain(),
            CelType::Int => TypeKind::Int.plain(),
            CelType::Time => TypeKind::Timestamp.plain(),
            CelType::Authorizer => TypeKind::Opaque(authorizer::AUTHORIZER).plain(),
            CelType::TextByName => TypeKind::Map(text(), text()).plain(),
            CelType::Texts => TypeKind::List(text()).plain(),
            CelType::TextsByName => TypeKind::Map(text(), TypeKind::List(text()).plain()).plain(),
            CelType::AnyByName => TypeKind::Map(text(), TypeKind::Dyn.plain()).plain(),
            CelType::Members(members) => {
                let members = members.iter();
                let members: BTreeMap<String, Arc<DeclType>> = members
                    .map(|(name, kind)| ((*name).to_owned(), kind.decl()))
                    .collect();
                TypeKind::Object(Arc::new(members)).plain()
            }
        }
    }
}
