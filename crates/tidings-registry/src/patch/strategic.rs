//! Applies strategic merge patches (W153): merge patches for which the types say which lists are merged, and by which key.
//!
//! The directives are `$patch`, `$retainKeys`, `$setElementOrder/...` and `$deleteFromPrimitiveList/...`. Lists without a patch
//! strategy in the types are replaced as a whole.

mod order;

use std::collections::HashSet;

use tidings_api::{Reason, Status};
use tidings_json::{Map, Value};
use tidings_schema::Type;

use order::{ElementPositions, arrange};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// A type with the patch strategies of its members.
pub(crate) trait PatchSchema: Copy {
    /// The patch strategy of a member, if the type has the member.
    fn member(self, name: &str) -> Option<MemberPatchStrategy<Self>>;
}

/// The patch strategy of a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberPatchStrategy<T> {
    /// A list member is merged instead of replaced.
    pub(crate) merge: bool,
    /// An object member is replaced instead of merged.
    pub(crate) replace: bool,
    /// The merge key: the member that identifies the elements of a list. Without it they are compared as a whole.
    pub(crate) key: Option<&'static str>,
    /// The type of an object member, or of the elements of a list member.
    pub(crate) below: Option<T>,
}

impl PatchSchema for &'static Type {
    fn member(self, name: &str) -> Option<MemberPatchStrategy<&'static Type>> {
        let field = self.field(name)?;
        Some(MemberPatchStrategy {
            merge: field.patch_strategy.merge,
            replace: field.patch_strategy.replace,
            key: field.merge_key,
            below: field.struct_type(),
        })
    }
}

/// The reason why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StrategicPatchError {
    /// The patch or a directive has the wrong form: 400.
    Malformed(&'static str),
    /// The patch does not fit the document, or contradicts itself: 500, as upstream answers.
    Unfit(String),
}

impl From<StrategicPatchError> for Status {
    fn from(refusal: StrategicPatchError) -> Status {
        match refusal {
            StrategicPatchError::Malformed(why) => Status::bad_request(why),
            StrategicPatchError::Unfit(why) => {
                let mut status = Status::failure(500, Reason::InternalError, why);
                status.reason = None;
                status
            }
        }
    }
}

/// Applies a patch to a document of type `of`.
pub(crate) fn merge<T: PatchSchema>(
    document: &mut Value,
    patch: &Value,
    of: Option<T>,
) -> Result<(), StrategicPatchError> {
    let Value::Object(patch) = patch else {
        return Err(StrategicPatchError::Malformed("invalid JSON document"));
    };
    match document {
        Value::Object(members) => merge_members(members, patch, of),
        other => {
            *other = Value::Object(literal_members(patch));
            Ok(())
        }
    }
}

