//! The tables that upstream publishes for what it does to objects, as data in `tests/data/published.json`. Many of their schemas
//! are not structural, so the functions behind [`crate::Schema`] are called.

use serde_json::Value;
use tidings_api::FieldError;

use crate::node::Node;
use crate::shape::{self, Pruner};
use crate::text::Path;
use crate::{lists, meta};

struct Case {
    name: Value,
    schema: Option<Node>,
    object: Value,
    becomes: Value,
    /// The object is a resource.
    root: bool,
    json: Value,
}

impl Case {
    fn texts(&self, member: &str) -> Vec<String> {
        let texts = self.json[member].as_array().into_iter().flatten();
        let text = |text: &Value| text.as_str().expect("it is text").to_owned();
        texts.map(text).collect()
    }

    /// Types and paths of errors, sorted.
    fn compare_errors(&self, found: &[FieldError]) {
        let mut found: Vec<(&str, &str)> = found
            .iter()
            .map(|error| (error.reason(), error.path()))
            .collect();
        found.sort_unstable();
        let errors = self.json["errors"].as_array().expect("a list");
        let text = |value: &'_ Value| value.as_str().expect("it is text").to_owned();
        let mut expected: Vec<(String, String)> = errors
            .iter()
            .map(|error| (text(&error[0]), text(&error[1])))
            .collect();
        expected.sort_unstable();
        let expected: Vec<(&str, &str)> = expected
            .iter()
            .map(|(reason, path)| (reason.as_str(), path.as_str()))
            .collect();
        assert_eq!(found, expected, "{}", self.name);
    }
}

fn cases(table: &str) -> Vec<Case> {
    let text = include_str!("../tests/data/published.json");
    let tables: Value = serde_json::from_str(text).expect("the data is JSON");
    let cases = tables[table].as_array().expect("a list").clone();
    assert!(!cases.is_empty());
    let read = |json: Value| {
        let schema = json.get("schema").filter(|schema| !schema.is_null());
        let schema = schema.map(|schema| {
            let mut node = Node::parse(schema, &Path::default()).expect("it can be read");
            node.seal();
            node
        });
        Case {
            name: json["name"].clone(),
            schema,
            object: json["object"].clone(),
            becomes: json.get("becomes").unwrap_or(&json["object"]).clone(),
            root: json["root"] == true,
            json,
        }
    };
    cases.into_iter().map(read).collect()
}

#[test]
fn w180_pruning() {
    for case in cases("prune") {
        let mut object = case.object.clone();
        let mut pruner = Pruner::default();
        pruner.prune(&mut object, case.schema.as_ref(), case.root);
        assert_eq!(object, case.becomes, "{}", case.name);
        pruner.pruned.sort();
        assert_eq!(pruner.pruned, case.texts("unknown"), "{}", case.name);
    }
}

#[test]
fn w180_defaults() {
    for case in cases("default") {
        let mut object = case.object.clone();
        if let Some(schema) = &case.schema {
            shape::default(&mut object, schema);
        }
        assert_eq!(object, case.becomes, "{}", case.name);
    }
}

#[test]
fn w180_nulls_without_defaults() {
    for case in cases("nulls") {
        let mut object = case.object.clone();
        if let Some(schema) = &case.schema {
            shape::drop_nulls(&mut object, schema);
        }
        assert_eq!(object, case.becomes, "{}", case.name);
    }
}

#[test]
fn w179_sets_and_list_maps() {
    for case in cases("lists") {
        let mut found = Vec::new();
        if let Some(schema) = &case.schema {
            lists::check(&case.object, schema, &mut Path::new("root"), &mut found);
        }
        case.compare_errors(&found);
    }
}

#[test]
fn w180_metadata_of_embedded_resources() {
    for case in cases("coerce") {
        let mut object = case.object.clone();
        let mut unknown = Vec::new();
        let Some(schema) = &case.schema else {
            continue;
        };
        let drop_malformed = case.json["drop"] == true;
        let nowhere = Path::default();
        let coerced = meta::coerce(
            &mut object,
            schema,
            case.root,
            drop_malformed,
            &nowhere,
            &mut unknown,
        );
        assert_eq!(
            coerced.is_err(),
            case.json["refused"] == true,
            "{}",
            case.name
        );
        if coerced.is_ok() {
            assert_eq!(object, case.becomes, "{}", case.name);
            unknown.sort();
            assert_eq!(unknown, case.texts("unknown"), "{}", case.name);
        }
    }
}

#[test]
fn w179_embedded_resources() {
    for case in cases("resources") {
        let mut found = Vec::new();
        let schema = case.schema.as_ref().expect("there is one");
        meta::check(
            &case.object,
            schema,
            case.root,
            &Path::default(),
            &mut found,
        );
        case.compare_errors(&found);
    }
}
