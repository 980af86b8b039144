//! The type, the size and the cost of an expression, as known before it is evaluated.

use std::sync::Arc;

use super::decl::{DeclType, TypeKind};
use super::min_max::MinMax;

/// The type, the estimated size and the estimated cost of an expression.
#[derive(Clone)]
pub(crate) struct ExprInfo {
    pub(crate) decl: Arc<DeclType>,
    /// True if the expression selects a value of the object, so that the schema bounds its size.
    pub(super) located: bool,
    pub(crate) cost: MinMax,
    pub(crate) size: Option<MinMax>,
    /// The sizes of the elements of a list or map that the rule itself builds.
    pub(super) elements: Option<MinMax>,
}

impl ExprInfo {
    pub(super) fn new(decl: Arc<DeclType>, cost: MinMax) -> ExprInfo {
        let is_scalar = matches!(
            decl.kind,
            TypeKind::Bool
                | TypeKind::Int
                | TypeKind::Uint
                | TypeKind::Double
                | TypeKind::Duration
                | TypeKind::Timestamp
        );
        ExprInfo {
            decl,
            located: false,
            cost,
            size: is_scalar.then_some(MinMax::fixed(1)),
            elements: None,
        }
    }

    pub(super) fn plain(kind: TypeKind, cost: MinMax) -> ExprInfo {
        ExprInfo::new(kind.plain(), cost)
    }

    pub(super) fn located(decl: Arc<DeclType>, cost: MinMax) -> ExprInfo {
        ExprInfo {
            size: Some(MinMax {
                min: 0,
                max: decl.elements_max,
            }),
            located: true,
            cost,
            elements: None,
            decl,
        }
    }

    pub(crate) fn kind(&self) -> &TypeKind {
        &self.decl.kind
    }

    pub(crate) fn size_or_unknown(&self) -> MinMax {
        self.size.unwrap_or(MinMax::UNKNOWN)
    }

    /// The value inside an optional element, which is marked with `?` in a list or map.
    pub(super) fn inside_optional(self) -> ExprInfo {
        match self.kind() {
            TypeKind::Optional(inner) => ExprInfo::new(inner.clone(), self.cost),
            _ => self,
        }
    }

    /// The elements of a list with the bounds of the schema only: upstream's Kubernetes functions do not estimate literals.
    pub(crate) fn declared_element(&self) -> Option<ExprInfo> {
        let mut info = self.element()?;
        if !self.located {
            info.size = ExprInfo::new(info.decl.clone(), MinMax::fixed(0)).size;
        }
        Some(info)
    }

    /// The elements of a list, with all known bounds.
    pub(crate) fn element(&self) -> Option<ExprInfo> {
        let TypeKind::List(element) = self.kind() else {
            return None;
        };
        let mut info = if self.located {
            ExprInfo::located(element.clone(), MinMax::fixed(0))
        } else {
            ExprInfo::new(element.clone(), MinMax::fixed(0))
        };
        info.size = self.elements.or(info.size);
        Some(info)
    }
}
