//! Runs the test tables that upstream publishes, as data in `tests/data/`. Many of their schemas are not structural, so the tests
//! call the functions behind [`crate::Schema`].

use tidings_api::FieldError;
use tidings_json::Value;

use crate::node::SchemaNode;
use crate::shape::{self, Pruner};
use crate::text::FieldPath;
use crate::tolerated::ToleratedFaults;
use crate::{cel, lists, meta, rules, value};

/// One row of a table.
struct PublishedCase {
    name: Value,
    schema: Option<SchemaNode>,
    object: Value,
    becomes: Value,
    /// True if the object is a resource.
    root: bool,
    json: Value,
}

impl PublishedCase {
    fn texts(&self, member: &str) -> Vec<String> {
        let texts = self.json[member].as_array().into_iter().flatten();
        let text = |text: &Value| text.as_str().expect("it is text").to_owned();
        texts.map(text).collect()
    }

    /// Compares the reasons and paths of errors, sorted.
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

fn cases(table: &str) -> Vec<PublishedCase> {
    let text = include_str!("../tests/data/published.json");
    let tables: Value = serde_json::from_str(text).expect("the data is JSON");
    let cases = tables[table].as_array().expect("a list").clone();
    assert!(!cases.is_empty());
    let read = |json: Value| {
        let schema = json.get("schema").filter(|schema| !schema.is_null());
        let schema = schema.map(|schema| {
            let mut node =
                SchemaNode::parse(schema, &FieldPath::default()).expect("it can be read");
            node.seal();
            node
        });
        PublishedCase {
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
            lists::check(
                &case.object,
                schema,
                &mut FieldPath::new("root"),
                &mut found,
            );
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
        let nowhere = FieldPath::default();
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
            &FieldPath::default(),
            &mut found,
        );
        case.compare_errors(&found);
    }
}

/// Compiles the rules of a schema without a cost limit. Returns the schema and the errors of rules.
fn with_rules(schema: &Value, path: &FieldPath) -> (SchemaNode, Vec<FieldError>) {
    let mut root = SchemaNode::parse(schema, path).expect("it can be read");
    root.seal();
    let mut compiler = cel::RuleCompiler::new(true);
    let tolerated = ToleratedFaults::SERVABLE;
    let problems = rules::check(&mut root, path, tolerated, Some(&mut compiler));
    root.seal();
    (root, problems.rules)
}

#[test]
fn w179_values() {
    let text = include_str!("../tests/data/values.json");
    let tables: Value = serde_json::from_str(text).expect("the data is JSON");
    for case in tables.as_array().expect("a list") {
        let nowhere = FieldPath::default();
        let (root, problems) = with_rules(&case["schema"], &nowhere);
        assert!(problems.is_empty(), "{}: {problems:?}", case["name"]);
        for object in case["objects"].as_array().expect("a list") {
            let (new, old) = (&object["object"], object.get("old"));
            let mut found = Vec::new();
            value::check(new, &root, None, &nowhere, &mut found);
            let off = cel::Ratcheting::Off;
            cel::validate(new, old, &root, &nowhere, false, off, &mut found);
            let mut found: Vec<String> = found.iter().map(FieldError::to_string).collect();
            found.sort();
            found.dedup();
            let known = object.get("errors").and_then(Value::as_array);
            let text = |text: &Value| text.as_str().expect("it is text").to_owned();
            let mut known: Vec<String> = known.into_iter().flatten().map(text).collect();
            known.sort();
            assert_eq!(found, known, "{}: {new}", case["name"]);
        }
    }
}

/// Expressions whose result differs from upstream's, with the reason.
const DIFFERENT: &[(&str, &[&str])] = &[
    (
        "the library has its own words and its own rules for beginnings of names",
        &[
            r#"format.dns1123Label().validate("contains a space").value()[0] == "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \'-\', and must start and end with an alphanumeric character (e.g. \'my-name\',  or \'123-abc\', regex used for validation is \'[a-z0-9]([-a-z0-9]*[a-z0-9])?\')""#,
            r#"format.dns1123SubdomainPrefix().validate("mysubdomain.prefix.-") == optional.none()"#,
            "'%e'.format([3.14]) == '3.140000×10⁰⁰'",
        ],
    ),
    (
        "times are in UTC here",
        &["string(self.val11) == self.val10"],
    ),
    (
        "the place of the error is that of the first call or of the whole list",
        &[
            "duration('1us') < duration('1nns')",
            "[1, 'a', false].filter(x, string(x) == 'a')",
        ],
    ),
    (
        "numbers that are no times are found when the rule runs",
        &["timestamp(-62135596801)"],
    ),
    (
        "rules do not run over values of the wrong type",
        &[
            "has(self.intorstring)",
            "has(self.l)",
            "has(self.lm)",
            "has(self.m)",
            "has(self.o)",
            "has(self.s)",
            "self.nullable[0] == 'x'",
        ],
    ),
];

#[test]
fn w179_expressions() {
    let text = include_str!("../tests/data/expressions.json");
    let tables: Value = serde_json::from_str(text).expect("the data is JSON");
    let mut different: Vec<String> = Vec::new();
    for case in tables.as_array().expect("a list") {
        let errors_of = |rule: &str, is_root: bool| {
            let mut schema = case["schema"].clone();
            // A rule of several lines needs a message.
            let message = if rule.contains('\n') { "failed" } else { "" };
            schema["x-kubernetes-validations"] =
                tidings_json::json!([{"rule": rule, "message": message}]);
            let path = FieldPath::new("root");
            let (root, mut found) = with_rules(&schema, &path);
            assert!(root.rules.len() == 1 || !found.is_empty(), "{rule}");
            let (new, old) = (&case["object"], case.get("old"));
            let off = cel::Ratcheting::Off;
            cel::validate(new, old, &root, &path, is_root, off, &mut found);
            found
        };
        let is_root = case["root"] == true;
        for rule in case["valid"].as_array().expect("a list") {
            let rule = rule.as_str().expect("it is text");
            if !errors_of(rule, is_root).is_empty() {
                different.push(rule.to_owned());
            }
        }
        for (rule, part) in case["errors"].as_object().expect("an object") {
            let part = part.as_str().expect("it is text");
            // This crate reports the error when the rule is compiled.
            let part = part.strip_prefix("compile error: ").unwrap_or(part);
            let found = errors_of(rule, true);
            let is_told = |error: &FieldError| error.to_string().contains(part);
            if found.is_empty() || !found.iter().all(is_told) {
                different.push(rule.clone());
            }
        }
    }
    let known = DIFFERENT.iter().flat_map(|(_, rules)| *rules);
    let mut known: Vec<&str> = known.copied().collect();
    known.sort_unstable();
    different.sort();
    assert_eq!(different, known);
}

/// Rules at all levels of a schema. Every error must contain one of the expected texts, and every text must be in an error.
#[test]
fn w179_rules_at_all_levels_and_after_updates() {
    let text = include_str!("../tests/data/levels.json");
    let tables: Value = serde_json::from_str(text).expect("the data is JSON");
    for (table, ratcheting) in [
        ("levels", cel::Ratcheting::Off),
        ("optional", cel::Ratcheting::Off),
        ("ratcheting", cel::Ratcheting::On),
    ] {
        for case in tables[table].as_array().expect("a list") {
            let path = FieldPath::new("root");
            let (root, mut found) = with_rules(&case["schema"], &path);
            let (new, old) = (&case["object"], case.get("old"));
            cel::validate(new, old, &root, &path, false, ratcheting, &mut found);
            let found: Vec<String> = found.iter().map(FieldError::to_string).collect();
            let known = case["errors"].as_array().expect("a list").iter();
            // This crate reports the error when the rule is compiled.
            let known: Vec<&str> = known
                .filter_map(Value::as_str)
                .map(|part| part.strip_prefix("rule compile error: ").unwrap_or(part))
                .collect();
            let told = |error: &String| known.iter().any(|part| error.contains(part));
            let heard = |part: &&str| found.iter().any(|error| error.contains(*part));
            assert!(
                found.iter().all(told) && known.iter().all(heard),
                "{table}: {}: {found:?}, expected {known:?}",
                case["name"]
            );
        }
    }
}
