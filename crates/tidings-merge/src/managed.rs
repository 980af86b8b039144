//! Who owns which fields of an object: `metadata.managedFields`.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::compare::Changes;
use crate::merge::{merge, without};
use crate::schema::Schema;
use crate::set::FieldSet;
use crate::typed::fields_of_stored;

/// Entries of updates that are kept apart; older ones become one.
const UPDATES_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";
/// Owns what was there before anybody applied, if nobody had kept track.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// It says what it wants to have; what it no longer says goes.
    Apply,
    /// It creates, replaces or patches.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// The version of the object that it writes.
    pub api_version: String,
    /// The subresource that it writes to, or nothing.
    pub subresource: String,
}

/// What a manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub manager: Manager,
    /// How it wrote.
    pub operation: Operation,
    /// When it last changed something; an applier that has changed nothing has no time.
    pub time: Option<String>,
    /// What it owns.
    pub fields: FieldSet,
}

impl Entry {
    /// One who applies is known by its name, whatever the version.
    fn is_of(&self, manager: &Manager, operation: Operation) -> bool {
        self.operation == operation
            && self.manager.name == manager.name
            && self.manager.subresource == manager.subresource
            && (operation == Operation::Apply || self.manager.api_version == manager.api_version)
    }

    fn decode(value: &Value) -> Option<Entry> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let owned = |name: &str| text(name).unwrap_or_default().to_owned();
        let operation = match text("operation")? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let fields = value.get("fieldsV1").filter(|fields| fields.is_object())?;
        let api_version = text("apiVersion").filter(|version| !version.is_empty())?;
        (text("fieldsType") == Some("FieldsV1")).then(|| Entry {
            manager: Manager {
                name: owned("manager"),
                api_version: api_version.to_owned(),
                subresource: owned("subresource"),
            },
            operation,
            time: text("time").map(str::to_owned),
            fields: FieldSet::decode(fields),
        })
    }

    fn encode(&self) -> Value {
        let mut value = Map::with_capacity(7);
        let mut put = |name: &str, text: &str| value.insert(name.to_owned(), text.into());
        put("manager", &self.manager.name);
        put("operation", self.operation.as_str());
        put("apiVersion", &self.manager.api_version);
        if let Some(time) = &self.time {
            put("time", time);
        }
        put("fieldsType", "FieldsV1");
        value.insert("fieldsV1".to_owned(), self.fields.encode());
        if !self.manager.subresource.is_empty() {
            value.insert(
                "subresource".into(),
                self.manager.subresource.clone().into(),
            );
        }
        Value::Object(value)
    }
}

/// As conflicts name it.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager.name)?;
        if !self.manager.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.manager.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.manager.api_version)?;
        }
        Ok(())
    }
}

/// A field that somebody else owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who owns it, as it is shown: `"name"`, or `"name" using v1` of one that does not apply.
    pub owner: String,
    /// The field.
    pub path: String,
}

/// What stands against a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.0))]
pub struct Conflicts(pub Vec<Conflict>);

fn shown(conflicts: &[Conflict]) -> String {
    if let [Conflict { owner, path }] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {owner}: {path}");
    }
    let mut lines = Vec::new();
    let mut last = "";
    for Conflict { owner, path } in conflicts {
        if owner != last {
            lines.push(format!("conflicts with {owner}:"));
            last = owner;
        }
        lines.push(format!("- {path}"));
    }
    let count = conflicts.len();
    format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
}

/// What somebody applies.
#[derive(Debug, Clone, Copy)]
pub struct Apply<'a, S> {
    /// The object as it is.
    pub live: &'a Value,
    /// What the manager wants to have of it.
    pub config: &'a Value,
    /// The fields of the configuration, see [`fields_of`](crate::fields_of).
    pub fields: &'a FieldSet,
    /// The types of both.
    pub schema: S,
    /// Fields that nobody owns, see [`FieldSet::remove_with_below`].
    pub ignored: &'a FieldSet,
    /// Take over what others own.
    pub force: bool,
    /// The time that is written down if something changes.
    pub now: &'a str,
}

