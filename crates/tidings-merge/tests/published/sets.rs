//! Operations, encoding and display of field sets and path elements.

use tidings_json::{Value, json};
use tidings_merge::{FieldSet, PathElement};

/// A set from `fieldsV1`.
fn set(text: &str) -> FieldSet<'static> {
    FieldSet::decode(text).expect(text)
}

#[track_caller]
fn same(ours: &FieldSet<'_>, theirs: &str) {
    assert_eq!(*ours, set(theirs), "{} is not {theirs}", ours.encode());
}

#[test]
fn two_sets_together() {
    let mut one = set(
        r#"{"f:foo":{".":{},"i:0":{}},"f:bar":{"f:baz":{}},"f:qux":{"k:{\"name\":\"first\"}":{}},
            "f:parent":{"f:child":{"f:grandchild":{}}}}"#,
    );
    let two = set(
        r#"{"f:foo":{"i:1":{}},"f:bar":{".":{},"f:baz":{}},"f:qux":{"k:{\"name\":\"second\"}":{}},"f:parent":{"f:child":{}}}"#,
    );
    one.add(two);
    same(
        &one,
        r#"{"f:foo":{".":{},"i:0":{},"i:1":{}},"f:bar":{".":{},"f:baz":{}},
            "f:qux":{"k:{\"name\":\"first\"}":{},"k:{\"name\":\"second\"}":{}},
            "f:parent":{"f:child":{".":{},"f:grandchild":{}}}}"#,
    );
}

#[test]
fn what_two_sets_share_and_what_only_one_has() {
    let first = r#"k:{\"name\":\"first\"}"#;
    let one = set(&format!(
        r#"{{"f:a0":{{}},"f:a1":{{}},"f:foo":{{"i:0":{{}},"i:1":{{}}}},"f:b0":{{"{first}":{{}}}},"f:b1":{{"{first}":{{}}}},
             "f:bar":{{"f:c0":{{}}}},"f:cp":{{"{first}":{{"f:child":{{}}}}}}}}"#
    ));
    let two = set(&format!(
        r#"{{"f:a1":{{}},"f:a2":{{}},"f:foo":{{"i:1":{{}},"i:2":{{}}}},"f:b1":{{"{first}":{{}}}},"f:b2":{{"{first}":{{}}}},
             "f:bar":{{"f:c2":{{}}}},"f:cp":{{"{first}":{{}}}}}}"#
    ));
    let shared = format!(r#"{{"f:a1":{{}},"f:foo":{{"i:1":{{}}}},"f:b1":{{"{first}":{{}}}}}}"#);
    same(&one.common(&two), &shared);
    same(&two.common(&one), &shared);
    let without = |set: &FieldSet<'static>, other: &FieldSet<'static>| {
        let mut left = set.clone();
        left.remove(other);
        left
    };
    same(
        &without(&one, &two),
        &format!(
            r#"{{"f:a0":{{}},"f:foo":{{"i:0":{{}}}},"f:b0":{{"{first}":{{}}}},"f:bar":{{"f:c0":{{}}}},
                 "f:cp":{{"{first}":{{"f:child":{{}}}}}}}}"#
        ),
    );
    same(
        &without(&two, &one),
        &format!(
            r#"{{"f:a2":{{}},"f:foo":{{"i:2":{{}}}},"f:b2":{{"{first}":{{}}}},"f:bar":{{"f:c2":{{}}}},"f:cp":{{"{first}":{{}}}}}}"#
        ),
    );
    let mut neither = without(&one, &two);
    neither.add(without(&two, &one));
    let mut both = one;
    both.add(two);
    same(&without(&both, &neither), &shared);
}

