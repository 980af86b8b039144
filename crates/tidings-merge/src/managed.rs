//! `metadata.managedFields`: the managers of an object and the fields that they own.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;
use tidings_go::quote;
use tidings_json::{Map, Plain, Value, write_string};

use crate::compare::Changes;
use crate::configuration::Configuration;
use crate::displaced::Displaced;
use crate::fields::OwnedFields;
use crate::merge::{Merged, merge_into, without};
use crate::schema::Schema;
use crate::set::FieldSet;
use crate::typed::fields_of_stored;

/// The maximum number of update entries; older ones are merged into one.
const UPDATES_MAX: usize = 10;
/// The only encoding of field sets.
const FIELDS_TYPE: &str = "FieldsV1";
/// The manager of the merged oldest updates.
const ANCIENT: &str = "ancient-changes";
/// The manager of the fields of an object that had no `managedFields` at the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply. Fields that it no longer applies are removed.
    Apply,
    /// Create, replace or patch.
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

/// A writer of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// The name of the manager.
    pub name: String,
    /// The apiVersion in which it writes the object.
    pub api_version: String,
    /// The subresource that it writes to; empty for the object itself.
    pub subresource: String,
}

/// An entry of `managedFields`: the fields that a manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    /// The manager.
    pub manager: Manager,
    /// How the manager writes.
    pub operation: Operation,
    /// The time of its last change; an applier that has changed nothing has none.
    pub time: Option<String>,
    /// The fields that it owns.
    pub fields: OwnedFields,
}

impl ManagedFieldsEntry {
    /// True if this is the entry of a manager. The entry of an applier matches for any apiVersion.
    fn is_of(&self, manager: &Manager, operation: Operation) -> bool {
        self.operation == operation
            && self.manager.name == manager.name
            && self.manager.subresource == manager.subresource
            && (operation == Operation::Apply || self.manager.api_version == manager.api_version)
    }

    /// Reads a stored entry; `known` as in [`Managed::read`].
    fn read(reader: &mut Plain<'_>, known: &str) -> Option<ManagedFieldsEntry> {
        let (mut manager, mut operation, mut fields) = (Manager::default(), None, None);
        let (mut time, mut version) = (None, None);
        reader.members(|name, reader| {
            match name {
                "fieldsV1" if reader.skip_known(known) => {
                    fields = Some(OwnedFields::from_json(known))
                }
                "fieldsV1" => fields = Some(OwnedFields::from_json(reader.skip()?)),
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
        Some(ManagedFieldsEntry {
            manager,
            operation: operation?,
            time,
            fields: fields?,
        })
    }

    /// Reads an entry that a client sends. Its fields are mostly those of a `known` entry, which are shared then.
    fn decode(value: &Value, known: &Managed) -> Option<ManagedFieldsEntry> {
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
        Some(ManagedFieldsEntry {
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

    /// True if two entries differ in their times only.
    pub fn is_same_but_for_time(&self, other: &ManagedFieldsEntry) -> bool {
        (&self.manager, self.operation, &self.fields)
            == (&other.manager, other.operation, &other.fields)
    }
}

/// The form in conflicts: `"name"`, or `"name" using v1` for an updater.
impl fmt::Display for ManagedFieldsEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.manager.name))?;
        if !self.manager.subresource.is_empty() {
            write!(f, " with subresource {}", quote(&self.manager.subresource))?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.manager.api_version)?;
        }
        Ok(())
    }
}

/// A field that another manager owns with a different value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as errors print it: `"name"`, or `"name" using v1` for an updater.
    pub owner: String,
    /// The path of the field.
    pub path: String,
}

/// The conflicts of a configuration with other managers.
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

/// An apply request.
#[derive(Debug, Clone, Copy)]
pub struct Apply<'a, S> {
    /// The applied configuration.
    pub config: &'a Configuration<'a, S>,
    /// True to take fields from other managers instead of reporting conflicts.
    pub force: bool,
    /// The time of the manager's entry if the object changes.
    pub now: &'a str,
}

