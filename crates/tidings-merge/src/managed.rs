//! Who owns which fields of an object: `metadata.managedFields`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;
use tidings_json::{Map, Plain, Value, write_string};

use crate::compare::Changes;
use crate::configuration::Configuration;
use crate::displaced::Displaced;
use crate::fields::Fields;
use crate::merge::{Merged, merge_into, without};
use crate::schema::Schema;
use crate::set::FieldSet;
use crate::typed::fields_of_stored;

/// Entries of updates that are kept apart; older ones become one.
const UPDATES_MAX: usize = 10;
/// The only way in which sets of fields are written.
const FIELDS_TYPE: &str = "FieldsV1";
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
    fn named(name: &str) -> Option<Operation> {
        match name {
            "Apply" => Some(Operation::Apply),
            "Update" => Some(Operation::Update),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    pub fields: Fields,
}

impl Entry {
    /// One who applies is known by its name, whatever the version.
    fn is_of(&self, manager: &Manager, operation: Operation) -> bool {
        self.operation == operation
            && self.manager.name == manager.name
            && self.manager.subresource == manager.subresource
            && (operation == Operation::Apply || self.manager.api_version == manager.api_version)
    }

    fn read(reader: &mut Plain<'_>, known: &str) -> Option<Entry> {
        let (mut manager, mut operation, mut fields) = (Manager::default(), None, None);
        let (mut time, mut version) = (None, None);
        reader.members(|name, reader| {
            match name {
                "fieldsV1" if reader.skip_known(known) => fields = Some(Fields::from_json(known)),
                "fieldsV1" => fields = Some(Fields::from_json(reader.skip()?)),
                "operation" => operation = Some(Operation::named(reader.string()?)?),
                "apiVersion" => version = Some(reader.string()?.to_owned()),
                "time" => time = Some(reader.string()?.to_owned()),
                "manager" => reader.string()?.clone_into(&mut manager.name),
                "subresource" => reader.string()?.clone_into(&mut manager.subresource),
                _ => drop(reader.value()?),
            }
            Some(())
        })?;
        manager.api_version = version?;
        Some(Entry {
            manager,
            operation: operation?,
            time,
            fields: fields?,
        })
    }

    /// Reads an entry as a client sends it, which mostly is what is known already.
    fn decode(value: &Value, known: &Managed) -> Option<Entry> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let owned = |name: &str| text(name).unwrap_or_default().to_owned();
        let operation = Operation::named(text("operation")?)?;
        let fields = value.get("fieldsV1").filter(|fields| fields.is_object())?;
        let api_version = text("apiVersion").filter(|version| !version.is_empty())?;
        if text("fieldsType") != Some(FIELDS_TYPE) {
            return None;
        }
        let json = fields.to_string();
        let same = known.0.iter().find(|entry| entry.fields.json() == json);
        let fields = match same {
            Some(known) => known.fields.clone(),
            None => FieldSet::decode(&json)?.into(),
        };
        Some(Entry {
            manager: Manager {
                name: owned("manager"),
                api_version: api_version.to_owned(),
                subresource: owned("subresource"),
            },
            operation,
            time: text("time").map(str::to_owned),
            fields,
        })
    }

    fn encode(&self, json: &mut String) {
        let mut put = |name: &str, text: &str| {
            json.push_str(name);
            write_string(json, text);
        };
        put("{\"manager\":", &self.manager.name);
        put(",\"operation\":", self.operation.as_str());
        put(",\"apiVersion\":", &self.manager.api_version);
        if let Some(time) = &self.time {
            put(",\"time\":", time);
        }
        put(",\"fieldsType\":", FIELDS_TYPE);
        json.push_str(",\"fieldsV1\":");
        json.push_str(self.fields.json());
        if !self.manager.subresource.is_empty() {
            json.push_str(",\"subresource\":");
            write_string(json, &self.manager.subresource);
        }
        json.push('}');
    }

    /// True if it says the same as another, except when.
    pub fn is_same_but_for_time(&self, other: &Entry) -> bool {
        (&self.manager, self.operation, &self.fields)
            == (&other.manager, other.operation, &other.fields)
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
    /// What the manager wants to have of the object.
    pub config: &'a Configuration<'a, S>,
    /// Take over what others own.
    pub force: bool,
    /// The time that is written down if something changes.
    pub now: &'a str,
}

/// All owners of fields of an object.
///
/// They are deserialized from `managedFields` as [`Managed::encode`] writes it; if an entry is not of a form that can be kept, there
/// are none. Sets stay as they are written until somebody wants to know what is in them, which is rare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed(pub Vec<Entry>);

impl<'de> Deserialize<'de> for Managed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Managed, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            manager: Option<String>,
            operation: Option<String>,
            api_version: Option<String>,
            time: Option<String>,
            #[serde(borrow)]
            fields_v1: Option<&'a RawValue>,
            subresource: Option<String>,
        }
        let entry = |written: Written<'de>| {
            Some(Entry {
                manager: Manager {
                    name: written.manager.unwrap_or_default(),
                    api_version: written.api_version?,
                    subresource: written.subresource.unwrap_or_default(),
                },
                operation: Operation::named(&written.operation?)?,
                time: written.time,
                fields: Fields::from_json(written.fields_v1?.get()),
            })
        };
        let written = Vec::<Written<'de>>::deserialize(deserializer)?;
        let entries: Option<_> = written.into_iter().map(entry).collect();
        Ok(Managed(entries.unwrap_or_default()))
    }
}

