//! What there is: discovery, OpenAPI, and what kubectl asks first (W11, W26–W35).

use serde_json::{Value, json};

use crate::support::Server;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn w26_versions_and_groups() {
    let server = Server::start().await;
    let host = [("host", "example.com:6443")];
    let versions = server.ask("GET", "/api", &host, "").await.json();
    let expected = json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [
        {"clientCIDR": "0.0.0.0/0", "serverAddress": "example.com:6443"}]});
    assert_eq!(versions, expected);
    let groups = server.get("/apis").await.json();
    assert_eq!(
        (&groups["kind"], &groups["apiVersion"]),
        (&json!("APIGroupList"), &json!("v1"))
    );
    let names: Vec<_> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"apps") && names.contains(&"storage.k8s.io"),
        "{names:?}"
    );
    let scaling = server.get("/apis/autoscaling/").await.json();
    assert_eq!(
        scaling["preferredVersion"],
        json!({"groupVersion": "autoscaling/v2", "version": "v2"})
    );
    assert_eq!(scaling["versions"].as_array().unwrap().len(), 2);
    assert_eq!(
        server.get("/apis/nosuch").await.text,
        "404 page not found\n"
    );
    assert_eq!(
        server.get("/apis/apps/v9").await.json()["reason"],
        "NotFound"
    );
}

#[tokio::test]
async fn w27_w28_resources_of_a_version() {
    let server = Server::start().await;
    let core = server.get("/api/v1").await;
    assert!(core.text.starts_with(r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["cm"],"storageVersionHash":"qFsyl6wFWjQ="}"#), "{}", core.text);
    let apps = server.get("/apis/apps/v1").await;
    assert!(
        apps.text.starts_with(
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","#
        )
    );
    let entry = |name: &str| {
        let list = apps.json();
        let resources = list["resources"].as_array().unwrap().clone();
        resources
            .into_iter()
            .find(|resource| resource["name"] == name)
            .unwrap()
            .to_string()
    };
    assert_eq!(
        entry("deployments/scale"),
        r#"{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]}"#
    );
    assert!(entry("deployments").contains(r#""shortNames":["deploy"],"categories":["all"]"#));
}

#[tokio::test]
async fn w29_w30_aggregated_discovery() {
    let server = Server::start().await;
    let apis = server.get_as("/apis", AGGREGATED).await;
    assert_eq!(apis.headers["content-type"], AGGREGATED);
    assert_eq!(apis.headers["cache-control"], "public");
    assert_eq!(apis.headers["vary"], "Accept");
    let tag = apis.headers["etag"].to_str().unwrap().to_owned();
    assert!(
        tag.len() == 130
            && tag
                .trim_matches('"')
                .bytes()
                .all(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
    );
    let headers = [("accept", AGGREGATED), ("if-none-match", tag.as_str())];
    let again = server.ask("GET", "/apis", &headers, "").await;
    assert_eq!((again.code, again.text.as_str()), (304, ""));
    let list = apis.json();
    assert_eq!(
        (&list["kind"], &list["metadata"]),
        (&json!("APIGroupDiscoveryList"), &json!({}))
    );
    let core = server.get_as("/api", AGGREGATED).await;
    assert!(core.text.starts_with(r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"configmaps","responseKind":{"group":"","version":"","kind":"ConfigMap"},"scope":"Namespaced","singularResource":"configmap","verbs":["#), "{}", core.text);
    assert!(
        core.text
            .trim_end()
            .ends_with(r#""freshness":"Current"}]}]}"#)
    );
    assert!(!core.text.contains("storageVersionHash"));
}

#[tokio::test]
async fn w29_w31_clients_take_what_they_know() {
    let server = Server::start().await;
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    assert_eq!(server.get_as("/apis", beta).await.code, 406);
    let kubectl = format!("{AGGREGATED},{beta},application/json");
    assert_eq!(
        server.get_as("/apis", &kubectl).await.headers["content-type"],
        AGGREGATED
    );
    let old = server
        .get_as("/apis", &format!("{beta},application/json"))
        .await;
    assert_eq!(
        (
            old.headers["content-type"].to_str().unwrap(),
            &old.json()["kind"]
        ),
        ("application/json", &json!("APIGroupList"))
    );
    let yaml = server.get_as("/api/v1", "application/yaml").await;
    assert!(
        yaml.text
            .starts_with("groupVersion: v1\nkind: APIResourceList\n"),
        "{}",
        &yaml.text[..60]
    );
}

#[tokio::test]
async fn w11_discovery_is_read_only() {
    let server = Server::start().await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        assert_eq!(
            server.request(method, "/api", "").await.code,
            405,
            "{method}"
        );
        assert_eq!(
            server.request(method, "/apis/apps/v1", "").await.code,
            405,
            "{method}"
        );
    }
    assert_eq!(server.request("HEAD", "/openapi/v2", "").await.code, 200);
}

#[tokio::test]
async fn w32_w33_kubectl_finds_that_fields_are_validated() {
    let server = Server::start().await;
    let index = server.get("/openapi/v3").await;
    assert_eq!(index.headers["content-type"], "text/plain; charset=utf-8");
    let index: Value = serde_json::from_str(&index.text).unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(url.starts_with("/openapi/v3/apis/apps/v1?hash="), "{url}");
    let document = server.get(&url).await;
    assert_eq!(document.headers["content-type"], "application/json");
    assert_eq!(document.headers["cache-control"], "public, immutable");
    let tag = document.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(
        server
            .ask("GET", &url, &[("if-none-match", &tag)], "")
            .await
            .code,
        304
    );
    let document = document.json();
    let patch =
        &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "kind": "Deployment", "version": "v1"})
    );
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(
        parameters
            .iter()
            .any(|parameter| parameter["name"] == "fieldValidation")
    );
    let schema = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        schema["x-kubernetes-group-version-kind"][0]["kind"],
        "Deployment"
    );
    assert_eq!(server.get("/openapi/v3/apis/nosuch/v1").await.code, 404);
}

#[tokio::test]
async fn w34_the_old_form_of_openapi() {
    let server = Server::start().await;
    let path = "/openapi/v2";
    let asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let request = http::Request::get(path).header("accept", asked);
    let response = server
        .api
        .handle(request.body(String::new()).unwrap())
        .await;
    let sent = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert_eq!(response.headers()["content-type"], sent);
    let document = server.get(path).await;
    assert!(document.headers.contains_key("etag"));
    let document = document.json();
    assert_eq!(document["swagger"], "2.0");
    assert!(
        document["definitions"]["io.k8s.api.core.v1.ConfigMap"]["properties"]["data"].is_object()
    );
    // Clients that compute patches themselves read how.
    let strategy = |kind: &str, field: &str| {
        let property = &document["definitions"][kind]["properties"][field];
        property["x-kubernetes-patch-strategy"].clone()
    };
    assert_eq!(
        strategy("io.k8s.api.apps.v1.DeploymentSpec", "strategy"),
        "retainKeys"
    );
    assert_eq!(
        strategy("io.k8s.api.core.v1.PodSpec", "volumes"),
        "merge,retainKeys"
    );
    assert_eq!(
        strategy("io.k8s.api.policy.v1.PodDisruptionBudgetSpec", "selector"),
        "replace"
    );
}
