//! Strategic merge patch (W153): a merge patch that knows which lists are merged, and by which member of their elements.
//!
//! Directives: `$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`. Lists of
//! which the types say nothing are replaced as a whole.

use std::collections::{HashMap, HashSet};

use tidings_api::{Reason, Status};
use tidings_json::{Map, Value};
use tidings_schema::Type;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// What types say about patches.
pub(crate) trait Patched: Copy {
    /// The member of that name, if the type has one.
    fn member(self, name: &str) -> Option<Member<Self>>;
}

/// How a member is patched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<T> {
    /// A list is merged instead of replaced.
    pub(crate) merge: bool,
    /// An object is replaced instead of merged.
    pub(crate) replace: bool,
    /// What tells the elements of a list apart; without it they are compared as a whole.
    pub(crate) key: Option<&'static str>,
    /// The type of what it holds, or of the elements of the list that it holds.
    pub(crate) below: Option<T>,
}

impl Patched for &'static Type {
    fn member(self, name: &str) -> Option<Member<&'static Type>> {
        let field = self.field(name)?;
        Some(Member {
            merge: field.patch_strategy.merge,
            replace: field.patch_strategy.replace,
            key: field.merge_key,
            below: field.struct_type(),
        })
    }
}

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A directive is not of the form that it has to have.
    Malformed(&'static str),
    /// It does not fit the document, or itself. The original calls that an error of the server.
    Unfit(String),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match refusal {
            Refusal::Malformed(why) => Status::bad_request(why),
            Refusal::Unfit(why) => {
                let mut status = Status::failure(500, Reason::InternalError, why);
                status.reason = None;
                status
            }
        }
    }
}

/// Applies a patch.
pub(crate) fn merge<T: Patched>(
    document: &mut Value,
    patch: &Value,
    of: Option<T>,
) -> Result<(), Refusal> {
    let Value::Object(patch) = patch else {
        return Err(Refusal::Malformed("invalid JSON document"));
    };
    match document {
        Value::Object(members) => merge_members(members, patch, of),
        other => {
            *other = Value::Object(literal_members(patch));
            Ok(())
        }
    }
}

fn merge_members<T: Patched>(members: &mut Map, patch: &Map, of: Option<T>) -> Result<(), Refusal> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => *members = literal_members(patch),
            Some("delete") => members.clear(),
            _ => return Err(unknown_directive(directive, patch)),
        }
        return Ok(());
    }
    retain_keys(members, patch)?;
    let member = |name: &str| of.and_then(|of| of.member(name));
    let mut ordered = HashSet::new();
    for (directive, order) in patch {
        if let Some(name) = directive.strip_prefix(SET_ORDER) {
            merge_ordered(members, name, patch.get(name), order, member(name))?;
            ordered.insert(name);
        }
    }
    // All that goes at once: each by itself would move those behind it.
    let plain = |name: &String| !name.starts_with('$') && !ordered.contains(name.as_str());
    if patch.values().any(Value::is_null) {
        let goes = |name: &String| plain(name) && patch.get(name).is_some_and(Value::is_null);
        members.retain(|name, _| !goes(name));
    }
    for (name, value) in patch {
        if plain(name) {
            merge_member(members, name, value, member(name))?;
        }
    }
    for (directive, value) in patch {
        if let Some(name) = directive.strip_prefix(DELETE_PRIMITIVES) {
            let gone = value.as_array().into_iter().flatten();
            let gone: HashSet<String> = gone.map(Value::to_string).collect();
            if let Some(values) = members.get_mut(name).and_then(Value::as_array_mut) {
                values.retain(|value| !gone.contains(&value.to_string()));
            }
        }
    }
    Ok(())
}

