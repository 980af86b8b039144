//! Checks that requests pass the files that ARCHITECTURE.md lists for them (its section "Walks").

use std::sync::Arc;

use tidings_json::{Value, json};
use tidings_server::{Api, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions};
use tidings_testing::{WalkRecorder, check_walk};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

async fn send(api: &Api, method: &str, path: &str, content_type: &str, body: &Value) -> u16 {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", content_type);
    let response = api
        .handle(request.body(body.to_string()).expect("a request"))
        .await;
    response.status().as_u16()
}

fn config_map(value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"key": value},
    })
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    })
}

/// One test, because the recorder is global to the process. The walk of a definition leaves out the files of the edge, which are the same
/// for any request.
#[tokio::test]
async fn requests_pass_the_files_that_architecture_md_lists() {
    let recorder = WalkRecorder::install();
    let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let api = Api::start(store, ApiOptions::default()).await.unwrap();
    let json = "application/json";
    assert_eq!(send(&api, "POST", MAPS, json, &config_map("1")).await, 201);

    recorder.take();
    let one = format!("{MAPS}/a");
    assert_eq!(send(&api, "PUT", &one, json, &config_map("2")).await, 200);
    check_walk("put", &of_request(&recorder));

    let get = http::Request::get(MAPS).body(String::new()).unwrap();
    recorder.take();
    assert_eq!(api.handle(get).await.status(), 200);
    check_walk("list", &of_request(&recorder));

    let apply = "application/apply-patch+yaml";
    let one = format!("{MAPS}/a?fieldManager=me&force=true");
    recorder.take();
    assert_eq!(
        send(&api, "PATCH", &one, apply, &config_map("3")).await,
        200
    );
    check_walk("apply", &of_request(&recorder));

    recorder.take();
    assert_eq!(
        send(&api, "POST", DEFINITIONS, json, &definition()).await,
        201
    );
    let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    while send(&api, "POST", WIDGETS, json, &body).await != 201 {
        tokio::task::yield_now().await; // the definition is not established yet
    }
    let mut walk = recorder.take();
    walk.retain(|(file, _)| !file.contains("/edge/") && !file.starts_with("tidings-informer/"));
    // Until the store has this write, its changes are those of writes before.
    let mut is_written = false;
    walk.retain(|(file, _)| {
        is_written |= file.starts_with("tidings-storage/");
        is_written || !is_fill(file)
    });
    check_walk("definition", &walk);
}

/// The recorded steps of a request, without the steps of reflectors that fill caches meanwhile.
fn of_request(recorder: &WalkRecorder) -> Vec<(String, String)> {
    let mut walk = recorder.take();
    walk.retain(|(file, _)| !file.starts_with("tidings-informer/") && !is_fill(file));
    walk
}

/// True if the file puts changes of the store into a cache.
fn is_fill(file: &str) -> bool {
    file.ends_with("/fill.rs")
}
