//! Discovery and OpenAPI (W11, W26–W35).

use serde_json::{Value, json};

use crate::support::TestServer;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn w26_versions_and_groups() {
    let server = TestServer::start().await;
    let host = [("host", "example.com:6443")];
    let versions = server
        .request_with_headers("GET", "/api", &host, "")
        .await
        .json();
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
    let server = TestServer::start().await;
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
    let server = TestServer::start().await;
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
    let again = server
        .request_with_headers("GET", "/apis", &headers, "")
        .await;
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
async fn w29_w31_clients_choose_the_form_of_discovery() {
    let server = TestServer::start().await;
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
    let server = TestServer::start().await;
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
async fn w32_w33_kubectl_finds_the_parameter_field_validation() {
    let server = TestServer::start().await;
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
            .request_with_headers("GET", &url, &[("if-none-match", &tag)], "")
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
async fn w34_openapi_version_2() {
    let server = TestServer::start().await;
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
    // Clients that compute strategic merge patches read the merge strategies.
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

/// All `$ref`s of a document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str() {
                    Some(text) if name == "$ref" => found.push(text),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn w33_w34_every_reference_has_a_schema() {
    let server = TestServer::start().await;
    let index = server.get("/openapi/v3").await;
    let index: Value = serde_json::from_str(&index.text).unwrap();
    let documents = index["paths"].as_object().unwrap().keys();
    let mut urls: Vec<String> = documents
        .map(|path| format!("/openapi/v3/{path}"))
        .collect();
    urls.push("/openapi/v2".to_owned());
    for url in urls {
        let document = server.get(&url).await.json();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty(), "{url}");
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap_or_default();
            assert!(document.pointer(pointer).is_some(), "{url}: {reference}");
        }
    }
}

#[tokio::test]
async fn w33_w34_types_and_fields_are_described() {
    let server = TestServer::start().await;
    let v3 = server.get("/openapi/v3/apis/apps/v1").await.json();
    let v2 = server.get("/openapi/v2").await.json();
    for schemas in [&v3["components"]["schemas"], &v2["definitions"]] {
        for (name, schema) in schemas.as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}");
        }
        let strategy = &schemas["io.k8s.api.apps.v1.DeploymentStrategy"]["properties"]["type"];
        assert_eq!(strategy["enum"], json!(["Recreate", "RollingUpdate"]));
        let text = strategy["description"].as_str().unwrap();
        assert!(text.contains("\n - `\"Recreate\"` "), "{text}");
        let modes = &schemas["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"];
        let modes = &modes["accessModes"]["items"]["enum"];
        assert_eq!(modes.as_array().unwrap().len(), 4);
        let time = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"];
        assert_eq!(
            (&time["type"], &time["format"]),
            (&json!("string"), &json!("date-time"))
        );
    }
    // Members beside a `$ref` are valid in OpenAPI 2 only; OpenAPI 3 needs `allOf`.
    let spec = |schemas: &Value| {
        let schema = &schemas["io.k8s.api.apps.v1.Deployment"];
        let mut spec = schema["properties"]["spec"].clone();
        assert!(spec["description"].take().is_string());
        spec
    };
    let name = "io.k8s.api.apps.v1.DeploymentSpec";
    assert_eq!(
        spec(&v3["components"]["schemas"]),
        json!({"description": null, "default": {}, "allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
    );
    assert_eq!(
        spec(&v2["definitions"]),
        json!({"description": null, "$ref": format!("#/definitions/{name}")})
    );
}

#[tokio::test]
async fn w34_operations_have_parameters_bodies_and_responses() {
    let server = TestServer::start().await;
    let document = server.get("/openapi/v2").await.json();
    let paths = document["paths"].as_object().unwrap();
    let item = &paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let patch = &item["patch"];
    assert_eq!(patch["x-kubernetes-action"], "patch");
    let deployment = json!({"group": "apps", "kind": "Deployment", "version": "v1"});
    assert_eq!(patch["x-kubernetes-group-version-kind"], deployment);
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(
        patch["consumes"],
        json!([
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml"
        ])
    );
    let named = |operation: &Value| -> Vec<String> {
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let parameters = parameters.map(|parameter| match parameter["$ref"].as_str() {
            Some(reference) => &document.pointer(&reference[1..]).unwrap()["name"],
            None => &parameter["name"],
        });
        parameters
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    };
    let expected = ["body", "dryRun", "fieldManager", "fieldValidation", "force"];
    assert_eq!(named(patch), expected);
    assert_eq!(named(item), ["name", "namespace", "pretty"]);
    let list = &paths["/api/v1/pods"]["get"];
    assert_eq!(list["operationId"], "listCoreV1PodForAllNamespaces");
    assert_eq!(
        list["responses"]["200"]["schema"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodList"
    );
    let scale = &paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]["put"];
    let kind = json!({"group": "autoscaling", "kind": "Scale", "version": "v1"});
    assert_eq!(scale["x-kubernetes-group-version-kind"], kind);
    // Generators make function names from operation ids, so these must be unique.
    let mut ids: Vec<&str> = paths
        .values()
        .flat_map(|path| path.as_object().unwrap().values())
        .filter_map(|operation| operation["operationId"].as_str())
        .collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert!(count > 400, "{count}");
}

#[tokio::test]
async fn w8_w33_documents_are_compressed_if_the_client_accepts_it() {
    let server = TestServer::start().await;
    for path in ["/openapi/v2", "/openapi/v3/api/v1"] {
        let plain = server.get(path).await;
        assert!(!plain.headers.contains_key("content-encoding"));
        let packed = server.request_with_headers("GET", path, &[("accept-encoding", "gzip")], "");
        let packed = packed.await;
        assert_eq!(packed.headers["content-encoding"], "gzip");
        let vary: Vec<_> = packed.headers.get_all("vary").iter().collect();
        assert_eq!(vary, ["Accept-Encoding", "Accept"]);
        assert_eq!(packed.headers["etag"], plain.headers["etag"]);
        assert!(packed.bytes == plain.bytes, "{path}");
        let tag = plain.headers["etag"].to_str().unwrap();
        let headers = [("accept-encoding", "gzip"), ("if-none-match", tag)];
        let known = server.request_with_headers("GET", path, &headers, "").await;
        assert_eq!((known.code, known.bytes.len()), (304, 0));
        assert!(!known.headers.contains_key("content-encoding"));
    }
}