/// All owners of fields of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed(pub Vec<Entry>);

impl Managed {
    /// Reads `managedFields`. `None` if an entry is not of a form that can be kept.
    pub fn decode(entries: &[Value]) -> Option<Managed> {
        let entries: Option<Vec<Entry>> = entries.iter().map(Entry::decode).collect();
        entries.map(Managed)
    }

    /// Writes `managedFields`: appliers first, then by time and name.
    pub fn encode(&self) -> Vec<Value> {
        let mut entries: Vec<&Entry> = self.0.iter().collect();
        entries.sort_by(|one, two| {
            let by = |entry: &Entry| {
                (
                    entry.operation,
                    entry.time.clone(),
                    entry.manager.name.clone(),
                )
            };
            by(one)
                .cmp(&by(two))
                .then_with(|| one.manager.cmp(&two.manager))
        });
        entries.into_iter().map(Entry::encode).collect()
    }

    /// Writes down what somebody has changed: it is the writer's now.
    pub fn update(&mut self, changes: &Changes, manager: &Manager, now: &str) {
        if changes.is_empty() {
            return;
        }
        self.take(changes, manager, Operation::Update);
        if !changes.set.is_empty() {
            let entry = self.entry(manager, Operation::Update);
            entry.fields.add(&changes.set);
            entry.time = Some(now.to_owned());
        }
        self.0.retain(|entry| !entry.fields.is_empty());
        self.merge_oldest();
    }

    /// Puts a configuration over an object. Returns what becomes of it, or `None` if it is that already; either way the owners
    /// are as they are to be written down.
    ///
    /// # Errors
    /// If somebody else owns a field that would change. Nothing has been changed then.
    pub fn apply<S: Schema>(
        &mut self,
        manager: &Manager,
        apply: Apply<'_, S>,
    ) -> Result<Option<Value>, Conflicts> {
        let Apply { live, schema, .. } = apply;
        let mut fields = apply.fields.clone();
        fields.remove_with_below(apply.ignored);
        fields.here = false;
        let before = self.own(manager, Operation::Apply).map(|own| &own.fields);
        let merged = merge(live, apply.config, schema);
        let unowned = self.unowned(&apply, manager);
        let others: Vec<&Entry> = self
            .0
            .iter()
            .chain(&unowned)
            .filter(|entry| !entry.is_of(manager, Operation::Apply))
            .collect();
        let object = match before.filter(|before| **before != fields) {
            Some(before) => without_abandoned(merged, before, &others, &apply),
            None => merged,
        };
        let mut changes = Changes::of(Some(live), Some(&object), schema);
        changes.set.remove_with_below(apply.ignored);
        changes.removed.remove_with_below(apply.ignored);
        if !apply.force {
            find_conflicts(&others, &changes)?;
        }
        self.0.extend(unowned);
        let own = self.entry(manager, Operation::Apply);
        own.manager = manager.clone();
        own.fields = fields;
        if !changes.is_empty() {
            own.time = Some(apply.now.to_owned());
            self.take(&changes, manager, Operation::Apply);
        }
        self.0.retain(|entry| !entry.fields.is_empty());
        Ok((object != *live).then_some(object))
    }

    /// If nobody has kept track of an object, what is there is somebody's.
    fn unowned<S: Schema>(&self, apply: &Apply<'_, S>, manager: &Manager) -> Option<Entry> {
        if !self.0.is_empty() {
            return None;
        }
        let nothing = Value::Object(Map::new());
        let mut there = Changes::of(Some(&nothing), Some(apply.live), apply.schema).set;
        there.remove_with_below(apply.ignored);
        there.here = false;
        (!there.is_empty()).then(|| Entry {
            manager: Manager {
                name: BEFORE_FIRST_APPLY.to_owned(),
                api_version: manager.api_version.clone(),
                subresource: String::new(),
            },
            operation: Operation::Update,
            time: Some(apply.now.to_owned()),
            fields: there,
        })
    }

