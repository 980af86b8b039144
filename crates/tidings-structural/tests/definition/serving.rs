//! Reading a definition to serve it.

use tidings_api::Object;
use tidings_json::{Value, json};
use tidings_structural::definition::{Definition, compare_versions, has_condition, status_of};

use crate::{NOW, definition, errors_of, read};

fn shirts() -> Value {
    definition(&json!({"spec": {
        "names": {"shortNames": ["sh"], "categories": ["all"]},
        "versions": [
            {
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"color": {"type": "string", "default": "red"}}},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1, "format": "byte"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "how old"},
                ],
                "selectableFields": [{"jsonPath": ".spec.color"}],
            },
            {
                "name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            },
        ],
    }}))
}

#[test]
fn w180_w181_w182_a_definition_is_read_as_it_is_served() {
    let crd = shirts();
    assert_eq!(errors_of(&crd), [""; 0]);
    let read = read(&crd);
    assert_eq!(read.group, "defs.example.com");
    assert!(read.namespaced);
    assert_eq!(read.names.list_kind, "ShirtList");
    assert_eq!(read.names.short_names, ["sh"]);
    let v1 = read.storage();
    assert_eq!(v1.name, "v1");
    let mut object = json!({"spec": {"stray": 1}});
    v1.schema.prune(&mut object);
    v1.schema.default(&mut object);
    assert_eq!(object, json!({"spec": {"color": "red"}}));
    assert!(v1.status);
    let scale = v1.scale.as_ref().expect("it has one");
    assert_eq!(scale.spec_replicas.text, ".spec.replicas");
    assert_eq!(scale.spec_replicas.members, ["spec", "replicas"]);
    let selector = scale.label_selector.as_ref().expect("it has one");
    assert_eq!(selector.members, ["status", "selector"]);
    let beta = read.served("v1beta1").expect("it is served");
    assert!(!beta.status && beta.scale.is_none() && beta.fields.is_empty());
    assert!(read.served("v2").is_none());
}

#[test]
fn schemas_are_compiled_when_they_are_used() {
    let crd = shirts();
    let object = Object::parse(crd.to_string()).unwrap();
    let stored = Definition::read_stored(&crd, &object).expect("it can be served");
    let (lazy, kept) = (&stored.versions[0].schema, &read(&crd).versions[0].schema);
    assert!(!lazy.is_compiled() && kept.is_compiled());
    for schema in [lazy, kept] {
        let mut object = json!({"spec": {"odd": 1}});
        schema.prune(&mut object);
        schema.default(&mut object);
        assert_eq!(object, json!({"spec": {"color": "red"}}));
        assert!(schema.is_compiled());
    }
    assert!(!stored.versions[1].schema.is_compiled());
    let mut broken = crd;
    broken["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["type"] = "nosuch".into();
    assert!(
        Definition::read_stored(&broken, &object).is_err(),
        "seen at once"
    );
}

#[test]
fn w184_columns_and_selectable_fields_are_read() {
    let read = read(&shirts());
    let v1 = read.storage();
    let object = json!({"spec": {"color": "red"}});
    assert_eq!(v1.fields[0].name, "spec.color");
    assert_eq!(v1.fields[0].path.first_text(&object), "red");
    let color = &v1.columns[0];
    assert_eq!(
        (color.name.as_str(), color.kind.as_str()),
        ("Color", "string")
    );
    assert_eq!((color.format.as_str(), color.priority), ("byte", 1));
    assert_eq!(
        color.description,
        "Custom resource definition column (in JSONPath format): .spec.color"
    );
    assert_eq!(color.path.first(&object), Some(&json!("red")));
    assert_eq!(v1.columns[1].description, "how old");
    let beta = &read.versions[1];
    assert_eq!(beta.columns.len(), 1);
    assert_eq!(beta.columns[0].name, "Age");
    assert_eq!(beta.columns[0].text, ".metadata.creationTimestamp");
}

#[test]
fn w184_columns_from_one_that_cannot_be_read_on_are_left_out() {
    let mut crd = shirts();
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "A", "type": "string", "jsonPath": ".spec.a"},
        {"name": "B", "type": "string", "jsonPath": ".spec[?(@"},
        {"name": "C", "type": "string", "jsonPath": ".spec.c"},
    ]);
    assert_eq!(errors_of(&crd), [""; 0]);
    assert_eq!(read(&crd).storage().columns.len(), 1);
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn w183_deprecated_versions_say_which_one_is_better() {
    let warnings_of = |versions: &[(&str, bool, bool)]| -> Vec<Option<String>> {
        let versions: Vec<Value> = versions
            .iter()
            .enumerate()
            .map(|(index, (name, served, deprecated))| {
                json!({
                    "name": name, "served": served, "deprecated": deprecated, "storage": index == 0,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                })
            })
            .collect();
        let read = read(&definition(&json!({"spec": {"versions": versions}})));
        let versions = read.versions.into_iter();
        versions.map(|version| version.warning).collect()
    };
    assert_eq!(
        warnings_of(&[
            ("v1", true, false),
            ("v1beta1", true, true),
            ("v2beta1", true, false)
        ]),
        [
            None,
            text("defs.example.com/v1beta1 Shirt is deprecated; use defs.example.com/v1 Shirt"),
            None
        ]
    );
    // A version that is not served, is deprecated, or is less stable is not recommended.
    assert_eq!(
        warnings_of(&[
            ("v1", true, true),
            ("v2", false, false),
            ("v3", true, true),
            ("v4beta1", true, false)
        ])[0],
        text("defs.example.com/v1 Shirt is deprecated")
    );
    let mut own = shirts();
    own["spec"]["versions"][1]["deprecationWarning"] = "go away".into();
    assert_eq!(read(&own).versions[1].warning, text("go away"));
}

#[test]
fn w183_versions_are_ordered_as_discovery_orders_them() {
    let expected = [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v10beta3",
        "v3beta1",
        "v12alpha1",
        "v11alpha2",
        "foo1",
        "foo10",
    ];
    let mut versions = expected;
    versions.reverse();
    versions.sort_by(|left, right| compare_versions(right, left));
    assert_eq!(versions, expected);
}

#[test]
fn w177_accepted_names_are_served() {
    let mut crd = shirts();
    crd["status"] = status_of(&crd, &[], NOW);
    crd["spec"]["names"]["singular"] = "taken".into();
    assert_eq!(read(&crd).names.singular, "shirt");
}

#[test]
fn w183_a_webhook_may_convert_between_versions() {
    let mut crd = shirts();
    crd["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com"}},
    });
    assert_eq!(errors_of(&crd), [""; 0]);
    assert_eq!(
        read(&crd).webhook.as_ref(),
        Some(&crd["spec"]["conversion"])
    );
    assert!(has_condition(
        &json!({"status": status_of(&crd, &[], NOW)}),
        "Established"
    ));
    // Authorities that are none keep it from being established, not from being stored.
    crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = "Q2c9PQ==".into();
    assert_eq!(errors_of(&crd), [""; 0]);
    let status = status_of(&crd, &[], NOW);
    assert_eq!(status["conditions"][1]["reason"], "InvalidCABundle");
}
