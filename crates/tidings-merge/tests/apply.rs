//! Stories of appliers and updaters of one object: after each write, the object and the owners of its fields.

use tidings_json::{Value, json};
use tidings_merge::{
    Apply, Changes, Configuration, FieldSet, ListKeys, Managed, Manager, MergeShape, Scalar,
    Schema, fields_of, merge,
};

/// The schema of the objects in the stories.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TestSchema {
    Object,
    Text,
    Number,
    Flag,
    Texts,
    Map,
    Atomic,
    AtomicMap,
    Set,
    Ports,
    Port,
    Struct,
}

impl Schema for TestSchema {
    fn shape(self) -> MergeShape<TestSchema> {
        match self {
            TestSchema::Object | TestSchema::Struct | TestSchema::Port => MergeShape::Struct,
            TestSchema::Text => MergeShape::Scalar(Scalar::String),
            TestSchema::Number => MergeShape::Scalar(Scalar::Number),
            TestSchema::Flag => MergeShape::Scalar(Scalar::Bool),
            TestSchema::Texts => MergeShape::Map(TestSchema::Text),
            TestSchema::Map => MergeShape::Map(TestSchema::Struct),
            TestSchema::Atomic | TestSchema::AtomicMap => MergeShape::Atomic,
            TestSchema::Set => MergeShape::Set(TestSchema::Text),
            TestSchema::Ports => MergeShape::Keyed(TestSchema::Port),
        }
    }

    fn field(self, name: &str) -> Option<TestSchema> {
        Some(match (self, name) {
            (TestSchema::Object, "texts") => TestSchema::Texts,
            (TestSchema::Object, "map") => TestSchema::Map,
            (TestSchema::Object, "list") => TestSchema::Atomic,
            (TestSchema::Object, "whole") => TestSchema::AtomicMap,
            (TestSchema::Object, "set") => TestSchema::Set,
            (TestSchema::Object, "ports") => TestSchema::Ports,
            (TestSchema::Object | TestSchema::Struct, "struct") => TestSchema::Struct,
            (TestSchema::Object | TestSchema::Struct, "text")
            | (TestSchema::Port, "name" | "protocol") => TestSchema::Text,
            (TestSchema::Object | TestSchema::Struct, "number")
            | (TestSchema::Port, "port" | "target") => TestSchema::Number,
            (TestSchema::Object | TestSchema::Struct, "flag") => TestSchema::Flag,
            _ => return None,
        })
    }

    fn keys(self) -> ListKeys {
        vec![
            ("port".into(), None),
            ("protocol".into(), Some(json!("TCP"))),
        ]
        .into()
    }
}

/// An object, its `managedFields` and a clock.
#[derive(Debug, Default)]
struct Story {
    object: Option<Value>,
    managed: Managed,
    minute: usize,
}

fn named(name: &str) -> Manager {
    Manager {
        name: name.into(),
        api_version: "v1".into(),
        subresource: String::new(),
    }
}

impl Story {
    fn live(&self) -> Value {
        self.object.clone().unwrap_or_else(|| json!({}))
    }

    fn now(&mut self) -> String {
        self.minute += 1;
        format!("2026-01-01T00:{:02}:00Z", self.minute)
    }

    fn try_apply(&mut self, who: &str, config: &Value, force: bool) -> Result<bool, String> {
        let (mut object, now) = (self.live(), self.now());
        let nothing = FieldSet::default();
        let config = Configuration::new(config, TestSchema::Object, &nothing);
        let apply = Apply {
            config: &config.map_err(|errors| errors.to_string())?,
            force,
            now: &now,
        };
        let outcome = self.managed.apply(&named(who), &mut object, apply);
        let displaced = outcome.map_err(|conflicts| {
            assert_eq!(object, self.live(), "it is as before");
            conflicts.to_string()
        })?;
        let is_new = !displaced.is_empty();
        let mut before = object.clone();
        displaced.restore(&mut before);
        assert_eq!(before, self.live());
        self.object = Some(object);
        Ok(is_new)
    }

