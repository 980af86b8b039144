//! JSON patch (RFC 6902) as upstream takes it, and JSON merge patch (RFC 7396).

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tidings_json::{Map, Value};

use crate::draft::DEPTH_MAX;
use crate::reading::depth;

/// What the `copy` operations of one patch may add.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Elements of arrays that the operations of one patch may move, or could.
const MOVED_ELEMENTS_MAX: usize = 20_000_000;
/// Members of objects that are moved count as less: they only are when one before them goes.
const MEMBERS_PER_ELEMENT: usize = 4;

/// One step of a JSON patch.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Operation {
    Add {
        path: JsonPointer,
        value: Value,
    },
    Remove {
        path: JsonPointer,
    },
    Replace {
        path: JsonPointer,
        value: Value,
    },
    Move {
        from: JsonPointer,
        path: JsonPointer,
    },
    Copy {
        from: JsonPointer,
        path: JsonPointer,
    },
    Test {
        path: JsonPointer,
        value: Value,
    },
}

impl Operation {
    /// Where it looks and what it changes.
    pub(super) fn places(&self) -> impl Iterator<Item = &JsonPointer> {
        let (path, from) = match self {
            Operation::Add { path, .. }
            | Operation::Remove { path }
            | Operation::Replace { path, .. }
            | Operation::Test { path, .. } => (path, None),
            Operation::Move { from, path } | Operation::Copy { from, path } => (path, Some(from)),
        };
        std::iter::once(path).chain(from)
    }
}

/// An operation cannot be done: it leads nowhere, finds something else than it expects, or makes too much of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Impossible;

/// The way to a place in a document (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JsonPointer(Vec<String>);

impl<'de> Deserialize<'de> for JsonPointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonPointer, D::Error> {
        let text = String::deserialize(deserializer)?;
        JsonPointer::read(&text).ok_or_else(|| D::Error::custom("no JSON pointer"))
    }
}

impl JsonPointer {
    fn read(text: &str) -> Option<JsonPointer> {
        if text.is_empty() {
            return Some(JsonPointer(Vec::new()));
        }
        let decoded = |step: &str| {
            let mut escapes = step.split('~').skip(1);
            let known = escapes.all(|escape| escape.starts_with(['0', '1']));
            known.then(|| step.replace("~1", "/").replace("~0", "~"))
        };
        let steps = text.strip_prefix('/')?.split('/');
        steps.map(decoded).collect::<Option<_>>().map(JsonPointer)
    }

    /// The names and places on the way.
    pub(super) fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        find(document, &self.0)
    }

    fn find_mut<'v>(&self, document: &'v mut Value) -> Option<&'v mut Value> {
        find_mut(document, &self.0)
    }

    /// The array or object in which the place is.
    fn around<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        let (_, way) = self.0.split_last()?;
        find(document, way)
    }
}

fn find<'v>(document: &'v Value, way: &[String]) -> Option<&'v Value> {
    way.iter().try_fold(document, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(place(step)?),
        _ => None,
    })
}

fn find_mut<'v>(document: &'v mut Value, way: &[String]) -> Option<&'v mut Value> {
    way.iter().try_fold(document, |value, step| match value {
        Value::Object(members) => members.get_mut(step),
        Value::Array(items) => items.get_mut(place(step)?),
        _ => None,
    })
}

/// The place in an array that a step means.
fn place(step: &str) -> Option<usize> {
    let is_number = step == "0" || !step.starts_with('0');
    let is_number = is_number && step.bytes().all(|byte| byte.is_ascii_digit());
    step.parse().ok().filter(|_| is_number)
}

