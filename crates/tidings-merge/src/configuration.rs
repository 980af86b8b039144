//! An applied configuration: the fields of an object that its manager wants to set.

use tidings_json::{Map, Value, is_plain};

use crate::element::PathElement;
use crate::schema::{MergeShape, Scalar, Schema, parts};
use crate::set::{FieldSet, push_step};
use crate::typed::{TypeErrors, fields_of, fields_of_stored, misfit};

/// An applied configuration that has passed the type check.
#[derive(Debug)]
pub struct Configuration<'a, S> {
    pub(crate) value: &'a Value,
    pub(crate) schema: S,
    /// Fields that no manager can own.
    pub(crate) ignored: &'a FieldSet<'a>,
    /// The fields that the manager owns by applying this configuration, encoded as `fieldsV1`.
    pub(crate) written: String,
}

impl<'a, S: Schema> Configuration<'a, S> {
    /// Checks a configuration. No manager can own the fields in `ignored`, see [`FieldSet::remove_with_below`].
    ///
    /// # Errors
    /// If a value has the wrong type, or a list has duplicate items.
    pub fn new(
        value: &'a Value,
        schema: S,
        ignored: &'a FieldSet<'a>,
    ) -> Result<Configuration<'a, S>, TypeErrors> {
        let mut writer = FieldsWriter {
            json: String::with_capacity(FIELDS_CAPACITY),
        };
        let written = match writer.write(value, schema, false, Some(ignored)) {
            Some(_) => writer.json,
            // `fields_of` reports what is wrong with the configuration.
            None => fields_of(value, schema)?.encode_without(ignored),
        };
        Ok(Configuration {
            value,
            schema,
            ignored,
            written,
        })
    }

    /// The configuration as JSON.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// The fields that the manager owns by applying this configuration, encoded as `fieldsV1`.
    pub fn fields_v1(&self) -> &str {
        &self.written
    }

    /// All fields that the configuration sets. Computed on demand: managers mostly apply the same configuration again.
    pub(crate) fn fields(&self) -> FieldSet<'a> {
        fields_of_stored(self.value, self.schema)
    }
}

/// The initial capacity of the encoded fields; enough for most objects.
const FIELDS_CAPACITY: usize = 4096;

/// Writes the fields of a value as `fieldsV1` directly, without a [`FieldSet`].
struct FieldsWriter {
    json: String,
}

