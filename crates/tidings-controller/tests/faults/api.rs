//! A small API server in memory for paused time, without threads: a seed decides what goes wrong and when, so that a history can be
//! repeated.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower_service::Service;

use crate::patches::{change, merge};
use crate::target::{Target, target};

/// The connection is gone.
#[derive(Debug, Clone, thiserror::Error)]
#[error("connection reset")]
pub(crate) struct Reset;

/// What may go wrong with a request or a watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    /// Of a thousand requests, this many meet each trouble.
    pub(crate) per_mille: u32,
}

/// The server. Clones are connections of one process, whose requests fail after [`SimulatedApi::disconnect`].
#[derive(Clone)]
pub(crate) struct SimulatedApi {
    state: Arc<Mutex<ApiState>>,
    process: u32,
}

struct ApiState {
    rng: fastrand::Rng,
    trouble: Trouble,
    away_until: Instant,
    revision: u64,
    /// Watches before this revision are answered with 410.
    compacted: u64,
    objects: BTreeMap<ObjectPlace, Value>,
    log: Vec<LoggedChange>,
    watches: Vec<OpenWatch>,
    dead: Vec<u32>,
    requests: u64,
    /// Children with generated names whose owner had one already.
    made_twice: u64,
}

/// Resource, namespace and name.
type ObjectPlace = (String, String, String);

struct LoggedChange {
    revision: u64,
    what: &'static str,
    place: ObjectPlace,
    object: Value,
}

struct OpenWatch {
    process: u32,
    selection: Selection,
    sender: mpsc::UnboundedSender<Result<Bytes, Reset>>,
    /// Sends nothing any more, and does not end.
    silent: bool,
}

#[derive(Clone)]
struct Selection {
    resource: String,
    namespace: String,
    label: Option<(String, String)>,
}

impl Selection {
    fn has(&self, place: &ObjectPlace, object: &Value) -> bool {
        let (resource, namespace, _) = place;
        let label = |(key, value): &(String, String)| {
            object["metadata"]["labels"][key].as_str() == Some(value)
        };
        *resource == self.resource
            && (self.namespace.is_empty() || *namespace == self.namespace)
            && self.label.as_ref().is_none_or(label)
    }
}

