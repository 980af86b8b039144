//! The built-in kinds: each can be created, listed, watched, shown as a table and deleted; scale; views; validation.

use serde_json::{Value, json};

use crate::certificates;
use crate::support::{TestServer, job_of, pods_of};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// All resources, as discovery lists them: path of the collection, kind, apiVersion, verbs.
async fn resources(server: &TestServer) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut bases = vec!["/api/v1".to_owned()];
    for group in server.get("/apis").await.json()["groups"]
        .as_array()
        .unwrap()
    {
        for version in group["versions"].as_array().unwrap() {
            bases.push(format!(
                "/apis/{}",
                version["groupVersion"].as_str().unwrap()
            ));
        }
    }
    for base in bases {
        let list = server.get(&base).await.json();
        let version = list["groupVersion"].as_str().unwrap().to_owned();
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let listed = resource["verbs"].as_array().unwrap();
            if name.contains('/') || !listed.contains(&json!("list")) {
                continue;
            }
            let place = if resource["namespaced"] == true {
                "/namespaces/default"
            } else {
                ""
            };
            found.push((
                format!("{base}{place}/{name}"),
                resource["kind"].as_str().unwrap().to_owned(),
                version.clone(),
            ));
        }
    }
    found
}

/// A name that is valid for a kind.
fn name(kind: &str) -> &'static str {
    if kind == "IPAddress" {
        "10.1.2.3"
    } else {
        "a-name"
    }
}

#[tokio::test]
async fn every_kind_can_be_created_listed_watched_and_deleted() {
    let server = TestServer::start().await;
    let all = resources(&server).await;
    assert!(all.len() > 50, "{}", all.len());
    for (path, kind, version) in all {
        if kind == "CustomResourceDefinition" {
            continue; // definitions have their own tests
        }
        let name = name(&kind);
        let mut body = json!({"kind": kind, "apiVersion": version, "metadata": {"name": name}});
        match kind.as_str() {
            "Pod" => body["spec"] = json!({"containers": [{"name": "c", "image": "i"}]}),
            "CronJob" => body["spec"] = json!({"jobTemplate": {"spec": job_of(json!({}))}}),
            "Job" => body["spec"] = job_of(json!({})),
            "Service" => body["spec"] = json!({"clusterIP": "None"}),
            "ReplicationController" => {
                body["spec"] = pods_of(json!({"selector": {"app": "x"}}));
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                body["roleRef"] = json!({"kind": "ClusterRole", "name": "view"});
            }
            _ => body["spec"] = pods_of(json!({})),
        }
        if !makes_pods(&kind) {
            body.as_object_mut().unwrap().remove("spec");
        }
        if kind == "CertificateSigningRequest" {
            body["spec"] = json!({
                "request": certificates::request("a", "b"), "signerName": "example.com/s", "usages": ["client auth"],
            });
        }
        match kind.as_str() {
            "FlowSchema" => {
                body["spec"] = json!({"priorityLevelConfiguration": {"name": "a"}});
            }
            "PriorityLevelConfiguration" => {
                body["spec"] =
                    json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
            }
            "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
                let rule = json!({
                    "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                });
                body["spec"] = json!({
                    "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}],
                });
                if kind == "MutatingAdmissionPolicy" {
                    let made = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}});
                    body["spec"]["mutations"] = json!([made]);
                    body["spec"]["reinvocationPolicy"] = "Never".into();
                }
            }
            "MutatingAdmissionPolicyBinding" => body["spec"] = json!({"policyName": "p"}),
            "ValidatingAdmissionPolicyBinding" => {
                body["spec"] = json!({"policyName": "p", "validationActions": ["Deny"]});
            }
            _ => {}
        }
        let created = server.request("POST", &path, body).await;
        assert_eq!(created.code, 201, "{path}: {}", created.text);
        let object = created.json();
        assert_eq!(
            (object["kind"].as_str(), object["apiVersion"].as_str()),
            (Some(kind.as_str()), Some(version.as_str())),
            "{path}"
        );
        let item = format!("{path}/{name}");
        assert_eq!(server.get(&item).await.json(), object, "{path}");
        let list = server.get(&path).await.json();
        assert_eq!(list["kind"], format!("{kind}List"), "{path}");
        assert!(
            list["items"]
                .as_array()
                .unwrap()
                .iter()
                .any(|item| item["metadata"]["name"] == name && item.get("kind").is_none()),
            "{path}"
        );
        let mut watch = server
            .watch(&format!(
                "{path}?watch=1&allowWatchBookmarks=1&fieldSelector=metadata.name%3D{name}"
            ))
            .await;
        assert_eq!(
            watch.next().await.unwrap(),
            json!({"type": "ADDED", "object": object}),
            "{path}"
        );
        let end = watch.next().await.unwrap();
        assert_eq!(
            (&end["type"], end["object"]["kind"].as_str()),
            (&json!("BOOKMARK"), Some(kind.as_str())),
            "{path}"
        );
        let table = server.get_as(&item, TABLE).await.json();
        let named = table["columnDefinitions"][0]["name"] == "Name"; // an event's first column is its time
        assert!(!named || table["rows"][0]["cells"][0] == name, "{path}");
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        assert!(
            table["rows"][0]["cells"].as_array().unwrap().len() >= columns,
            "{path}"
        );
        let labelled = server
            .patch(&item, "merge", json!({"metadata": {"labels": {"a": "b"}}}))
            .await;
        assert_eq!(
            (labelled.code, &labelled.json()["metadata"]["labels"]["a"]),
            (200, &json!("b")),
            "{path}: {}",
            labelled.text
        );
        let replaced = server.request("PUT", &item, labelled.json()).await;
        assert_eq!(replaced.code, 200, "{path}: {}", replaced.text);
        assert_eq!(
            replaced.version(),
            labelled.version(),
            "W103: nothing changes, {path}"
        );
        let deleted = server
            .request("DELETE", &item, json!({"propagationPolicy": "Background"}))
            .await;
        assert_eq!(deleted.code, 200, "{path}: {}", deleted.text);
    }
}

