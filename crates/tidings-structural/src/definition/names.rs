//! Checks the syntax of names, and decides which definition gets a name that several ask for.

use std::collections::BTreeSet;

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go as go;
use tidings_json::{Map, Value, json};

use super::member::{list, text, texts};
use crate::text::FieldPath;

/// Appends the errors of malformed names. Absent names are not checked here.
pub(super) fn check(names: &Value, path: &FieldPath, errors: &mut FieldErrors) {
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

fn labels(names: &Value, member: &str, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, name) in texts(names, member).into_iter().enumerate() {
        let why = validate::dns1035_label(name);
        if !why.is_empty() {
            let path = path.child(member).index(index);
            errors.push(FieldError::invalid(path, name, why.join(",")));
        }
    }
}

/// Names with the members of the API in its order; optional members that are empty are left out.
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

/// True if two sets of names are equal. An absent name equals an empty one.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    let same_text = |member| text(left, member) == text(right, member);
    let same_list = |member| texts(left, member) == texts(right, member);
    ["plural", "singular", "kind", "listKind"]
        .into_iter()
        .all(same_text)
        && ["shortNames", "categories"].into_iter().all(same_list)
}

/// The names that a definition gets, and the conflict if it does not get all.
pub(super) struct NameDecision {
    pub(super) accepted: Value,
    /// Reason and message of the last conflict.
    pub(super) conflict: Option<(&'static str, String)>,
}

/// Gives a definition the names that it requests, except those in use. `all` are the accepted names of its group, its own
/// included: as upstream, a definition may not reuse an accepted name for another member.
pub(super) fn accept(requested: &Value, accepted: &Value, all: &[&Value]) -> NameDecision {
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
    NameDecision {
        accepted: tidy(&names),
        conflict,
    }
}

/// Joins messages into one text, without duplicates.
fn together(messages: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let unique = messages.iter().map(String::as_str);
    let unique: Vec<&str> = unique.filter(|message| seen.insert(*message)).collect();
    match unique.as_slice() {
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
