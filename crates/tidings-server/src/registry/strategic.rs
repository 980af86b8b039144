//! Strategic merge patch (W153): a merge patch that knows which lists are merged, and by which member of their elements.
//!
//! Directives: `$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`. Lists of
//! which the types say nothing are replaced as a whole.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use tidings_schema::{Field, Type};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// How a list is patched.
enum ListMerge {
    Replace,
    By(&'static str),
    Primitives,
}

/// How the list in a field is patched. What no type describes is replaced.
fn list_merge(field: Option<&Field>) -> ListMerge {
    match field {
        Some(field) if field.patch_strategy.merge => {
            field.merge_key.map_or(ListMerge::Primitives, ListMerge::By)
        }
        _ => ListMerge::Replace,
    }
}

/// The type of what a member holds, or of the elements of the list that it holds.
fn below(field: Option<&Field>) -> Option<&'static Type> {
    field?.struct_type()
}

/// Applies a patch. `Err` says what is wrong with it.
pub(crate) fn merge(
    document: &mut Value,
    patch: &Value,
    of: Option<&'static Type>,
) -> Result<(), String> {
    let Value::Object(patch) = patch else {
        return Err("error decoding patch: a strategic merge patch must be an object".into());
    };
    match document {
        Value::Object(members) => merge_members(members, patch, of),
        other => {
            *other = Value::Object(without_directives(patch));
            Ok(())
        }
    }
}

fn merge_members(
    members: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    of: Option<&'static Type>,
) -> Result<(), String> {
    match patch
        .get(PATCH)
        .map(|directive| directive.as_str().unwrap_or("?"))
    {
        None | Some("merge") => {}
        Some("replace") => {
            *members = without_directives(patch);
            return Ok(());
        }
        Some("delete") => {
            members.clear();
            return Ok(());
        }
        Some(other) => return Err(unknown_directive(other)),
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        let keys = keys.as_array().ok_or("$retainKeys must be a list")?;
        let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
        members.retain(|name, _| keys.contains(name.as_str()));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_PRIMITIVES) {
            let gone = value.as_array().into_iter().flatten();
            let gone: HashSet<String> = gone.map(Value::to_string).collect();
            if let Some(values) = members.get_mut(list).and_then(Value::as_array_mut) {
                values.retain(|value| !gone.contains(&value.to_string()));
            }
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        merge_member(members, name, value, of.and_then(|of| of.field(name)))?;
    }
    for (name, order) in patch {
        if let Some(list) = name.strip_prefix(SET_ORDER) {
            set_order(members, list, order, of.and_then(|of| of.field(list)));
        }
    }
    Ok(())
}

