//! Stories of appliers and updaters of one object: after each step, the object and the owners of its fields.

use std::collections::BTreeMap;

use tidings_json::{Value, json};
use tidings_merge::{Apply, Changes, Configuration, FieldSet, Managed, Manager};

use crate::schema::{Cases, Described};

#[test]
fn stories_of_appliers_and_updaters() {
    Cases::read(include_str!("../cases/stories.json")).check(|case, schema| {
        let mut story = Story {
            object: json!({}),
            managed: Managed::default(),
            ignored: FieldSet::decode(&case["ignored"].to_string()).unwrap_or_default(),
            schema,
        };
        let steps = case["steps"].as_array().expect("steps").iter();
        for (at, step) in steps.enumerate() {
            story
                .step(step)
                .map_err(|why| format!("step {at}: {why}"))?;
        }
        Ok(())
    });
}

struct Story<'a> {
    object: Value,
    managed: Managed,
    ignored: FieldSet<'static>,
    schema: Described<'a>,
}

impl Story<'_> {
    fn step(&mut self, step: &Value) -> Result<(), String> {
        // An empty document counts as an object without members.
        let or_empty = |value: &Value| match value {
            Value::Null => json!({}),
            value => value.clone(),
        };
        let object = or_empty(&step["object"]);
        let done = match (&step["apply"], &step["force"], &step["update"]) {
            (Value::String(who), _, _) => self.apply(&named(who, step), &object, false),
            (_, Value::String(who), _) => self.apply(&named(who, step), &object, true),
            (_, _, Value::String(who)) => {
                self.update(&named(who, step), object);
                Ok(())
            }
            _ => panic!("a step that nobody takes"),
        };
        let conflicts = match done {
            Ok(()) => Vec::new(),
            Err(Refusal::Conflicts(conflicts)) => conflicts,
            Err(Refusal::Misfit(why)) => {
                let expected = step.get("error").is_some();
                return if expected { Ok(()) } else { Err(why) };
            }
        };
        if let Some(error) = step.get("error") {
            return Err(format!("no error, not even {error}"));
        }
        let mut expected: Vec<(String, String)> = match step.get("conflicts") {
            Some(conflicts) => tidings_json::from_value(conflicts.clone()).expect("conflicts"),
            None => Vec::new(),
        };
        expected.sort();
        same("conflicts", &conflicts, &expected)?;
        same("object", &self.object, &or_empty(&step["live"]))?;
        let owners: BTreeMap<String, Value> =
            tidings_json::from_value(step["managed"].clone()).expect("owners");
        same("owners", &self.owners(), &owners)
    }

    fn apply(&mut self, who: &Manager, config: &Value, force: bool) -> Result<(), Refusal> {
        let config = Configuration::new(config, self.schema, &self.ignored)
            .map_err(|errors| Refusal::Misfit(errors.to_string()))?;
        let mut object = self.object.clone();
        let wish = Apply {
            config: &config,
            force,
            now: "2026-01-01T00:00:00Z",
        };
        let applied = self.managed.apply(who, &mut object, wish);
        applied.map_err(|conflicts| {
            let conflicts = conflicts.0.into_iter();
            let mut conflicts: Vec<_> = conflicts
                .map(|conflict| {
                    let owner = conflict.owner.split('"').nth(1).expect("a name").to_owned();
                    (owner, conflict.path)
                })
                .collect();
            conflicts.sort();
            Refusal::Conflicts(conflicts)
        })?;
        self.object = object;
        Ok(())
    }

    fn update(&mut self, who: &Manager, object: Value) {
        let mut changes = Changes::of(Some(&self.object), Some(&object), self.schema);
        changes.ignore(&self.ignored);
        self.managed.update(&changes, who, "2026-01-01T00:00:00Z");
        self.object = object;
    }

    fn owners(&self) -> BTreeMap<String, Value> {
        let entries = self.managed.0.iter();
        entries
            .map(|entry| {
                let fields = serde_json::from_str(entry.fields.json()).expect("JSON");
                (entry.manager.name.clone(), fields)
            })
            .collect()
    }
}

enum Refusal {
    Misfit(String),
    Conflicts(Vec<(String, String)>),
}

fn named(who: &str, step: &Value) -> Manager {
    Manager {
        name: who.into(),
        api_version: step["version"].as_str().expect("a version").into(),
        subresource: String::new(),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{what}\n  is    {ours:?}\n  wants {theirs:?}"))
}
