//! Permissions: every request of a controller is allowed by what is derived from its builder.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use kube::client::Body;
use serde_json::{Value, json};
use tidings_api::ObjectKey;
use tidings_controller::{
    Action, Cached, Cluster, Context, Controller, Finalizing, Manager, Permissions, ShardGroup,
    ShardOptions,
};
use tidings_kube::{
    ApiResource, ObjectPath, PatchKind, RestClient, Scope, SourceError, resource_of,
};
use tidings_server::ResponseBody;
use tokio::sync::oneshot;

use crate::server::{Refused, Server, config_maps, eventually, secrets};

/// What an authorizer is asked about: verb, group, resource with subresource, namespace.
type Asked = (String, String, String, String);

/// A connection that notes what an authorizer would be asked about each request.
#[derive(Clone)]
struct Recorded {
    server: Server,
    asked: Arc<Mutex<BTreeSet<Asked>>>,
}

impl tower_service::Service<Request<Body>> for Recorded {
    type Response = Response<ResponseBody>;
    type Error = Refused;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Refused>> + Send>>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), Refused>> {
        self.server.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut server, asked) = (self.server.clone(), Arc::clone(&self.asked));
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let (method, uri) = (head.method.clone(), head.uri.clone());
            let request = Request::from_parts(head, Body::from(body.clone()));
            let response = server.call(request).await?;
            let questions = questions(&method, &uri, &body, response.status());
            asked.lock().unwrap().extend(questions);
            Ok(response)
        })
    }
}

fn questions(method: &Method, uri: &http::Uri, body: &[u8], code: StatusCode) -> Vec<Asked> {
    let segments: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let (group, rest) = match &*segments {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        // Everyone may ask for the version.
        other => {
            assert_eq!(other, ["version"]);
            return Vec::new();
        }
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let resource = match rest {
        [resource, _, subresource] => format!("{resource}/{subresource}"),
        rest => rest[0].to_owned(),
    };
    let is_collection = rest.len() == 1;
    let is_watch = uri
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let verb = match (method.as_str(), is_collection) {
        ("GET", true) if is_watch => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        other => panic!("{other:?}"),
    };
    let ask = |verb: &str, group: &str, resource: &str| {
        [verb, group, resource, namespace].map(str::to_owned).into()
    };
    let mut asked = vec![ask(verb, group, &resource)];
    if verb == "patch" && code == StatusCode::CREATED {
        asked.push(ask("create", group, &resource));
    }
    // As the admission plugin OwnerReferencesPermissionEnforcement asks.
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let owners = body["metadata"]["ownerReferences"].as_array();
    for owner in owners.into_iter().flatten() {
        assert_eq!(owner["kind"], "Deployment");
        if owner["blockOwnerDeletion"] == true {
            asked.push(ask("update", "apps", "deployments/finalizers"));
        }
    }
    asked
}

fn deployments(cluster: &Cluster, scope: Scope) -> Controller<Deployment> {
    Controller::new(cluster)
        .owns::<ConfigMap>()
        .owns::<Secret>()
        .watches::<Namespace, _>(|_| None::<ObjectKey>)
        .writes::<Service>()
        .scope(scope)
}

/// A ConfigMap with a finalizer and a status; Secrets are pruned; a Service is made that nobody owns.
async fn reconcile(
    deployment: Arc<Cached<Deployment>>,
    ctx: Context<()>,
) -> Result<Action, SourceError> {
    let apply = async |finalizing| {
        let services = resource_of::<Service>();
        let path = ObjectPath::new(&services, "default", "door");
        if finalizing == Finalizing::Cleanup {
            ctx.client().delete_object(&path, None).await?;
            return Ok(Action::AwaitChange);
        }
        let mut map = ConfigMap::default();
        map.metadata.name = Some("child".to_owned());
        ctx.apply(&deployment, &map).await?;
        let mut secret = Secret::default();
        secret.metadata.name = Some("unwanted".to_owned());
        ctx.apply(&deployment, &secret).await?;
        ctx.prune::<Secret>(&deployment, |_| false).await?;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "door"},
            "spec": {"ports": [{"port": 80}]}});
        ctx.client()
            .apply_object(&path, "test", true, &service)
            .await?;
        ctx.read::<Deployment>(deployment.key()).await?;
        let replicas = json!({"observedGeneration": 1});
        ctx.apply_status(&deployment, &replicas).await?;
        Ok(Action::AwaitChange)
    };
    ctx.finalizer(&deployment, "example.com/test", apply).await
}

fn deployment_resource() -> ApiResource {
    resource_of::<Deployment>()
}

/// Runs the controller under a leader election from the creation of an object to its end.
async fn everything_it_asks(scope: Scope) -> (BTreeSet<Asked>, Permissions) {
    let server = Server::start().await;
    let recorded = Recorded {
        server: server.clone(),
        asked: Arc::default(),
    };
    let asked = Arc::clone(&recorded.asked);
    let client = RestClient::new(kube::Client::new(recorded, "default"));
    let cluster = Cluster::new(&client);
    let permissions = deployments(&cluster, scope.clone())
        .permissions()
        .leader_election("default");
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new()
        .leader_election(&client, "default", "test")
        .controller(move || deployments(&cluster, scope.clone()).start(reconcile, ()))
        .stop_on(async { drop(stopped.await) });
    let running = tokio::spawn(manager.run());

    let labels = json!({"a": "b"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "main"}, "spec": {"selector": {"matchLabels": labels}, "template": pod}});
    let user = server.user();
    let resource = deployment_resource();
    let created = user.create_object(&resource, "default", &deployment).await;
    created.unwrap();
    let was_asked = |verb: &str, resource: &str| {
        let asked = asked.lock().unwrap();
        asked
            .iter()
            .any(|(known, _, of, _)| known == verb && of == resource)
    };
    eventually("the status is written and the child pruned", async || {
        was_asked("patch", "deployments/status") && was_asked("delete", "secrets")
    })
    .await;
    assert!(server.get(&config_maps(), "child").await.is_some());
    server.delete(&resource, "main").await;
    eventually("it is cleaned up after", async || {
        server.get(&resource, "main").await.is_none()
            && server.get(&secrets(), "unwanted").await.is_none()
    })
    .await;
    drop(stop);
    running.await.unwrap().unwrap();
    let asked = asked.lock().unwrap().clone();
    (asked, permissions)
}