#[test]
fn a_field_goes_alone_or_with_all_below_it() {
    // The set, the removed set, the result of `remove`, the result of `remove_with_below`.
    for (from, other, alone, with_below) in [
        (r#"{"f:a":{}}"#, r#"{"f:a":{}}"#, "{}", "{}"),
        (
            r#"{"f:a":{"f:b":{"f:c":{}}}}"#,
            r#"{"f:a":{"f:b":{"f:c":{}}}}"#,
            "{}",
            "{}",
        ),
        (
            r#"{"f:a":{"f:b":{"f:c":{}}},"f:b":{"f:b":{"f:c":{}}}}"#,
            r#"{"f:a":{"f:b":{"f:c":{}}}}"#,
            r#"{"f:b":{"f:b":{"f:c":{}}}}"#,
            r#"{"f:b":{"f:b":{"f:c":{}}}}"#,
        ),
        (
            r#"{"f:a":{}}"#,
            r#"{"f:a":{"f:aa":{}}}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{}}"#,
        ),
        (
            r#"{"f:a":{"f:b":{"f:c":{}}}}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{"f:b":{"f:c":{}}}}"#,
            "{}",
        ),
        (
            r#"{"f:a":{"f:aa":{"f:aab":{}},"f:ab":{"f:aba":{}}}}"#,
            r#"{"f:a":{"f:aa":{}}}"#,
            r#"{"f:a":{"f:aa":{"f:aab":{}},"f:ab":{"f:aba":{}}}}"#,
            r#"{"f:a":{"f:ab":{"f:aba":{}}}}"#,
        ),
        (
            r#"{"f:a":{"f:aa":{"f:aab":{}},"f:ab":{"f:aba":{}}}}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{"f:aa":{"f:aab":{}},"f:ab":{"f:aba":{}}}}"#,
            "{}",
        ),
    ] {
        let (mut one, mut two) = (set(from), set(from));
        one.remove(&set(other));
        same(&one, alone);
        two.remove_with_below(&set(other));
        same(&two, with_below);
    }
}

#[test]
fn sets_are_written_in_one_order_however_they_were_read() {
    let text = r#"{"f:aaa":{},"f:aab":{},"k:{\"name\":\"first\"}":{},"k:{\"name\":\"second\"}":{},"k:{\"port\":443,\"protocol\":\"tcp\"}":{},"k:{\"port\":443,\"protocol\":\"udp\"}":{},"v:1":{},"v:2":{},"v:3":{},"v:\"aa\"":{},"v:\"ab\"":{},"v:true":{},"i:1":{},"i:2":{},"i:3":{},"i:4":{}}"#;
    let mixed = r#"{"i:4": {}, "v:true":{}, "v: 3":{}, "f:aab":{},  "v:\"ab\"":{}, "k:{ \"protocol\":\"udp\",\"port\":443}":{}, "i:1":{},
        "f:aaa":{}, "k:{\"name\":\"second\"}":{}, "v:2":{}, "i:3":{}, "v:\"aa\"":{}, "k:{\"port\":443,\"protocol\":\"tcp\"}":{}, "i:2":{},
        "v:1":{}, "k:{\"name\":\"first\"}":{}}"#;
    assert_eq!(set(text).encode(), text);
    assert_eq!(set(mixed).encode(), text);
    let deep = r#"{"f:aaa":{"k:{\"name\":\"second\"}":{"v:3":{"f:aab":{}}},"v:3":{},"v:true":{}},"f:aad":{"f:aac":{"v:1":{}},"i:1":{"i:1":{},"i:3":{"v:true":{}}}},"v:\"ab\"":{"f:aaf":{"i:4":{}},"k:{\"port\":443,\"protocol\":\"tcp\"}":{},"v:1":{"k:{\"port\":443,\"protocol\":\"udp\"}":{}},"i:1":{"f:aae":{"i:4":{}}}},"i:4":{"v:\"aa\"":{"f:aab":{"k:{\"name\":\"second\"}":{}}}}}"#;
    assert_eq!(set(deep).encode(), deep);
    let with_signs = r#"{"f:spec":{".":{},"f:apps":{".":{},"k:{\"name\":\" app-💻\"}":{".":{},"f:container":{".":{},"f:ports":{".":{},"k:{\"name\":\"port 🔑\"}":{".":{},"f:name":{}}}}}}}}"#;
    assert_eq!(set(with_signs).encode(), with_signs);
    assert_eq!(
        set(r#"{"f:aaa":{},"r:aab":{}}"#).encode(),
        r#"{"f:aaa":{}}"#,
        "what nobody knows is left out"
    );
}

#[test]
fn elements_are_read_as_they_are_written() {
    for text in [
        "i:0",
        "i:1234",
        "f:",
        "f:spec",
        "f:more-complicated-string",
        "f: string-with-spaces   ",
        "f:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        r#"k:{"name":"my-container"}"#,
        r#"k:{"name":"   name with spaces   "}"#,
        r#"k:{"port":"8080","protocol":"TCP"}"#,
        r#"k:{"optionalField":null}"#,
        r#"k:{"jsonField":{"A":1,"B":null,"C":"D","E":{"F":"G"}}}"#,
        r#"k:{"listField":["1","2","3"]}"#,
        "v:null",
        r#"v:"some-string""#,
        "v:1234",
        r#"v:{"some":"json"}"#,
        r#"v:{"some":" some  with spaces  "}"#,
        r#"k:{"name":"app-🚀"}"#,
        r#"k:{"name":"app with-unicøde"}"#,
        r#"k:{"name":"你好世界"}"#,
        r#"k:{"name":"Привет, мир"}"#,
        r#"k:{"name":"नमस्ते दुनिया"}"#,
    ] {
        let element = PathElement::decode(text).expect(text);
        assert_eq!(element.encoded(), text);
    }
    for text in [
        "",
        "no-colon",
        "r:Hello",
        "i:index is not a number",
        "i:1.23",
        "i:",
        "v:invalid json",
        "v:",
        "k:invalid json",
        r#"k:{"name":invalid}"#,
        r#"v:{"some":" \x41"}"#,
    ] {
        assert_eq!(PathElement::decode(text), None, "{text}");
    }
}

#[test]
fn elements_have_an_order() {
    // In each row the first element is less than the second.
    for row in [
        ["f:anteater", "f:zebra"],
        ["f:capybara", r#"k:{"dog":3}"#],
        ["f:elephant", "v:4"],
        ["f:falcon", "i:5"],
        [r#"k:{"horse":1}"#, r#"k:{"horse":2}"#],
        [r#"k:{"ibex":1}"#, r#"k:{"jay":1}"#],
        [r#"k:{"kite":1}"#, r#"k:{"kite":1,"kite-2":1}"#],
        [r#"k:{"kite":1}"#, "v:1"],
        [r#"k:{"kite":1}"#, "i:5"],
        ["v:1", "v:2"],
        ["v:1", "i:1"],
        ["i:1", "i:2"],
    ] {
        let [one, two] = row.map(|text| PathElement::decode(text).expect(text));
        assert!(one < two, "{row:?}");
        assert!(two >= one, "{row:?}");
    }
}

#[test]
fn paths_are_shown() {
    for (steps, shown) in [
        (&["f:foo", "i:1"][..], ".foo[1]"),
        (&["f:foo", "f:bar", "i:1", "f:baz"], ".foo.bar[1].baz"),
        (
            &["f:foo", r#"k:{"a":"b","c":1,"d":1.5,"e":true}"#],
            r#".foo[a="b",c=1,d=1.5,e=true]"#,
        ),
        (
            &["f:foo", r#"v:"b""#, "v:5", "v:false", "v:3.14159"],
            r#".foo[="b"][=5][=false][=3.14159]"#,
        ),
        (
            &["f:spec", "f:apps", r#"k:{"name":"app-🚀"}"#, "f:image"],
            r#".spec.apps[name="app-🚀"].image"#,
        ),
        (&["f:spec", "f:field with space"], ".spec.field with space"),
        (
            &["f:apps", r#"v:"app with \"quotes\"""#, "f:image"],
            r#".apps[="app with \"quotes\""].image"#,
        ),
        (
            &["f:apps", r#"v:"app-with-unicøde""#],
            r#".apps[="app-with-unicøde"]"#,
        ),
    ] {
        let set = steps.iter().rev().fold(json!({}), |below, step| {
            Value::Object([((*step).to_owned(), below)].into_iter().collect())
        });
        assert_eq!(FieldSet::decode(&set.to_string()).unwrap().paths(), [shown]);
    }
}