/// All entries of `managedFields` of an object.
///
/// `Deserialize` reads what [`Managed::encode`] writes; if one entry is malformed, the result is empty. Field sets stay encoded
/// until they are needed, which is rare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed(pub Vec<ManagedFieldsEntry>);

impl<'de> Deserialize<'de> for Managed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Managed, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WrittenEntry<'a> {
            manager: Option<String>,
            operation: Option<String>,
            api_version: Option<String>,
            time: Option<String>,
            #[serde(borrow)]
            fields_v1: Option<&'a RawValue>,
            subresource: Option<String>,
        }
        let entry = |written: WrittenEntry<'de>| {
            Some(ManagedFieldsEntry {
                manager: Manager {
                    name: written.manager.unwrap_or_default(),
                    api_version: written.api_version?,
                    subresource: written.subresource.unwrap_or_default(),
                },
                operation: Operation::named(&written.operation?)?,
                time: written.time,
                fields: OwnedFields::from_json(written.fields_v1?.get()),
            })
        };
        let written = Vec::<WrittenEntry<'de>>::deserialize(deserializer)?;
        let entries: Option<_> = written.into_iter().map(entry).collect();
        Ok(Managed(entries.unwrap_or_default()))
    }
}

impl Managed {
    /// Reads stored `managedFields`, as [`Managed::encode`] writes it; `None` if the reader meets JSON that is not plain.
    ///
    /// `known` is a `fieldsV1` that some manager probably has: the reader compares it at once instead of searching for its end.
    /// Field sets are half of most objects.
    pub fn read(reader: &mut Plain<'_>, known: &str) -> Option<Managed> {
        let mut entries = Vec::new();
        reader.items(|reader| {
            entries.push(ManagedFieldsEntry::read(reader, known)?);
            Some(())
        })?;
        Some(Managed(entries))
    }

    /// Reads `managedFields` that a client sends. Field sets that are also in `known`, the stored entries, are shared with it.
    /// `None` if an entry is malformed.
    pub fn decode(entries: &[Value], known: &Managed) -> Option<Managed> {
        let entries = entries
            .iter()
            .map(|entry| ManagedFieldsEntry::decode(entry, known));
        entries.collect::<Option<_>>().map(Managed)
    }

