//! What an object was before it was changed.

use tidings_json::Value;

/// As many changes are told apart.
const TOUCHED_MAX: usize = 32;

/// What stood in an object where there is something else now. Mostly it is little, and an object is large: nobody has to keep a copy
/// of what it was.
#[derive(Debug, Default)]
pub struct Displaced<'a>(Vec<Place<'a>>);

#[derive(Debug)]
struct Place<'a> {
    /// The way to it, the last step first.
    steps: Vec<Step<'a>>,
    /// What stood there, if anything did.
    value: Option<Value>,
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
        let steps = Vec::new();
        Displaced(vec![Place { steps, value }])
    }

    pub(crate) fn add_below(&mut self, step: Step<'a>, below: Displaced<'a>) {
        self.0.extend(below.0.into_iter().map(|mut place| {
            place.steps.push(step);
            place
        }));
    }

    /// True if nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where there is something else now.
    pub fn touched(&self) -> Touched {
        // Of more it does not pay to tell which they are.
        if self.0.len() > TOUCHED_MAX {
            return Touched::Whole;
        }
        let mut touched = Touched::Parts(Vec::new());
        for place in &self.0 {
            touched.add(&place.steps);
        }
        touched
    }

    /// Makes of an object what it was. It must not have been changed otherwise.
    pub fn restore(self, object: &mut Value) {
        // The last change first: there may have been others before it at the same place.
        for Place { steps, value } in self.0.into_iter().rev() {
            restore(object, &steps, value);
        }
    }
}

/// Which parts of a value are not as they were.
#[derive(Debug, Clone)]
pub enum Touched {
    /// All of it may be something else.
    Whole,
    /// Some of its members or items.
    Parts(Vec<(Part, Touched)>),
}

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The member of a name.
    Member(String),
    /// The item at a place.
    Item(usize),
}

impl Touched {
    /// What is touched of a member; `None` if it is as it was.
    pub fn member(&self, name: &str) -> Option<&Touched> {
        self.part(|part| matches!(part, Part::Member(known) if known == name))
    }

    /// What is touched of an item; `None` if it is as it was.
    pub fn item(&self, place: usize) -> Option<&Touched> {
        self.part(|part| *part == Part::Item(place))
    }

    fn part(&self, is_meant: impl Fn(&Part) -> bool) -> Option<&Touched> {
        match self {
            Touched::Whole => Some(&Touched::Whole),
            Touched::Parts(parts) => {
                let found = parts.iter().find(|(part, _)| is_meant(part))?;
                Some(&found.1)
            }
        }
    }

    /// Adds a place, given by the way to it, the last step first.
    fn add(&mut self, steps: &[Step<'_>]) {
        let Some((step, rest)) = steps.split_last() else {
            *self = Touched::Whole;
            return;
        };
        let Touched::Parts(parts) = self else {
            return;
        };
        let part = match *step {
            Step::Member(name) => Part::Member(name.to_owned()),
            Step::Item(at) => Part::Item(at),
        };
        let place = parts.iter().position(|(known, _)| *known == part);
        let place = place.unwrap_or_else(|| {
            parts.push((part, Touched::Parts(Vec::new())));
            parts.len() - 1
        });
        parts[place].1.add(rest);
    }
}

fn restore(object: &mut Value, steps: &[Step<'_>], value: Option<Value>) {
    let Some((step, rest)) = steps.split_last() else {
        *object = value.unwrap_or_default();
        return;
    };
    match (*step, object) {
        (Step::Member(name), Value::Object(members)) => match (rest, value) {
            ([], None) => drop(members.remove(name)),
            (_, value) => {
                if let Some(member) = members.get_mut(name) {
                    restore(member, rest, value);
                }
            }
        },
        (Step::Item(at), Value::Array(items)) => {
            if let Some(item) = items.get_mut(at) {
                restore(item, rest, value);
            }
        }
        _ => {}
    }
}