#[tokio::test]
async fn an_event_is_seen_in_two_groups() {
    let server = TestServer::start().await;
    let core = "/api/v1/namespaces/default/events";
    let other = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut watch = server.watch(&format!("{other}?watch=1")).await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "message": "hello", "reason": "Why", "count": 2});
    let created = server.request("POST", core, event).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let seen = watch.next().await.unwrap();
    assert_eq!(
        (
            &seen["object"]["note"],
            &seen["object"]["regarding"]["name"]
        ),
        (&json!("hello"), &json!("p"))
    );
    assert_eq!(seen["object"]["apiVersion"], "events.k8s.io/v1");
    let selected = server
        .get(&format!("{other}?fieldSelector=regarding.name%3Dp"))
        .await;
    assert_eq!(selected.names(), ["e"]);
    let patched = server
        .patch(&format!("{other}/e"), "merge", json!({"note": "changed"}))
        .await;
    assert_eq!(
        (patched.code, &patched.json()["note"]),
        (200, &json!("changed"))
    );
    let back = server.get(&format!("{core}/e")).await.json();
    assert_eq!(
        (&back["message"], &back["count"]),
        (&json!("changed"), &json!(2))
    );
}

#[tokio::test]
async fn replicas_are_scaled() {
    let server = TestServer::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"b": "2", "a": "1"});
    let absent = json!([{"key": "aa", "operator": "DoesNotExist"}]);
    let selector = json!({"matchLabels": labels, "matchExpressions": absent});
    let mut spec = pods_of(json!({"replicas": 2, "selector": selector}));
    spec["template"]["metadata"]["labels"] = labels;
    server
        .request(
            "POST",
            deployments,
            json!({"metadata": {"name": "d"}, "spec": spec}),
        )
        .await;
    let path = format!("{deployments}/d/scale");
    let scale = server.get(&path).await.json();
    assert_eq!(
        (&scale["kind"], &scale["apiVersion"]),
        (&json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (
            &json!({"replicas": 2}),
            &json!({"replicas": 0, "selector": "a=1,!aa,b=2"})
        )
    );
    let patched = server
        .patch(&path, "merge", json!({"spec": {"replicas": 5}}))
        .await;
    assert_eq!(
        (patched.code, &patched.json()["spec"]["replicas"]),
        (200, &json!(5))
    );
    let deployment = server.get(&format!("{deployments}/d")).await.json();
    assert_eq!(
        (
            &deployment["spec"]["replicas"],
            &deployment["metadata"]["generation"]
        ),
        (&json!(5), &json!(2))
    );
    let mut wanted = patched.json();
    wanted["spec"]["replicas"] = json!(0);
    let put = server.request("PUT", &path, &wanted).await;
    assert_eq!((put.code, put.json()["spec"].clone()), (200, json!({})));
    assert_eq!(
        server.request("PUT", &path, &wanted).await.code,
        409,
        "a stale version conflicts"
    );
    let negative = server
        .patch(&path, "merge", json!({"spec": {"replicas": -1}}))
        .await;
    assert_eq!(negative.code, 422, "{}", negative.text);
    assert!(
        negative
            .message()
            .contains("spec.replicas: Invalid value: -1: must be greater than or equal to 0")
    );
    assert_eq!(
        server
            .get("/api/v1/namespaces/default/configmaps/x/scale")
            .await
            .json()["message"],
        "the server could not find the requested resource"
    );
}

