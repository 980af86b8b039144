//! The fields that differ between two states of an object.

use std::collections::BTreeMap;

use serde_json::Value;

/// One changed field.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FieldChange {
    /// `spec.containers[web].image`
    pub(super) path: String,
    pub(super) old: Option<Value>,
    pub(super) new: Option<Value>,
}

/// The fields that differ, in the order of the new object. Leaves out fields that change with every write.
pub(super) fn diff(old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(&mut changes, &mut String::new(), Some(old), Some(new));
    // This annotation repeats the other changes and is long: shown only if nothing else changed.
    if changes.iter().any(|change| change.path != LAST_APPLIED) {
        changes.retain(|change| change.path != LAST_APPLIED);
    }
    changes
}

const LAST_APPLIED: &str = "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]";

/// Fields that change with every write.
const NOISE: [&str; 3] = [
    "metadata.resourceVersion",
    "metadata.managedFields",
    "metadata.generation",
];

fn compare(
    changes: &mut Vec<FieldChange>,
    path: &mut String,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    if old == new || NOISE.contains(&path.as_str()) {
        return;
    }
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            for key in new.keys().chain(gone) {
                descend(path, &member(key), |path| {
                    compare(changes, path, old.get(key), new.get(key));
                });
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            compare_lists(changes, path, old, new)
        }
        // An added or removed subtree is reported by its leaves, unless it has none.
        (None, Some(Value::Object(fields))) if !fields.is_empty() => {
            for (key, value) in fields {
                descend(path, &member(key), |path| {
                    compare(changes, path, None, Some(value))
                });
            }
        }
        (Some(Value::Object(fields)), None) if !fields.is_empty() => {
            for (key, value) in fields {
                descend(path, &member(key), |path| {
                    compare(changes, path, Some(value), None)
                });
            }
        }
        (old, new) => changes.push(FieldChange {
            path: path.clone(),
            old: old.cloned(),
            new: new.cloned(),
        }),
    }
}

/// A member in a path: `.key`, or `[key]` if the key has dots, as keys of labels have.
fn member(key: &str) -> String {
    if key.contains(['.', '/', '[']) {
        format!("[{key}]")
    } else {
        format!(".{key}")
    }
}

fn descend(path: &mut String, step: &str, go: impl FnOnce(&mut String)) {
    let length = path.len();
    let step = if length == 0 {
        step.trim_start_matches('.')
    } else {
        step
    };
    path.push_str(step);
    go(path);
    path.truncate(length);
}

/// Compares elements with equal names, if all elements have a field that names them, else elements at equal positions.
fn compare_lists(changes: &mut Vec<FieldChange>, path: &mut String, old: &[Value], new: &[Value]) {
    let key = ["name", "type", "uid", "key", "ip"]
        .into_iter()
        .find(|key| {
            old.iter()
                .chain(new)
                .all(|element| element.get(key).is_some_and(Value::is_string))
        });
    let label = |index: usize, element: &Value| match key.and_then(|key| element.get(key)?.as_str())
    {
        Some(name) => name.to_owned(),
        None => index.to_string(),
    };
    let by_label = |list: &'_ [Value]| -> Vec<(String, usize)> {
        list.iter()
            .enumerate()
            .map(|(index, element)| (label(index, element), index))
            .collect()
    };
    let (old_labels, new_labels) = (by_label(old), by_label(new));
    let old_at: BTreeMap<&str, usize> = old_labels
        .iter()
        .map(|(label, index)| (label.as_str(), *index))
        .collect();
    let new_at: BTreeMap<&str, usize> = new_labels
        .iter()
        .map(|(label, index)| (label.as_str(), *index))
        .collect();
    let gone = old_labels
        .iter()
        .filter(|(label, _)| !new_at.contains_key(label.as_str()));
    for (label, _) in new_labels.iter().chain(gone) {
        descend(path, &format!("[{label}]"), |path| {
            let old = old_at.get(label.as_str()).map(|index| &old[*index]);
            let new = new_at.get(label.as_str()).map(|index| &new[*index]);
            compare(changes, path, old, new);
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(old: &Value, new: &Value, expected: &[&str]) {
        let say = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
        let changes: Vec<String> = diff(old, new)
            .iter()
            .map(|change| format!("{} {} {}", change.path, say(&change.old), say(&change.new)))
            .collect();
        assert_eq!(changes, expected);
    }

    #[test]
    fn fields_that_differ_are_named_by_their_paths() {
        check(
            &json!({"spec": {"replicas": 1, "paused": true}, "metadata": {"resourceVersion": "1"}}),
            &json!({"spec": {"replicas": 3, "template": {"a": 1}}, "metadata": {"resourceVersion": "2"}}),
            &[
                "spec.replicas 1 3",
                "spec.template.a - 1",
                "spec.paused true -",
            ],
        );
    }

    #[test]
    fn elements_of_lists_are_named_by_what_names_them() {
        check(
            &json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}], "args": ["1", "2"]}),
            &json!({"containers": [{"name": "b", "image": "z"}, {"name": "a", "image": "x"}], "args": ["1", "3", "4"]}),
            &[
                "containers[b].image \"y\" \"z\"",
                "args[1] \"2\" \"3\"",
                "args[2] - \"4\"",
            ],
        );
    }

    #[test]
    fn keys_with_dots_stand_in_brackets() {
        check(
            &json!({"metadata": {"labels": {"app.kubernetes.io/name": "a"}}}),
            &json!({"metadata": {"labels": {"app.kubernetes.io/name": "b"}}}),
            &["metadata.labels[app.kubernetes.io/name] \"a\" \"b\""],
        );
    }

    #[test]
    fn what_was_applied_is_told_only_if_nothing_else_is() {
        let applied = |value: &str, applied: &str| {
            json!({
                "metadata": {
                    "generation": applied,
                    "managedFields": [{"manager": applied}],
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied},
                },
                "data": {"k": value},
            })
        };
        check(
            &applied("v", "1"),
            &applied("w", "2"),
            &["data.k \"v\" \"w\""],
        );
        check(
            &applied("v", "1"),
            &applied("v", "2"),
            &["metadata.annotations[kubectl.kubernetes.io/last-applied-configuration] \"1\" \"2\""],
        );
    }

    #[test]
    fn what_is_the_same_is_not_told() {
        check(&json!({"a": {"b": [1]}}), &json!({"a": {"b": [1]}}), &[]);
    }
}
