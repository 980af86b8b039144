//! Merging, comparing, removing fields and computing fields of single values.

use tidings_json::{Value, json};
use tidings_merge::{Changes, FieldSet, fields_of, merge, without};

use crate::schema::Cases;

#[test]
fn a_configuration_over_an_object() {
    Cases::read(include_str!("../cases/merge.json")).check(|case, schema| {
        let merged = merge(&case["live"], &case["config"], schema);
        same(&merged, &case["result"])
    });
}

#[test]
fn what_is_different_between_two_objects() {
    Cases::read(include_str!("../cases/compare.json")).check(|case, schema| {
        let set = |name: &str| decode(&case[name]);
        let mut changed = set("added");
        changed.add(set("modified"));
        let changes = Changes::of(Some(&case["old"]), Some(&case["new"]), schema);
        same(&encode(&changes.set), &encode(&changed))?;
        same(&encode(&changes.removed), &encode(&set("removed")))?;
        // In the other direction, added fields are removed.
        let mut changed = set("removed");
        changed.add(set("modified"));
        let changes = Changes::of(Some(&case["new"]), Some(&case["old"]), schema);
        same(&encode(&changes.set), &encode(&changed))?;
        same(&encode(&changes.removed), &encode(&set("added")))
    });
}

#[test]
fn the_fields_of_an_object() {
    Cases::read(include_str!("../cases/fields.json")).check(|case, schema| {
        match fields_of(&case["object"], schema) {
            Ok(fields) => same(&encode(&fields), &case["set"]),
            // A configuration may not have duplicates, so this crate reports an error.
            Err(_) if case.get("dup").is_some() => Ok(()),
            Err(errors) => Err(errors.to_string()),
        }
    });
}

#[test]
fn an_object_without_some_fields() {
    Cases::read(include_str!("../cases/remove.json")).check(|case, schema| {
        let left = without(&case["object"], &decode(&case["set"]), schema);
        same(&left.unwrap_or(Value::Null), &case["result"])
    });
}

#[test]
fn objects_that_fit_their_types_and_others() {
    Cases::read(include_str!("../cases/validate.json")).check(|case, schema| {
        match (fields_of(&case["object"], schema), case.get("error")) {
            (Ok(_), None) => Ok(()),
            (Err(ours), Some(theirs)) => same(&json!(ours.to_string()), theirs),
            (Ok(_), Some(theirs)) => Err(format!("{} is taken, not {theirs}", case["object"])),
            (Err(ours), None) => Err(format!("{} is refused: {ours}", case["object"])),
        }
    });
}

fn decode(set: &Value) -> FieldSet<'static> {
    FieldSet::decode(&set.to_string()).unwrap_or_default()
}

fn encode(set: &FieldSet<'_>) -> Value {
    serde_json::from_str(&set.encode()).expect("JSON")
}

fn same(ours: &Value, theirs: &Value) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("\n  is    {ours}\n  wants {theirs}"))
}
