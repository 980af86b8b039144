//! Computes the fields that a configuration sets, and reports type errors.

use std::fmt;

use tidings_json::Value;

use crate::element::PathElement;
use crate::schema::{MergeShape, Scalar, Schema, ValuePart, parts};
use crate::set::FieldSet;

/// The type errors of a configuration, one line each with the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.0))]
pub struct TypeErrors(pub Vec<String>);

fn shown(errors: &[String]) -> String {
    match errors {
        [only] => only.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    }
}

/// The fields that a configuration sets: leaves, items of lists, members of maps, and empty values.
///
/// # Errors
/// If a value has the wrong type, or a list has duplicate items.
pub fn fields_of<S: Schema>(config: &Value, schema: S) -> Result<FieldSet<'_>, TypeErrors> {
    let mut errors = Vec::new();
    let fields = walk(config, schema, &ValuePath::Top, &mut errors);
    if errors.is_empty() {
        Ok(fields)
    } else {
        Err(TypeErrors(errors))
    }
}

/// The fields of a stored object; values of the wrong type are left out.
pub(crate) fn fields_of_stored<S: Schema>(object: &Value, schema: S) -> FieldSet<'_> {
    walk(object, schema, &ValuePath::Top, &mut Vec::new())
}

/// The path of a value as a linked list. It is formatted only for an error.
enum ValuePath<'a> {
    Top,
    Step(&'a ValuePath<'a>, &'a PathElement<'a>),
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValuePath::Top => Ok(()),
            ValuePath::Step(before, element) => write!(f, "{before}{element}"),
        }
    }
}

fn walk<'a, S: Schema>(
    value: &'a Value,
    schema: S,
    path: &ValuePath<'_>,
    errors: &mut Vec<String>,
) -> FieldSet<'a> {
    let shape = schema.shape();
    if let Some(why) = misfit(value, shape) {
        let separator = match path {
            ValuePath::Top => "",
            ValuePath::Step(..) => ": ",
        };
        errors.push(format!("{path}{separator}{why}"));
        return FieldSet::default();
    }
    // Only the first error of a value is reported; the others may follow from it.
    let mut reported = false;
    let wrong = &mut |why: String| {
        if !std::mem::replace(&mut reported, true) {
            errors.push(format!("{path}{why}"));
        }
    };
    let Some(children) = parts(value, schema, wrong) else {
        // A null list or object sets no field by itself; the parent adds the member.
        let granular = !matches!(shape, MergeShape::Scalar(_) | MergeShape::Atomic);
        return if granular && value.is_null() {
            FieldSet::default()
        } else {
            FieldSet::leaf()
        };
    };
    // Only lists can have duplicates.
    let repeated = match value {
        Value::Array(_) => repeated(&children),
        _ => Vec::new(),
    };
    let mut below = Vec::with_capacity(children.len());
    for (at, child) in children.into_iter().enumerate() {
        let ValuePart {
            element,
            value,
            schema,
            named,
        } = child;
        let mut set = walk(value, schema, &ValuePath::Step(path, &element), errors);
        let empty = value.is_null() || value.as_object().is_some_and(tidings_json::Map::is_empty);
        set.here |= empty || !named;
        if repeated.binary_search(&at).is_ok() {
            errors.push(format!("{path}: duplicate entries for key {element}"));
        }
        below.push((element, set));
    }
    FieldSet::of_below(below)
}

/// The indexes of items that repeat an earlier item, sorted.
fn repeated<S>(children: &[ValuePart<'_, S>]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..children.len()).collect();
    places.sort_by(|one, two| children[*one].element.cmp(&children[*two].element));
    let pairs = places.windows(2);
    let mut repeated: Vec<usize> = pairs
        .filter(|pair| children[pair[0]].element == children[pair[1]].element)
        .map(|pair| pair[1])
        .collect();
    repeated.sort_unstable();
    repeated
}

/// The error of a value whose type does not fit its shape, in the words of structured-merge-diff.
pub(crate) fn misfit<S: Copy>(value: &Value, shape: MergeShape<S>) -> Option<String> {
    let wanted = match shape {
        _ if value.is_null() => return None,
        MergeShape::Struct | MergeShape::Map(_) if !value.is_object() => "map",
        MergeShape::Set(_) | MergeShape::Keyed(_) if !value.is_array() => "list",
        MergeShape::Scalar(Scalar::Bool) if !value.is_boolean() => "boolean",
        MergeShape::Scalar(Scalar::String) if !value.is_string() => {
            let shown = tidings_go::print_syntax(value);
            return Some(format!(
                "expected string, got &value.valueUnstructured{{Value:{shown}}}"
            ));
        }
        MergeShape::Scalar(Scalar::Number) if !value.is_number() => {
            let kind = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            return Some(format!("expected numeric (int or float), got {kind}"));
        }
        _ => return None,
    };
    Some(format!(
        "expected {wanted}, got &{{{}}}",
        tidings_go::print(value)
    ))
}
