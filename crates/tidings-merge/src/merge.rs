//! Merges a configuration into an object, and removes fields from an object.

use std::collections::BTreeMap;

use tidings_json::{Map, Value};

use crate::compare::Changes;
use crate::displaced::{Displaced, DisplacedStep};
use crate::element::PathElement;
use crate::schema::{MergeShape, Schema, ValuePart, key, parts, same_key};
use crate::set::FieldSet;

/// The object with all values of the configuration.
pub fn merge<S: Schema>(live: &Value, config: &Value, schema: S) -> Value {
    let mut merged = live.clone();
    merge_into(&mut merged, config, schema);
    merged
}

/// The effect of a merge on a value.
#[derive(Debug, Default)]
pub(crate) struct Merged<'c> {
    /// The values that were replaced.
    pub(crate) displaced: Displaced<'c>,
    /// The fields that changed; only fields that the schema knows.
    pub(crate) changes: Changes<'c>,
}

/// The effects of a merge on the parts of a value.
#[derive(Default)]
struct MergedParts<'c> {
    displaced: Displaced<'c>,
    changes: Vec<(PathElement<'c>, Changes<'c>)>,
}

impl<'c> MergedParts<'c> {
    fn push(
        &mut self,
        step: DisplacedStep<'c>,
        element: impl FnOnce() -> Option<PathElement<'c>>,
        part: Merged<'c>,
    ) {
        self.displaced.add_below(step, part.displaced);
        if !part.changes.is_empty()
            && let Some(element) = element()
        {
            self.changes.push((element, part.changes));
        }
    }
}

impl<'c> From<MergedParts<'c>> for Merged<'c> {
    fn from(parts: MergedParts<'c>) -> Merged<'c> {
        let MergedParts { displaced, changes } = parts;
        let changes = match changes.is_empty() {
            true => Changes::default(),
            false => Changes::of_below(changes),
        };
        Merged { displaced, changes }
    }
}

/// Merges the configuration into the object, in place. Only values that differ are copied, and mostly few do. A configuration has
/// no duplicate items in lists, see [`fields_of`](crate::fields_of).
pub(crate) fn merge_into<'c, S: Schema>(
    live: &mut Value,
    config: &'c Value,
    schema: S,
) -> Merged<'c> {
    match (schema.shape(), &mut *live, config) {
        (
            MergeShape::Struct | MergeShape::Map(_) | MergeShape::Unknown,
            Value::Object(live),
            Value::Object(config),
        ) => merge_members(live, config, schema),
        (MergeShape::Keyed(_), Value::Array(lives), Value::Array(configs)) if lives == configs => {
            Merged::default() // the common case: most lists do not change
        }
        (MergeShape::Keyed(item), Value::Array(lives), Value::Array(configs))
            if are_in_step(lives, configs, schema) =>
        {
            let mut parts = MergedParts::default();
            for (at, (live, config)) in std::iter::zip(lives, configs).enumerate() {
                let part = merge_into(live, config, item);
                parts.push(
                    DisplacedStep::Item(at),
                    || key(config, &schema.keys()).ok(),
                    part,
                );
            }
            parts.into()
        }
        _ => match over(live, config, schema) {
            Some(new) if new != *live => {
                let changes = Changes::of(Some(live), Some(&new), schema).into_owned();
                Merged {
                    displaced: Displaced::one(Some(std::mem::replace(live, new))),
                    changes,
                }
            }
            _ => Merged::default(),
        },
    }
}

/// True if two lists have items with the same keys in the same order.
fn are_in_step<S: Schema>(live: &[Value], config: &[Value], schema: S) -> bool {
    let keys = schema.keys();
    let mut pairs = std::iter::zip(live, config);
    live.len() == config.len() && pairs.all(|(live, config)| same_key(live, config, &keys))
}

/// The merged value of a value that is replaced as a whole; `None` if it does not change.
fn over<S: Schema>(live: &Value, config: &Value, schema: S) -> Option<Value> {
    match (live, config) {
        _ if live == config => None, // the common case
        (Value::Array(_), Value::Array(_)) => {
            match (children(live, schema), children(config, schema)) {
                (Some(live), Some(config)) => Some(Value::Array(merge_items(&live, &config))),
                _ => Some(config.clone()),
            }
        }
        // A null in the configuration does not empty a list or map.
        (live, Value::Null) if children(live, schema).is_some_and(|parts| !parts.is_empty()) => {
            None
        }
        _ => Some(config.clone()),
    }
}

/// The parts of a value; items without valid keys are left out. `None` if the value has no parts.
fn children<S: Schema>(value: &Value, schema: S) -> Option<Vec<ValuePart<'_, S>>> {
    parts(value, schema, &mut |_| {})
}