/// A body that comes in pieces.
pub(crate) struct Pieces(mpsc::UnboundedReceiver<Result<Bytes, Reset>>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Reset;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// An answer that is complete.
type Answer = (u16, Value);

fn status(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": format!("{reason}, says the simulated server")});
    (code, status)
}

impl SimulatedApi {
    pub(crate) fn new(seed: u64) -> SimulatedApi {
        let state = ApiState {
            rng: fastrand::Rng::with_seed(seed),
            trouble: Trouble { per_mille: 0 },
            away_until: Instant::now(),
            revision: 100,
            compacted: 0,
            objects: BTreeMap::new(),
            log: Vec::new(),
            watches: Vec::new(),
            dead: Vec::new(),
            requests: 0,
            made_twice: 0,
        };
        SimulatedApi {
            state: Arc::new(Mutex::new(state)),
            process: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ApiState> {
        self.state.lock().unwrap()
    }

    /// The server as another process sees it.
    pub(crate) fn process(&self, process: u32) -> SimulatedApi {
        SimulatedApi {
            state: Arc::clone(&self.state),
            process,
        }
    }

    /// The process has crashed: nothing that it still sends arrives.
    pub(crate) fn disconnect(&self, process: u32) {
        let mut state = self.lock();
        state.dead.push(process);
        state.watches.retain(|watch| watch.process != process);
    }

    pub(crate) fn set_trouble(&self, per_mille: u32) {
        self.lock().trouble = Trouble { per_mille };
    }

    /// Answers nobody for some time, and ends all watches.
    pub(crate) fn go_away(&self, time: Duration) {
        let mut state = self.lock();
        state.away_until = Instant::now() + time;
        for watch in state.watches.drain(..) {
            let _ = watch.sender.send(Err(Reset));
        }
    }

    /// Forgets the history: watches must begin anew.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.revision;
        state.log.clear();
    }

    /// Ends some watches, and makes others silent.
    pub(crate) fn disturb_watches(&self) {
        let mut state = self.lock();
        let mut rng = state.rng.fork();
        state.watches.retain_mut(|watch| match rng.u8(..4) {
            0 => {
                let _ = watch.sender.send(Err(Reset));
                false
            }
            1 => {
                let gone = status(410, "Expired").1;
                let event = format!("{}\n", json!({"type": "ERROR", "object": gone}));
                let _ = watch.sender.send(Ok(event.into()));
                false
            }
            2 => {
                watch.silent = true;
                true
            }
            _ => true,
        });
    }

    /// A bookmark for all watches, as servers send them about once a minute.
    pub(crate) fn bookmark(&self) {
        let state = self.lock();
        for watch in state.watches.iter().filter(|watch| !watch.silent) {
            let object = json!({"metadata": {"resourceVersion": state.revision.to_string()}});
            let event = format!("{}\n", json!({"type": "BOOKMARK", "object": object}));
            let _ = watch.sender.send(Ok(event.into()));
        }
    }

    /// Requests that have arrived.
    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Children with generated names whose owner had one already.
    pub(crate) fn made_twice(&self) -> u64 {
        self.lock().made_twice
    }

    /// All objects of a resource by name, without trouble.
    pub(crate) fn all(&self, resource: &str) -> BTreeMap<String, Value> {
        let state = self.lock();
        let objects = state.objects.iter();
        let of_resource = objects.filter(|(place, _)| place.0 == resource);
        of_resource
            .map(|(place, object)| (place.2.clone(), object.clone()))
            .collect()
    }

    /// Creates or replaces an object as a user does, without trouble.
    pub(crate) fn put(&self, resource: &str, name: &str, mut object: Value) {
        let mut state = self.lock();
        let place = (resource.to_owned(), "default".to_owned(), name.to_owned());
        if let Some(known) = state.objects.get(&place) {
            for member in ["uid", "finalizers", "deletionTimestamp", "resourceVersion"] {
                object["metadata"][member] = known["metadata"][member].clone();
            }
        }
        object["metadata"]["name"] = name.into();
        state.store(place, object);
    }

    /// Deletes an object as a user does, without trouble.
    pub(crate) fn delete(&self, resource: &str, name: &str) {
        let place = (resource.to_owned(), "default".to_owned(), name.to_owned());
        self.lock().remove(&place);
    }

    async fn answer(self, request: Request<Bytes>) -> Result<Response<Pieces>, Reset> {
        let (delays, fate) = {
            let mut state = self.lock();
            state.requests += 1;
            let per_mille = state.trouble.per_mille;
            let delays = [0, 1].map(|_| Duration::from_micros(state.rng.u64(50..20_000)));
            let fate = match state.rng.u32(..1000) {
                number if per_mille == 0 || number >= per_mille * 4 => Fate::Answered,
                number if number < per_mille => Fate::Lost,
                number if number < per_mille * 2 => Fate::AnswerLost,
                number if number < per_mille * 3 => Fate::Overload,
                _ => Fate::Broken,
            };
            (delays, fate)
        };
        tokio::time::sleep(delays[0]).await;
        let answer = {
            let mut state = self.lock();
            let gone = state.away_until > Instant::now() || state.dead.contains(&self.process);
            match fate {
                _ if gone => return Err(Reset),
                Fate::Lost => return Err(Reset),
                Fate::Overload => answered(status(429, "TooManyRequests")),
                Fate::Broken => answered(status(500, "InternalError")),
                Fate::Answered | Fate::AnswerLost => state.perform(self.process, &request),
            }
        };
        tokio::time::sleep(delays[1]).await;
        let is_dead = self.lock().dead.contains(&self.process);
        match fate {
            Fate::AnswerLost => Err(Reset),
            _ if is_dead => Err(Reset),
            _ => Ok(answer),
        }
    }
}

enum Fate {
    Answered,
    /// The request does not arrive.
    Lost,
    /// It is done, and nobody hears of it.
    AnswerLost,
    Overload,
    Broken,
}

fn answered((code, body): Answer) -> Response<Pieces> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Ok(body.to_string().into()));
    let mut response = Response::new(Pieces(receiver));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    let headers = response.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    if code == 429 {
        headers.insert("retry-after", "1".parse().unwrap());
    }
    response
}

