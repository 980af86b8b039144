//! The API server of the tests, behind a switch that cuts the connection.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use serde_json::{Value, json};
use tidings_controller::{Action, Cached, Cluster, Context as ReconcileContext, ControllerHandle};
use tidings_kube::{ApiResource, ObjectPath, RestClient, SourceError};
use tidings_server::{Api, ApiOptions, ResponseBody};
use tidings_storage::{Embedded, EmbeddedOptions};
use tokio::sync::watch;
use tower_service::Service;

/// An API server in memory.
#[derive(Clone)]
pub(crate) struct Server {
    api: Api,
    switch: Arc<Switch>,
}

/// Cuts the connection of controllers, and counts what they send.
pub(crate) struct Switch {
    is_cut: AtomicBool,
    /// The server answers that it is not ready, and serves nothing.
    is_starting: AtomicBool,
    /// The connection is cut when this many writes were sent.
    cut_at: AtomicU64,
    /// Requests whose path contains this are refused, all others are answered.
    pub(crate) poisoned: Mutex<Option<&'static str>>,
    /// Requests whose path contains this wait until it changes.
    held: watch::Sender<Option<&'static str>>,
    /// Requests that found the connection cut.
    pub(crate) refused: AtomicU64,
    /// Writes that were sent.
    pub(crate) writes: AtomicU64,
}

/// The connection is cut.
#[derive(Debug, thiserror::Error)]
#[error("connection refused")]
pub(crate) struct Refused;

impl Server {
    pub(crate) async fn start() -> Server {
        let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
        let api = Api::start(store, ApiOptions::default()).await.unwrap();
        Server {
            api,
            switch: Arc::default(),
        }
    }

    /// A client over the switch.
    pub(crate) fn client(&self) -> RestClient {
        RestClient::new(kube::Client::new(self.clone(), "default"))
    }

    pub(crate) fn cluster(&self) -> Cluster {
        Cluster::new(&self.client())
    }

    /// A client that the switch does not cut: that of the user.
    pub(crate) fn user(&self) -> RestClient {
        RestClient::new(kube::Client::new(self.api.clone(), "default"))
    }

    pub(crate) fn switch(&self) -> &Switch {
        &self.switch
    }

    pub(crate) async fn create(&self, map: Value) -> Value {
        let (user, resource) = (self.user(), config_maps());
        let created = user
            .create_object(&resource, "default", &map)
            .await
            .unwrap();
        serde_json::from_slice(created.as_bytes()).unwrap()
    }

    /// Applies a ConfigMap as a user does.
    pub(crate) async fn apply(&self, name: &str, data: Value) {
        let resource = config_maps();
        let path = ObjectPath::new(&resource, "default", name);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.user()
            .apply_object(&path, "user", true, &map)
            .await
            .unwrap();
    }

    pub(crate) async fn get(&self, resource: &ApiResource, name: &str) -> Option<Value> {
        let path = ObjectPath::new(resource, "default", name);
        let object = self.user().get_object(&path).await.unwrap()?;
        Some(serde_json::from_slice(object.as_bytes()).unwrap())
    }

    /// How many Secrets each owner has.
    pub(crate) async fn children_by_owner(&self) -> BTreeMap<String, usize> {
        let path = tidings_kube::collection_path(&secrets(), "default");
        let request = Request::get(path).body(Vec::new()).unwrap();
        let user = self.user();
        let list = user.kube().request::<Value>(request).await.unwrap();
        let mut children = BTreeMap::new();
        for secret in list["items"].as_array().unwrap() {
            let owner = secret["metadata"]["ownerReferences"][0]["name"].as_str();
            *children.entry(owner.unwrap().to_owned()).or_default() += 1;
        }
        children
    }

    pub(crate) async fn delete(&self, resource: &ApiResource, name: &str) {
        let path = ObjectPath::new(resource, "default", name);
        assert!(self.user().delete_object(&path, None).await.unwrap());
    }
}