fn merge_members<'c, S: Schema>(live: &mut Map, config: &'c Map, schema: S) -> Merged<'c> {
    let shape = schema.shape();
    let mut parts = MergedParts::default();
    for (name, value) in config {
        let below = match shape {
            MergeShape::Map(item) => Some(item),
            MergeShape::Struct => schema.field(name),
            _ => Some(schema),
        };
        let part = match (live.get_mut(name), below) {
            (Some(live), Some(schema)) => merge_into(live, value, schema),
            (Some(live), None) if live == value => continue,
            (_, schema) => {
                let displaced = live.insert(name.clone(), value.clone());
                let new = schema.map(|schema| Changes::of(None, Some(value), schema));
                Merged {
                    displaced: Displaced::one(displaced),
                    changes: new.unwrap_or_default(),
                }
            }
        };
        parts.push(
            DisplacedStep::Member(name),
            || Some(PathElement::field(name)),
            part,
        );
    }
    parts.into()
}

/// The items of both lists. Items of the configuration keep its order; items that only the object has stay next to their
/// neighbours.
fn merge_items<S: Schema>(live: &[ValuePart<'_, S>], config: &[ValuePart<'_, S>]) -> Vec<Value> {
    let same = live.iter().map(|child| &child.element);
    if same.eq(config.iter().map(|child| &child.element)) {
        let pairs = live.iter().zip(config);
        return pairs
            .map(|(live, config)| merge(live.value, config.value, config.schema))
            .collect();
    }
    let mut lives: BTreeMap<&PathElement<'_>, Vec<&ValuePart<'_, S>>> = BTreeMap::new();
    for child in live {
        lives.entry(&child.element).or_default().push(child);
    }
    let configs: BTreeMap<&PathElement<'_>, &ValuePart<'_, S>> =
        config.iter().map(|child| (&child.element, child)).collect();
    // The items that both lists have, in the order of the configuration; the first is where the lists meet next.
    let mut meeting = config
        .iter()
        .map(|child| &child.element)
        .filter(|element| lives.contains_key(element))
        .peekable();
    let mut items = Vec::with_capacity(live.len().max(config.len()));
    let (mut old, mut new) = (live.iter().peekable(), config.iter().peekable());
    let mut done: std::collections::BTreeSet<&PathElement<'_>> = std::collections::BTreeSet::new();
    loop {
        let (before, after) = (old.peek().copied(), new.peek().copied());
        if let Some(before) = before {
            let element = &before.element;
            match after {
                Some(after) if after.element == *element => {
                    old.next();
                    // Pushed below, as an item of the configuration.
                }
                _ if !configs.contains_key(element) => {
                    items.push(before.value.clone());
                    old.next();
                    continue;
                }
                // The configuration has this item at another position.
                _ if done.contains(element) || meeting.peek() != Some(&element) => {
                    old.next();
                    continue;
                }
                _ => {}
            }
        }
        let Some(after) = new.next() else {
            break;
        };
        let element = &after.element;
        done.insert(element);
        if meeting.peek() == Some(&element) {
            meeting.next();
        }
        items.push(match lives.get(element).map(Vec::as_slice) {
            Some([live]) => merge(live.value, after.value, after.schema),
            // The object has duplicates of this item: the configuration's item replaces them all.
            _ => after.value.clone(),
        });
    }
    items
}