impl FieldsWriter {
    /// Writes the fields of a value except those in `without`; `itself` if the value is a field too. Returns true if any field
    /// was written, and `None` if the value has the wrong type.
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
        let mut level = WriterLevel {
            here: itself && !without.is_some_and(|without| without.here),
            below: false,
            start: self.json.len() + 1,
            without,
        };
        self.json.push('{');
        match (shape, value) {
            (
                MergeShape::Struct | MergeShape::Map(_) | MergeShape::Unknown,
                Value::Object(members),
            ) => {
                self.write_members(members, schema, shape, &mut level)?;
            }
            (MergeShape::Keyed(item), Value::Array(items)) => {
                match NamedItems::of(items, &schema.keys()).filter(|_| without.is_none()) {
                    Some(named) => self.write_named(named, item, &mut level)?,
                    None => self.write_parts(value, schema, &mut level)?,
                }
            }
            (MergeShape::Set(_), Value::Array(_)) => self.write_parts(value, schema, &mut level)?,
            (MergeShape::Scalar(_) | MergeShape::Atomic, _) => level.is_leaf(),
            // A null list or object sets no field by itself; the parent writes the member.
            (_, Value::Null) => {}
            _ => level.is_leaf(),
        }
        if !level.below {
            self.json.truncate(level.start); // `{}` means the field itself
        }
        self.json.push('}');
        Some(level.here || level.below)
    }

    fn write_members<S: Schema>(
        &mut self,
        members: &Map,
        schema: S,
        shape: MergeShape<S>,
        level: &mut WriterLevel<'_>,
    ) -> Option<()> {
        let mut write = |(name, value): (&String, &Value)| {
            let below = match shape {
                MergeShape::Map(item) => item,
                MergeShape::Struct => schema.field(name)?,
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
            let named = matches!(shape, MergeShape::Struct) && schema.names(name);
            let element = PathElement::field(name);
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
        named: NamedItems<'_, '_>,
        item: S,
        level: &mut WriterLevel<'_>,
    ) -> Option<()> {
        let NamedItems { key, items } = named;
        items.into_iter().try_for_each(|(name, value)| {
            let step = |json: &mut String| {
                for part in ["\"k:{\\\"", key, "\\\":\\\"", name, "\\\"}\""] {
                    json.push_str(part);
                }
            };
            self.write_child(level, None, step, (value, item), false)
        })
    }

    /// Writes the fields of all parts of a value, of any shape.
    fn write_parts<S: Schema>(
        &mut self,
        value: &Value,
        schema: S,
        level: &mut WriterLevel<'_>,
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
        level: &mut WriterLevel<'_>,
        element: &PathElement<'_>,
        child: (&Value, S),
        named: bool,
    ) -> Option<()> {
        let without = level.without.and_then(|without| without.below(element));
        let step = |json: &mut String| push_step(json, element);
        self.write_child(level, without, step, child, named)
    }

    fn write_child<S: Schema>(
        &mut self,
        level: &mut WriterLevel<'_>,
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
        // Ignored fields must have the right type too, so they are written and cut off again.
        let owned = self.write(value, schema, empty || !named, without)?;
        if owned && !without.is_some_and(FieldSet::ends_here) {
            level.below = true;
        } else {
            self.json.truncate(before);
        }
        Some(())
    }

    /// Writes the separator before a part.
    fn begin(&mut self, level: &WriterLevel<'_>) {
        if level.here && !level.below {
            self.json.push_str("\".\":{},");
        } else if self.json.len() > level.start {
            self.json.push(',');
        }
    }
}

/// True for a scalar of the right type, which needs no further checks. Most fields are such leaves.
fn is_leaf<S: Schema>(value: &Value, schema: S) -> bool {
    match schema.shape() {
        MergeShape::Scalar(Scalar::String) => value.is_string(),
        MergeShape::Scalar(Scalar::Number) => value.is_number(),
        MergeShape::Scalar(Scalar::Bool) => value.is_boolean(),
        _ => false,
    }
}

/// The value whose fields are being written. For `{"a":1}` the writer writes `{`, then `"f:a":{}` for each owned field, then `}`.
/// A part without owned fields is cut off again.
struct WriterLevel<'a> {
    /// True if the value itself is an owned field.
    here: bool,
    /// True if a field below the value is owned.
    below: bool,
    /// The position in the JSON where the fields of this value begin.
    start: usize,
    without: Option<&'a FieldSet<'a>>,
}

impl WriterLevel<'_> {
    fn is_leaf(&mut self) {
        self.here = !self.without.is_some_and(|without| without.here);
    }
}

/// Items of a list with a single key whose values are text that JSON need not escape, sorted by that text. Most lists are such.
struct NamedItems<'k, 'a> {
    key: &'k str,
    items: Vec<(&'a str, &'a Value)>,
}

impl<'k, 'a> NamedItems<'k, 'a> {
    /// `None` if the list is not of that kind or has duplicates.
    fn of(items: &'a [Value], keys: &'k [(Box<str>, Option<Value>)]) -> Option<NamedItems<'k, 'a>> {
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
        is_plain(key).then_some(NamedItems { key, items: named })
    }
}

/// Sorts parts by their elements. `None` if there are duplicates.
fn sort<'e, T>(parts: &mut [T], element: impl Fn(&T) -> &PathElement<'e>) -> Option<()> {
    if parts.is_sorted_by(|one, two| element(one) < element(two)) {
        return Some(());
    }
    parts.sort_unstable_by(|one, two| element(one).cmp(element(two)));
    let twice = parts
        .windows(2)
        .any(|pair| element(&pair[0]) == element(&pair[1]));
    (!twice).then_some(())
}