/// Drops what `$retainKeys` does not name. It has to name all that the patch sets.
fn retain_keys(members: &mut Map, patch: &Map) -> Result<(), Refusal> {
    let Some(keys) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = Refusal::Malformed("invalid patch format of retainKeys");
    let Some(keys) = keys.as_array() else {
        return Err(malformed);
    };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let unnamed = |(name, value): (&String, &Value)| {
        !value.is_null() && !name.starts_with('$') && !keys.contains(name.as_str())
    };
    if patch.iter().any(unnamed) {
        return Err(malformed);
    }
    members.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

fn merge_member<T: Patched>(
    members: &mut Map,
    name: &str,
    value: &Value,
    member: Option<Member<T>>,
) -> Result<(), Refusal> {
    match (members.get_mut(name), value) {
        (_, Value::Null) => {
            members.remove(name);
            Ok(())
        }
        (Some(Value::Object(inner)), Value::Object(patch)) => {
            if member.as_ref().is_some_and(|member| member.replace) {
                *inner = literal_members(patch);
                return Ok(());
            }
            merge_members(inner, patch, member.and_then(|member| member.below))
        }
        (Some(Value::Array(list)), Value::Array(patch)) => merge_list(list, patch, member),
        (_, value) => {
            match added(value) {
                Some(value) => drop(members.insert(name.into(), value)),
                None => drop(members.remove(name)),
            }
            Ok(())
        }
    }
}

/// Merges a list and puts the elements that the order names into it; others stay where they are as far as that is possible.
fn merge_ordered<T: Patched>(
    members: &mut Map,
    name: &str,
    patch: Option<&Value>,
    order: &Value,
    member: Option<Member<T>>,
) -> Result<(), Refusal> {
    let order = elements(order)?;
    let patch = patch.map(elements).transpose()?;
    let before = members.get(name).map(elements).transpose()?;
    let key = member.as_ref().and_then(|member| member.key);
    check_order(patch.unwrap_or_default(), order, key)?;
    let mut list = match (before, patch) {
        (None, None) => return Ok(()),
        (Some(before), _) => before.to_vec(),
        (None, Some(patch)) => patch.iter().filter_map(added).collect(),
    };
    if let (Some(_), Some(patch)) = (before, patch) {
        merge_list(&mut list, patch, member)?;
    }
    all_have_key(order, key)?;
    all_have_key(&list, key)?;
    let before = before.unwrap_or_default();
    let mut places = Places::of(before, key);
    if let (Some(key), Some(patch)) = (key, patch) {
        places.reuse(before, patch, key);
    }
    arrange(&mut list, &places, &Places::of(order, key));
    members.insert(name.into(), Value::Array(list));
    Ok(())
}

fn elements(value: &Value) -> Result<&[Value], Refusal> {
    let received = match value {
        Value::Array(elements) => return Ok(elements),
        Value::Object(_) => "map[string]interface {}",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Null => "%!s(<nil>)",
    };
    Err(Refusal::Unfit(format!(
        "expected a []interface {{}}, but received a {received}"
    )))
}

/// The elements of a patch come in the order that the patch asks for.
fn check_order(patch: &[Value], order: &[Value], key: Option<&'static str>) -> Result<(), Refusal> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut named = order.iter();
    for element in patch.iter().filter(|element| element.get(PATCH).is_none()) {
        if let Some(key) = key {
            identity_by(element, key)?;
        }
        let is_it = |place: &Value| match key {
            Some(key) => place.get(key) == element.get(key),
            None => place == element,
        };
        if !named.any(is_it) {
            let [patch, order] = [patch, order].map(go_list);
            return Err(Refusal::Unfit(format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

fn merge_list<T: Patched>(
    list: &mut Vec<Value>,
    patch: &[Value],
    member: Option<Member<T>>,
) -> Result<(), Refusal> {
    let Some(member) = member.filter(|member| member.merge) else {
        *list = patch.iter().map(literal).collect();
        return Ok(());
    };
    let mut all = list.iter().chain(patch);
    let Some(first) = all.next() else {
        return Ok(());
    };
    let kind = std::mem::discriminant(first);
    if all.any(|element| std::mem::discriminant(element) != kind) {
        let why = "list element types are not identical";
        return Err(Refusal::Unfit(why.into()));
    }
    if !first.is_object() {
        let before = Places::of(&*list, None);
        let mut seen = HashSet::new();
        list.extend_from_slice(patch);
        list.retain(|value| seen.insert(value.to_string()));
        arrange(list, &before, &Places::of(patch, None));
        return Ok(());
    }
    let Some(key) = member.key else {
        let why = "cannot merge lists without merge key";
        return Err(Refusal::Unfit(why.into()));
    };
    merge_keyed(list, patch, key, member.below)
}

fn merge_keyed<T: Patched>(
    list: &mut Vec<Value>,
    patch: &[Value],
    key: &'static str,
    of: Option<T>,
) -> Result<(), Refusal> {
    let (mut plain, mut gone, mut replaces) = (Vec::new(), HashSet::new(), false);
    for element in patch {
        let directive = element.get(PATCH);
        match directive.map(|directive| directive.as_str().unwrap_or_default()) {
            None => plain.push(element),
            Some("delete") => drop(gone.insert(identity_by(element, key)?)),
            Some("replace") => replaces = true,
            Some("merge") => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(Refusal::Unfit(why.into()));
            }
            Some(_) => {
                let none = Map::new();
                let members = element.as_object().unwrap_or(&none);
                return Err(unknown_directive(&element[PATCH], members));
            }
        }
    }
    if replaces {
        *list = plain.into_iter().map(literal).collect();
        return all_have_key(list, Some(key));
    }
    all_have_key(list, Some(key))?;
    list.retain(|element| {
        element
            .get(key)
            .is_none_or(|value| !gone.contains(&value.to_string()))
    });
    let before = Places::of(&*list, Some(key));
    let mut known = before.clone();
    for element in &plain {
        identity_by(element, key)?;
        match known.find(element) {
            Some(at) => merge(&mut list[at], element, of)?,
            None => {
                known.add(element, list.len());
                list.push(literal(element));
            }
        }
    }
    arrange(list, &before, &Places::of(plain, Some(key)));
    Ok(())
}

fn identity_by(element: &Value, key: &str) -> Result<String, Refusal> {
    let value = element.get(key).map(Value::to_string);
    value.ok_or_else(|| {
        let element = go_text(element);
        Refusal::Unfit(format!(
            "map: {element} does not contain declared merge key: {key}"
        ))
    })
}

fn all_have_key(list: &[Value], key: Option<&str>) -> Result<(), Refusal> {
    let Some(key) = key else {
        return Ok(());
    };
    list.iter()
        .try_for_each(|element| identity_by(element, key).map(drop))
}

/// Where the elements of a list stand, by what identifies them.
#[derive(Clone)]
struct Places {
    key: Option<&'static str>,
    places: HashMap<String, usize>,
}

impl Places {
    /// Of a list whose elements are identified by a member, or by all they are.
    fn of<'a>(list: impl IntoIterator<Item = &'a Value>, key: Option<&'static str>) -> Places {
        let mut places = Places {
            key,
            places: HashMap::new(),
        };
        for (at, element) in list.into_iter().enumerate() {
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

    /// Gives the places of elements that a patch deletes to those that it adds, at the end. The original does so by writing into
    /// the list that it then asks for the order, and what clients see depends on it.
    fn reuse(&mut self, list: &[Value], patch: &[Value], key: &'static str) {
        let directive = |element: &Value| Some(element.get(PATCH)?.as_str()?.to_owned());
        let of = |wanted: Option<&'static str>| {
            let elements = patch.iter();
            elements.filter(move |element| directive(element).as_deref() == wanted)
        };
        if of(Some("replace")).next().is_some() {
            return;
        }
        let deleted = Places::of(of(Some("delete")), Some(key));
        let free = list
            .iter()
            .filter(|element| deleted.find(element).is_some());
        let new: Vec<&Value> = of(None)
            .filter(|element| self.find(element).is_none())
            .take(free.count())
            .collect();
        for (at, element) in new.into_iter().enumerate() {
            self.add(element, list.len() + at);
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
    rest.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
    let mut rest = rest.into_iter().peekable();
    for (_, place, element) in patched {
        while let (Some((Some(other), _)), Some(place)) = (rest.peek(), place)
            && *other < place
        {
            list.extend(rest.next().map(|(_, element)| element));
        }
        list.push(element);
    }
    list.extend(rest.map(|(_, element)| element));
}

/// What a patch adds where there was nothing to merge with; `None` if that is nothing.
fn added(value: &Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(PATCH) => None,
        Value::Object(members) => {
            let members = members
                .iter()
                .filter(|(name, value)| !name.starts_with('$') && !value.is_null());
            let members = members.filter_map(|(name, value)| Some((name.clone(), added(value)?)));
            Some(Value::Object(members.collect()))
        }
        Value::Array(values) => Some(values.iter().filter_map(added).collect()),
        other => Some(other.clone()),
    }
}

/// What is taken as it stands. Directives in it mean nothing.
fn literal(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(literal_members(members)),
        Value::Array(values) => values.iter().map(literal).collect(),
        other => other.clone(),
    }
}

fn literal_members(patch: &Map) -> Map {
    patch
        .iter()
        .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
        .map(|(name, value)| (name.clone(), literal(value)))
        .collect()
}

fn unknown_directive(directive: &Value, patch: &Map) -> Refusal {
    let directive = go_text(directive);
    let patch = go_text(&Value::Object(patch.clone()));
    Refusal::Unfit(format!("unknown patch type: {directive} in map: {patch}"))
}

/// A value as Go prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(values) => go_list(values),
        Value::Object(members) => {
            let sorted: std::collections::BTreeMap<_, _> = members.iter().collect();
            let members = sorted.into_iter();
            let members: Vec<_> = members
                .map(|(name, value)| format!("{name}:{}", go_text(value)))
                .collect();
            format!("map[{}]", members.join(" "))
        }
        other => other.to_string(),
    }
}

fn go_list(values: &[Value]) -> String {
    let values: Vec<_> = values.iter().map(go_text).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod published;

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    /// Patches what would be the spec of a pod.
    fn patched(document: Value, patch: &Value) -> Value {
        try_patched(document, patch).unwrap()
    }

    fn try_patched(mut document: Value, patch: &Value) -> Result<Value, Refusal> {
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
        assert_eq!(patched(document, &patch), json!({"a": {"b": "2"}, "b": {}}));
        let turn = try_patched(json!({}), &json!({"$patch": "turn"})).unwrap_err();
        let why = "unknown patch type: turn in map: map[$patch:turn]";
        assert_eq!(turn, Refusal::Unfit(why.into()));
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
                {"name": "c", "image": "1"},
                {"name": "b", "image": "2", "ports": [{"containerPort": 80}]},
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
        let why = "map: map[image:x] does not contain declared merge key: name";
        assert_eq!(unnamed.unwrap_err(), Refusal::Unfit(why.into()));
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
