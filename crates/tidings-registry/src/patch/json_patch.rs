//! Applies JSON patches (RFC 6902) as upstream does, and JSON merge patches (RFC 7396).

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tidings_json::{Map, Value};

use crate::model::DEPTH_MAX;
use crate::reading::depth;

/// The most bytes of JSON that the `copy` operations of one patch may add.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// The most array elements that the operations of one patch may move. All elements of an array that an operation changes count.
const MOVED_ELEMENTS_MAX: usize = 20_000_000;
/// This many object members count as one array element: they move only when a member before them is removed.
const MEMBERS_PER_ELEMENT: usize = 4;

/// One operation of a JSON patch.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum JsonPatchOperation {
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

impl JsonPatchOperation {
    /// The pointers of the operation, to the places that it reads or changes.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        let (path, from) = match self {
            JsonPatchOperation::Add { path, .. }
            | JsonPatchOperation::Remove { path }
            | JsonPatchOperation::Replace { path, .. }
            | JsonPatchOperation::Test { path, .. } => (path, None),
            JsonPatchOperation::Move { from, path } | JsonPatchOperation::Copy { from, path } => {
                (path, Some(from))
            }
        };
        std::iter::once(path).chain(from)
    }
}

impl JsonPatchOperation {
    /// Why the operation does not apply, in the words of upstream's library.
    pub(super) fn refusal(&self) -> String {
        let text = |pointer: &JsonPointer| format!("/{}", pointer.0.join("/"));
        match self {
            JsonPatchOperation::Add { path, .. } => {
                let path = tidings_go::quote(&text(path));
                format!("add operation does not apply: doc is missing path: {path}: missing value")
            }
            JsonPatchOperation::Remove { path } => {
                let key = path.0.last().map(String::as_str).unwrap_or_default();
                let path = text(path);
                format!(
                    "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
                )
            }
            JsonPatchOperation::Replace { path, .. } => {
                let path = text(path);
                format!(
                    "replace operation does not apply: doc is missing key: {path}: missing value"
                )
            }
            JsonPatchOperation::Move { from, .. } => {
                let from = text(from);
                format!(
                    "move operation does not apply: doc is missing from path: {from}: missing value"
                )
            }
            JsonPatchOperation::Copy { from, .. } => {
                let from = text(from);
                format!(
                    "copy operation does not apply: doc is missing from path: {from}: missing value"
                )
            }
            JsonPatchOperation::Test { path, .. } => {
                format!("testing value {} failed: test failed", text(path))
            }
        }
    }
}

/// An operation failed: its pointer leads nowhere, its test does not hold, or the result would exceed a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OperationFailed;

/// A JSON pointer: the member names and array indexes that lead to a value (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JsonPointer(Vec<String>);

impl<'de> Deserialize<'de> for JsonPointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonPointer, D::Error> {
        let text = String::deserialize(deserializer)?;
        JsonPointer::read(&text).ok_or_else(|| D::Error::custom("not a JSON pointer"))
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

    /// The member names and array indexes.
    pub(super) fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        find(document, &self.0)
    }

    fn find_mut<'v>(&self, document: &'v mut Value) -> Option<&'v mut Value> {
        find_mut(document, &self.0)
    }

    /// The array or object that contains the value of the pointer.
    fn parent<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        let (_, parent) = self.0.split_last()?;
        find(document, parent)
    }
}

/// The value to which steps lead.
fn find<'v>(document: &'v Value, steps: &[String]) -> Option<&'v Value> {
    steps.iter().try_fold(document, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(array_index(step)?),
        _ => None,
    })
}

/// The value to which steps lead, to be changed.
fn find_mut<'v>(document: &'v mut Value, steps: &[String]) -> Option<&'v mut Value> {
    steps.iter().try_fold(document, |value, step| match value {
        Value::Object(members) => members.get_mut(step),
        Value::Array(items) => items.get_mut(array_index(step)?),
        _ => None,
    })
}

/// The array index that a step means; `None` if it is not a number without leading zeros.
fn array_index(step: &str) -> Option<usize> {
    let is_number = step == "0" || !step.starts_with('0');
    let is_number = is_number && step.bytes().all(|byte| byte.is_ascii_digit());
    step.parse().ok().filter(|_| is_number)
}