    fn apply(&mut self, who: &str, config: &Value) -> bool {
        self.try_apply(who, config, false).expect("no conflict")
    }

    fn update(&mut self, who: &str, object: Value) {
        let (live, now) = (self.live(), self.now());
        let changes = Changes::of(Some(&live), Some(&object), TestSchema::Object);
        self.managed.update(&changes, &named(who), &now);
        self.object = Some(object);
    }

    fn entries(&self) -> Vec<Value> {
        serde_json::from_str(&self.managed.encode()).expect("JSON")
    }

    fn owned(&self, who: &str) -> String {
        let owner = self
            .managed
            .0
            .iter()
            .find(|entry| entry.manager.name == who);
        owner.map_or_else(String::new, |entry| entry.fields.json().to_owned())
    }

    #[track_caller]
    fn is(&self, object: &Value, owners: &[(&str, &str)]) {
        assert_eq!(self.live(), *object);
        for (who, fields) in owners {
            assert_eq!(self.owned(who), *fields, "what {who} owns");
        }
    }
}

#[test]
fn what_is_no_longer_applied_goes() {
    let mut story = Story::default();
    story.apply(
        "one",
        &json!({"text": "a", "texts": {"a": "1", "b": "1"}, "set": ["x", "y"]}),
    );
    story.is(
        &json!({"text": "a", "texts": {"a": "1", "b": "1"}, "set": ["x", "y"]}),
        &[(
            "one",
            r#"{"f:set":{"v:\"x\"":{},"v:\"y\"":{}},"f:text":{},"f:texts":{"f:a":{},"f:b":{}}}"#,
        )],
    );
    story.apply("one", &json!({"texts": {"b": "1"}, "set": ["y", "z"]}));
    story.is(
        &json!({"texts": {"b": "1"}, "set": ["y", "z"]}),
        &[(
            "one",
            r#"{"f:set":{"v:\"y\"":{},"v:\"z\"":{}},"f:texts":{"f:b":{}}}"#,
        )],
    );
    story.apply("one", &json!({}));
    story.is(&json!({}), &[("one", "")]);
}

