//! Tests of strategic merge patches against the types of Pods and metadata.

use tidings_json::json;

use super::*;

/// Applies a patch to a document of type PodSpec.
fn patched(document: Value, patch: &Value) -> Value {
    try_patched(document, patch).unwrap()
}

fn try_patched(mut document: Value, patch: &Value) -> Result<Value, StrategicPatchError> {
    let spec = tidings_schema::find_type("core/v1", "PodSpec");
    assert!(spec.is_some());
    merge(&mut document, patch, spec).map(|()| document)
}

#[test]
fn w153_maps_are_merged_and_null_removes() {
    let document = json!({"nodeSelector": {"a": "1", "b": "1"}, "x": [1, 2]});
    let patch = json!({"nodeSelector": {"a": null, "c": "1"}, "x": [3]});
    let expected = json!({"nodeSelector": {"b": "1", "c": "1"}, "x": [3]});
    assert_eq!(patched(document, &patch), expected);
}

#[test]
fn w153_patch_directives_replace_and_delete() {
    let document = json!({"a": {"a": "1"}, "b": {"x": "y"}});
    let patch = json!({"a": {"$patch": "replace", "b": "2"}, "b": {"$patch": "delete"}});
    assert_eq!(patched(document, &patch), json!({"a": {"b": "2"}, "b": {}}));
    let turn = try_patched(json!({}), &json!({"$patch": "turn"})).unwrap_err();
    let why = "unknown patch type: turn in map: map[$patch:turn]";
    assert_eq!(turn, StrategicPatchError::Unfit(why.into()));
}

#[test]
fn w153_retain_keys_drops_the_others() {
    let document = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
    let patch = json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}});
    assert_eq!(
        patched(document, &patch),
        json!({"strategy": {"type": "Recreate"}})
    );
}

#[test]
fn w153_elements_are_merged_by_their_key_and_ordered() {
    let document =
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
    let patch = json!({
        "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
        "containers": [
            {"name": "c", "image": "1"},
            {"name": "b", "image": "2", "ports": [{"containerPort": 80}]},
            {"$patch": "delete", "name": "a"},
        ],
    });
    let first = patched(document, &patch);
    let expected = json!({"containers": [
        {"name": "c", "image": "1"},
        {"name": "b", "image": "2", "ports": [{"containerPort": 80}]},
    ]});
    assert_eq!(first, expected);
    let ports =
        json!({"containers": [{"name": "b", "ports": [{"containerPort": 80, "name": "web"}]}]});
    let second = patched(first, &ports);
    assert_eq!(
        second["containers"][1]["ports"],
        json!([{"containerPort": 80, "name": "web"}])
    );
    let unnamed = try_patched(
        json!({"containers": []}),
        &json!({"containers": [{"image": "x"}]}),
    );
    let why = "map: map[image:x] does not contain declared merge key: name";
    assert_eq!(unnamed.unwrap_err(), StrategicPatchError::Unfit(why.into()));
}

#[test]
fn w153_without_an_order_the_document_and_the_patch_have_theirs() {
    let merged = |patch: &[&str]| {
        let named = |names: &[&str]| -> Vec<Value> {
            names.iter().map(|name| json!({"name": name})).collect()
        };
        let document = json!({"containers": named(&["1", "2", "3"])});
        let merged = patched(document, &json!({"containers": named(patch)}));
        let elements = merged["containers"].as_array().unwrap().clone();
        elements
            .iter()
            .map(|element| element["name"].as_str().unwrap().to_owned())
            .collect::<String>()
    };
    assert_eq!(merged(&["2"]), "123");
    assert_eq!(merged(&["9", "2"]), "9123");
    assert_eq!(merged(&["3", "1"]), "231");
}

#[test]
fn w153_lists_that_are_not_merged_are_replaced() {
    let document = json!({"tolerations": [{"key": "a"}]});
    let patch = json!({"tolerations": [{"key": "b"}]});
    assert_eq!(patched(document, &patch), patch);
}

#[test]
fn w153_plain_lists_merge_and_shrink() {
    let mut document = json!({"finalizers": ["a/b", "c/d"]});
    let patch =
        json!({"$deleteFromPrimitiveList/finalizers": ["a/b"], "finalizers": ["e/f", "c/d"]});
    let meta = tidings_schema::find_type("meta/v1", "ObjectMeta");
    merge(&mut document, &patch, meta).unwrap();
    assert_eq!(
        document,
        json!({"finalizers": ["e/f", "c/d"]}),
        "what is new comes first"
    );
}