    fn own(&self, manager: &Manager, operation: Operation) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.is_of(manager, operation))
    }

    fn entry(&mut self, manager: &Manager, operation: Operation) -> &mut Entry {
        let place = self
            .0
            .iter()
            .position(|entry| entry.is_of(manager, operation));
        let place = place.unwrap_or_else(|| {
            self.0.push(Entry {
                manager: manager.clone(),
                operation,
                time: None,
                fields: FieldSet::default(),
            });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// What is gone is nobody's, what is set is no other's.
    fn take(&mut self, changes: &Changes, manager: &Manager, operation: Operation) {
        for entry in &mut self.0 {
            let own = entry.is_of(manager, operation);
            // An applier owns all that it says, also what was there twice and is there once now.
            if !own || operation == Operation::Update {
                entry.fields.remove(&changes.removed);
            }
            if !own {
                entry.fields.remove(&changes.set);
            }
        }
    }

    /// Entries of updates beyond the bound become one for each version.
    fn merge_oldest(&mut self) {
        let entries = std::mem::take(&mut self.0).into_iter();
        let (mut updates, mut kept): (Vec<Entry>, Vec<Entry>) =
            entries.partition(|entry| entry.operation == Operation::Update);
        let beyond = updates.len().saturating_sub(UPDATES_MAX);
        if beyond > 0 {
            updates.sort_by(|one, two| one.time.cmp(&two.time));
            let mut ancient: BTreeMap<String, Entry> = BTreeMap::new();
            // One more, because what they become is an entry too.
            for mut oldest in updates.drain(..=beyond) {
                match ancient.get_mut(&oldest.manager.api_version) {
                    Some(ancient) => {
                        ancient.fields.add(&oldest.fields);
                        ancient.time = oldest.time;
                    }
                    None => {
                        oldest.manager.name = ANCIENT.to_owned();
                        oldest.manager.subresource.clear();
                        ancient.insert(oldest.manager.api_version.clone(), oldest);
                    }
                }
            }
            kept.extend(ancient.into_values());
        }
        kept.extend(updates);
        self.0 = kept;
    }
}

/// What would change and is another's.
fn find_conflicts(others: &[&Entry], changes: &Changes) -> Result<(), Conflicts> {
    let mut conflicts: Vec<Conflict> = others
        .iter()
        .flat_map(|entry| {
            let owner = entry.to_string();
            let paths = entry.fields.common(&changes.set).paths().into_iter();
            paths.map(move |path| Conflict {
                owner: owner.clone(),
                path,
            })
        })
        .collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    conflicts.sort_by(|one, two| one.owner.cmp(&two.owner));
    Err(Conflicts(conflicts))
}

/// Without what the applier had said before and nobody says now.
fn without_abandoned<S: Schema>(
    merged: Value,
    before: &FieldSet,
    others: &[&Entry],
    apply: &Apply<'_, S>,
) -> Value {
    let mut abandoned = before.clone();
    abandoned.remove(apply.fields);
    if abandoned.is_empty() {
        return merged;
    }
    let schema = apply.schema;
    let before = before.with_named(schema);
    let nothing = || Value::Object(Map::new());
    let pruned = without(&merged, &before, schema).unwrap_or_else(nothing);
    // What others own comes back, and so does what the applier never had.
    let mut gone = fields_of_stored(&merged, schema).with_named(schema);
    gone.remove(&fields_of_stored(&pruned, schema).with_named(schema));
    // What the applier says counts even where nobody can own it: an object does not lose its name.
    let others = others.iter().map(|entry| &entry.fields);
    for said in others.chain([apply.fields]) {
        gone.remove(&said.with_named(schema));
    }
    let gone = gone.common(&before);
    without(&merged, &gone, schema).unwrap_or_else(nothing)
}