/// Does what a patch says. As upstream does it, members that are not there can be replaced, and are null when they are tested or
/// copied. Every operation leaves a document that is not nested too deep.
pub(super) fn operate(document: &mut Value, operations: &[Operation]) -> Result<(), Impossible> {
    let (mut copied, mut moved) = (0, 0);
    for operation in operations {
        let around = operation.places().filter_map(|path| path.around(document));
        moved += around
            .map(|container| match (container, operation) {
                (Value::Array(items), _) => items.len(),
                (Value::Object(members), Operation::Remove { .. } | Operation::Move { .. }) => {
                    members.len() / MEMBERS_PER_ELEMENT
                }
                _ => 0,
            })
            .sum::<usize>();
        if moved > MOVED_ELEMENTS_MAX {
            return Err(Impossible);
        }
        match operation {
            Operation::Add { path, value } => add(document, path, value.clone())?,
            Operation::Remove { path } => drop(remove(document, path)?),
            Operation::Replace { path, value } => match path.find(document) {
                None if path.around(document).is_some_and(Value::is_array) => {
                    return Err(Impossible);
                }
                None => add(document, path, value.clone())?,
                Some(_) => replace(document, path, value.clone())?,
            },
            Operation::Move { from, path } => {
                if path.0.len() > from.0.len() && path.0.starts_with(&from.0) {
                    return Err(Impossible);
                }
                let value = remove(document, from)?;
                add(document, path, value)?;
            }
            Operation::Copy { from, path } => {
                let value = from.find(document).cloned().unwrap_or_default();
                // A patch that copies what it has copied would grow beyond any bound.
                copied += value.to_string().len();
                if copied > COPIED_BYTES_MAX {
                    return Err(Impossible);
                }
                add(document, path, value)?;
            }
            Operation::Test { path, value } => {
                if path.find(document).unwrap_or(&Value::Null) != value {
                    return Err(Impossible);
                }
            }
        }
    }
    Ok(())
}

fn check_depth(path: &JsonPointer, value: &Value) -> Result<(), Impossible> {
    let deep = path.0.len() + depth(value);
    if deep > DEPTH_MAX {
        Err(Impossible)
    } else {
        Ok(())
    }
}

fn add(document: &mut Value, path: &JsonPointer, value: Value) -> Result<(), Impossible> {
    check_depth(path, &value)?;
    let Some((last, way)) = path.0.split_last() else {
        *document = value;
        return Ok(());
    };
    match find_mut(document, way) {
        Some(Value::Object(members)) => drop(members.insert(last.clone(), value)),
        Some(Value::Array(items)) if last == "-" => items.push(value),
        Some(Value::Array(items)) => match place(last) {
            Some(at) if at <= items.len() => items.insert(at, value),
            _ => return Err(Impossible),
        },
        _ => return Err(Impossible),
    }
    Ok(())
}

fn replace(document: &mut Value, path: &JsonPointer, value: Value) -> Result<(), Impossible> {
    check_depth(path, &value)?;
    *path.find_mut(document).ok_or(Impossible)? = value;
    Ok(())
}

fn remove(document: &mut Value, path: &JsonPointer) -> Result<Value, Impossible> {
    let (last, way) = path.0.split_last().ok_or(Impossible)?;
    match find_mut(document, way) {
        Some(Value::Object(members)) => members.remove(last).ok_or(Impossible),
        Some(Value::Array(items)) => match place(last) {
            Some(at) if at < items.len() => Ok(items.remove(at)),
            _ => Err(Impossible),
        },
        _ => Err(Impossible),
    }
}

