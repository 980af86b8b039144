//! The values that a merge has replaced, so that the object can be restored.

use tidings_json::{Touched, TouchedPart, Value};

/// The number of changes above which [`Displaced::touched`] returns [`Touched::Whole`].
const TOUCHED_MAX: usize = 32;

/// The old values of an object that a merge has replaced. This avoids a copy of the whole object: changes are mostly small.
#[derive(Debug, Default)]
pub struct Displaced<'a>(DisplacedTree<'a>);

/// The old values, by their paths.
#[derive(Debug, Default)]
enum DisplacedTree<'a> {
    #[default]
    Nothing,
    /// The old value; `None` if there was none.
    Here(Option<Value>),
    /// The old values of parts, in the order in which they were replaced.
    Below(Vec<(DisplacedStep<'a>, DisplacedTree<'a>)>),
}

/// A step of the path to a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DisplacedStep<'a> {
    Member(&'a str),
    Item(usize),
}

impl<'a> Displaced<'a> {
    /// The old value of the whole.
    pub(crate) fn one(value: Option<Value>) -> Displaced<'a> {
        Displaced(DisplacedTree::Here(value))
    }

    pub(crate) fn add_below(&mut self, step: DisplacedStep<'a>, below: Displaced<'a>) {
        match &mut self.0 {
            _ if below.is_empty() => {}
            DisplacedTree::Below(parts) => parts.push((step, below.0)),
            tree => *tree = DisplacedTree::Below(vec![(step, below.0)]),
        }
    }

    /// True if no value was replaced.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, DisplacedTree::Nothing)
    }

    /// Which parts of the object were replaced.
    pub fn touched(&self) -> Touched {
        // A longer list would cost more than it saves.
        match self.0.count() > TOUCHED_MAX {
            true => Touched::Whole,
            false => self.0.touched(),
        }
    }

    /// Restores the old object. The object must not have other changes.
    pub fn restore(self, object: &mut Value) {
        self.0.restore(object);
    }
}

impl DisplacedTree<'_> {
    fn count(&self) -> usize {
        match self {
            DisplacedTree::Nothing => 0,
            DisplacedTree::Here(_) => 1,
            DisplacedTree::Below(parts) => parts.iter().map(|(_, tree)| tree.count()).sum(),
        }
    }

    fn touched(&self) -> Touched {
        let touched = |(step, tree): &(DisplacedStep<'_>, DisplacedTree<'_>)| {
            let part = match *step {
                DisplacedStep::Member(name) => TouchedPart::Member(name.to_owned()),
                DisplacedStep::Item(at) => TouchedPart::Item(at),
            };
            (part, tree.touched())
        };
        match self {
            DisplacedTree::Nothing => Touched::NOTHING,
            DisplacedTree::Here(_) => Touched::Whole,
            DisplacedTree::Below(parts) => Touched::Parts(parts.iter().map(touched).collect()),
        }
    }

    fn restore(self, object: &mut Value) {
        let parts = match self {
            DisplacedTree::Nothing => return,
            DisplacedTree::Here(value) => {
                *object = value.unwrap_or_default();
                return;
            }
            DisplacedTree::Below(parts) => parts,
        };
        // In reverse order: then an added member is the last of its object when it is removed.
        for (step, tree) in parts.into_iter().rev() {
            match (step, &mut *object, tree) {
                (
                    DisplacedStep::Member(name),
                    Value::Object(members),
                    DisplacedTree::Here(None),
                ) => {
                    members.remove(name);
                }
                (DisplacedStep::Member(name), Value::Object(members), tree) => {
                    if let Some(member) = members.get_mut(name) {
                        tree.restore(member);
                    }
                }
                (DisplacedStep::Item(at), Value::Array(items), tree) => {
                    if let Some(item) = items.get_mut(at) {
                        tree.restore(item);
                    }
                }
                _ => {}
            }
        }
    }
}
