//! What the port of a manager says of controllers that wait, and of those that have ended.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use serde_json::json;
use tidings_controller::{Action, Cached, Cluster, Context, Controller, Fleet, Manager};
use tidings_informer::{OnRefusal, ReflectorOptions};
use tidings_kube::{RestClient, Scope, SourceError};
use tokio::sync::oneshot;

use crate::log::ErrorLog;
use crate::port::{free_address, get};
use crate::server::{Server, eventually};

/// A server that forbids everything.
#[derive(Clone)]
struct Forbidding;

impl tower_service::Service<Request<Body>> for Forbidding {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let message = format!("you may not read {}", request.uri().path());
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": "Forbidden", "code": 403, "message": message});
        let mut response = Response::new(Body::from(status.to_string().into_bytes()));
        *response.status_mut() = http::StatusCode::FORBIDDEN;
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
        ready(Ok(response))
    }
}

/// The cluster of that server.
fn forbidden(name: &'static str) -> Cluster {
    Cluster::named(
        name,
        &RestClient::new(kube::Client::new(Forbidding, "default")),
    )
}

/// Caches stop at the first refusal.
fn stop_if_refused() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.on_refusal = OnRefusal::Stop;
    options
}

async fn look(_: Arc<Cached<ConfigMap>>, _: Context<()>) -> Result<Action, SourceError> {
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_seen_in_readyz() {
    let address = free_address().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let cluster = forbidden("default");
    let start = move || {
        Controller::<ConfigMap>::new(&cluster)
            .scope(Scope::namespace("blue"))
            .owns::<Secret>()
            .start(look, ())
    };
    let manager = Manager::new().listen(address).controller(start);
    let running = tokio::spawn(manager.stop_on(async { drop(stopped.await) }).run());
    let names_all = |text: &str| {
        text.starts_with("the controller configmap waits for its caches: ")
            && text.contains("v1/configmaps in blue (degraded after ")
            && text.contains("v1/secrets in blue (degraded after ")
            && text.contains("you may not read /api/v1/namespaces/blue/secrets")
    };
    eventually("the refusals are told", async || {
        let answer = get(address, "/readyz").await;
        answer.is_some_and(|(code, text)| code == 503 && names_all(&text))
    })
    .await;
    let health = get(address, "/healthz").await;
    assert_eq!(health, Some((200, "ok\n".to_owned())), "it may come later");
    drop(stop);
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_cache_stops_before_its_first_state_ends() {
    let log = ErrorLog::start();
    let address = free_address().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::start().await;
    // The first cache has its state, the second one is refused.
    let remote = forbidden("remote").reflector(stop_if_refused());
    let cluster = server.cluster();
    let start = move || {
        let watches = tidings_controller::Watches::<Secret>::all();
        Controller::<ConfigMap>::new(&cluster)
            .name("refused")
            .watches_in(&remote, watches, |_: &Cached<Secret>| [])
            .start(look, ())
    };
    let manager = Manager::new().listen(address).controller(start);
    let running = tokio::spawn(manager.stop_on(async { drop(stopped.await) }).run());
    let ended = "the controller refused has ended\n".to_owned();
    eventually("its end is told", async || {
        get(address, "/healthz").await == Some((503, ended.clone()))
    })
    .await;
    let (code, text) = get(address, "/readyz").await.unwrap();
    assert_eq!(code, 503);
    assert!(text.contains("v1/secrets (stopped: "), "{text}");
    let lines = log.of_controller("refused");
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["has stopped", r#"cache="v1/secrets""#, "may not read"] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
    drop(stop);
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_a_fleet_that_has_ended_is_named_with_its_cluster() {
    let server = Server::start().await;
    let address = free_address().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let fleet = Fleet::new();
    fleet
        .controller(|cluster| Controller::<ConfigMap>::new(cluster).start(look, ()))
        .unwrap();
    let good = Cluster::named("east", &server.client());
    fleet.add(&good).unwrap();
    let manager = Manager::new().listen(address).fleet(&fleet);
    let running = tokio::spawn(manager.stop_on(async { drop(stopped.await) }).run());
    let ok = Some((200, "ok\n".to_owned()));
    eventually("it is healthy", async || {
        get(address, "/healthz").await == ok
    })
    .await;
    let refused = forbidden("west").reflector(stop_if_refused());
    fleet.add(&refused).unwrap();
    let ended = "the controller configmap of the cluster west has ended\n".to_owned();
    eventually("its end is told", async || {
        get(address, "/healthz").await == Some((503, ended.clone()))
    })
    .await;
    fleet.remove("west").await;
    assert_eq!(get(address, "/healthz").await, ok);
    drop(stop);
    running.await.unwrap().unwrap();
}
