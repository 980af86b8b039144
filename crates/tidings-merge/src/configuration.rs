//! What somebody applies: an object, or as much of it as its manager cares for.

use tidings_json::{Map, Value};

use crate::element::Element;
use crate::schema::{Schema, Shape, key, parts};
use crate::set::{FieldSet, push_step};
use crate::typed::{TypeErrors, fields_of, fields_of_stored, misfit};

/// What somebody applies, of which it is known that it fits its types.
#[derive(Debug)]
pub struct Configuration<'a, S> {
    pub(crate) value: &'a Value,
    pub(crate) schema: S,
    /// Fields that nobody owns.
    pub(crate) ignored: &'a FieldSet<'a>,
    /// The fields that the manager owns by it, as `fieldsV1` has them.
    pub(crate) written: String,
}

impl<'a, S: Schema> Configuration<'a, S> {
    /// Checks what the manager wants to have of the object. Nobody owns fields that are `ignored`, see
    /// [`FieldSet::remove_with_below`].
    ///
    /// # Errors
    /// If it does not fit the types, or has items twice.
    pub fn new(
        value: &'a Value,
        schema: S,
        ignored: &'a FieldSet<'a>,
    ) -> Result<Configuration<'a, S>, TypeErrors> {
        let mut writer = Writer::default();
        let written = match writer.write(value, schema, false, Some(ignored)) {
            Some(_) => writer.json,
            // What is wrong is told by the one who makes a set of it.
            None => fields_of(value, schema)?.encode_without(ignored),
        };
        Ok(Configuration {
            value,
            schema,
            ignored,
            written,
        })
    }

    /// What the manager wants to have.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// All fields that it sets. Mostly nobody asks: a manager says again what it has said before.
    pub(crate) fn fields(&self) -> FieldSet<'a> {
        fields_of_stored(self.value, self.schema)
    }
}

/// Writes the fields of a value without making a set of them.
#[derive(Default)]
struct Writer {
    json: String,
}

impl Writer {
    /// Writes the fields of a value, and the value itself if it is one of them, without those of a set. Returns whether there are
    /// any; `None` if something is wrong with the value.
    fn write<S: Schema>(
        &mut self,
        value: &Value,
        schema: S,
        itself: bool,
        without: Option<&FieldSet<'_>>,
    ) -> Option<bool> {
        let shape = schema.shape();
        if misfit(value, shape).is_some() {
            return None;
        }
        let mut level = Level {
            here: itself && !without.is_some_and(|without| without.here),
            below: false,
            start: self.json.len() + 1,
            without,
        };
        self.json.push('{');
        match (shape, value) {
            (Shape::Struct | Shape::Map(_) | Shape::Unknown, Value::Object(members)) => {
                self.write_members(members, schema, shape, &mut level)?;
            }
            (Shape::Keyed(item), Value::Array(items)) => {
                self.write_items(items, schema, item, &mut level)?;
            }
            (Shape::Set(_), Value::Array(_)) => self.write_parts(value, schema, &mut level)?,
            (Shape::Scalar(_) | Shape::Atomic, _) => level.is_leaf(),
            // A list or an object that is null sets nothing by itself: whoever has it as a member says so.
            (_, Value::Null) => {}
            _ => level.is_leaf(),
        }
        if !level.below {
            self.json.truncate(level.start); // `{}` stands for the field itself
        }
        self.json.push('}');
        Some(level.here || level.below)
    }

    fn write_members<S: Schema>(
        &mut self,
        members: &Map,
        schema: S,
        shape: Shape<S>,
        level: &mut Level<'_>,
    ) -> Option<()> {
        let mut write = |(name, value): (&String, &Value)| {
            let (below, named) = match shape {
                Shape::Map(item) => (item, false),
                Shape::Struct => (schema.field(name)?, schema.names(name)),
                _ => (schema, false),
            };
            let element = Element::field(name);
            self.write_child(level, &element, (value, below), named)
        };
        if members.keys().is_sorted() {
            return members.iter().try_for_each(write);
        }
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        sorted.into_iter().try_for_each(&mut write)
    }

    fn write_items<S: Schema>(
        &mut self,
        items: &[Value],
        schema: S,
        item: S,
        level: &mut Level<'_>,
    ) -> Option<()> {
        let keys = schema.keys();
        let mut children = Vec::with_capacity(items.len());
        for value in items {
            children.push((key(value, &keys).ok()?, value));
        }
        sort(&mut children, |child| &child.0)?;
        children
            .iter()
            .try_for_each(|(element, value)| self.write_child(level, element, (value, item), false))
    }

    /// Writes what is below a value, however it is taken apart.
    fn write_parts<S: Schema>(
        &mut self,
        value: &Value,
        schema: S,
        level: &mut Level<'_>,
    ) -> Option<()> {
        let mut odd = false;
        let mut children = parts(value, schema, &mut |_| odd = true)?;
        if odd {
            return None;
        }
        sort(&mut children, |child| &child.element)?;
        children.iter().try_for_each(|child| {
            self.write_child(
                level,
                &child.element,
                (child.value, child.schema),
                child.named,
            )
        })
    }

    fn write_child<S: Schema>(
        &mut self,
        level: &mut Level<'_>,
        element: &Element<'_>,
        (value, schema): (&Value, S),
        named: bool,
    ) -> Option<()> {
        let without = level.without.and_then(|without| without.below(element));
        let before = self.json.len();
        if level.here && !level.below {
            self.json.push_str("\".\":{},");
        } else if before > level.start {
            self.json.push(',');
        }
        push_step(&mut self.json, element);
        self.json.push(':');
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        // What nobody owns must fit as well.
        let owned = self.write(value, schema, empty || !named, without)?;
        if owned && !without.is_some_and(FieldSet::ends_here) {
            level.below = true;
        } else {
            self.json.truncate(before);
        }
        Some(())
    }
}

/// The value of which the fields are written.
struct Level<'a> {
    /// It is one of them.
    here: bool,
    /// Something below it is.
    below: bool,
    /// Where they are written.
    start: usize,
    without: Option<&'a FieldSet<'a>>,
}

impl Level<'_> {
    fn is_leaf(&mut self) {
        self.here = !self.without.is_some_and(|without| without.here);
    }
}

/// Brings parts into the order in which they are written. `None` if one is there twice.
fn sort<'e, T>(parts: &mut [T], element: impl Fn(&T) -> &Element<'e>) -> Option<()> {
    if parts.is_sorted_by(|one, two| element(one) < element(two)) {
        return Some(());
    }
    parts.sort_unstable_by(|one, two| element(one).cmp(element(two)));
    let twice = parts
        .windows(2)
        .any(|pair| element(&pair[0]) == element(&pair[1]));
    (!twice).then_some(())
}