#[tokio::test]
async fn w67_fields_of_kinds() {
    let server = TestServer::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let bad = server.get(&format!("{jobs}?fieldSelector=foo%3Dbar")).await;
    assert_eq!(bad.message(), "field label \"foo\" not supported for Job");
    let bad = server.get("/api/v1/nodes?fieldSelector=foo%3Dbar").await;
    assert_eq!(bad.message(), "field label not supported: foo");
    let bad = server
        .get("/apis/apps/v1/deployments?fieldSelector=foo%3Dbar")
        .await;
    assert_eq!(
        bad.message(),
        "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    for (name, unschedulable) in [("a", json!(null)), ("b", json!(true))] {
        let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": unschedulable}});
        assert_eq!(
            server.request("POST", "/api/v1/nodes", node).await.code,
            201
        );
    }
    let names = async |selector: &str| {
        server
            .get(&format!("/api/v1/nodes?fieldSelector={selector}"))
            .await
            .names()
    };
    assert_eq!(names("spec.unschedulable%3Dtrue").await, ["b"]);
    assert_eq!(names("spec.unschedulable%3Dfalse").await, ["a"]);
}

#[tokio::test]
async fn a_new_node_keeps_its_status() {
    let server = TestServer::start().await;
    let node = json!({"metadata": {"name": "n"}, "status": {"phase": "Running"}});
    let created = server.request("POST", "/api/v1/nodes", node).await.json();
    assert_eq!(created["status"]["phase"], "Running");
    let pod: Value = server
        .request(
            "POST",
            "/api/v1/namespaces/default/pods",
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"}}),
        )
        .await
        .json();
    assert_eq!(
        pod["status"]["phase"], "Pending",
        "other kinds do not keep it"
    );
}

#[tokio::test]
async fn the_scale_subresource_accepts_only_a_scale() {
    let server = TestServer::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let body = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": pods_of(json!({"replicas": 3}))});
    server.request("POST", deployments, &body).await;
    let path = format!("{deployments}/d/scale");
    let wrong = server.request("PUT", &path, &body).await;
    assert_eq!(wrong.code, 400, "{}", wrong.text);
    let elsewhere =
        json!({"metadata": {"name": "d", "namespace": "other"}, "spec": {"replicas": 1}});
    assert_eq!(server.request("PUT", &path, elsewhere).await.code, 400);
    let text = server
        .request(
            "PUT",
            &path,
            json!({"metadata": {"name": "d"}, "spec": {"replicas": "2"}}),
        )
        .await;
    assert!(text.message().ends_with(
        "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32"
    ));
    assert_eq!(server.get(&path).await.json()["spec"]["replicas"], 3);
}

#[tokio::test]
async fn w10_deprecated_kinds_give_a_warning() {
    let server = TestServer::start().await;
    let warning =
        "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    for path in [
        "/api/v1/endpoints",
        "/api/v1/namespaces/default/endpoints/nosuch",
        "/api/v1/endpoints?watch=1&timeoutSeconds=1",
    ] {
        assert_eq!(server.get(path).await.headers["warning"], warning, "{path}");
    }
}

/// True for kinds that need a spec with a Pod template.
fn makes_pods(kind: &str) -> bool {
    let kinds = [
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "Pod",
        "ReplicaSet",
        "ReplicationController",
        "Service",
        "StatefulSet",
    ];
    kinds.contains(&kind)
}