/// Applies the operations of a patch. As in upstream, an absent member can be replaced, and is null when it is tested or copied.
/// An operation that would nest the document too deep fails.
pub(super) fn apply_operations(
    document: &mut Value,
    operations: &[JsonPatchOperation],
) -> Result<(), OperationFailed> {
    let (mut copied, mut moved) = (0, 0);
    for operation in operations {
        let parents = operation
            .pointers()
            .filter_map(|path| path.parent(document));
        moved += parents
            .map(|parent| match (parent, operation) {
                (Value::Array(items), _) => items.len(),
                (
                    Value::Object(members),
                    JsonPatchOperation::Remove { .. } | JsonPatchOperation::Move { .. },
                ) => members.len() / MEMBERS_PER_ELEMENT,
                _ => 0,
            })
            .sum::<usize>();
        if moved > MOVED_ELEMENTS_MAX {
            return Err(OperationFailed);
        }
        match operation {
            JsonPatchOperation::Add { path, value } => add(document, path, value.clone())?,
            JsonPatchOperation::Remove { path } => drop(remove(document, path)?),
            JsonPatchOperation::Replace { path, value } => match path.find(document) {
                None if path.parent(document).is_some_and(Value::is_array) => {
                    return Err(OperationFailed);
                }
                None => add(document, path, value.clone())?,
                Some(_) => replace(document, path, value.clone())?,
            },
            JsonPatchOperation::Move { from, path } => {
                if path.0.len() > from.0.len() && path.0.starts_with(&from.0) {
                    return Err(OperationFailed);
                }
                let value = remove(document, from)?;
                add(document, path, value)?;
            }
            JsonPatchOperation::Copy { from, path } => {
                let value = from.find(document).cloned().unwrap_or_default();
                // A patch that repeatedly copies its own copies would make the document grow exponentially.
                copied += value.to_string().len();
                if copied > COPIED_BYTES_MAX {
                    return Err(OperationFailed);
                }
                add(document, path, value)?;
            }
            JsonPatchOperation::Test { path, value } => {
                if path.find(document).unwrap_or(&Value::Null) != value {
                    return Err(OperationFailed);
                }
            }
        }
    }
    Ok(())
}

/// Fails if a value at a pointer would nest the document too deep.
fn check_depth(path: &JsonPointer, value: &Value) -> Result<(), OperationFailed> {
    let deep = path.0.len() + depth(value);
    if deep > DEPTH_MAX {
        Err(OperationFailed)
    } else {
        Ok(())
    }
}

fn add(document: &mut Value, path: &JsonPointer, value: Value) -> Result<(), OperationFailed> {
    check_depth(path, &value)?;
    let Some((last, parent)) = path.0.split_last() else {
        *document = value;
        return Ok(());
    };
    match find_mut(document, parent) {
        Some(Value::Object(members)) => drop(members.insert(last.clone(), value)),
        Some(Value::Array(items)) if last == "-" => items.push(value),
        Some(Value::Array(items)) => match array_index(last) {
            Some(at) if at <= items.len() => items.insert(at, value),
            _ => return Err(OperationFailed),
        },
        _ => return Err(OperationFailed),
    }
    Ok(())
}

fn replace(document: &mut Value, path: &JsonPointer, value: Value) -> Result<(), OperationFailed> {
    check_depth(path, &value)?;
    *path.find_mut(document).ok_or(OperationFailed)? = value;
    Ok(())
}

fn remove(document: &mut Value, path: &JsonPointer) -> Result<Value, OperationFailed> {
    let (last, parent) = path.0.split_last().ok_or(OperationFailed)?;
    match find_mut(document, parent) {
        Some(Value::Object(members)) => members.remove(last).ok_or(OperationFailed),
        Some(Value::Array(items)) => match array_index(last) {
            Some(at) if at < items.len() => Ok(items.remove(at)),
            _ => Err(OperationFailed),
        },
        _ => Err(OperationFailed),
    }
}

/// Applies a merge patch to a value.
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
    // All removals in one pass: each removal by itself would move the members behind it.
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
        let operations: Vec<JsonPatchOperation> = tidings_json::from_value(operations).ok()?;
        let mut document = document.clone();
        apply_operations(&mut document, &operations).ok()?;
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
