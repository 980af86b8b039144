//! The rules for labels, annotations, owners and finalizers of all objects, custom and embedded ones included (W169, W170).

use tidings_go as go;
use tidings_json::Value;

use super::{label_value, qualified_name};
use crate::field_error::FieldError;

/// The longest name of a field manager, in bytes.
pub const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// The largest total size of annotations, keys and values, in bytes.
const ANNOTATION_BYTES_MAX: usize = 256 << 10;
/// The maximum number of errors about extra controllers: each prints all owners, so the output grows quadratically.
const EXTRA_CONTROLLERS_REPORTED_MAX: usize = 8;

fn invalid(path: &str, value: &str, why: Vec<String>) -> impl Iterator<Item = FieldError> {
    why.into_iter()
        .map(move |why| FieldError::invalid(path, value, why))
}

/// The errors of labels.
pub fn labels<'a>(
    path: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        errors.extend(invalid(path, key, qualified_name(key)));
        errors.extend(invalid(path, value, label_value(value)));
    }
    errors
}

/// The errors of annotations.
pub fn annotations<'a>(
    path: &str,
    annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<FieldError> {
    let (mut errors, mut bytes) = (Vec::new(), 0);
    for (key, value) in annotations {
        // The prefix of an annotation key may contain capitals.
        errors.extend(invalid(path, key, qualified_name(&key.to_lowercase())));
        bytes += key.len() + value.len();
    }
    if bytes > ANNOTATION_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATION_BYTES_MAX));
    }
    errors
}

/// The errors of `metadata.generation`.
pub fn generation(path: &str, generation: Option<i64>) -> Vec<FieldError> {
    let negative = generation.filter(|generation| *generation < 0);
    let why = "must be greater than or equal to 0";
    let error = negative.map(|generation| FieldError::invalid_value(path, generation, why));
    error.into_iter().collect()
}

/// The errors of the name of a field manager.
pub fn field_manager(path: &str, name: &str) -> Vec<FieldError> {
    if name.len() > FIELD_MANAGER_BYTES_MAX {
        // Each error about a character would repeat the whole name.
        return vec![FieldError::too_long(path, FIELD_MANAGER_BYTES_MAX)];
    }
    let wrong = |(at, c): (usize, char)| {
        let why = format!("invalid character U+{:04X} (at position {at})", c as u32);
        FieldError::invalid(path, name, why)
    };
    go::unprintable(name).map(wrong).collect()
}

/// The finalizer that holds an object until no dependent refers to it.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// The finalizer that holds an object until no dependent blocks it.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// The errors of the names of finalizers, and of finalizers that contradict each other.
pub fn finalizers(path: &str, finalizers: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in finalizers {
        errors.extend(invalid(path, name, qualified_name(name)));
    }
    if finalizers.contains(&ORPHAN_FINALIZER) && finalizers.contains(&FOREGROUND_FINALIZER) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        let printed = go::json_text(finalizers);
        errors.push(FieldError::invalid_value(path, printed, why));
    }
    errors
}

fn member<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// An owner reference as errors print it: its members in the order of Go's struct.
fn printed_owner(owner: &Value) -> Value {
    let members = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let found = members.into_iter().filter_map(|name| {
        let value = owner.get(name)?;
        Some((name.to_owned(), value.clone()))
    });
    Value::Object(found.collect())
}

/// The errors of owner references.
pub fn owner_references(path: &str, owners: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    let mut told = 0;
    for owner in owners {
        let api_version = member(owner, "apiVersion");
        let version = match api_version.split('/').collect::<Vec<_>>().as_slice() {
            [version] | [_, version] => *version,
            _ => "",
        };
        if version.is_empty() {
            let detail = "version must not be empty";
            let path = format!("{path}.apiVersion");
            errors.push(FieldError::invalid(path, api_version, detail));
        }
        for name in ["kind", "name", "uid"] {
            if member(owner, name).is_empty() {
                let path = format!("{path}.{name}");
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            }
        }
        if api_version == "v1" && member(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            let printed = go::json_text(&printed_owner(owner));
            errors.push(FieldError::invalid_value(path, printed, detail));
        }
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let name = format!("{}/{}", member(owner, "kind"), member(owner, "name"));
        match &controller {
            None => controller = Some(name),
            Some(_) if told == EXTRA_CONTROLLERS_REPORTED_MAX => {}
            Some(first) => {
                told += 1;
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                let all = owners.iter().map(printed_owner).collect();
                let printed = go::json_text(&Value::Array(all));
                errors.push(FieldError::invalid_value(path, printed, detail));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    fn texts(errors: impl IntoIterator<Item = FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn w169_owners_are_complete_and_one_of_them_controls() {
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
        assert_eq!(texts(owner_references("o", &[owner("a")])), [""; 0]);
        let two = owner_references("o", &[owner("a"), owner("b")]);
        let detail = r#"Only one reference can have Controller set to true. Found "true" in references for Pod/a and Pod/b"#;
        assert!(texts(two)[0].ends_with(detail));
        let empty = texts(owner_references("o", &[json!({"apiVersion": "a/b/c"})]));
        let paths: Vec<_> = empty
            .iter()
            .filter_map(|text| text.split(':').next())
            .collect();
        assert_eq!(paths, ["o.apiVersion", "o.kind", "o.name", "o.uid"]);
        let event = json!({"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"});
        assert!(
            texts(owner_references("o", &[event]))[0].contains("disallowed from being an owner")
        );
        let many: Vec<_> = (0..100).map(|_| owner("a")).collect();
        assert_eq!(
            owner_references("o", &many).len(),
            EXTRA_CONTROLLERS_REPORTED_MAX
        );
    }

    #[test]
    fn w170_annotations_have_a_total_size() {
        let text = "x".repeat(ANNOTATION_BYTES_MAX - 1);
        assert!(annotations("a", [("k", text.as_str())]).is_empty());
        assert_eq!(annotations("a", [("kk", text.as_str())]).len(), 1);
    }

    #[test]
    fn finalizers_that_contradict_each_other_are_refused() {
        assert!(finalizers("f", &["orphan", "a/b"]).is_empty());
        let both = texts(finalizers("f", &["orphan", "foregroundDeletion"]));
        assert_eq!(
            both,
            [
                r#"f: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
            ]
        );
    }
}