fn merge_member(
    members: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    field: Option<&Field>,
) -> Result<(), String> {
    match value {
        Value::Null => {
            members.shift_remove(name);
        }
        Value::Object(patch) => match members.get_mut(name) {
            Some(Value::Object(inner)) => {
                let deletes = patch.get(PATCH).is_some_and(|patch| patch == "delete");
                merge_members(inner, patch, below(field))?;
                if deletes {
                    members.shift_remove(name);
                }
            }
            _ if patch.get(PATCH).is_some_and(|patch| patch == "delete") => {}
            _ => {
                members.insert(name.into(), Value::Object(without_directives(patch)));
            }
        },
        Value::Array(patch) => {
            let list = members
                .entry(name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if !list.is_array() {
                *list = Value::Array(Vec::new());
            }
            if let Value::Array(list) = list {
                merge_list(list, patch, field)?;
            }
        }
        scalar => {
            members.insert(name.into(), scalar.clone());
        }
    }
    Ok(())
}

fn merge_list(list: &mut Vec<Value>, patch: &[Value], field: Option<&Field>) -> Result<(), String> {
    let directive = |element: &Value| Some(element.get(PATCH)?.as_str()?.to_owned());
    let replaces = patch
        .iter()
        .any(|element| directive(element).as_deref() == Some("replace"));
    match list_merge(field) {
        ListMerge::Replace => *list = patch.iter().map(clean).collect(),
        ListMerge::Primitives => {
            let before = Places::of(list, None);
            for value in patch.iter().filter(|value| before.find(value).is_none()) {
                list.push(value.clone());
            }
            arrange(list, &before, &Places::of(patch, None));
        }
        ListMerge::By(_) if replaces => {
            let only_directive = |element: &&Value| {
                element
                    .as_object()
                    .is_some_and(|members| members.len() == 1)
            };
            let kept = patch
                .iter()
                .filter(|element| directive(element).is_none() || !only_directive(element));
            *list = kept.map(clean).collect();
        }
        ListMerge::By(key) => {
            let before = Places::of(list, Some(key));
            let mut kept: Vec<Option<Value>> = std::mem::take(list).into_iter().map(Some).collect();
            let mut known = before.clone();
            for element in patch {
                if element.get(key).is_none() {
                    return Err(format!(
                        "map: {element} does not contain declared merge key: {key}"
                    ));
                }
                let at = known.find(element);
                match (directive(element).as_deref(), at) {
                    (Some("delete"), Some(at)) => kept[at] = None,
                    (Some("delete"), None) => {}
                    (None | Some("merge"), Some(at)) => match &mut kept[at] {
                        Some(own) => merge(own, element, below(field))?,
                        gone => *gone = Some(clean(element)),
                    },
                    (None | Some("merge"), None) => {
                        known.add(element, kept.len());
                        kept.push(Some(clean(element)));
                    }
                    (Some(other), _) => return Err(unknown_directive(other)),
                }
            }
            list.extend(kept.into_iter().flatten());
            arrange(list, &before, &Places::of(patch, Some(key)));
        }
    }
    Ok(())
}

/// Where the elements of a list stand, by what identifies them.
#[derive(Clone)]
struct Places {
    key: Option<&'static str>,
    places: HashMap<String, usize>,
}

impl Places {
    /// Of a list whose elements are identified by a member, or by all they are.
    fn of(list: &[Value], key: Option<&'static str>) -> Places {
        let mut places = Places {
            key,
            places: HashMap::new(),
        };
        for (at, element) in list.iter().enumerate() {
            places.add(element, at);
        }
        places
    }

    fn identity(&self, element: &Value) -> Option<String> {
        match self.key {
            Some(key) => element.get(key).map(Value::to_string),
            None => Some(element.to_string()),
        }
    }

    fn add(&mut self, element: &Value, at: usize) {
        if let Some(identity) = self.identity(element) {
            self.places.entry(identity).or_insert(at);
        }
    }

    fn find(&self, element: &Value) -> Option<usize> {
        self.places.get(&self.identity(element)?).copied()
    }
}

/// Puts merged elements in order: those of the patch as it has them, among those that only the document had. Where both were
/// in the document, its order decides which comes first; what is new comes before.
fn arrange(list: &mut Vec<Value>, before: &Places, patch: &Places) {
    let (mut patched, mut rest) = (Vec::new(), Vec::new());
    for element in std::mem::take(list) {
        let place = before.find(&element);
        match patch.find(&element) {
            Some(at) => patched.push((at, place, element)),
            None => rest.push((place, element)),
        }
    }
    patched.sort_by_key(|(at, _, _)| *at);
    let mut rest = rest.into_iter().peekable();
    for (_, place, element) in patched {
        while let (Some((other, _)), Some(_)) = (rest.peek(), place)
            && *other < place
        {
            list.extend(rest.next().map(|(_, element)| element));
        }
        list.push(element);
    }
    list.extend(rest.map(|(_, element)| element));
}

/// Puts the elements that the order names into it; others stay where they are as far as that is possible.
fn set_order(members: &mut Map<String, Value>, name: &str, order: &Value, field: Option<&Field>) {
    let Some(order) = order.as_array() else {
        return;
    };
    let key = match list_merge(field) {
        ListMerge::By(key) => Some(key),
        _ => None,
    };
    let Some(list) = members.get_mut(name).and_then(Value::as_array_mut) else {
        return;
    };
    let order = Places::of(order, key);
    // Elements that the order does not name belong behind the one that stood before them.
    let mut after = None;
    let mut placed: Vec<(Option<usize>, Value)> = Vec::new();
    for element in std::mem::take(list) {
        after = order.find(&element).or(after);
        placed.push((after, element));
    }
    placed.sort_by_key(|(place, _)| *place);
    list.extend(placed.into_iter().map(|(_, element)| element));
}

fn clean(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(without_directives(members)),
        Value::Array(values) => values.iter().map(clean).collect(),
        other => other.clone(),
    }
}

/// What a patch adds where there was nothing.
fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch
        .iter()
        .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
        .map(|(name, value)| (name.clone(), clean(value)))
        .collect()
}