#[tokio::test]
async fn restart_policies_of_jobs_and_of_other_workloads() {
    let server = TestServer::start().await;
    let create = async |group: &str, plural: &str, spec: Value| {
        let path = format!("/apis/{group}/v1/namespaces/default/{plural}");
        let body = json!({"metadata": {"generateName": "x"}, "spec": spec});
        let answer = server.request("POST", &path, body).await;
        let causes = answer.json()["details"]["causes"][0].clone();
        (
            answer.code,
            format!(
                "{} {}",
                causes["field"].as_str().unwrap_or_default(),
                causes["message"].as_str().unwrap_or_default()
            ),
        )
    };
    let pods = |policy: &str| {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"labels": {"app": "x"}}, "spec": spec})
    };
    let refused =
        "spec.template.spec.restartPolicy Required value: valid values: \"OnFailure\", \"Never\"";
    for policy in ["Always", ""] {
        let job = json!({"template": pods(policy)});
        assert_eq!(
            create("batch", "jobs", job.clone()).await,
            (422, refused.into())
        );
        let cron = json!({"schedule": "@daily", "jobTemplate": {"spec": job}});
        let refused = format!("spec.jobTemplate.{refused}");
        assert_eq!(create("batch", "cronjobs", cron).await, (422, refused));
    }
    assert_eq!(
        create("batch", "jobs", json!({"template": pods("Never")}))
            .await
            .0,
        201
    );
    let selector = json!({"matchLabels": {"app": "x"}});
    for plural in ["deployments", "statefulsets", "daemonsets", "replicasets"] {
        let never = json!({"selector": selector, "template": pods("Never")});
        let refused = "spec.template.spec.restartPolicy Unsupported value: \"Never\": supported values: \"Always\"";
        assert_eq!(create("apps", plural, never).await, (422, refused.into()));
    }
}

#[tokio::test]
async fn the_selector_of_a_disruption_budget_can_be_changed() {
    let server = TestServer::start().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let body = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    assert_eq!(server.request("POST", budgets, body).await.code, 201);
    let other = json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}});
    let patched = server.patch(&format!("{budgets}/b"), "merge", other).await;
    assert_eq!(patched.code, 200, "{}", patched.text);
}

/// As in kube-apiserver, `serviceAccount` and `serviceAccountName` always have the same value.
#[tokio::test]
async fn both_fields_for_the_service_account_have_the_same_value() {
    let server = TestServer::start().await;
    let templates = "/api/v1/namespaces/default/podtemplates";
    let accounts =
        |spec: &Value| [&spec["serviceAccountName"], &spec["serviceAccount"]].map(Value::clone);
    for (at, given, kept) in [
        (0, json!({"serviceAccount": "old"}), json!("old")),
        (1, json!({"serviceAccountName": "new"}), json!("new")),
        (
            2,
            json!({"serviceAccount": "old", "serviceAccountName": "new"}),
            json!("new"),
        ),
        (
            3,
            json!({"serviceAccount": "", "serviceAccountName": ""}),
            Value::Null,
        ),
    ] {
        let mut spec = given;
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        let body = json!({"metadata": {"name": format!("t{at}")}, "template": {"spec": spec}});
        let created = server.request("POST", templates, body).await.json();
        assert_eq!(accounts(&created["template"]["spec"]), [kept.clone(), kept]);
    }
    let path = format!("{templates}/t0");
    let another = json!({"template": {"spec": {"serviceAccountName": "another"}}});
    let patched = server.patch(&path, "merge", another).await.json();
    assert_eq!(
        accounts(&patched["template"]["spec"]),
        ["another", "another"]
    );
}

#[tokio::test]
async fn workloads_get_the_defaults_of_kube_apiserver() {
    let server = TestServer::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let body = json!({"metadata": {"name": "d"}, "spec": pods_of(json!({}))});
    let created = server.request("POST", deployments, body).await.json();
    let container = json!({
        "name": "c", "image": "i", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
    });
    let template = json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler",
        },
    });
    assert_eq!(
        created["spec"].to_string(),
        json!({
            "replicas": 1,
            "selector": {"matchLabels": {"app": "x"}},
            "template": template,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        })
        .to_string(),
        "members are in the order of kube-apiserver"
    );
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let path = "/api/v1/namespaces/default/services";
    let service = server.request("POST", path, service).await.json();
    assert_eq!(
        service["spec"],
        json!({
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        }),
        "no cluster IP, which would need a network"
    );
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let job = server.request("POST", jobs, body).await.json();
    let selector = &job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"];
    assert_eq!(*selector, job["metadata"]["uid"]);
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"]["job-name"],
        "j"
    );
    assert_eq!(
        (&job["spec"]["completions"], &job["spec"]["backoffLimit"]),
        (&json!(1), &json!(6))
    );
    // Defaults are filled in again by an update.
    let replaced = json!({"metadata": {"name": "d"}, "spec": pods_of(json!({"replicas": 2}))});
    let item = format!("{deployments}/d");
    let replaced = server.request("PUT", &item, replaced).await.json();
    assert_eq!(replaced["spec"]["revisionHistoryLimit"], 10);
}