/// The value without the fields of a set. `None` if no part is left; a part without remaining fields becomes null.
pub fn without<S: Schema>(value: &Value, fields: &FieldSet<'_>, schema: S) -> Option<Value> {
    let Some(children) = children(value, schema) else {
        return Some(value.clone());
    };
    let left = children.into_iter().filter_map(|child| {
        let kept = match fields.below(&child.element) {
            Some(set) if set.here => None,
            Some(set) => Some(without(child.value, set, child.schema).unwrap_or(Value::Null)),
            None => Some(child.value.clone()),
        };
        Some((child.element, kept?))
    });
    if value.is_array() {
        let left: Vec<Value> = left.map(|(_, value)| value).collect();
        return (!left.is_empty()).then_some(Value::Array(left));
    }
    let mut members = Map::new();
    for (element, value) in left {
        if let PathElement::Field(name) = element {
            members.insert(name.into_owned(), value);
        }
    }
    (!members.is_empty()).then_some(Value::Object(members))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidings_json::json;

    use super::*;
    use crate::configuration::Configuration;
    use crate::schema::{ListKeys, Scalar};
    use crate::typed::fields_of;
    use tidings_json::Touched;

    /// A schema for tests: `text` is a scalar, `whole` is atomic, `set` a set, `list` a list of structs by `name`, `map` a map of
    /// scalars, `words` a map of text.
    #[derive(Debug, Clone, Copy)]
    enum TestSchema {
        Struct,
        List,
        Map,
        Set,
        Atomic,
        Scalar,
        Words,
        Text,
    }

    impl Schema for TestSchema {
        fn shape(self) -> MergeShape<TestSchema> {
            match self {
                TestSchema::Struct => MergeShape::Struct,
                TestSchema::List => MergeShape::Keyed(TestSchema::Struct),
                TestSchema::Map => MergeShape::Map(TestSchema::Scalar),
                TestSchema::Set => MergeShape::Set(TestSchema::Scalar),
                TestSchema::Atomic => MergeShape::Atomic,
                TestSchema::Scalar => MergeShape::Scalar(Scalar::Any),
                TestSchema::Words => MergeShape::Map(TestSchema::Text),
                TestSchema::Text => MergeShape::Scalar(Scalar::String),
            }
        }

        fn field(self, name: &str) -> Option<TestSchema> {
            match name {
                "text" => Some(TestSchema::Scalar),
                "name" => Some(TestSchema::Text),
                "words" => Some(TestSchema::Words),
                "whole" => Some(TestSchema::Atomic),
                "set" => Some(TestSchema::Set),
                "list" => Some(TestSchema::List),
                "map" => Some(TestSchema::Map),
                _ => None,
            }
        }

        fn keys(self) -> ListKeys {
            vec![("name".into(), Some(json!("n")))].into()
        }
    }

    fn object(deep: bool) -> BoxedStrategy<Value> {
        let scalar = || prop_oneof![Just(json!(null)), Just(json!("x")), Just(json!(1))];
        let map = prop::collection::btree_map("[a<]", scalar(), 0..3).prop_map(|map| json!(map));
        let word = prop_oneof![1 => Just(json!(null)), 5 => Just(json!("x"))];
        let words = prop::collection::btree_map("[a<]", word, 0..3).prop_map(|map| json!(map));
        let set = prop::collection::btree_set("[xy\"]", 0..3).prop_map(|set| json!(set));
        let set = set.prop_flat_map(|set| {
            let items = set.as_array().cloned().unwrap_or_default();
            Just(items).prop_shuffle().prop_map(Value::from)
        });
        let list = if deep {
            let items = prop::collection::btree_map("[mn<]", object(false), 0..3);
            let items = items.prop_map(|items| {
                let items = items.into_iter().map(|(name, mut item)| {
                    if name != "n" {
                        item["name"] = name.into();
                    }
                    item
                });
                items.collect::<Vec<_>>()
            });
            items.prop_shuffle().prop_map(Value::from).boxed()
        } else {
            Just(json!(null)).boxed()
        };
        let members = [
            ("text", scalar().boxed()),
            ("odd", scalar().boxed()),
            ("whole", map.clone().boxed()),
            ("map", prop_oneof![map, Just(json!(null))].boxed()),
            ("words", words.boxed()),
            ("set", set.boxed()),
            ("list", list),
        ];
        let members = members.map(|(name, value)| {
            prop::option::of(value)
                .prop_map(move |value| value.map(|value| (name.to_owned(), value)))
        });
        members
            .to_vec()
            .prop_map(|members| Value::Object(members.into_iter().flatten().collect()))
            .boxed()
    }

    /// The configuration without undeclared fields: only a stored object may have them.
    fn declared(mut config: Value) -> Value {
        match &mut config {
            Value::Object(members) => {
                members.remove("odd");
                for value in members.values_mut() {
                    *value = declared(value.take());
                }
            }
            Value::Array(items) => {
                for item in items {
                    *item = declared(item.take());
                }
            }
            _ => {}
        }
        config
    }

    fn same_where_untouched(
        old: &Value,
        new: &Value,
        touched: &Touched,
    ) -> Result<(), TestCaseError> {
        if matches!(touched, Touched::Whole) {
            return Ok(());
        }
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                for (name, new) in new {
                    match (old.get(name), touched.member(name)) {
                        (old, None) => prop_assert_eq!(old, Some(new)),
                        (Some(old), Some(touched)) => same_where_untouched(old, new, touched)?,
                        (None, Some(touched)) => prop_assert!(matches!(touched, Touched::Whole)),
                    }
                }
            }
            (Value::Array(old), Value::Array(new)) => {
                prop_assert_eq!(old.len(), new.len());
                for (at, (old, new)) in std::iter::zip(old, new).enumerate() {
                    match touched.item(at) {
                        None => prop_assert_eq!(old, new),
                        Some(touched) => same_where_untouched(old, new, touched)?,
                    }
                }
            }
            (old, new) => prop_assert_eq!(old, new),
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn fields_are_written_as_a_set_of_them_is(config in object(true), ignored in object(true)) {
            let ignored = fields_of(&ignored, TestSchema::Struct).unwrap_or_default();
            let written = Configuration::new(&config, TestSchema::Struct, &ignored).map(|config| config.written);
            let set = fields_of(&config, TestSchema::Struct);
            prop_assert_eq!(written, set.map(|set| set.encode_without(&ignored)));
        }

        #[test]
        fn what_a_merge_says_of_itself_is_what_a_comparison_finds(live in object(true), config in object(true)) {
            let config = declared(config);
            let mut merged = live.clone();
            let told = merge_into(&mut merged, &config, TestSchema::Struct);
            prop_assert_eq!(!told.displaced.is_empty(), merged != live);
            prop_assert_eq!(&told.changes, &Changes::of(Some(&live), Some(&merged), TestSchema::Struct));
            let again = merge_into(&mut merged.clone(), &config, TestSchema::Struct);
            prop_assert!(again.displaced.is_empty() && again.changes.is_empty());
            same_where_untouched(&live, &merged, &told.displaced.touched())?;
            told.displaced.restore(&mut merged);
            prop_assert_eq!(merged, live);
        }
    }
}