/// Puts a merge patch over a value.
pub(super) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        value.clone_from(patch);
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(members) = value else {
        return;
    };
    // All at once: each by itself would move those behind it.
    members.retain(|name, _| patch.get(name).is_none_or(|patch| !patch.is_null()));
    for (name, patch) in patch.iter().filter(|(_, patch)| !patch.is_null()) {
        merge(members.entry(name.as_str()).or_insert(Value::Null), patch);
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::{Value, json};

    use super::*;

    fn operated(document: &Value, operations: Value) -> Option<Value> {
        let operations: Vec<Operation> = tidings_json::from_value(operations).ok()?;
        let mut document = document.clone();
        operate(&mut document, &operations).ok()?;
        Some(document)
    }

    #[test]
    fn w150_operations_do_what_the_rfc_says() {
        let document = json!({"a": [1, 2], "b": {"~": {"/": "x"}}, "": 0});
        let some = |operation: &str, after: Value| (operation.to_owned(), Some(after));
        let none = |operation: &str| (operation.to_owned(), None);
        for (operation, after) in [
            some(
                r#"{"op":"add","path":"/a/1","value":9}"#,
                json!({"a": [1, 9, 2], "b": {"~": {"/": "x"}}, "": 0}),
            ),
            some(
                r#"{"op":"add","path":"/a/2","value":9}"#,
                json!({"a": [1, 2, 9], "b": {"~": {"/": "x"}}, "": 0}),
            ),
            some(
                r#"{"op":"add","path":"/a/-","value":9}"#,
                json!({"a": [1, 2, 9], "b": {"~": {"/": "x"}}, "": 0}),
            ),
            some(
                r#"{"op":"add","path":"/b/~0/~1","value":9}"#,
                json!({"a": [1, 2], "b": {"~": {"/": 9}}, "": 0}),
            ),
            some(r#"{"op":"add","path":"","value":9}"#, json!(9)),
            none(r#"{"op":"add","path":"/a/3","value":9}"#),
            none(r#"{"op":"add","path":"/a/01","value":9}"#),
            none(r#"{"op":"add","path":"/a/+1","value":9}"#),
            none(r#"{"op":"add","path":"/a/x","value":9}"#),
            none(r#"{"op":"add","path":"/nowhere/x","value":9}"#),
            none(r#"{"op":"add","path":"/a/0/x","value":9}"#),
            none(r#"{"op":"add","path":"a","value":9}"#),
            none(r#"{"op":"add","path":"/a~","value":9}"#),
            none(r#"{"op":"add","path":"/a~2","value":9}"#),
            none(r#"{"op":"add","path":"/a"}"#),
            none(r#"{"path":"/a"}"#),
            some(
                r#"{"op":"remove","path":"/a/0"}"#,
                json!({"a": [2], "b": {"~": {"/": "x"}}, "": 0}),
            ),
            some(
                r#"{"op":"remove","path":"/"}"#,
                json!({"a": [1, 2], "b": {"~": {"/": "x"}}}),
            ),
            none(r#"{"op":"remove","path":"/a/2"}"#),
            none(r#"{"op":"remove","path":"/a/-"}"#),
            none(r#"{"op":"remove","path":"/c"}"#),
            none(r#"{"op":"remove","path":""}"#),
            some(
                r#"{"op":"replace","path":"/a/0","value":null}"#,
                json!({"a": [null, 2], "b": {"~": {"/": "x"}}, "": 0}),
            ),
            some(r#"{"op":"replace","path":"","value":{}}"#, json!({})),
            none(r#"{"op":"replace","path":"/a/2","value":9}"#),
            none(r#"{"op":"replace","path":"/c/d","value":9}"#),
            some(
                r#"{"op":"move","from":"/b/~0","path":"/a"}"#,
                json!({"a": {"/": "x"}, "b": {}, "": 0}),
            ),
            some(
                r#"{"op":"move","from":"/a/0","path":"/a/1"}"#,
                json!({"a": [2, 1], "b": {"~": {"/": "x"}}, "": 0}),
            ),
            some(r#"{"op":"move","from":"/a","path":"/a"}"#, document.clone()),
            none(r#"{"op":"move","from":"/b","path":"/b/~0/c"}"#),
            none(r#"{"op":"move","from":"/c","path":"/d"}"#),
            some(
                r#"{"op":"copy","from":"/a/0","path":"/a/0"}"#,
                json!({"a": [1, 1, 2], "b": {"~": {"/": "x"}}, "": 0}),
            ),
            some(
                r#"{"op":"test","path":"/b","value":{"~":{"/":"x"}}}"#,
                document.clone(),
            ),
            none(r#"{"op":"test","path":"/a","value":[2,1]}"#),
            none(r#"{"op":"turn","path":"/a"}"#),
        ] {
            let operations = serde_json::from_str(&format!("[{operation}]")).unwrap();
            assert_eq!(operated(&document, operations), after, "{operation}");
        }
    }

    #[test]
    fn w150_what_is_moved_and_how_deep_it_goes_is_bounded() {
        let items = vec![json!(0); 200_000];
        let step = json!({"op": "add", "path": "/0", "value": 1});
        let few = Value::from(vec![step.clone(); 50]);
        assert!(operated(&items.clone().into(), few).is_some());
        assert!(operated(&items.into(), vec![step; 101].into()).is_none());
        let named = |at: usize| (format!("k{at}"), Value::Null);
        let members: Map = (0..20_000).map(named).collect();
        let gone = |at: usize| json!({"op": "remove", "path": format!("/k{at}")});
        let few: Vec<Value> = (0..3_000).map(gone).collect();
        assert!(operated(&members.clone().into(), few.into()).is_some());
        let many: Vec<Value> = (0..10_000).map(gone).collect();
        assert!(operated(&members.into(), many.into()).is_none());
        let deeper = |at: usize| json!({"op": "add", "path": "/a".repeat(at), "value": {}});
        let deep: Vec<Value> = (1..DEPTH_MAX).map(deeper).collect();
        assert!(operated(&json!({}), deep.clone().into()).is_some());
        let deep = [deep, vec![deeper(DEPTH_MAX)]].concat();
        assert!(operated(&json!({}), deep.into()).is_none());
    }

    #[test]
    fn w149_a_merge_patch_does_what_the_rfc_says() {
        for (before, patch, after) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!(["a"]), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut merged = before.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, after, "{before} {patch}");
        }
    }
}
