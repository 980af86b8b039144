//! managedFields: who wrote which fields (W157).
//!
//! A write is compared with what was there: what it added or changed is the writer's from now on, what it removed is nobody's.
//! The types say which lists are taken as one value and which by their elements.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tidings_schema::{Field, FieldKind, Item, ListKind, Type};

use super::draft::Draft;

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

    fn to_value(&self) -> Value {
        let mut members = Map::new();
        if self.here && !self.below.is_empty() {
            members.insert(".".into(), json!({}));
        }
        for (name, fields) in &self.below {
            members.insert(name.clone(), fields.to_value());
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

impl Changes {
    fn between(old: &Value, new: &Value) -> Changes {
        let mut changes = Changes::default();
        compare(old, new, &mut changes.set, &mut changes.removed);
        changes
    }
}

fn compare(old: &Value, new: &Value, set: &mut Fields, removed: &mut Fields) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                let path = format!("f:{name}");
                let mut below = (Fields::default(), Fields::default());
                match old.get(name).filter(|old| !old.is_null()) {
                    None => below.0 = whole(value),
                    Some(old) => compare(old, value, &mut below.0, &mut below.1),
                }
                put(set, &path, below.0);
                put(removed, &path, below.1);
            }
            let gone = old.iter().filter(|(name, value)| {
                !value.is_null() && new.get(*name).is_none_or(Value::is_null)
            });
            for (name, value) in gone {
                put(removed, &format!("f:{name}"), whole(value));
            }
        }
        (old, new) if old == new => {}
        (_, new) => set.add(&whole(new)),
    }
}

fn put(fields: &mut Fields, path: &str, below: Fields) {
    if !below.is_empty() {
        fields.below.insert(path.to_owned(), below);
    }
}

/// A value with all that is in it.
fn whole(value: &Value) -> Fields {
    let mut fields = Fields {
        here: true,
        below: BTreeMap::new(),
    };
    let members = value.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(_, value)| !value.is_null()) {
        fields.below.insert(format!("f:{name}"), whole(value));
    }
    fields
}

/// What is tracked of an object: all but what the server sets in the metadata, its lists by their elements.
fn tracked(draft: &Draft) -> Value {
    let meta = &draft.meta;
    let mut metadata = Map::new();
    if !meta.generate_name.is_empty() {
        metadata.insert("generateName".into(), meta.generate_name.clone().into());
    }
    if !meta.labels.is_empty() {
        metadata.insert("labels".into(), json!(meta.labels));
    }
    if !meta.annotations.is_empty() {
        metadata.insert("annotations".into(), json!(meta.annotations));
    }
    if !meta.owner_references.is_empty() {
        metadata.insert("ownerReferences".into(), json!(meta.owner_references));
    }
    if !meta.finalizers.is_empty() {
        metadata.insert("finalizers".into(), json!(meta.finalizers));
    }
    let mut members = draft.members.clone();
    members.insert("metadata".into(), Value::Object(metadata));
    match draft.kind.schema() {
        Some(schema) => by_elements(Value::Object(members), schema),
        None => Value::Object(members),
    }
}

/// What stands for a value that is taken as one, whatever is in it.
fn as_one(value: Value) -> Value {
    Value::Array(vec![value])
}

/// An object of a type, with the elements of lists named by what identifies them.
fn by_elements(value: Value, of: &'static Type) -> Value {
    let Value::Object(members) = value else {
        return value;
    };
    let members = members.into_iter().map(|(name, value)| {
        let value = match of.field(&name) {
            Some(field) => field_by_elements(value, field),
            None => value,
        };
        (name, value)
    });
    Value::Object(members.collect())
}

