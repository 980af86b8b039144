//! Accepted names and conditions of definitions.

use tidings_json::{Value, json};
use tidings_structural::definition::{Definition, has_condition, set_condition, status_of};

use crate::{LATER, NOW, definition};

#[test]
fn w177_names_are_given_to_who_comes_first() {
    let cases: Value =
        serde_json::from_str(include_str!("../data/names.json")).expect("the data is JSON");
    for case in cases.as_array().expect("a list") {
        let mut crd = definition(&json!({"spec": {"names": case["names"]}}));
        crd["status"] = case["before"].clone();
        let group = &crd["spec"]["group"];
        let others: Vec<Value> = case["others"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|names| json!({"spec": {"group": group}, "status": {"acceptedNames": names}}))
            .collect();
        let mut after = status_of(&crd, &others.iter().collect::<Vec<_>>(), NOW);
        for condition in after["conditions"].as_array_mut().expect("a list") {
            let condition = condition.as_object_mut().expect("an object");
            condition.remove("lastTransitionTime");
        }
        assert_eq!(after, case["after"], "{}", case["name"]);
    }
}

#[test]
fn w177_names_of_other_groups_are_free() {
    let crd = definition(&json!({}));
    let mut other = crd.clone();
    other["spec"]["group"] = "other.example.com".into();
    other["status"] = status_of(&other, &[], NOW);
    let status = status_of(&crd, &[&other], NOW);
    assert_eq!(status["conditions"][0]["reason"], "NoConflicts");
    other["spec"]["group"] = crd["spec"]["group"].clone();
    let status = status_of(&crd, &[&other], NOW);
    assert_eq!(status["conditions"][0]["reason"], "ListKindConflict");
}

#[test]
fn w177_a_status_changes_only_with_what_it_says() {
    let mut crd = definition(&json!({}));
    assert!(!has_condition(&crd, "Established"));
    crd["status"] = status_of(&crd, &[], NOW);
    assert!(has_condition(&crd, "NamesAccepted") && has_condition(&crd, "Established"));
    assert_eq!(
        crd["status"]["conditions"][0],
        json!({
            "type": "NamesAccepted", "status": "True", "lastTransitionTime": NOW,
            "reason": "NoConflicts", "message": "no conflicts found",
        })
    );
    assert_eq!(status_of(&crd, &[], LATER), crd["status"]);

    crd["spec"]["names"]["singular"] = "chemise".into();
    let renamed = status_of(&crd, &[], LATER);
    assert_eq!(renamed["acceptedNames"]["singular"], "chemise");
    assert_eq!(renamed["conditions"], crd["status"]["conditions"]);
}

#[test]
fn w177_a_name_that_becomes_free_is_given_and_the_times_tell_when() {
    let mut first = definition(&json!({}));
    first["status"] = status_of(&first, &[], NOW);
    let mut second = definition(&json!({
        "metadata": {"name": "hats.defs.example.com"},
        "spec": {"names": {"plural": "hats"}},
    }));
    second["status"] = status_of(&second, &[&first], NOW);
    assert!(!has_condition(&second, "Established"));
    assert_eq!(second["status"]["conditions"][1]["reason"], "NotAccepted");
    second["status"] = status_of(&second, &[], LATER);
    assert!(has_condition(&second, "Established"));
    for condition in second["status"]["conditions"].as_array().expect("a list") {
        assert_eq!(condition["lastTransitionTime"], LATER);
    }
}

#[test]
fn w177_groups_of_the_community_show_their_approval() {
    for (annotation, truth, reason, message) in [
        (
            "https://example.com/1",
            "True",
            "ApprovedAnnotation",
            "approved in https://example.com/1",
        ),
        (
            "unapproved, testing",
            "False",
            "UnapprovedAnnotation",
            "not approved: \"unapproved, testing\"",
        ),
        (
            "nonsense",
            "False",
            "InvalidAnnotation",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting \
             with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
        ),
    ] {
        let crd = definition(&json!({
            "metadata": {"name": "shirts.defs.k8s.io", "annotations": {"api-approved.kubernetes.io": annotation}},
            "spec": {"group": "defs.k8s.io"},
        }));
        let status = status_of(&crd, &[], NOW);
        assert_eq!(
            status["conditions"][2],
            json!({
                "type": "KubernetesAPIApprovalPolicyConformant", "status": truth, "lastTransitionTime": NOW,
                "reason": reason, "message": message,
            })
        );
    }
    let status = status_of(&definition(&json!({})), &[], NOW);
    assert_eq!(status["conditions"].as_array().map(Vec::len), Some(2));
}

#[test]
fn w177_schemas_that_others_have_stored_are_told_as_not_structural_while_they_are() {
    let mut crd = definition(&json!({}));
    let schema = json!({"type": "object", "properties": {"a": {}}});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    crd["status"] = status_of(&crd, &[], NOW);
    assert_eq!(
        crd["status"]["conditions"][2],
        json!({
            "type": "NonStructuralSchema", "status": "True", "lastTransitionTime": NOW, "reason": "Violations",
            "message": "spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for \
                        specified object fields",
        })
    );
    let why = Definition::read(&crd).expect_err("it cannot be served");
    assert!(why.contains("properties[a].type"), "{why}");
    crd["spec"] = definition(&json!({}))["spec"].clone();
    let status = status_of(&crd, &[], LATER);
    assert_eq!(status["conditions"].as_array().map(Vec::len), Some(2));
}

#[test]
fn w186_a_condition_keeps_its_time_while_its_truth_stays() {
    let mut crd = definition(&json!({}));
    let status = &mut crd["status"];
    let kind = "Terminating";
    set_condition(status, kind, "True", "InstanceDeletionPending", "soon", NOW);
    set_condition(
        status,
        kind,
        "True",
        "InstanceDeletionInProgress",
        "now",
        LATER,
    );
    assert_eq!(
        status["conditions"],
        json!([{
            "type": "Terminating", "status": "True", "lastTransitionTime": NOW,
            "reason": "InstanceDeletionInProgress", "message": "now",
        }])
    );
    set_condition(
        status,
        kind,
        "False",
        "InstanceDeletionCompleted",
        "gone",
        LATER,
    );
    assert_eq!(status["conditions"][0]["lastTransitionTime"], LATER);
    assert!(!has_condition(&crd, "Terminating"));
}
