//! What an object was before it was changed.

use tidings_json::Value;

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

    /// Makes of an object what it was. It must not have been changed otherwise.
    pub fn restore(self, object: &mut Value) {
        // The last change first: there may have been others before it at the same place.
        for Place { steps, value } in self.0.into_iter().rev() {
            restore(object, &steps, value);
        }
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
