//! What an object was before it was changed.

use tidings_json::Value;

/// As many changes are told apart.
const TOUCHED_MAX: usize = 32;

/// What stood in an object where there is something else now. Mostly it is little, and an object is large: nobody has to keep a copy
/// of what it was.
#[derive(Debug, Default)]
pub struct Displaced<'a>(Tree<'a>);

#[derive(Debug, Default)]
enum Tree<'a> {
    #[default]
    Nothing,
    /// What stood here, if anything did.
    Here(Option<Value>),
    /// What stood below, in the order in which it was displaced.
    Below(Vec<(Step<'a>, Tree<'a>)>),
}

/// A step on the way to a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Member(&'a str),
    Item(usize),
}

impl<'a> Displaced<'a> {
    /// All that there was.
    pub(crate) fn one(value: Option<Value>) -> Displaced<'a> {
        Displaced(Tree::Here(value))
    }

    pub(crate) fn add_below(&mut self, step: Step<'a>, below: Displaced<'a>) {
        match &mut self.0 {
            _ if below.is_empty() => {}
            Tree::Below(parts) => parts.push((step, below.0)),
            tree => *tree = Tree::Below(vec![(step, below.0)]),
        }
    }

    /// True if nothing has changed.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Tree::Nothing)
    }

    /// Where there is something else now.
    pub fn touched(&self) -> Touched {
        // Of more it does not pay to tell which they are.
        match self.0.count() > TOUCHED_MAX {
            true => Touched::Whole,
            false => self.0.touched(),
        }
    }

    /// Makes of an object what it was. It must not have been changed otherwise.
    pub fn restore(self, object: &mut Value) {
        self.0.restore(object);
    }
}

impl Tree<'_> {
    fn count(&self) -> usize {
        match self {
            Tree::Nothing => 0,
            Tree::Here(_) => 1,
            Tree::Below(parts) => parts.iter().map(|(_, tree)| tree.count()).sum(),
        }
    }

    fn touched(&self) -> Touched {
        let touched = |(step, tree): &(Step<'_>, Tree<'_>)| {
            let part = match *step {
                Step::Member(name) => TouchedPart::Member(name.to_owned()),
                Step::Item(at) => TouchedPart::Item(at),
            };
            (part, tree.touched())
        };
        match self {
            Tree::Nothing => Touched::nothing(),
            Tree::Here(_) => Touched::Whole,
            Tree::Below(parts) => Touched::Parts(parts.iter().map(touched).collect()),
        }
    }

    fn restore(self, object: &mut Value) {
        let parts = match self {
            Tree::Nothing => return,
            Tree::Here(value) => {
                *object = value.unwrap_or_default();
                return;
            }
            Tree::Below(parts) => parts,
        };
        // What came last goes first: then nothing is behind it.
        for (step, tree) in parts.into_iter().rev() {
            match (step, &mut *object, tree) {
                (Step::Member(name), Value::Object(members), Tree::Here(None)) => {
                    members.remove(name);
                }
                (Step::Member(name), Value::Object(members), tree) => {
                    if let Some(member) = members.get_mut(name) {
                        tree.restore(member);
                    }
                }
                (Step::Item(at), Value::Array(items), tree) => {
                    if let Some(item) = items.get_mut(at) {
                        tree.restore(item);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Which parts of a value are not as they were.
#[derive(Debug, Clone)]
pub enum Touched {
    /// All of it may be something else.
    Whole,
    /// Some of its members or items.
    Parts(Vec<(TouchedPart, Touched)>),
}

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TouchedPart {
    /// The member of a name.
    Member(String),
    /// The item at a place.
    Item(usize),
}

impl Touched {
    /// All is as it was.
    pub fn nothing() -> Touched {
        Touched::Parts(Vec::new())
    }

    /// True if all of a member or an item may be something else.
    pub fn has_whole(&self) -> bool {
        match self {
            Touched::Whole => true,
            Touched::Parts(parts) => parts
                .iter()
                .any(|(_, touched)| matches!(touched, Touched::Whole)),
        }
    }

    /// What is touched of a member; `None` if it is as it was.
    pub fn member(&self, name: &str) -> Option<&Touched> {
        self.part(|part| matches!(part, TouchedPart::Member(known) if known == name))
    }

    /// What is touched of an item; `None` if it is as it was.
    pub fn item(&self, place: usize) -> Option<&Touched> {
        self.part(|part| *part == TouchedPart::Item(place))
    }

    fn part(&self, is_meant: impl Fn(&TouchedPart) -> bool) -> Option<&Touched> {
        match self {
            Touched::Whole => Some(&Touched::Whole),
            Touched::Parts(parts) => {
                let found = parts.iter().find(|(part, _)| is_meant(part))?;
                Some(&found.1)
            }
        }
    }
}