    /// Writes `managedFields` as JSON: appliers first, then by time and name.
    pub fn encode(&self) -> String {
        let mut entries: Vec<&ManagedFieldsEntry> = self.0.iter().collect();
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

    /// Records an update: the manager now owns the fields that it has changed.
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

    /// Merges a configuration into an object, in place, and updates the entries. Returns the values that were replaced.
    ///
    /// # Errors
    /// If another manager owns a field that would change. Then object and entries stay unchanged.
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
        let fields = OwnedFields::from_json(apply.config.written.as_str());
        // An apply removes fields only if the manager applied fields before that it no longer applies.
        let before = self.own(manager, Operation::Apply).map(|own| &own.fields);
        let abandoned = before
            .filter(|before| **before != fields)
            .map(|before| (before.set(), apply.config.fields()))
            .filter(|(before, said)| !said.contains(before));
        let unowned = self.unowned(live, &apply, manager);
        let others: Vec<&ManagedFieldsEntry> = self
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

    /// The entry for the fields of an object without `managedFields`: they belong to [`BEFORE_FIRST_APPLY`].
    fn unowned<S: Schema>(
        &self,
        live: &Value,
        apply: &Apply<'_, S>,
        manager: &Manager,
    ) -> Option<ManagedFieldsEntry> {
        if !self.0.is_empty() {
            return None;
        }
        let nothing = Value::Object(Map::new());
        let mut there = Changes::of(Some(&nothing), Some(live), apply.config.schema).set;
        there.remove_with_below(apply.config.ignored);
        there.here = false;
        (!there.is_empty()).then(|| ManagedFieldsEntry {
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

    fn own(&self, manager: &Manager, operation: Operation) -> Option<&ManagedFieldsEntry> {
        self.0.iter().find(|entry| entry.is_of(manager, operation))
    }

    fn entry(&mut self, manager: &Manager, operation: Operation) -> &mut ManagedFieldsEntry {
        let place = self
            .0
            .iter()
            .position(|entry| entry.is_of(manager, operation));
        let place = place.unwrap_or_else(|| {
            self.0.push(ManagedFieldsEntry {
                manager: manager.clone(),
                operation,
                time: None,
                fields: OwnedFields::default(),
            });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// The versions in which fields are owned.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| &*entry.manager.api_version)
    }

    /// Checks that nobody else owns fields that a manager has changed by an apply, in one version of the object.
    ///
    /// # Errors
    /// With those who do.
    pub fn check_in_version(
        &self,
        api_version: &str,
        changes: &Changes<'_>,
        manager: &Manager,
    ) -> Result<(), Conflicts> {
        let others = self.0.iter().filter(|entry| {
            entry.manager.api_version == api_version && !entry.is_of(manager, Operation::Apply)
        });
        find_conflicts(&others.collect::<Vec<_>>(), changes)
    }

    /// Takes fields that a manager has changed in one version of the object from those who own them in that version.
    pub fn take_in_version(&mut self, api_version: &str, changes: &Changes<'_>, manager: &Manager) {
        for entry in &mut self.0 {
            if entry.manager.api_version == api_version && entry.manager.name != manager.name {
                entry.fields.remove(&changes.removed);
                entry.fields.remove(&changes.set);
            }
        }
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    /// Removes changed fields from the entries of other managers, and removed fields from all.
    fn take(&mut self, changes: &Changes<'_>, manager: &Manager, operation: Operation) {
        for entry in &mut self.0 {
            let own = entry.is_of(manager, operation);
            // An applier owns all fields that it applies, also an item whose duplicate was removed.
            if !own || operation == Operation::Update {
                entry.fields.remove(&changes.removed);
            }
            if !own {
                entry.fields.remove(&changes.set);
            }
        }
    }

    /// Merges the oldest update entries above [`UPDATES_MAX`] into one entry for each apiVersion.
    fn merge_oldest(&mut self) {
        let entries = std::mem::take(&mut self.0).into_iter();
        let (mut updates, mut kept): (Vec<ManagedFieldsEntry>, Vec<ManagedFieldsEntry>) =
            entries.partition(|entry| entry.operation == Operation::Update);
        let beyond = updates.len().saturating_sub(UPDATES_MAX);
        if beyond > 0 {
            updates.sort_by(|one, two| one.time.cmp(&two.time));
            let mut ancient: BTreeMap<String, Vec<ManagedFieldsEntry>> = BTreeMap::new();
            // One more than the excess, because the merged entry counts too.
            for oldest in updates.drain(..=beyond) {
                let version = oldest.manager.api_version.clone();
                ancient.entry(version).or_default().push(oldest);
            }
            kept.extend(ancient.into_iter().map(|(api_version, entries)| {
                ManagedFieldsEntry {
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

/// Fails if a changed field belongs to another manager.
fn find_conflicts(others: &[&ManagedFieldsEntry], changes: &Changes<'_>) -> Result<(), Conflicts> {
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

/// Removes the fields that the manager applied `before` and that neither it nor another manager applies now.
fn without_abandoned<S: Schema>(
    merged: &Value,
    before: &FieldSet<'_>,
    others: &[&ManagedFieldsEntry],
    said: &FieldSet<'_>,
    schema: S,
) -> Value {
    let before = before.with_named(schema);
    let nothing = || Value::Object(Map::new());
    let pruned = without(merged, &before, schema).unwrap_or_else(nothing);
    // `gone` are the fields that this removes. Other managers' fields stay, and so do fields that the manager never applied.
    let mut gone = fields_of_stored(merged, schema).with_named(schema);
    gone.remove(&fields_of_stored(&pruned, schema).with_named(schema));
    // Applied fields stay even if no manager can own them: an object keeps its name.
    let others = others.iter().map(|entry| entry.fields.set());
    for said in others.chain([said]) {
        gone.remove(&said.with_named(schema));
    }
    let gone = gone.common(&before);
    without(merged, &gone, schema).unwrap_or_else(nothing)
}