impl Managed {
    /// Reads `managedFields` as [`Managed::encode`] writes it, as far as that is plain. Some manager may own the fields that are
    /// `known`, an object of JSON: they are half of most objects, and need not be looked through for their end then.
    pub fn read(reader: &mut Plain<'_>, known: &str) -> Option<Managed> {
        let mut entries = Vec::new();
        reader.items(|reader| {
            entries.push(Entry::read(reader, known)?);
            Some(())
        })?;
        Some(Managed(entries))
    }

    /// Reads `managedFields` as a client sends it. What is as in `known`, which are the owners so far, is taken from there.
    /// `None` if an entry is not of a form that can be kept.
    pub fn decode(entries: &[Value], known: &Managed) -> Option<Managed> {
        let entries = entries.iter().map(|entry| Entry::decode(entry, known));
        entries.collect::<Option<_>>().map(Managed)
    }

    /// Writes `managedFields` as JSON: appliers first, then by time and name.
    pub fn encode(&self) -> String {
        let mut entries: Vec<&Entry> = self.0.iter().collect();
        entries.sort_by_key(|entry| (entry.operation, &entry.time, &entry.manager));
        let fields = self.0.iter().map(|entry| entry.fields.json().len() + 200);
        let mut json = String::with_capacity(2 + fields.sum::<usize>());
        json.push('[');
        for (at, entry) in entries.into_iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            entry.encode(&mut json);
        }
        json.push(']');
        json
    }

    /// Writes down what somebody has changed: it is the writer's now.
    pub fn update(&mut self, changes: &Changes<'_>, manager: &Manager, now: &str) {
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

    /// Puts a configuration over an object, in place. Returns what stood there before; the owners are as they are to be written
    /// down, whether that is anything or not.
    ///
    /// # Errors
    /// If somebody else owns a field that would change. Object and owners are as before then.
    pub fn apply<'a, S: Schema>(
        &mut self,
        manager: &Manager,
        live: &mut Value,
        apply: Apply<'a, S>,
    ) -> Result<Displaced<'a>, Conflicts> {
        let Configuration {
            value: config,
            schema,
            ignored,
            ..
        } = *apply.config;
        let fields = Fields::from_json(apply.config.written.as_str());
        // Only one who no longer says all that it said takes something away.
        let before = self.own(manager, Operation::Apply).map(|own| &own.fields);
        let abandoned = before
            .filter(|before| **before != fields)
            .map(|before| (before.set(), apply.config.fields()))
            .filter(|(before, said)| !said.contains(before));
        let unowned = self.unowned(live, &apply, manager);
        let others: Vec<&Entry> = self
            .0
            .iter()
            .chain(&unowned)
            .filter(|entry| !entry.is_of(manager, Operation::Apply))
            .collect();
        let abandoned = abandoned.map(|(before, said)| (before, said, live.clone()));
        let Merged {
            mut displaced,
            mut changes,
        } = merge_into(live, config, schema);
        if let Some((before, said, original)) = abandoned {
            *live = without_abandoned(live, before, &others, &said, schema);
            changes = Changes::of(Some(&original), Some(live), schema).into_owned();
            displaced = match *live == original {
                true => Displaced::default(),
                false => Displaced::one(Some(original)),
            };
        }
        changes.ignore(ignored);
        if !apply.force
            && let Err(conflicts) = find_conflicts(&others, &changes)
        {
            displaced.restore(live);
            return Err(conflicts);
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
        Ok(displaced)
    }

    /// If nobody has kept track of an object, what is there is somebody's.
    fn unowned<S: Schema>(
        &self,
        live: &Value,
        apply: &Apply<'_, S>,
        manager: &Manager,
    ) -> Option<Entry> {
        if !self.0.is_empty() {
            return None;
        }
        let nothing = Value::Object(Map::new());
        let mut there = Changes::of(Some(&nothing), Some(live), apply.config.schema).set;
        there.remove_with_below(apply.config.ignored);
        there.here = false;
        (!there.is_empty()).then(|| Entry {
            manager: Manager {
                name: BEFORE_FIRST_APPLY.to_owned(),
                api_version: manager.api_version.clone(),
                subresource: String::new(),
            },
            operation: Operation::Update,
            time: Some(apply.now.to_owned()),
            fields: there.into_owned().into(),
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
                fields: Fields::default(),
            });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// What is gone is nobody's, what is set is no other's.
    fn take(&mut self, changes: &Changes<'_>, manager: &Manager, operation: Operation) {
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
            let mut ancient: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
            // One more, because what they become is an entry too.
            for oldest in updates.drain(..=beyond) {
                let version = oldest.manager.api_version.clone();
                ancient.entry(version).or_default().push(oldest);
            }
            kept.extend(ancient.into_iter().map(|(api_version, entries)| {
                Entry {
                    manager: Manager {
                        name: ANCIENT.to_owned(),
                        api_version,
                        subresource: String::new(),
                    },
                    operation: Operation::Update,
                    time: entries.last().and_then(|last| last.time.clone()),
                    fields: FieldSet::united(
                        entries.into_iter().map(|entry| entry.fields.into_set()),
                    )
                    .into(),
                }
            }));
        }
        kept.extend(updates);
        self.0 = kept;
    }
}

/// What would change and is another's.
fn find_conflicts(others: &[&Entry], changes: &Changes<'_>) -> Result<(), Conflicts> {
    let mut conflicts: Vec<Conflict> = others
        .iter()
        .filter(|entry| entry.fields.meets(&changes.set))
        .flat_map(|entry| {
            let owner = entry.to_string();
            let paths = entry.fields.set().common(&changes.set).paths().into_iter();
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
    merged: &Value,
    before: &FieldSet<'_>,
    others: &[&Entry],
    said: &FieldSet<'_>,
    schema: S,
) -> Value {
    let before = before.with_named(schema);
    let nothing = || Value::Object(Map::new());
    let pruned = without(merged, &before, schema).unwrap_or_else(nothing);
    // What others own comes back, and so does what the applier never had.
    let mut gone = fields_of_stored(merged, schema).with_named(schema);
    gone.remove(&fields_of_stored(&pruned, schema).with_named(schema));
    // What the applier says counts even where nobody can own it: an object does not lose its name.
    let others = others.iter().map(|entry| entry.fields.set());
    for said in others.chain([said]) {
        gone.remove(&said.with_named(schema));
    }
    let gone = gone.common(&before);
    without(merged, &gone, schema).unwrap_or_else(nothing)
}
