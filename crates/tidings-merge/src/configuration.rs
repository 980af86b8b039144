//! What somebody applies: an object, or as much of it as its manager cares for.

use tidings_json::{Map, Value, is_plain};

use crate::element::Element;
use crate::schema::{Scalar, Schema, Shape, parts};
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
        let mut writer = Writer {
            json: String::with_capacity(SIZE_OF_MOST),
        };
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

    /// The fields that the manager owns by it, as `fieldsV1` has them.
    pub fn fields_v1(&self) -> &str {
        &self.written
    }

    /// All fields that it sets. Mostly nobody asks: a manager says again what it has said before.
    pub(crate) fn fields(&self) -> FieldSet<'a> {
        fields_of_stored(self.value, self.schema)
    }
}

/// So much is written for most objects.
const SIZE_OF_MOST: usize = 4096;

/// Writes the fields of a value without making a set of them.
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
                match Named::of(items, &schema.keys()).filter(|_| without.is_none()) {
                    Some(named) => self.write_named(named, item, &mut level)?,
                    None => self.write_parts(value, schema, &mut level)?,
                }
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
            let below = match shape {
                Shape::Map(item) => item,
                Shape::Struct => schema.field(name)?,
                _ => schema,
            };
            if level.without.is_none() && is_leaf(value, below) && is_plain(name) {
                self.begin(level);
                self.json.push_str("\"f:");
                self.json.push_str(name);
                self.json.push_str("\":{}");
                level.below = true;
                return Some(());
            }
            let named = matches!(shape, Shape::Struct) && schema.names(name);
            let element = Element::field(name);
            self.write_element(level, &element, (value, below), named)
        };
        if members.keys().is_sorted() {
            return members.iter().try_for_each(write);
        }
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        sorted.into_iter().try_for_each(&mut write)
    }

    fn write_named<S: Schema>(
        &mut self,
        named: Named<'_, '_>,
        item: S,
        level: &mut Level<'_>,
    ) -> Option<()> {
        let Named { key, items } = named;
        items.into_iter().try_for_each(|(name, value)| {
            let step = |json: &mut String| {
                for part in ["\"k:{\\\"", key, "\\\":\\\"", name, "\\\"}\""] {
                    json.push_str(part);
                }
            };
            self.write_child(level, None, step, (value, item), false)
        })
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
            self.write_element(
                level,
                &child.element,
                (child.value, child.schema),
                child.named,
            )
        })
    }

    fn write_element<S: Schema>(
        &mut self,
        level: &mut Level<'_>,
        element: &Element<'_>,
        child: (&Value, S),
        named: bool,
    ) -> Option<()> {
        let without = level.without.and_then(|without| without.below(element));
        let step = |json: &mut String| push_step(json, element);
        self.write_child(level, without, step, child, named)
    }

    fn write_child<S: Schema>(
        &mut self,
        level: &mut Level<'_>,
        without: Option<&FieldSet<'_>>,
        step: impl FnOnce(&mut String),
        (value, schema): (&Value, S),
        named: bool,
    ) -> Option<()> {
        let before = self.json.len();
        self.begin(level);
        step(&mut self.json);
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

    /// Begins a child.
    fn begin(&mut self, level: &Level<'_>) {
        if level.here && !level.below {
            self.json.push_str("\".\":{},");
        } else if self.json.len() > level.start {
            self.json.push(',');
        }
    }
}

/// Most fields are leaves, of which nothing more has to be said.
fn is_leaf<S: Schema>(value: &Value, schema: S) -> bool {
    match schema.shape() {
        Shape::Scalar(Scalar::String) => value.is_string(),
        Shape::Scalar(Scalar::Number) => value.is_number(),
        Shape::Scalar(Scalar::Bool) => value.is_boolean(),
        _ => false,
    }
}

/// The value of which the fields are written: of `{"a":1}`, first `{` and then `"f:a":{}` for each that is owned, then `}`. What turns
/// out to be nobody's is cut off again.
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

/// Items of a list that are told apart by one member, as most are, in the order of what it says: text that stands in JSON as it is.
struct Named<'k, 'a> {
    key: &'k str,
    items: Vec<(&'a str, &'a Value)>,
}

impl<'k, 'a> Named<'k, 'a> {
    /// `None` if they are not of that kind, or one is there twice.
    fn of(items: &'a [Value], keys: &'k [(Box<str>, Option<Value>)]) -> Option<Named<'k, 'a>> {
        let [(key, _)] = keys else {
            return None;
        };
        let name = |item: &'a Value| {
            let name = item.as_object()?.get(key)?.as_str()?;
            is_plain(name).then_some((name, item))
        };
        let mut named = Vec::with_capacity(items.len());
        for item in items {
            named.push(name(item)?);
        }
        if !named.is_sorted_by(|one, two| one.0 < two.0) {
            named.sort_unstable_by_key(|(name, _)| *name);
            let mut pairs = named.windows(2);
            if pairs.any(|pair| pair[0].0 == pair[1].0) {
                return None;
            }
        }
        is_plain(key).then_some(Named { key, items: named })
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
