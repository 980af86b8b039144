//! What somebody applies: an object, or as much of it as its manager cares for.

use tidings_json::Value;

use crate::schema::{Schema, Shape, parts};
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
        let mut odd = false;
        let children = parts(value, schema, &mut |_| odd = true);
        if odd {
            return None;
        }
        let is_leaf = children.is_none()
            && (matches!(shape, Shape::Scalar(_) | Shape::Atomic) || !value.is_null());
        let here = (itself || is_leaf) && !without.is_some_and(|without| without.here);
        self.json.push('{');
        let start = self.json.len();
        if here && children.as_ref().is_some_and(|all| !all.is_empty()) {
            self.json.push_str("\".\":{}");
        }
        let mut children = children.unwrap_or_default();
        if !children.is_sorted_by(|one, two| one.element < two.element) {
            children.sort_by(|one, two| one.element.cmp(&two.element));
            let mut pairs = children.windows(2);
            if pairs.any(|pair| pair[0].element == pair[1].element) {
                return None; // an item is there twice
            }
        }
        let mut below = false;
        for child in children {
            let without = without.and_then(|without| without.below(&child.element));
            let is_out = without.is_some_and(FieldSet::ends_here);
            let before = self.json.len();
            if before > start {
                self.json.push(',');
            }
            push_step(&mut self.json, &child.element);
            self.json.push(':');
            let value = child.value;
            let empty =
                value.is_null() || value.as_object().is_some_and(tidings_json::Map::is_empty);
            let itself = empty || !child.named;
            // What nobody owns must fit as well.
            if self.write(value, child.schema, itself, without)? && !is_out {
                below = true;
            } else {
                self.json.truncate(before);
            }
        }
        if !below {
            self.json.truncate(start); // `{}` stands for the field itself
        }
        self.json.push('}');
        Some(here || below)
    }
}