impl ApiState {
    fn perform(&mut self, process: u32, request: &Request<Bytes>) -> Response<Pieces> {
        let Some(target) = target(request) else {
            return answered((200, json!({"major": "1", "minor": "36"})));
        };
        if request.method() == Method::GET && target.query.contains_key("watch") {
            return self.watch(process, &target);
        }
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let place = (
            target.resource.clone(),
            target.namespace.clone(),
            target.name.clone(),
        );
        let kind = request.headers().get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        answered(match (request.method(), target.name.as_str()) {
            (&Method::GET, "") => self.list(&target),
            (&Method::GET, _) => match self.objects.get(&place) {
                Some(object) => (200, object.clone()),
                None => status(404, "NotFound"),
            },
            (&Method::POST, _) => self.create(place, body),
            (&Method::PUT, _) => self.update(place, body),
            (&Method::PATCH, _) => self.patch(place, &target.subresource, kind, &body),
            (&Method::DELETE, _) => {
                let wanted = &body["preconditions"];
                let Some(known) = self.objects.get(&place) else {
                    return answered(status(404, "NotFound"));
                };
                let differs = ["uid", "resourceVersion"].iter().any(|member| {
                    wanted[member].is_string() && wanted[member] != known["metadata"][member]
                });
                if differs {
                    return answered(status(409, "Conflict"));
                }
                self.remove(&place);
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            _ => status(405, "MethodNotAllowed"),
        })
    }

    fn selection(target: &Target) -> Selection {
        let label = target.query.get("labelSelector");
        let label = label.and_then(|label| label.split_once('='));
        Selection {
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            label: label.map(|(key, value)| (key.to_owned(), value.to_owned())),
        }
    }

    fn list(&mut self, target: &Target) -> Answer {
        let selection = ApiState::selection(target);
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(place, object)| selection.has(place, object))
            .map(|(_, object)| object)
            .collect();
        let version = self.revision.to_string();
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items});
        (200, list)
    }

    fn watch(&mut self, process: u32, target: &Target) -> Response<Pieces> {
        let from = target.query.get("resourceVersion");
        let from: u64 = from.and_then(|from| from.parse().ok()).unwrap_or_default();
        if from < self.compacted {
            return answered(status(410, "Expired"));
        }
        let selection = ApiState::selection(target);
        let (sender, receiver) = mpsc::unbounded_channel();
        for change in &self.log {
            if change.revision > from && selection.has(&change.place, &change.object) {
                let event = json!({"type": change.what, "object": change.object});
                let _ = sender.send(Ok(format!("{event}\n").into()));
            }
        }
        self.watches.push(OpenWatch {
            process,
            selection,
            sender,
            silent: false,
        });
        let lag_max = if self.trouble.per_mille > 0 { 3_000 } else { 0 };
        let delayed = late(receiver, self.rng.fork(), lag_max);
        let mut response = Response::new(Pieces(delayed));
        let json = "application/json".parse().unwrap();
        response.headers_mut().insert("content-type", json);
        response
    }

    fn create(&mut self, mut place: ObjectPlace, mut object: Value) -> Answer {
        let metadata = &mut object["metadata"];
        if let Some(prefix) = metadata["generateName"].as_str() {
            metadata["name"] = format!("{prefix}{}", self.revision).into();
        }
        place.2 = metadata["name"].as_str().unwrap_or_default().to_owned();
        let owner = metadata["ownerReferences"][0]["uid"].clone();
        let is_twice = owner.is_string()
            && self.objects.values().any(|known| {
                let known = &known["metadata"];
                known["generateName"].is_string() && known["ownerReferences"][0]["uid"] == owner
            });
        self.made_twice += u64::from(is_twice);
        match self.objects.contains_key(&place) {
            true => status(409, "AlreadyExists"),
            false => (201, self.store(place, object)),
        }
    }

    fn update(&mut self, place: ObjectPlace, object: Value) -> Answer {
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        match self.objects.get(&place) {
            None => status(404, "NotFound"),
            Some(known) if version(known) != version(&object) => status(409, "Conflict"),
            Some(_) => (200, self.store(place, object)),
        }
    }

    fn patch(&mut self, place: ObjectPlace, part: &str, kind: &str, patch: &Value) -> Answer {
        let known = self.objects.get(&place).cloned();
        let is_apply = kind.contains("apply-patch");
        let Some(mut object) = known.or_else(|| {
            (is_apply && part.is_empty()).then(|| json!({"metadata": {"name": place.2}}))
        }) else {
            return status(404, "NotFound");
        };
        if kind.contains("json-patch") {
            for step in patch.as_array().unwrap() {
                if !change(&mut object, step) {
                    return status(422, "Invalid");
                }
            }
        } else {
            let wanted = &patch["metadata"];
            for member in ["uid", "resourceVersion"] {
                let has = &object["metadata"][member];
                if wanted[member].is_string() && has.is_string() && wanted[member] != *has {
                    return status(409, "Conflict");
                }
            }
            let mut patch = patch.clone();
            if part == "status" {
                patch = json!({"status": patch["status"]});
            }
            if is_apply {
                // What a manager does not apply any more goes: there is one manager of each member here.
                for (member, value) in patch.as_object().unwrap() {
                    if member != "metadata" {
                        object[member] = value.clone();
                    }
                }
            }
            merge(&mut object, &patch);
        }
        if self.objects.get(&place) == Some(&object) {
            return (200, object); // a write without a change is none
        }
        (200, self.store(place, object))
    }

    /// Stores an object at the next revision. One that is being deleted goes with its last finalizer.
    fn store(&mut self, place: ObjectPlace, mut object: Value) -> Value {
        self.revision += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.revision.to_string().into();
        metadata["namespace"] = place.1.as_str().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", self.revision).into();
        }
        let finalizers = metadata["finalizers"].as_array();
        let is_done = finalizers.is_none_or(Vec::is_empty);
        if metadata["deletionTimestamp"].is_string() && is_done {
            self.gone(&place, object.clone());
            return object;
        }
        let known = self.objects.insert(place.clone(), object.clone());
        let what = if known.is_some() { "MODIFIED" } else { "ADDED" };
        self.tell(what, place, object.clone());
        object
    }

    fn remove(&mut self, place: &ObjectPlace) {
        let Some(mut object) = self.objects.get(place).cloned() else {
            return;
        };
        let finalizers = object["metadata"]["finalizers"].as_array();
        if finalizers.is_some_and(|finalizers| !finalizers.is_empty()) {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                self.store(place.clone(), object);
            }
            return;
        }
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.gone(place, object);
    }

    /// Deletes an object, and what it owns.
    fn gone(&mut self, place: &ObjectPlace, object: Value) {
        self.objects.remove(place);
        let uid = object["metadata"]["uid"].clone();
        self.tell("DELETED", place.clone(), object);
        let owned: Vec<ObjectPlace> = self
            .objects
            .iter()
            .filter(|(_, child)| child["metadata"]["ownerReferences"][0]["uid"] == uid)
            .map(|(place, _)| place.clone())
            .collect();
        for place in owned {
            self.remove(&place);
        }
    }

    fn tell(&mut self, what: &'static str, place: ObjectPlace, object: Value) {
        let event = format!("{}\n", json!({"type": what, "object": object}));
        for watch in self.watches.iter().filter(|watch| !watch.silent) {
            if watch.selection.has(&place, &object) {
                let _ = watch.sender.send(Ok(event.clone().into()));
            }
        }
        self.watches.retain(|watch| !watch.sender.is_closed());
        self.log.push(LoggedChange {
            revision: self.revision,
            what,
            place,
            object,
        });
    }
}

/// Passes pieces on in their order, some of them late: a cache is behind what was written.
fn late(
    mut pieces: mpsc::UnboundedReceiver<Result<Bytes, Reset>>,
    mut rng: fastrand::Rng,
    lag_max: u64,
) -> mpsc::UnboundedReceiver<Result<Bytes, Reset>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(piece) = pieces.recv().await {
            if rng.u8(..8) == 0 {
                tokio::time::sleep(Duration::from_millis(rng.u64(..=lag_max))).await;
            }
            if sender.send(piece).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Service<Request<Body>> for SimulatedApi {
    type Response = Response<Pieces>;
    type Error = Reset;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Pieces>, Reset>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Reset>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| Reset)?.to_bytes();
            api.answer(Request::from_parts(head, body)).await
        })
    }
}
