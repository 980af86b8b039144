//! What is known of an expression before it is evaluated.

use std::sync::Arc;

use super::decl::{Decl, Kind};
use super::estimate::Range;

/// What is known of an expression.
#[derive(Clone)]
pub(crate) struct Info {
    pub(crate) decl: Arc<Decl>,
    /// It is a place in the object, so its schema bounds its size.
    pub(super) located: bool,
    pub(crate) cost: Range,
    pub(crate) size: Option<Range>,
    /// The sizes of the elements, if it is a container that the rule makes.
    pub(super) elements: Option<Range>,
}

impl Info {
    pub(super) fn new(decl: Arc<Decl>, cost: Range) -> Info {
        let is_scalar = matches!(
            decl.kind,
            Kind::Bool | Kind::Int | Kind::Uint | Kind::Double | Kind::Duration | Kind::Timestamp
        );
        Info {
            decl,
            located: false,
            cost,
            size: is_scalar.then_some(Range::fixed(1)),
            elements: None,
        }
    }

    pub(super) fn plain(kind: Kind, cost: Range) -> Info {
        Info::new(kind.plain(), cost)
    }

    pub(super) fn located(decl: Arc<Decl>, cost: Range) -> Info {
        Info {
            size: Some(Range {
                min: 0,
                max: decl.elements_max,
            }),
            located: true,
            cost,
            elements: None,
            decl,
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.decl.kind
    }

    pub(crate) fn size_or_unknown(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// The value that an optional one may hold, as it stands behind `?` in a list or map.
    pub(super) fn inside_optional(self) -> Info {
        match self.kind() {
            Kind::Optional(inner) => Info::new(inner.clone(), self.cost),
            _ => self,
        }
    }

    /// What the schema says of the elements of a list. Functions of the Kubernetes library do not look at literals.
    pub(crate) fn declared_element(&self) -> Option<Info> {
        let mut info = self.element()?;
        if !self.located {
            info.size = Info::new(info.decl.clone(), Range::fixed(0)).size;
        }
        Some(info)
    }

    /// What is known of the elements of a list.
    pub(crate) fn element(&self) -> Option<Info> {
        let Kind::List(element) = self.kind() else {
            return None;
        };
        let mut info = if self.located {
            Info::located(element.clone(), Range::fixed(0))
        } else {
            Info::new(element.clone(), Range::fixed(0))
        };
        info.size = self.elements.or(info.size);
        Some(info)
    }
}
