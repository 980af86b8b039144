//! The form of names, and who gets which.

use std::collections::BTreeSet;

use tidings_api::{FieldError, FieldErrors, go, validate};
use tidings_json::{Map, Value, json};

use super::member::{list, text, texts};
use crate::text::Path;

/// Appends what is wrong with the form of names. Names that are absent are not looked at.
pub(super) fn check(names: &Value, path: &Path, errors: &mut FieldErrors) {
    for member in ["plural", "singular"] {
        let name = text(names, member);
        let why = validate::dns1035_label(name);
        if !name.is_empty() && !why.is_empty() {
            errors.push(FieldError::invalid(path.child(member), name, why.join(",")));
        }
    }
    for member in ["kind", "listKind"] {
        let name = text(names, member);
        let why = validate::dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !why.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                why.join(",")
            );
            errors.push(FieldError::invalid(path.child(member), name, detail));
        }
    }
    labels(names, "shortNames", path, errors);
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            path.child("listKind"),
            list_kind,
            detail,
        ));
    }
    labels(names, "categories", path, errors);
}

fn labels(names: &Value, member: &str, path: &Path, errors: &mut FieldErrors) {
    for (index, name) in texts(names, member).into_iter().enumerate() {
        let why = validate::dns1035_label(name);
        if !why.is_empty() {
            let path = path.child(member).index(index);
            errors.push(FieldError::invalid(path, name, why.join(",")));
        }
    }
}

/// Names with the members that the API has, in its order; what may be absent is left out if it is empty.
pub(super) fn tidy(names: &Value) -> Value {
    let mut tidy = Map::new();
    for (member, is_required) in [
        ("plural", true),
        ("singular", false),
        ("shortNames", false),
        ("kind", true),
        ("listKind", false),
        ("categories", false),
    ] {
        let is_list = member == "shortNames" || member == "categories";
        if is_list && !list(names, member).is_empty() {
            tidy.insert(member.into(), texts(names, member).into());
        } else if !is_list && (is_required || !text(names, member).is_empty()) {
            tidy.insert(member.into(), text(names, member).into());
        }
    }
    Value::Object(tidy)
}

/// True if names say the same, where what is absent is empty.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    let same_text = |member| text(left, member) == text(right, member);
    let same_list = |member| texts(left, member) == texts(right, member);
    ["plural", "singular", "kind", "listKind"]
        .into_iter()
        .all(same_text)
        && ["shortNames", "categories"].into_iter().all(same_list)
}

/// What became of the names that a definition asks for.
pub(super) struct Outcome {
    pub(super) accepted: Value,
    /// Reason and message of the last conflict.
    pub(super) conflict: Option<(&'static str, String)>,
}

/// Gives a definition the names that it asks for, except those that are taken. `all` are the accepted names of its group, its
/// own included: upstream does not let a definition use one name for two things, once it has it.
pub(super) fn accept(requested: &Value, accepted: &Value, all: &[&Value]) -> Outcome {
    let mut resources = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for names in all {
        resources.extend([text(names, "plural"), text(names, "singular")]);
        resources.extend(texts(names, "shortNames"));
        kinds.extend([text(names, "kind"), text(names, "listKind")]);
    }
    let taken = |name: &str, own: &str, used: &BTreeSet<&str>| {
        let is_taken = name != own && used.contains(name);
        is_taken.then(|| format!("{} is already in use", go::quote(name)))
    };
    let mut names = json!({"categories": requested.get("categories")});
    let mut conflict = None;
    for (member, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("shortNames", "ShortNamesConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ] {
        let clashes: Vec<String> = if member == "shortNames" {
            let own: BTreeSet<&str> = texts(accepted, member).into_iter().collect();
            let fresh = texts(requested, member).into_iter();
            fresh
                .filter(|name| !own.contains(name))
                .filter_map(|name| taken(name, "", &resources))
                .collect()
        } else {
            let used = match member {
                "kind" | "listKind" => &kinds,
                _ => &resources,
            };
            let clash = taken(text(requested, member), text(accepted, member), used);
            clash.into_iter().collect()
        };
        let granted = if clashes.is_empty() {
            requested
        } else {
            conflict = Some((reason, together(&clashes)));
            accepted
        };
        names[member] = granted.get(member).cloned().unwrap_or_default();
    }
    Outcome {
        accepted: tidy(&names),
        conflict,
    }
}

/// Several messages as one, each once.
fn together(messages: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let unique = messages.iter().map(String::as_str);
    let unique: Vec<&str> = unique.filter(|message| seen.insert(*message)).collect();
    match unique.as_slice() {
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
