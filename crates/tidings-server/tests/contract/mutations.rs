//! MutatingAdmissionPolicies: what becomes of objects, as in kube-apiserver. `tools/mutations/record` asked it.

use serde_json::json;

use crate::admission::{answer_as, refuse_as};
use crate::support::TestServer;

const RECORDED: &str = include_str!("mutations.json");

#[tokio::test]
async fn policies_change_objects_as_those_of_kube_apiserver() {
    answer_as(RECORDED).await;
}

#[tokio::test]
async fn policies_are_refused_as_kube_apiserver_refuses_them() {
    refuse_as(RECORDED).await;
}

/// A Scale is shown to policies, and those that would change it are refused: it is no object of its own.
#[tokio::test]
async fn a_scale_is_not_changed_by_policies() {
    let server = TestServer::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d", "labels": {"keep": "me"}}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    assert_eq!(
        server.request("POST", deployments, deployment).await.code,
        201
    );
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["*/*"]});
    let policy = |expression: &str| {
        let made = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
        json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "mutations": [made]}})
    };
    let policies = format!("{group}/mutatingadmissionpolicies");
    let created = server.request("POST", &policies, policy("Object{}")).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let bound = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    let bindings = format!("{group}/mutatingadmissionpolicybindings");
    assert_eq!(server.request("POST", &bindings, bound).await.code, 201);
    let scale = format!("{deployments}/d/scale");
    let merge = [("content-type", "application/merge-patch+json")];
    let patch = async |replicas: u32| {
        let body = json!({"spec": {"replicas": replicas}}).to_string();
        server
            .request_with_headers("PATCH", &scale, &merge, body)
            .await
    };
    assert_eq!(patch(3).await.code, 200);
    let path = format!("{policies}/p");
    let body = policy("Object{spec: Object.spec{replicas: 9}}").to_string();
    let changed = server
        .request_with_headers("PATCH", &path, &merge, body)
        .await;
    assert_eq!(changed.code, 200, "{}", changed.text);
    let refused = patch(4).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(
        refused
            .text
            .contains("changes of a Scale are not supported")
    );
    let deployment = server.get(&format!("{deployments}/d")).await.json();
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["metadata"]["labels"], json!({"keep": "me"}));
}