fn field_by_elements(value: Value, field: &'static Field) -> Value {
    let inner = |value: Value| match field.item() {
        Item::Struct(of) if of.atomic => as_one(value),
        Item::Struct(of) => by_elements(value, of),
        Item::Raw | Item::Fields if value.is_object() => as_one(value),
        _ => value,
    };
    match (value, &field.kind) {
        (value, FieldKind::One(Item::Struct(_)) | FieldKind::Map(_)) if field.atomic => {
            as_one(value)
        }
        (Value::Object(members), FieldKind::Map(_)) => {
            let members = members.into_iter();
            Value::Object(members.map(|(name, value)| (name, inner(value))).collect())
        }
        (Value::Array(elements), FieldKind::List(_)) => match &field.list {
            ListKind::Atomic => Value::Array(elements),
            ListKind::Set => {
                let named = elements.into_iter();
                Value::Object(
                    named
                        .map(|value| (format!("\0v:{value}"), json!(true)))
                        .collect(),
                )
            }
            ListKind::Map(keys) => {
                let named = elements.into_iter().map(|value| {
                    let identity = identity(&value, keys, field.struct_type());
                    (format!("\0k:{identity}"), inner(value))
                });
                Value::Object(named.collect())
            }
        },
        (value, FieldKind::One(_)) => inner(value),
        (value, _) => value,
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

/// Elements of lists were named by what identifies them, marked so that they are not taken for fields.
fn unmark(fields: Fields) -> Fields {
    let below = fields.below.into_iter().map(|(name, fields)| {
        let name = name
            .strip_prefix("f:\0")
            .map_or(name.clone(), ToOwned::to_owned);
        (name, unmark(fields))
    });
    Fields {
        here: fields.here,
        below: below.collect(),
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

/// Writes down in `new` what the manager has changed. `old` is the object before, as far as its kind gives it something from
/// the start if it is created.
pub(crate) fn track(new: &mut Draft, old: &Draft, manager: &Manager, now: &str) {
    if std::mem::take(&mut new.meta.managed_reset) {
        new.meta.managed_fields.clear();
        return;
    }
    // A client may write the entries themselves; if it sends none, those that are there stay.
    if new.meta.managed_fields.is_empty() || !manager.subresource.is_empty() {
        new.meta.managed_fields.clone_from(&old.meta.managed_fields);
    }
    let Changes { set, removed } = Changes::between(&tracked(old), &tracked(new));
    let (set, removed) = (unmark(set), unmark(removed));
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
        let own = match entries.iter_mut().find(|entry| entry.is_of(manager)) {
            Some(entry) => entry,
            None => {
                entries.push(Entry {
                    value: described(manager),
                    fields: Fields::default(),
                });
                let last = entries.len() - 1;
                &mut entries[last]
            }
        };
        let before = own.fields.clone();
        own.fields.add(&set);
        if own.fields != before {
            own.value.insert("time".into(), now.into());
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
    new.meta.managed_fields = entries.iter().map(written).collect();
}

fn described(manager: &Manager) -> Map<String, Value> {
    let mut value = Map::new();
    value.insert("manager".into(), manager.name.clone().into());
    value.insert("operation".into(), "Update".into());
    value.insert("apiVersion".into(), manager.api_version.clone().into());
    if !manager.subresource.is_empty() {
        value.insert("subresource".into(), manager.subresource.clone().into());
    }
    value
}

fn written(entry: &Entry) -> Value {
    let mut value = Map::new();
    for name in ["manager", "operation", "apiVersion", "time"] {
        if let Some(member) = entry.value.get(name) {
            value.insert(name.into(), member.clone());
        }
    }
    value.insert("fieldsType".into(), "FieldsV1".into());
    value.insert("fieldsV1".into(), entry.fields.to_value());
    if !entry.text("subresource").is_empty() {
        value.insert("subresource".into(), entry.text("subresource").into());
    }
    Value::Object(value)
}

/// Entries of updates beyond the bound become one.
fn merge_oldest(entries: &mut Vec<Entry>) {
    let updates = |entries: &Vec<Entry>| entries.iter().filter(|entry| entry.is_update()).count();
    while updates(entries) > UPDATES_MAX {
        entries.sort_by(|a, b| {
            let order = |entry: &Entry| (!entry.is_update(), entry.text("time").to_owned());
            order(a).cmp(&order(b))
        });
        let oldest = entries.remove(0);
        let ancient = entries.iter_mut().find(|entry| {
            entry.text("manager") == ANCIENT
                && entry.text("apiVersion") == oldest.text("apiVersion")
        });
        match ancient {
            Some(ancient) => {
                ancient.fields.add(&oldest.fields);
                if ancient.text("time") < oldest.text("time") {
                    ancient
                        .value
                        .insert("time".into(), oldest.text("time").into());
                }
            }
            None => {
                let mut ancient = oldest;
                ancient.value.insert("manager".into(), ANCIENT.into());
                ancient.value.remove("subresource");
                if updates(entries) < UPDATES_MAX || entries.is_empty() {
                    entries.push(ancient);
                } else {
                    // The next oldest joins it.
                    let next = entries.remove(0);
                    ancient.fields.add(&next.fields);
                    ancient
                        .value
                        .insert("time".into(), next.text("time").into());
                    entries.push(ancient);
                }
            }
        }
    }
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
        let empty = configmap(&Value::Null);
        let mut first = configmap(&json!({"a": "1", "b": "1"}));
        track(&mut first, &empty, &manager("one"), "2026-01-01T00:00:00Z");
        assert_eq!(
            fields(&first)["one"],
            r#"{"f:data":{".":{},"f:a":{},"f:b":{}}}"#
        );
        let mut second = configmap(&json!({"a": "2", "c": "1"}));
        track(&mut second, &first, &manager("two"), "2026-01-01T00:00:01Z");
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
        track(
            &mut first,
            &configmap(&Value::Null),
            &manager("one"),
            "2026-01-01T00:00:00Z",
        );
        let mut again = configmap(&json!({"a": "1"}));
        track(&mut again, &first, &manager("two"), "2026-01-01T00:00:01Z");
        assert_eq!(again.meta.managed_fields, first.meta.managed_fields);
    }

    #[test]
    fn w157_at_most_ten_updates_are_kept_apart() {
        let mut draft = configmap(&Value::Null);
        let mut data = Map::new();
        for at in 0..15 {
            data.insert(format!("k{at:02}"), "1".into());
            let mut next = configmap(&Value::Object(data.clone()));
            track(
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
