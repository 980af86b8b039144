//! managedFields: who wrote which fields (W157).
//!
//! A write is compared with what was there: what it added or changed is the writer's from now on, what it removed is nobody's.
//! The types say which lists are taken as one value and which by their elements.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tidings_schema::{Field, FieldKind, Item, ListKind, Type};

use super::draft::Draft;
use super::meta::Meta;

/// Entries of updates that are kept apart; older ones are merged.
const UPDATES_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// Who writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) api_version: String,
    /// The subresource that is written to, or empty.
    pub(crate) subresource: String,
}

/// A set of fields, as FieldsV1 nests them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fields {
    /// The field itself is of the set, not only what is in it.
    here: bool,
    below: BTreeMap<String, Fields>,
}

impl Fields {
    fn leaf() -> Fields {
        Fields {
            here: true,
            below: BTreeMap::new(),
        }
    }

    fn read(value: &Value) -> Fields {
        let mut fields = Fields::default();
        let members = value.as_object().into_iter().flatten();
        for (name, value) in members {
            if name == "." {
                fields.here = true;
            } else {
                fields.below.insert(name.clone(), Fields::read(value));
            }
        }
        if fields.below.is_empty() {
            fields.here = true; // `{}` stands for the field itself
        }
        fields
    }

    fn into_value(self) -> Value {
        let mut members = Map::with_capacity(self.below.len() + 1);
        if self.here && !self.below.is_empty() {
            members.insert(".".into(), Value::Object(Map::new()));
        }
        for (name, fields) in self.below {
            members.insert(name, fields.into_value());
        }
        Value::Object(members)
    }

    fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    fn add(&mut self, other: &Fields) {
        self.here |= other.here;
        for (name, fields) in &other.below {
            self.below.entry(name.clone()).or_default().add(fields);
        }
    }

    fn remove(&mut self, other: &Fields) {
        self.here &= !other.here;
        for (name, fields) in &other.below {
            if let Some(own) = self.below.get_mut(name) {
                own.remove(fields);
                if own.is_empty() {
                    self.below.remove(name);
                }
            }
        }
    }
}

/// What a write has done.
#[derive(Debug, Default)]
struct Changes {
    /// Fields that are new or different.
    set: Fields,
    /// Fields that are gone.
    removed: Fields,
}

/// The parts of a value by their path elements, as FieldsV1 writes them, each with what the types say about it.
type Parts<'a> = BTreeMap<String, (&'a Value, Of)>;