#[tokio::test(flavor = "multi_thread")]
async fn cr88_every_request_of_a_controller_is_allowed_by_its_derived_permissions() {
    for scope in [Scope::all(), Scope::namespace("default")] {
        let (asked, permissions) = everything_it_asks(scope).await;
        for (verb, group, resource, namespace) in &asked {
            assert!(
                permissions.allows(verb, group, resource, namespace),
                "{verb} {resource}.{group} in {namespace:?}: {permissions:#?}"
            );
        }
        for (verb, resource) in [
            ("list", "deployments"),
            ("watch", "namespaces"),
            ("get", "deployments"),
            ("patch", "deployments"),
            ("patch", "deployments/status"),
            ("update", "deployments/finalizers"),
            ("create", "configmaps"),
            ("delete", "secrets"),
            ("create", "services"),
            ("delete", "services"),
            ("create", "leases"),
            ("update", "leases"),
        ] {
            let found = asked
                .iter()
                .any(|(known, _, of, _)| known == verb && of == resource);
            assert!(found, "the test never asks to {verb} {resource}: {asked:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_a_group_is_allowed_by_its_permissions_and_each_verb_is_used() {
    let server = Server::start().await;
    let recorded = Recorded {
        server: server.clone(),
        asked: Arc::default(),
    };
    let asked = Arc::clone(&recorded.asked);
    let client = RestClient::new(kube::Client::new(recorded, "default"));
    let [lease, deadline, every] = [2_000, 1_000, 100].map(Duration::from_millis);
    let join = |identity: &str| {
        let options = ShardOptions::default().times(lease, deadline, every);
        let cluster = Cluster::new(&client);
        ShardGroup::join_with(&cluster, "default", "maps", options.identity(identity)).unwrap()
    };
    // One crashes, so that its Lease is deleted.
    let (stays, crashes) = (join("stays"), join("crashes"));
    eventually("both are members", async || {
        stays.status().members.len() == 2
    })
    .await;
    drop(crashes);
    // A change of the Lease by somebody else: the member reads it before it renews again.
    let resource = resource_of::<Lease>();
    let name = stays.status().member.unwrap();
    let path = ObjectPath::new(&resource, "default", &name);
    let change = json!({"metadata": {"annotations": {"a": "b"}}});
    let user = server.user();
    user.patch_object(&path, PatchKind::Merge, &change)
        .await
        .unwrap();
    eventually("the other is alone", async || {
        stays.status().members.len() == 1
    })
    .await;
    stays.leave().await;
    let permissions = Permissions::new().sharding("default");
    let asked = asked.lock().unwrap().clone();
    for (verb, group, resource, namespace) in &asked {
        assert!(
            permissions.allows(verb, group, resource, namespace),
            "{verb} {resource}.{group} in {namespace:?}"
        );
    }
    let verbs = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    let unused = verbs.iter().filter(|verb| {
        let is_used = asked.iter().any(|(known, ..)| known == *verb);
        permissions.allows(verb, "coordination.k8s.io", "leases", "default") && !is_used
    });
    assert_eq!(unused.collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_takes_the_manifests_and_finds_nothing_odd_in_them() {
    let server = Server::start().await;
    let user = server.user();
    let create = async |object: &str, plural: &str| {
        let (group, namespace) = match plural {
            "serviceaccounts" => ("api/v1", "namespaces/default/"),
            "clusterroles" | "clusterrolebindings" => ("apis/rbac.authorization.k8s.io/v1", ""),
            _ => ("apis/rbac.authorization.k8s.io/v1", "namespaces/default/"),
        };
        let path = format!("/{group}/{namespace}{plural}?fieldValidation=Strict");
        let request = Request::post(path).header("Content-Type", "application/yaml");
        let request = request.body(object.as_bytes().to_vec()).unwrap();
        let answer = user.kube().request::<Value>(request).await;
        answer.unwrap_or_else(|error| panic!("{error}: {object}"))
    };
    let cluster = server.cluster();
    let permissions = deployments(&cluster, Scope::all()).permissions();
    let text = permissions
        .leader_election("default")
        .definitions()
        .manifest("operator", "default");
    let mut kinds = Vec::new();
    for object in text.split("---\n") {
        let kind = object.lines().find_map(|line| line.strip_prefix("kind: "));
        let plural = format!("{}s", kind.unwrap().to_lowercase());
        let created = create(object, &plural).await;
        assert_eq!(created["metadata"]["name"], "operator");
        if plural == "clusterroles" {
            let rules = created["rules"].as_array().unwrap();
            let status = rules
                .iter()
                .find(|rule| rule["resources"][0] == "deployments/status");
            assert_eq!(status.unwrap()["verbs"], json!(["patch"]));
        }
        kinds.push(kind.unwrap());
    }
    let expected = [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ];
    assert_eq!(kinds, expected);
}