#[test]
fn what_another_owns_stays_when_one_lets_go() {
    let mut story = Story::default();
    story.apply("one", &json!({"texts": {"a": "1", "b": "1"}}));
    assert!(
        !story.apply("two", &json!({"texts": {"b": "1"}})),
        "nothing changes"
    );
    story.apply("one", &json!({"texts": {"a": "1"}}));
    story.is(
        &json!({"texts": {"a": "1", "b": "1"}}),
        &[
            ("one", r#"{"f:texts":{"f:a":{}}}"#),
            ("two", r#"{"f:texts":{"f:b":{}}}"#),
        ],
    );
    story.apply("two", &json!({}));
    story.is(&json!({"texts": {"a": "1"}}), &[("two", "")]);
}

#[test]
fn another_value_of_what_another_owns_is_a_conflict_unless_forced() {
    let mut story = Story::default();
    story.apply("one", &json!({"texts": {"a": "1", "b": "1"}, "number": 1}));
    story.update(
        "up",
        json!({"texts": {"a": "1", "b": "1"}, "number": 1, "flag": true}),
    );
    let config = json!({"texts": {"a": "2", "b": "2"}, "flag": false});
    assert_eq!(
        story.try_apply("two", &config, false).unwrap_err(),
        "Apply failed with 3 conflicts: conflicts with \"one\":\n- .texts.a\n- .texts.b\nconflicts with \"up\" using v1:\n- .flag"
    );
    assert_eq!(
        story
            .try_apply("two", &json!({"number": 2}), false)
            .unwrap_err(),
        r#"Apply failed with 1 conflict: conflict with "one": .number"#
    );
    assert_eq!(story.owned("two"), "", "nothing has been written");
    story.try_apply("two", &config, true).unwrap();
    story.is(
        &json!({"texts": {"a": "2", "b": "2"}, "number": 1, "flag": false}),
        &[
            ("one", r#"{"f:number":{}}"#),
            ("two", r#"{"f:flag":{},"f:texts":{"f:a":{},"f:b":{}}}"#),
            ("up", ""),
        ],
    );
}

#[test]
fn applying_the_same_again_changes_nothing_and_keeps_the_time() {
    let mut story = Story::default();
    let config = json!({"ports": [{"port": 80}], "whole": {"a": 1}});
    assert!(story.apply("one", &config));
    let before = story.managed.encode();
    assert!(!story.apply("one", &config));
    assert_eq!(story.managed.encode(), before);
}

#[test]
fn entries_that_nobody_can_keep_are_none() {
    let good = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}});
    let read = |entries: &Value| serde_json::from_str::<Managed>(&entries.to_string()).unwrap();
    assert_eq!(read(&json!([good])).0.len(), 1);
    for name in ["operation", "apiVersion", "fieldsV1"] {
        let mut odd = good.clone();
        odd[name].take();
        assert_eq!(read(&json!([good, odd])), Managed::default(), "{name}");
        let sent = [good.clone(), odd];
        assert_eq!(Managed::decode(&sent, &Managed::default()), None, "{name}");
    }
}

#[test]
fn one_who_changes_nothing_has_no_time() {
    let mut story = Story::default();
    story.apply("one", &json!({"text": "a"}));
    story.apply("two", &json!({"text": "a"}));
    let entries = story.entries();
    let names: Vec<_> = entries.iter().map(|entry| &entry["manager"]).collect();
    assert_eq!(names, ["two", "one"], "no time comes first");
    assert_eq!(entries[0].get("time"), None);
}

#[test]
fn items_of_lists_are_told_apart_by_their_keys_and_defaults() {
    let mut story = Story::default();
    story.apply(
        "one",
        &json!({"ports": [{"port": 80, "name": "a"}, {"port": 443}]}),
    );
    story.apply(
        "two",
        &json!({"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "target": 8080}]}),
    );
    story.is(
        &json!({"ports": [
            {"port": 80, "protocol": "UDP"},
            {"port": 80, "name": "a", "protocol": "TCP", "target": 8080},
            {"port": 443},
        ]}),
        &[(
            "one",
            r#"{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}"#,
        )],
    );
    story.apply("two", &json!({}));
    story.is(
        &json!({"ports": [{"port": 80, "name": "a"}, {"port": 443}]}),
        &[("two", "")],
    );
}

#[test]
fn atomic_values_are_one_owners() {
    let mut story = Story::default();
    story.apply(
        "one",
        &json!({"list": ["a", "b"], "whole": {"a": 1, "b": 2}}),
    );
    assert_eq!(story.owned("one"), r#"{"f:list":{},"f:whole":{}}"#);
    let other = json!({"list": ["a"]});
    assert_eq!(
        story.try_apply("two", &other, false).unwrap_err(),
        r#"Apply failed with 1 conflict: conflict with "one": .list"#
    );
    story.try_apply("two", &other, true).unwrap();
    story.is(
        &json!({"list": ["a"], "whole": {"a": 1, "b": 2}}),
        &[("one", r#"{"f:whole":{}}"#), ("two", r#"{"f:list":{}}"#)],
    );
}

#[test]
fn an_updater_owns_what_it_changes_and_what_is_new_with_all_around_it() {
    let mut story = Story::default();
    story.update(
        "up",
        json!({"struct": {"text": "a", "struct": {}}, "texts": {"a": "1"}, "set": ["x"]}),
    );
    story.is(
        &story.live(),
        &[(
            "up",
            r#"{"f:set":{".":{},"v:\"x\"":{}},"f:struct":{".":{},"f:struct":{},"f:text":{}},"f:texts":{".":{},"f:a":{}}}"#,
        )],
    );
    story.update(
        "down",
        json!({"struct": {"text": "b", "struct": {}}, "set": ["x"]}),
    );
    assert_eq!(story.owned("down"), r#"{"f:struct":{"f:text":{}}}"#);
    assert_eq!(
        story.owned("up"),
        r#"{"f:set":{".":{},"v:\"x\"":{}},"f:struct":{".":{},"f:struct":{}}}"#
    );
}

#[test]
fn what_was_there_before_the_first_apply_is_somebodys() {
    let mut story = Story {
        object: Some(json!({"texts": {"a": "1"}, "number": 1})),
        ..Story::default()
    };
    assert_eq!(
        story
            .try_apply("one", &json!({"number": 2}), false)
            .unwrap_err(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .number"#
    );
    story.apply("one", &json!({"texts": {"a": "1"}}));
    assert_eq!(
        story.owned("before-first-apply"),
        r#"{"f:number":{},"f:texts":{".":{},"f:a":{}}}"#
    );
}

#[test]
fn null_and_empty_values_are_owned() {
    let mut story = Story::default();
    story.apply(
        "one",
        &json!({"texts": {}, "struct": null, "map": {"a": {}}}),
    );
    assert_eq!(
        story.owned("one"),
        r#"{"f:map":{"f:a":{}},"f:struct":{},"f:texts":{}}"#
    );
}

#[test]
fn what_does_not_fit_is_told_with_its_path() {
    for (config, errors) in [
        (
            json!({"nosuch": 1}),
            ".nosuch: field not declared in schema",
        ),
        (
            json!({"text": 1}),
            ".text: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            json!({"number": "1"}),
            ".number: expected numeric (int or float), got string",
        ),
        (json!({"flag": "x"}), ".flag: expected boolean, got &{x}"),
        (json!({"struct": 7}), ".struct: expected map, got &{7}"),
        (
            json!({"ports": {"a": 1}}),
            ".ports: expected list, got &{map[a:1]}",
        ),
        (
            json!({"ports": ["x"]}),
            ".ports: element 0: associative list with keys may not have non-map elements",
        ),
        (
            json!({"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}),
            r#".ports: duplicate entries for key [port=80,protocol="TCP"]"#,
        ),
        (
            json!({"set": ["x", {"a": 2}]}),
            ".set: element 1: associative list without keys has an element that's a map type",
        ),
        (
            json!({"set": ["x", "x"]}),
            r#".set: duplicate entries for key [="x"]"#,
        ),
        (
            json!({"text": {"a": 1}, "struct": {"flag": 1}}),
            "errors:\n  .text: expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"a\":1}}\n  .struct.flag: expected boolean, got &{1}",
        ),
    ] {
        let found = fields_of(&config, TestSchema::Object).expect_err(errors);
        assert_eq!(found.to_string(), errors, "{config}");
    }
}

/// Each row: the object's list, the applied list, the merged list. The order of the configuration counts; items that only the
/// object has stay next to their neighbours.
#[test]
fn the_order_of_items() {
    for (live, config, merged) in [
        (&["a", "b", "c"][..], &["c", "a"][..], &["b", "c", "a"][..]),
        (&["a", "b"], &["a", "x", "b"], &["a", "x", "b"]),
        (&["a", "b", "c"], &["x", "c"], &["a", "b", "x", "c"]),
        (&["a", "b"], &[], &["a", "b"]),
        (&[], &["b", "a"], &["b", "a"]),
        (&["a", "b", "c", "d"], &["d", "b"], &["a", "c", "d", "b"]),
        (&["a", "b", "c"], &["c", "b", "a"], &["c", "b", "a"]),
    ] {
        let (live, config) = (json!({"set": live}), json!({"set": config}));
        assert_eq!(
            merge(&live, &config, TestSchema::Object)["set"],
            json!(merged),
            "{live} with {config}"
        );
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn object() -> impl Strategy<Value = Value> {
        let texts = prop::collection::btree_map("[abc]", "[12]", 0..3);
        let set = prop::collection::btree_set("[xyz]", 0..3);
        let ports = prop::collection::btree_map(1..4_u16, prop::option::of("[pq]"), 0..3);
        let scalars = (
            prop::option::of("[st]"),
            prop::option::of(0..3_u8),
            prop::option::of(any::<bool>()),
        );
        (texts, set, ports, scalars).prop_map(|(texts, set, ports, (text, number, flag))| {
            let ports: Vec<Value> = ports
                .into_iter()
                .map(|(port, name)| match name {
                    Some(name) => json!({"port": port, "name": name}),
                    None => json!({"port": port}),
                })
                .collect();
            let mut object = json!({});
            let mut put = |name: &str, value: Value| {
                let empty = value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(tidings_json::Map::is_empty);
                if !value.is_null() && !empty {
                    object[name] = value;
                }
            };
            put("texts", json!(texts));
            put("set", json!(set));
            put("ports", json!(ports));
            put("text", json!(text));
            put("number", json!(number));
            put("flag", json!(flag));
            object
        })
    }

    proptest! {
        #[test]
        fn the_applied_is_there_and_owned(steps in prop::collection::vec((0..3_u8, any::<bool>(), object()), 1..12)) {
            let mut story = Story::default();
            for (who, updates, object) in steps {
                let who = format!("m{who}");
                if updates {
                    story.update(&format!("up-{who}"), object);
                    continue;
                }
                story.try_apply(&who, &object, true).unwrap();
                let fields = fields_of(&object, TestSchema::Object).unwrap();
                prop_assert_eq!(merge(&story.live(), &object, TestSchema::Object), story.live(), "all of it is there");
                prop_assert_eq!(story.owned(&who), if fields.is_empty() { String::new() } else { fields.encode() });
                prop_assert!(!story.try_apply(&who, &object, false).unwrap(), "again changes nothing");
                let live = story.live();
                let there = fields_of(&live, TestSchema::Object).unwrap();
                for entry in &story.managed.0 {
                    let gone: Vec<_> = entry.fields.set().paths().into_iter()
                        .filter(|path| !there.paths().iter().any(|known| known.starts_with(path.as_str())))
                        .collect();
                    prop_assert!(gone.is_empty(), "{:?} owns what is not there: {:?}", entry.manager.name, gone);
                }
            }
        }

        #[test]
        fn sets_agree_with_each_other(one in object(), two in object(), three in object()) {
            let objects = [one, two, three];
            let [one, two, three] = objects.each_ref().map(|object| fields_of(object, TestSchema::Object).unwrap());
            let common = one.common(&two);
            prop_assert_eq!(one.meets(&two), !common.is_empty());
            prop_assert!(one.contains(&common) && two.contains(&common));
            let mut left = one.clone();
            left.remove(&two);
            prop_assert_eq!(two.contains(&one), left.is_empty());
            prop_assert!(!left.meets(&two));
            left.add(common);
            prop_assert_eq!(&left, &one);
            let all = FieldSet::united([one.clone(), two.clone(), three.clone()]);
            prop_assert!([one, two, three].iter().all(|set| all.contains(set)));
            prop_assert_eq!(FieldSet::decode(&all.encode()).unwrap(), all.into_owned());
        }

        #[test]
        fn owners_are_read_as_they_are_written(steps in prop::collection::vec((0..3_u8, any::<bool>(), object()), 1..6)) {
            let mut story = Story::default();
            for (who, updates, object) in steps {
                let who = format!("m{who}");
                if updates {
                    story.update(&who, object);
                } else {
                    story.try_apply(&who, &object, true).unwrap();
                }
            }
            let written = story.managed.encode();
            for known in [&Managed::default(), &story.managed] {
                prop_assert_eq!(&Managed::decode(&story.entries(), known).unwrap().encode(), &written);
            }
            prop_assert_eq!(serde_json::from_str::<Managed>(&written).unwrap().encode(), written);
        }
    }
}