fn unknown_directive(directive: &str) -> String {
    format!("Unknown patch type in a directive: {directive}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Patches what would be the spec of a pod.
    fn patched(document: Value, patch: &Value) -> Value {
        try_patched(document, patch).unwrap()
    }

    fn try_patched(mut document: Value, patch: &Value) -> Result<Value, String> {
        let spec = tidings_schema::find_type("core/v1", "PodSpec");
        assert!(spec.is_some());
        merge(&mut document, patch, spec).map(|()| document)
    }

    #[test]
    fn w153_maps_are_merged_and_null_removes() {
        let document = json!({"nodeSelector": {"a": "1", "b": "1"}, "x": [1, 2]});
        let patch = json!({"nodeSelector": {"a": null, "c": "1"}, "x": [3]});
        let expected = json!({"nodeSelector": {"b": "1", "c": "1"}, "x": [3]});
        assert_eq!(patched(document, &patch), expected);
    }

    #[test]
    fn w153_patch_directives_replace_and_delete() {
        let document = json!({"a": {"a": "1"}, "b": {"x": "y"}});
        let patch = json!({"a": {"$patch": "replace", "b": "2"}, "b": {"$patch": "delete"}});
        assert_eq!(patched(document, &patch), json!({"a": {"b": "2"}}));
        assert!(try_patched(json!({}), &json!({"$patch": "turn"})).is_err());
    }

    #[test]
    fn w153_retain_keys_drops_the_others() {
        let document =
            json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
        let patch = json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}});
        assert_eq!(
            patched(document, &patch),
            json!({"strategy": {"type": "Recreate"}})
        );
    }

    #[test]
    fn w153_elements_are_merged_by_their_key_and_ordered() {
        let document =
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
        let patch = json!({
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
            "containers": [
                {"name": "b", "image": "2", "ports": [{"containerPort": 80}]},
                {"name": "c", "image": "1"},
                {"$patch": "delete", "name": "a"},
            ],
        });
        let first = patched(document, &patch);
        let expected = json!({"containers": [
            {"name": "c", "image": "1"},
            {"name": "b", "image": "2", "ports": [{"containerPort": 80}]},
        ]});
        assert_eq!(first, expected);
        let ports =
            json!({"containers": [{"name": "b", "ports": [{"containerPort": 80, "name": "web"}]}]});
        let second = patched(first, &ports);
        assert_eq!(
            second["containers"][1]["ports"],
            json!([{"containerPort": 80, "name": "web"}])
        );
        let unnamed = try_patched(
            json!({"containers": []}),
            &json!({"containers": [{"image": "x"}]}),
        );
        assert!(unnamed.unwrap_err().contains("merge key: name"));
    }

    #[test]
    fn w153_without_an_order_the_document_and_the_patch_have_theirs() {
        let merged = |patch: &[&str]| {
            let named = |names: &[&str]| -> Vec<Value> {
                names.iter().map(|name| json!({"name": name})).collect()
            };
            let document = json!({"containers": named(&["1", "2", "3"])});
            let merged = patched(document, &json!({"containers": named(patch)}));
            let elements = merged["containers"].as_array().unwrap().clone();
            elements
                .iter()
                .map(|element| element["name"].as_str().unwrap().to_owned())
                .collect::<String>()
        };
        assert_eq!(merged(&["2"]), "123");
        assert_eq!(merged(&["9", "2"]), "9123");
        assert_eq!(merged(&["3", "1"]), "231");
    }

    #[test]
    fn w153_lists_that_are_not_merged_are_replaced() {
        let document = json!({"tolerations": [{"key": "a"}]});
        let patch = json!({"tolerations": [{"key": "b"}]});
        assert_eq!(patched(document, &patch), patch);
    }

    #[test]
    fn w153_plain_lists_merge_and_shrink() {
        let mut document = json!({"finalizers": ["a/b", "c/d"]});
        let patch =
            json!({"$deleteFromPrimitiveList/finalizers": ["a/b"], "finalizers": ["e/f", "c/d"]});
        let meta = tidings_schema::find_type("meta/v1", "ObjectMeta");
        merge(&mut document, &patch, meta).unwrap();
        assert_eq!(
            document,
            json!({"finalizers": ["e/f", "c/d"]}),
            "what is new comes first"
        );
    }
}