#[tokio::test]
async fn pods_are_validated_and_mostly_immutable() {
    let server = TestServer::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let bad = json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Foo", "containers": [
        {"name": "C_", "image": ""}, {"name": "a", "image": "x"}, {"name": "a", "image": "x"},
    ]}});
    let refused = server.request("POST", pods, bad).await;
    assert_eq!(
        refused.message(),
        r#"Pod "p" is invalid: [spec.containers[0].name: Invalid value: "C_": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'), spec.containers[0].image: Required value, spec.containers[2].name: Duplicate value: "a", spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"]"#
    );
    let empty = json!({"metadata": {"name": "p"}});
    assert_eq!(
        server.request("POST", pods, empty).await.message(),
        r#"Pod "p" is invalid: spec.containers: Required value"#
    );
    let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1", "resources": limits}]}});
    let created = server.request("POST", pods, pod).await.json();
    assert_eq!(
        created["status"],
        json!({"phase": "Pending", "qosClass": "Guaranteed"})
    );
    let resources = &created["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"], resources["limits"]);
    let item = format!("{pods}/p");
    for (patch, message) in [
        (
            json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}}),
            None,
        ),
        (
            json!({"spec": {"activeDeadlineSeconds": 5, "tolerations": [{"key": "a"}]}}),
            None,
        ),
        (
            json!({"spec": {"containers": [{"name": "d", "image": "i"}]}}),
            Some("spec.containers: Forbidden: pod updates may not add or remove containers"),
        ),
        (
            json!({"spec": {"hostNetwork": true}}),
            Some(
                "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
            ),
        ),
        (
            json!({"spec": {"tolerations": []}}),
            Some("spec: Forbidden: "),
        ),
    ] {
        let answer = server.patch(&item, "strategic-merge", patch.clone()).await;
        match message {
            None => assert_eq!(answer.code, 200, "{patch}: {}", answer.text),
            Some(message) => assert!(
                answer.code == 422 && answer.message().contains(message),
                "{patch}: {}",
                answer.text
            ),
        }
    }
}

#[tokio::test]
async fn immutable_fields_cannot_be_changed() {
    let server = TestServer::start().await;
    let workload = pods_of(json!({}));
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    for (path, body, patch, message) in [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"spec": workload}),
            json!({"spec": {"selector": {"matchLabels": {"b": "c"}}, "template": {"metadata": {"labels": {"b": "c"}}}}}),
            r#"spec.selector: Invalid value: {"matchLabels":{"app":"x","b":"c"}}: field is immutable"#,
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            json!({"spec": workload}),
            json!({"spec": {"serviceName": "y"}}),
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            json!({"spec": {"template": job_of(json!({}))["template"]}}),
            json!({"spec": {"completions": 3}}),
            "spec.completions: Invalid value: 3: field is immutable",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "x"}}),
            json!({"roleRef": {"name": "y"}}),
            "cannot change roleRef",
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({"spec": claim}),
            json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"provisioner": "a/b"}),
            json!({"provisioner": "c/d"}),
            r#"provisioner: Invalid value: "c/d": field is immutable"#,
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"value": 5}),
            json!({"value": 6}),
            "value: Forbidden: may not be changed in an update.",
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            json!({"spec": {"controller": "a.b/c"}}),
            json!({"spec": {"controller": "a.b/d"}}),
            r#"spec.controller: Invalid value: "a.b/d": field is immutable"#,
        ),
    ] {
        let mut body = body;
        body["metadata"] = json!({"name": "x"});
        let created = server.request("POST", path, body).await;
        assert_eq!(created.code, 201, "{path}: {}", created.text);
        let item = format!("{path}/x");
        let refused = server.patch(&item, "merge", patch).await;
        assert!(
            refused.code == 422 && refused.message().contains(message),
            "{path}: {}",
            refused.text
        );
        let labelled = server
            .patch(&item, "merge", json!({"metadata": {"labels": {"a": "b"}}}))
            .await;
        assert_eq!(labelled.code, 200, "{path}: {}", labelled.text);
    }
}
