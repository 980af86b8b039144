//! PUT: changes, conflicts, and refused updates.

use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, TestServer, pods_of};

#[tokio::test]
async fn w136_generation_counts_changes_of_the_spec() {
    let server = TestServer::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let body = |replicas: u64, label: &str| json!({"metadata": {"name": "d", "labels": {"l": label}, "generation": 99}, "spec": pods_of(json!({"replicas": replicas}))});
    let generation = async |method: &str, path: &str, body: Value| {
        server.request(method, path, body).await.json()["metadata"]["generation"].clone()
    };
    assert_eq!(generation("POST", path, body(1, "a")).await, 1);
    let item = format!("{path}/d");
    assert_eq!(
        generation("PUT", &item, body(1, "b")).await,
        1,
        "a change of metadata does not count"
    );
    assert_eq!(generation("PUT", &item, body(2, "b")).await, 2);
    let status = json!({"metadata": {"name": "d"}, "spec": pods_of(json!({"replicas": 9})), "status": {"replicas": 2}});
    let answer = server
        .request("PUT", &format!("{item}/status"), status)
        .await
        .json();
    assert_eq!(
        (&answer["spec"]["replicas"], &answer["status"]["replicas"]),
        (&json!(2), &json!(2)),
        "W146"
    );
    assert_eq!(
        answer["metadata"]["generation"], 2,
        "a change of the status does not count"
    );
    let main = server
        .request(
            "PUT",
            &item,
            json!({"metadata": {"name": "d"}, "spec": pods_of(json!({"replicas": 2})), "status": {"replicas": 7}}),
        )
        .await;
    assert_eq!(
        main.json()["status"]["replicas"],
        2,
        "W146: the main resource leaves the status alone"
    );
}

#[tokio::test]
async fn w51_w142_w143_w144_w145_invalid_updates_are_refused() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let item = format!("{CONFIGMAPS}/a");
    // Deviation W62: 400 with the same text for a version of a PUT that is not a number
    for (body, code, message) in [
        (
            json!({"name": "b"}),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            json!({}),
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            json!({"name": "a", "resourceVersion": "1"}),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
        ),
        (
            json!({"name": "a", "resourceVersion": "abc"}),
            400,
            "strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        (
            json!({"name": "a", "uid": "bad"}),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": ",
        ),
        (
            json!({"name": "a", "deletionTimestamp": "2001-01-01T00:00:00Z"}),
            422,
            "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value",
        ),
    ] {
        let answer = server
            .request("PUT", &item, json!({ "metadata": body }))
            .await;
        assert!(
            answer.code == code && answer.message().starts_with(message),
            "{body}: {}",
            answer.text
        );
    }
    let conflict = server
        .request(
            "PUT",
            &item,
            json!({"metadata": {"name": "a", "uid": "bad"}}),
        )
        .await
        .message();
    assert!(
        conflict.contains("Precondition failed: UID in precondition: bad"),
        "W144"
    );
    let missing = server
        .request(
            "PUT",
            &format!("{CONFIGMAPS}/x"),
            json!({"metadata": {"name": "x"}}),
        )
        .await;
    assert_eq!(missing.code, 404);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    assert_eq!(
        server
            .request("PUT", lease, json!({"metadata": {"name": "l"}}))
            .await
            .code,
        201,
        "W145"
    );
    let right = server
        .request(
            "PUT",
            &item,
            json!({"metadata": {"name": "a", "resourceVersion": a.to_string()}}),
        )
        .await;
    assert_eq!(right.code, 200, "W143");
}

#[tokio::test]
async fn w148_unconditional_updates_do_not_conflict() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let server = TestServer {
                api: server.api.clone(),
            };
            tokio::spawn(async move {
                for number in 0..20 {
                    server
                        .update("a", json!({}), &format!("{writer}-{number}"))
                        .await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn w143_one_of_several_concurrent_conditional_updates_succeeds() {
    let server = TestServer::start().await;
    for round in 0..20 {
        let name = format!("a{round}");
        let at = server.create(&name, json!({})).await;
        let item = format!("{CONFIGMAPS}/{name}");
        let tries: Vec<_> = (0..6)
            .map(|writer| {
                let (server, item, name) = (TestServer { api: server.api.clone() }, item.clone(), name.clone());
                tokio::spawn(async move {
                    let body = json!({"metadata": {"name": name, "resourceVersion": at.to_string()}, "data": {"k": format!("by {writer}")}});
                    server.request("PUT", &item, body).await.code
                })
            })
            .collect();
        let mut codes = Vec::new();
        for one in tries {
            codes.push(one.await.unwrap());
        }
        codes.sort_unstable();
        assert_eq!(codes, [200, 409, 409, 409, 409, 409]);
    }
}

#[tokio::test]
async fn immutable_objects_cannot_be_changed() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "1"}, "immutable": true});
    server.request("POST", CONFIGMAPS, &body).await;
    let answer = server
        .request(
            "PUT",
            &format!("{CONFIGMAPS}/a"),
            json!({"metadata": {"name": "a"}, "data": {"k": "2"}}),
        )
        .await;
    assert_eq!(
        answer.message(),
        "ConfigMap \"a\" is invalid: [immutable: Forbidden: field is immutable when `immutable` is set, data: Forbidden: field is immutable when `immutable` is set]"
    );
}

#[tokio::test]
async fn w143_w145_put_creates_leases_and_services() {
    let server = TestServer::start().await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let body = json!({"metadata": {"name": "l"}});
    let at = server.request("PUT", lease, &body).await.version();
    let blind = server.request("PUT", lease, &body).await;
    let message = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!((blind.code, blind.message().as_str()), (422, message));
    let seeing = json!({"metadata": {"name": "l", "resourceVersion": at.to_string()}, "spec": {"holderIdentity": "me"}});
    assert_eq!(server.request("PUT", lease, seeing).await.code, 200);
    let service = "/api/v1/namespaces/default/services/s";
    assert_eq!(
        server
            .request(
                "PUT",
                service,
                json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}})
            )
            .await
            .code,
        201
    );
    let event = "/api/v1/namespaces/default/events";
    let named = server
        .request("POST", event, json!({"metadata": {"name": "Any_Thing"}}))
        .await;
    assert_eq!(
        named.code, 201,
        "W169: events may be called anything that fits into a path: {}",
        named.text
    );
}