impl Default for Switch {
    fn default() -> Switch {
        Switch {
            is_cut: AtomicBool::new(false),
            is_starting: AtomicBool::new(false),
            cut_at: AtomicU64::new(u64::MAX),
            poisoned: Mutex::default(),
            held: watch::Sender::new(None),
            refused: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }
}

impl Switch {
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, SeqCst);
    }

    /// Lets the server answer as one that has just started, or as one that is ready.
    pub(crate) fn starting(&self, is_starting: bool) {
        self.is_starting.store(is_starting, SeqCst);
    }

    /// Lets requests whose path contains a text wait, or none.
    pub(crate) fn hold(&self, path: Option<&'static str>) {
        self.held.send_replace(path);
    }

    /// Cuts the connection after this many more writes.
    pub(crate) fn cut_after(&self, writes: u64) {
        self.cut_at.store(self.writes.load(SeqCst) + writes, SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.cut_at.store(u64::MAX, SeqCst);
        self.is_cut.store(false, SeqCst);
    }
}

impl Service<Request<Body>> for Server {
    type Response = Response<ResponseBody>;
    type Error = Refused;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Refused>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut api, switch) = (self.api.clone(), Arc::clone(&self.switch));
        Box::pin(async move {
            if switch.writes.load(SeqCst) >= switch.cut_at.load(SeqCst) {
                switch.cut();
            }
            if switch.is_cut.load(SeqCst) {
                switch.refused.fetch_add(1, SeqCst);
                return Err(Refused);
            }
            let path = request.uri().path().to_owned();
            if switch.is_starting.load(SeqCst) {
                switch.refused.fetch_add(1, SeqCst);
                let code = match path.as_str() {
                    "/readyz" => StatusCode::INTERNAL_SERVER_ERROR,
                    _ => StatusCode::NOT_FOUND,
                };
                let page = Request::get("/livez").body(Body::empty()).unwrap();
                let Ok(mut response) = api.call(page).await;
                *response.status_mut() = code;
                return Ok(response);
            }
            let mut held = switch.held.subscribe();
            let is_free = |held: &Option<&str>| held.is_none_or(|held| !path.contains(held));
            let _ = held.wait_for(is_free).await;
            let poisoned = *switch.poisoned.lock().unwrap();
            if poisoned.is_some_and(|resource| path.contains(resource)) {
                return Err(Refused);
            }
            if request.method() != Method::GET {
                switch.writes.fetch_add(1, SeqCst);
            }
            let answered: Result<_, Infallible> = api.call(request).await;
            let Ok(response) = answered;
            Ok(response)
        })
    }
}

pub(crate) fn config_maps() -> ApiResource {
    tidings_kube::resource_of::<k8s_openapi::api::core::v1::ConfigMap>()
}

pub(crate) fn secrets() -> ApiResource {
    tidings_kube::resource_of::<k8s_openapi::api::core::v1::Secret>()
}

/// Makes one more child with a generated name, until there are three. A cache that is behind would make more.
pub(crate) async fn make_three(
    map: Arc<Cached<ConfigMap>>,
    ctx: ReconcileContext<()>,
) -> Result<Action, SourceError> {
    if ctx.owned::<Secret>(&map).len() >= 3 {
        return Ok(Action::AwaitChange);
    }
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": map.name(),
        "uid": map.value().metadata.uid, "controller": true}]);
    let child = json!({"metadata": {"generateName": "child-", "ownerReferences": owner}});
    ctx.client()
        .create_object(&secrets(), "default", &child)
        .await?;
    Ok(Action::RequeueAfter(Duration::ZERO))
}

/// Waits until a condition holds; fails after twenty seconds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waited).await;
    assert!(waited.is_ok(), "{what}");
}

/// Waits until a controller has nothing to do.
pub(crate) async fn idle(controller: &ControllerHandle) {
    let mut quiet = 0;
    eventually("the controller has nothing to do", async || {
        quiet = if controller.is_idle() { quiet + 1 } else { 0 };
        quiet > 10
    })
    .await;
}