/// What the types say about a value.
#[derive(Clone, Copy)]
enum Of {
    /// Nothing: objects are taken apart, all else is one.
    Unknown,
    /// It is taken as one, whatever is in it.
    One,
    Type(&'static Type),
    Field(&'static Field),
}

impl Of {
    fn item(item: Item) -> Of {
        match item {
            Item::Struct(of) if !of.atomic => Of::Type(of),
            _ => Of::One,
        }
    }

    /// The parts of a value; `None` if it is taken as one.
    fn parts(self, value: &Value) -> Option<Parts<'_>> {
        match (self, value) {
            (Of::Unknown | Of::Type(_), Value::Object(members)) => Some(self.members(members)),
            (Of::Field(field), value) => {
                if field.atomic {
                    return None;
                }
                let item = Of::item(field.item());
                match (field.kind, value) {
                    (FieldKind::One(_), value) => item.parts(value),
                    (FieldKind::Map(_), Value::Object(members)) => {
                        let parts = members.iter().filter(|(_, value)| !value.is_null());
                        Some(
                            parts
                                .map(|(name, value)| (format!("f:{name}"), (value, item)))
                                .collect(),
                        )
                    }
                    (FieldKind::List(_), Value::Array(values)) => elements(values, field, item),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The members of an object of this type.
    fn members(self, members: &Map<String, Value>) -> Parts<'_> {
        let parts = members.iter().filter(|(_, value)| !value.is_null());
        let parts = parts.map(|(name, value)| {
            let of = match self {
                Of::Type(of) => of.field(name).map_or(Of::Unknown, Of::Field),
                _ => Of::Unknown,
            };
            (format!("f:{name}"), (value, of))
        });
        parts.collect()
    }
}

/// The elements of a list that is not taken as one.
fn elements<'a>(values: &'a [Value], field: &'static Field, item: Of) -> Option<Parts<'a>> {
    let values = values.iter();
    match &field.list {
        ListKind::Atomic => None,
        ListKind::Set => Some(
            values
                .map(|value| (format!("v:{value}"), (value, Of::One)))
                .collect(),
        ),
        ListKind::Map(keys) => Some(
            values
                .map(|value| {
                    let identity = identity(value, keys, field.struct_type());
                    (format!("k:{identity}"), (value, item))
                })
                .collect(),
        ),
    }
}

/// The members that tell an element from others, with their defaults, sorted.
fn identity(value: &Value, keys: &[&str], of: Option<&'static Type>) -> Value {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    let members = keys.into_iter().filter_map(|key| {
        let default = || serde_json::from_str(of?.field(key)?.default?).ok();
        let member = value.get(key).cloned().or_else(default)?;
        Some((key.to_owned(), member))
    });
    Value::Object(members.collect())
}

/// A value with all that is in it.
fn whole(value: &Value, of: Of) -> Fields {
    let parts = of.parts(value).unwrap_or_default().into_iter();
    Fields {
        here: true,
        below: parts
            .map(|(name, (value, of))| (name, whole(value, of)))
            .collect(),
    }
}

impl Changes {
    fn between(old: &Draft, new: &Draft) -> Changes {
        let of = new.kind.schema().map_or(Of::Unknown, Of::Type);
        let mut changes = Changes::default();
        changes.compare_parts(&of.members(&old.members), &of.members(&new.members));
        changes.put("f:metadata", Changes::of_metadata(&old.meta, &new.meta));
        changes
    }

    fn compare(&mut self, old: &Value, new: &Value, of: Of) {
        match (of.parts(old), of.parts(new)) {
            (Some(old), Some(new)) => self.compare_parts(&old, &new),
            _ if old == new => {}
            _ => self.set.add(&whole(new, of)),
        }
    }

    fn compare_parts(&mut self, old: &Parts<'_>, new: &Parts<'_>) {
        for (name, (value, of)) in new {
            match old.get(name) {
                None => drop(self.set.below.insert(name.clone(), whole(value, *of))),
                Some((before, _)) => {
                    let mut below = Changes::default();
                    below.compare(before, value, *of);
                    self.put(name, below);
                }
            }
        }
        for (name, (value, of)) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            self.removed.below.insert(name.clone(), whole(value, *of));
        }
    }

    /// What has changed below a field.
    fn put(&mut self, name: &str, below: Changes) {
        for (all, below) in [
            (&mut self.set, below.set),
            (&mut self.removed, below.removed),
        ] {
            if !below.is_empty() {
                all.below.insert(name.to_owned(), below);
            }
        }
    }

    /// Of the metadata, what the server sets itself is not tracked.
    fn of_metadata(old: &Meta, new: &Meta) -> Changes {
        let mut changes = Changes::default();
        changes.put("f:labels", Changes::of_strings(&old.labels, &new.labels));
        changes.put(
            "f:annotations",
            Changes::of_strings(&old.annotations, &new.annotations),
        );
        let finalizers = |meta: &Meta| -> BTreeMap<String, ()> {
            let names = meta.finalizers.iter();
            names
                .map(|name| (format!("v:{}", json!(name)), ()))
                .collect()
        };
        let (before, after) = (finalizers(old), finalizers(new));
        changes.put("f:finalizers", Changes::of_leaves(&before, &after));
        let owners = |meta: &Meta| -> BTreeMap<String, Value> {
            let owners = meta.owner_references.iter();
            let uid = |owner: &Value| format!("k:{}", json!({ "uid": owner.get("uid") }));
            owners.map(|owner| (uid(owner), owner.clone())).collect()
        };
        let (before, after) = (owners(old), owners(new));
        changes.put("f:ownerReferences", Changes::of_leaves(&before, &after));
        let generate_name = |meta: &Meta| -> BTreeMap<String, String> {
            let name = Some(&meta.generate_name).filter(|name| !name.is_empty());
            name.map(|name| ("f:generateName".to_owned(), name.clone()))
                .into_iter()
                .collect()
        };
        let name = Changes::of_leaves(&generate_name(old), &generate_name(new));
        changes.set.below.extend(name.set.below);
        changes.removed.below.extend(name.removed.below);
        changes
    }

    fn of_strings(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Changes {
        let named = |map: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            let members = map.iter();
            members
                .map(|(name, value)| (format!("f:{name}"), value.clone()))
                .collect()
        };
        if old == new {
            return Changes::default();
        }
        Changes::of_leaves(&named(old), &named(new))
    }

    /// Of a map whose members are taken as one each. The map itself is set with its first member, and gone with its last.
    fn of_leaves<V: PartialEq>(old: &BTreeMap<String, V>, new: &BTreeMap<String, V>) -> Changes {
        let mut changes = Changes::default();
        changes.set.here = old.is_empty() && !new.is_empty();
        changes.removed.here = !old.is_empty() && new.is_empty();
        let leaf = |(name, _): (&String, &V)| (name.clone(), Fields::leaf());
        let set = new
            .iter()
            .filter(|(name, value)| old.get(*name) != Some(value));
        changes.set.below = set.map(leaf).collect();
        let removed = old.iter().filter(|(name, _)| !new.contains_key(*name));
        changes.removed.below = removed.map(leaf).collect();
        changes
    }
}

/// One entry, as far as it is changed here.
struct Entry {
    value: Map<String, Value>,
    fields: Fields,
}

impl Entry {
    fn text(&self, name: &str) -> &str {
        self.value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn is_of(&self, manager: &Manager) -> bool {
        self.text("manager") == manager.name
            && self.text("operation") == "Update"
            && self.text("apiVersion") == manager.api_version
            && self.text("subresource") == manager.subresource
    }

    fn is_update(&self) -> bool {
        self.text("operation") == "Update"
    }
}

fn read(entries: &[Value]) -> Vec<Entry> {
    let objects = entries.iter().filter_map(Value::as_object);
    objects
        .map(|entry| Entry {
            value: entry.clone(),
            fields: entry.get("fieldsV1").map(Fields::read).unwrap_or_default(),
        })
        .collect()
}

/// Writes down what the manager has set in an object that is created.
pub(crate) fn track_created(new: &mut Draft, manager: &Manager, now: &str) {
    new.meta.managed_fields = sent(&new.meta).unwrap_or_default();
    track(new, &Draft::empty(new.kind), manager, now);
}

/// Writes down what the manager has changed in an object.
pub(crate) fn track_updated(new: &mut Draft, old: &Draft, manager: &Manager, now: &str) {
    if std::mem::take(&mut new.meta.managed_reset) {
        new.meta.managed_fields.clear();
        return;
    }
    // A client may write the entries themselves; if it sends none that can be used, those that are there stay.
    let sent = sent(&new.meta).filter(|_| manager.subresource.is_empty());
    new.meta.managed_fields = sent.unwrap_or_else(|| old.meta.managed_fields.clone());
    // Whoever has reset them wants none.
    if !new.meta.managed_fields.is_empty() {
        track(new, old, manager, now);
    }
}

/// The entries that a client sent, if they can be used.
fn sent(meta: &Meta) -> Option<Vec<Value>> {
    let usable = |entry: &Value| {
        let is = |name: &str, texts: &[&str]| {
            let text = entry.get(name).and_then(Value::as_str).unwrap_or_default();
            texts.contains(&text)
        };
        let version = entry.get("apiVersion").and_then(Value::as_str);
        is("operation", &["Apply", "Update"])
            && is("fieldsType", &["FieldsV1"])
            && version.is_some_and(|version| !version.is_empty())
            && entry.get("fieldsV1").is_some_and(Value::is_object)
    };
    let entries = &meta.managed_fields;
    (!entries.is_empty() && entries.iter().all(usable)).then(|| entries.clone())
}

fn track(new: &mut Draft, old: &Draft, manager: &Manager, now: &str) {
    let Changes { set, removed } = Changes::between(old, new);
    if set.is_empty() && removed.is_empty() {
        return;
    }
    let mut entries = read(&new.meta.managed_fields);
    for entry in &mut entries {
        let own = entry.is_of(manager);
        entry.fields.remove(&removed);
        if !own {
            entry.fields.remove(&set);
        }
    }
    if !set.is_empty() {
        match entries.iter_mut().find(|entry| entry.is_of(manager)) {
            Some(own) => {
                own.fields.add(&set);
                own.value.insert("time".into(), now.into());
            }
            None => entries.push(Entry {
                value: described(manager, now),
                fields: set,
            }),
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    merge_oldest(&mut entries);
    entries.sort_by(|a, b| {
        let order = |entry: &Entry| {
            ["operation", "time", "manager", "apiVersion", "subresource"]
                .map(|name| entry.text(name).to_owned())
        };
        order(a).cmp(&order(b))
    });
    new.meta.managed_fields = entries.into_iter().map(written).collect();
}

fn described(manager: &Manager, now: &str) -> Map<String, Value> {
    let mut value = Map::new();
    value.insert("manager".into(), manager.name.clone().into());
    value.insert("operation".into(), "Update".into());
    value.insert("apiVersion".into(), manager.api_version.clone().into());
    value.insert("time".into(), now.into());
    if !manager.subresource.is_empty() {
        value.insert("subresource".into(), manager.subresource.clone().into());
    }
    value
}

fn written(mut entry: Entry) -> Value {
    let mut value = Map::with_capacity(7);
    let mut put = |name: &str| {
        if let Some(member) = entry.value.get_mut(name).map(Value::take) {
            value.insert(name.to_owned(), member);
        }
    };
    for name in ["manager", "operation", "apiVersion", "time"] {
        put(name);
    }
    let subresource = entry.value.get_mut("subresource").map(Value::take);
    value.insert("fieldsType".into(), "FieldsV1".into());
    value.insert("fieldsV1".into(), entry.fields.into_value());
    if let Some(subresource) = subresource.filter(|name| *name != "") {
        value.insert("subresource".into(), subresource);
    }
    Value::Object(value)
}

/// Entries of updates beyond the bound become one for each version.
fn merge_oldest(entries: &mut Vec<Entry>) {
    let mut updates: Vec<Entry> = Vec::new();
    let mut others: Vec<Entry> = Vec::new();
    for entry in std::mem::take(entries) {
        let list = if entry.is_update() {
            &mut updates
        } else {
            &mut others
        };
        list.push(entry);
    }
    let beyond = updates.len().saturating_sub(UPDATES_MAX);
    if beyond > 0 {
        updates.sort_by_key(|entry| entry.text("time").to_owned());
        // One more, because what they become is an entry too.
        let mut ancient: BTreeMap<String, Entry> = BTreeMap::new();
        for mut oldest in updates.drain(..=beyond) {
            match ancient.get_mut(oldest.text("apiVersion")) {
                Some(ancient) => {
                    ancient.fields.add(&oldest.fields);
                    ancient
                        .value
                        .insert("time".into(), oldest.text("time").into());
                }
                None => {
                    oldest.value.insert("manager".into(), ANCIENT.into());
                    oldest.value.remove("subresource");
                    ancient.insert(oldest.text("apiVersion").to_owned(), oldest);
                }
            }
        }
        updates.extend(ancient.into_values());
    }
    entries.extend(others);
    entries.extend(updates);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    fn configmap(data: &Value) -> Draft {
        let kind = registry::find("", "v1", "configmaps").unwrap();
        let body = json!({"metadata": {"name": "x"}, "data": data}).to_string();
        Draft::read(kind, body.as_bytes()).unwrap()
    }

    fn manager(name: &str) -> Manager {
        Manager {
            name: name.into(),
            api_version: "v1".into(),
            subresource: String::new(),
        }
    }

    fn fields(draft: &Draft) -> BTreeMap<String, String> {
        let entries = draft.meta.managed_fields.iter();
        entries
            .map(|entry| {
                (
                    entry["manager"].as_str().unwrap().to_owned(),
                    entry["fieldsV1"].to_string(),
                )
            })
            .collect()
    }

    #[test]
    fn w157_what_a_writer_sets_is_its_own() {
        let mut first = configmap(&json!({"a": "1", "b": "1"}));
        track_created(&mut first, &manager("one"), "2026-01-01T00:00:00Z");
        assert_eq!(
            fields(&first)["one"],
            r#"{"f:data":{".":{},"f:a":{},"f:b":{}}}"#
        );
        let mut second = configmap(&json!({"a": "2", "c": "1"}));
        track_updated(&mut second, &first, &manager("two"), "2026-01-01T00:00:01Z");
        assert_eq!(
            fields(&second)["one"],
            r#"{"f:data":{}}"#,
            "b is gone, a is another's"
        );
        assert_eq!(fields(&second)["two"], r#"{"f:data":{"f:a":{},"f:c":{}}}"#);
    }

    #[test]
    fn w157_a_write_that_changes_nothing_leaves_the_entries_alone() {
        let mut first = configmap(&json!({"a": "1"}));
        track_created(&mut first, &manager("one"), "2026-01-01T00:00:00Z");
        let mut again = configmap(&json!({"a": "1"}));
        track_updated(&mut again, &first, &manager("two"), "2026-01-01T00:00:01Z");
        assert_eq!(again.meta.managed_fields, first.meta.managed_fields);
    }

    #[test]
    fn w157_at_most_ten_updates_are_kept_apart() {
        let mut draft = configmap(&json!({"first": "1"}));
        track_created(&mut draft, &manager("m"), "2025-01-01T00:00:00Z");
        let mut data = Map::new();
        data.insert("first".into(), "1".into());
        for at in 0..15 {
            data.insert(format!("k{at:02}"), "1".into());
            let mut next = configmap(&Value::Object(data.clone()));
            track_updated(
                &mut next,
                &draft,
                &manager(&format!("m{at:02}")),
                &format!("2026-01-01T00:00:{at:02}Z"),
            );
            draft = next;
        }
        let fields = fields(&draft);
        assert_eq!(fields.len(), 10);
        assert!(fields[ANCIENT].contains("f:k00") && fields[ANCIENT].contains("f:k05"));
        assert_eq!(fields["m14"], r#"{"f:data":{"f:k14":{}}}"#);
    }
}