fn merge_members<T: PatchSchema>(
    members: &mut Map,
    patch: &Map,
    of: Option<T>,
) -> Result<(), StrategicPatchError> {
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
    // All removals in one pass: each removal by itself would move the members behind it.
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

/// Removes the members that `$retainKeys` does not list. It must list all members that the patch sets.
fn retain_keys(members: &mut Map, patch: &Map) -> Result<(), StrategicPatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = StrategicPatchError::Malformed("invalid patch format of retainKeys");
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

fn merge_member<T: PatchSchema>(
    members: &mut Map,
    name: &str,
    value: &Value,
    member: Option<MemberPatchStrategy<T>>,
) -> Result<(), StrategicPatchError> {
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

/// Merges a list and sorts it by a `$setElementOrder` directive. Elements that the directive does not list keep their relative
/// positions.
fn merge_ordered<T: PatchSchema>(
    members: &mut Map,
    name: &str,
    patch: Option<&Value>,
    order: &Value,
    member: Option<MemberPatchStrategy<T>>,
) -> Result<(), StrategicPatchError> {
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
    let mut positions = ElementPositions::of(before, key);
    if let (Some(key), Some(patch)) = (key, patch) {
        positions.add_new_elements(before, patch, key);
    }
    arrange(&mut list, &positions, &ElementPositions::of(order, key));
    members.insert(name.into(), Value::Array(list));
    Ok(())
}

/// The elements of a list; an error if the value is not a list.
fn elements(value: &Value) -> Result<&[Value], StrategicPatchError> {
    let received = match value {
        Value::Array(elements) => return Ok(elements),
        Value::Object(_) => "map[string]interface {}",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Null => "%!s(<nil>)",
    };
    Err(StrategicPatchError::Unfit(format!(
        "expected a []interface {{}}, but received a {received}"
    )))
}

/// Refuses a patch list whose order differs from its `$setElementOrder` directive.
fn check_order(
    patch: &[Value],
    order: &[Value],
    key: Option<&'static str>,
) -> Result<(), StrategicPatchError> {
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
            let [patch, order] =
                [patch, order].map(|list| tidings_go::print(&Value::Array(list.to_vec())));
            return Err(StrategicPatchError::Unfit(format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

/// Merges a patch list into a list, or replaces the list if its strategy is not to merge.
fn merge_list<T: PatchSchema>(
    list: &mut Vec<Value>,
    patch: &[Value],
    member: Option<MemberPatchStrategy<T>>,
) -> Result<(), StrategicPatchError> {
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
        return Err(StrategicPatchError::Unfit(why.into()));
    }
    if !first.is_object() {
        let before = ElementPositions::of(&*list, None);
        let mut seen = HashSet::new();
        list.extend_from_slice(patch);
        list.retain(|value| seen.insert(value.to_string()));
        arrange(list, &before, &ElementPositions::of(patch, None));
        return Ok(());
    }
    let Some(key) = member.key else {
        let why = "cannot merge lists without merge key";
        return Err(StrategicPatchError::Unfit(why.into()));
    };
    merge_keyed(list, patch, key, member.below)
}

/// Merges lists of objects by their merge key.
fn merge_keyed<T: PatchSchema>(
    list: &mut Vec<Value>,
    patch: &[Value],
    key: &'static str,
    of: Option<T>,
) -> Result<(), StrategicPatchError> {
    let (mut plain, mut gone, mut replaces) = (Vec::new(), HashSet::new(), false);
    for element in patch {
        let directive = element.get(PATCH);
        match directive.map(|directive| directive.as_str().unwrap_or_default()) {
            None => plain.push(element),
            Some("delete") => drop(gone.insert(identity_by(element, key)?)),
            Some("replace") => replaces = true,
            Some("merge") => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(StrategicPatchError::Unfit(why.into()));
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
    let before = ElementPositions::of(&*list, Some(key));
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
    arrange(list, &before, &ElementPositions::of(plain, Some(key)));
    Ok(())
}

/// The merge key of an element as JSON; an error if the element does not have it.
fn identity_by(element: &Value, key: &str) -> Result<String, StrategicPatchError> {
    let value = element.get(key).map(Value::to_string);
    value.ok_or_else(|| {
        let element = tidings_go::print(element);
        StrategicPatchError::Unfit(format!(
            "map: {element} does not contain declared merge key: {key}"
        ))
    })
}

fn all_have_key(list: &[Value], key: Option<&str>) -> Result<(), StrategicPatchError> {
    let Some(key) = key else {
        return Ok(());
    };
    list.iter()
        .try_for_each(|element| identity_by(element, key).map(drop))
}

/// The value that a patch adds where the document has none, without directives; `None` if the value is a directive itself.
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

/// The value of a patch without its directives and nulls, which are not applied.
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

fn unknown_directive(directive: &Value, patch: &Map) -> StrategicPatchError {
    let directive = tidings_go::print(directive);
    let patch = tidings_go::print(&Value::Object(patch.clone()));
    StrategicPatchError::Unfit(format!("unknown patch type: {directive} in map: {patch}"))
}

#[cfg(test)]
mod published;

#[cfg(test)]
mod tests;
