//! A simulated API server: one resource, a history, pages, bookmarks, initial events, and faults on request. It is deterministic:
//! its answers depend only on the calls and on a seed.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;
use tidings_api::{
    ListMetadata, ListOptions, Object, ServedObject, SplitOptions, Status, WatchEvent,
    WatchSplitter,
};
use tidings_informer::{BoxFuture, EventStream, List, ListStream, Lister, SourceError, Watcher};

/// A fault of the next list or watch.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The connection is refused.
    Refused,
    /// The server answers with a Status.
    Status(Box<Status>),
    /// A stream breaks after this many bytes. A list breaks as a whole.
    Cut(usize),
    /// A stream ends after this many events.
    End(usize),
    /// A stream ends with an ERROR event after this many events.
    Error(usize, Box<Status>),
    /// A stream sends every event twice.
    Stutter,
    /// The server never answers.
    Hang,
}

#[derive(Default)]
struct ServerState {
    revision: u64,
    objects: BTreeMap<String, Object>,
    history: Vec<(u64, WatchEvent)>,
    /// Versions before this have expired.
    oldest: u64,
    list_faults: VecDeque<Option<Fault>>,
    watch_faults: VecDeque<Option<Fault>>,
    wakers: Vec<Waker>,
    requests: Vec<String>,
    uids: u64,
    epoch: u64,
    /// The objects after each change.
    past: Vec<(u64, BTreeMap<String, Object>)>,
}

/// The server; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Server {
    state: Arc<Mutex<ServerState>>,
    bookmarks_every: Option<Duration>,
    sends_initial_events: bool,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server {
            bookmarks_every: Some(Duration::from_secs(60)),
            sends_initial_events: true,
            ..Server::default()
        }
    }

    pub(crate) fn without_bookmarks(mut self) -> Server {
        self.bookmarks_every = None;
        self
    }

    pub(crate) fn without_initial_events(mut self) -> Server {
        self.sends_initial_events = false;
        self
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ServerState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn put(&self, name: &str) -> u64 {
        self.put_with(name, "{}")
    }

    pub(crate) fn put_with(&self, name: &str, labels: &str) -> u64 {
        let mut state = self.state();
        state.revision += 1;
        let revision = state.revision;
        let known = state
            .objects
            .get(name)
            .map(|object| object.uid().into_owned());
        let created = known.is_none();
        let uid = known.unwrap_or_else(|| {
            state.uids += 1;
            format!("{name}-{}", state.uids)
        });
        let object = super::object_with(name, revision, &uid, labels);
        state.objects.insert(name.to_owned(), object.clone());
        let event = if created {
            WatchEvent::Added(object)
        } else {
            WatchEvent::Modified(object)
        };
        state.happened(revision, event)
    }

    pub(crate) fn delete(&self, name: &str) -> u64 {
        let mut state = self.state();
        let Some(object) = state.objects.remove(name) else {
            return state.revision;
        };
        state.revision += 1;
        let revision = state.revision;
        let last = super::object_with(name, revision, &object.uid(), "{}");
        state.happened(revision, WatchEvent::Deleted(last))
    }

    /// A write to another resource: only the revision grows.
    pub(crate) fn tick(&self) -> u64 {
        let mut state = self.state();
        state.revision += 1;
        state.revision
    }

    /// Compacts the history: all earlier versions have expired.
    pub(crate) fn compact(&self) {
        let mut state = self.state();
        state.oldest = state.revision;
        state.history.clear();
        state.wake();
    }

    /// Restores a backup: drops the changes after a revision, and the revision goes back.
    pub(crate) fn restore(&self, to: u64) {
        let mut state = self.state();
        let to = to.min(state.revision);
        state.past.retain(|(revision, _)| *revision <= to);
        let before = state.past.last().map(|(_, objects)| objects.clone());
        state.objects = before.unwrap_or_default();
        state.revision = to;
        state.oldest = to;
        state.history.clear();
        state.epoch += 1;
        state.wake();
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state().revision
    }

    /// The objects, as `name@version`.
    pub(crate) fn contents(&self) -> Vec<String> {
        let state = self.state();
        let mut objects: Vec<&Object> = state.objects.values().collect();
        objects.sort_by_key(|object| object.key());
        let say = |object: &&Object| format!("{}@{}", object.key(), object.revision());
        objects.iter().map(say).collect()
    }

    /// The objects as they were at a version, if that is known.
    pub(crate) fn contents_at(&self, version: u64) -> Option<Vec<String>> {
        let state = self.state();
        if version > state.revision || state.epoch > 0 {
            return None;
        }
        let past = state
            .past
            .iter()
            .rev()
            .find(|(revision, _)| *revision <= version);
        let objects = past.map(|(_, objects)| objects.values().cloned().collect());
        let mut objects: Vec<Object> = objects.unwrap_or_default();
        objects.sort_by_key(Object::key);
        let say = |object: &Object| format!("{}@{}", object.key(), object.revision());
        Some(objects.iter().map(say).collect())
    }

    pub(crate) fn fail_list(&self, fault: Fault) {
        self.state().list_faults.push_back(Some(fault));
    }

    pub(crate) fn fail_watch(&self, fault: Fault) {
        self.state().watch_faults.push_back(Some(fault));
    }

    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.list_faults.clear();
        state.watch_faults.clear();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    pub(crate) fn source(&self) -> Arc<Server> {
        Arc::new(self.clone())
    }
}

impl ServerState {
    fn happened(&mut self, revision: u64, event: WatchEvent) -> u64 {
        self.history.push((revision, event));
        if self.objects.len() < 100 {
            self.past.push((revision, self.objects.clone()));
        }
        self.wake();
        revision
    }

    fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    fn check(&self, version: &str) -> Result<u64, SourceError> {
        let version: u64 = version
            .parse()
            .map_err(|_| Status::bad_request("not a version"))?;
        if version > self.revision {
            return Err(Status::too_large_resource_version(version, self.revision).into());
        }
        if version < self.oldest {
            return Err(super::expired().into());
        }
        Ok(version)
    }
}

impl Lister for Server {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            let fault = {
                let mut state = self.state();
                state.requests.push(super::short(&options));
                state.list_faults.pop_front().flatten()
            };
            match fault {
                Some(Fault::Refused | Fault::Cut(_)) => return Err(super::refused()),
                Some(Fault::Status(status)) => return Err(SourceError::Status(status)),
                Some(Fault::Hang) => std::future::pending().await,
                _ => {}
            }
            let state = self.state();
            // A continue token is the revision of its list and the last key: `7:default/a`.
            let token = options.continue_token.split_once(':');
            let (at, after) = match token {
                Some((at, after)) => (at.parse().unwrap(), after),
                None => (state.revision, ""),
            };
            if token.is_some() && at != state.revision {
                return Err(Status::continue_expired(String::new()).into());
            }
            if !matches!(options.resource_version.as_str(), "" | "0") {
                state.check(&options.resource_version).or_else(|error| {
                    // A list at least as new as an old version may be the newest.
                    if error.is_expired() {
                        Ok(0)
                    } else {
                        Err(error)
                    }
                })?;
            }
            let mut items: Vec<Object> = state.objects.values().cloned().collect();
            items.sort_by_key(Object::key);
            items.retain(|item| item.key().as_str() > after);
            let limit = options.limit.max(0) as usize;
            let mut continue_token = String::new();
            let from_store = options.resource_version.is_empty();
            if from_store && limit > 0 && items.len() > limit {
                items.truncate(limit);
                let last = items.last().map(|item| item.key().to_string());
                continue_token = format!("{}:{}", state.revision, last.unwrap_or_default());
            }
            let metadata = ListMetadata {
                resource_version: at.to_string(),
                continue_token,
                ..ListMetadata::default()
            };
            Ok(List { items, metadata }.into_stream())
        })
    }
}

impl Watcher for Server {
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(async move {
            let fault = {
                let mut state = self.state();
                state.requests.push(super::short(&options));
                state.watch_faults.pop_front().flatten()
            };
            match &fault {
                Some(Fault::Refused) => return Err(super::refused()),
                Some(Fault::Status(status)) => return Err(SourceError::Status(status.clone())),
                _ => {}
            }
            let state = self.state();
            let initial = options.send_initial_events == Some(true);
            if initial && !self.sends_initial_events {
                return Err(Status::failure(
                    422,
                    tidings_api::Reason::Invalid,
                    "sendInitialEvents is forbidden",
                )
                .into());
            }
            let mut bytes = VecDeque::new();
            let after = if initial {
                for object in state.objects.values() {
                    bytes.push_back(encode(&WatchEvent::Added(object.clone())));
                }
                bytes.push_back(encode(&super::initial_events_end(state.revision)));
                state.revision
            } else {
                state.check(&options.resource_version)?
            };
            let lasting = options.timeout_seconds.unwrap_or(3600) as u64;
            Ok(Box::pin(ServerWatch {
                server: self.clone(),
                epoch: state.epoch,
                after,
                ready: bytes,
                splitter: Some(WatchSplitter::new(SplitOptions::default())),
                bytes_left: match &fault {
                    Some(Fault::Cut(bytes)) => Some(*bytes),
                    _ => None,
                },
                events_left: match &fault {
                    Some(Fault::End(events) | Fault::Error(events, _)) => Some(*events),
                    _ => None,
                },
                fault,
                bookmark: self
                    .bookmarks_every
                    .map(|every| Box::pin(tokio::time::sleep(every))),
                end: Box::pin(tokio::time::sleep(Duration::from_secs(lasting))),
            }) as EventStream)
        })
    }
}

/// An event as bytes on the wire.
pub(crate) fn encode(event: &WatchEvent) -> Vec<u8> {
    use tidings_api::EventType;
    let (kind, object) = match event {
        WatchEvent::Added(object) => (EventType::Added, object),
        WatchEvent::Modified(object) => (EventType::Modified, object),
        WatchEvent::Deleted(object) => (EventType::Deleted, object),
        WatchEvent::Bookmark {
            resource_version,
            initial_events_end,
        } => {
            let annotations = if *initial_events_end {
                r#","annotations":{"k8s.io/initial-events-end":"true"}"#
            } else {
                ""
            };
            return format!(
                r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{resource_version}"{annotations}}}}}}}"#
            )
            .into_bytes();
        }
        WatchEvent::Error(status) => {
            let mut bytes = br#"{"type":"ERROR","object":"#.to_vec();
            bytes.extend(status.to_json());
            bytes.extend(b"}\n");
            return bytes;
        }
    };
    object.event_bytes(kind).to_vec()
}

struct ServerWatch {
    server: Server,
    epoch: u64,
    after: u64,
    ready: VecDeque<Vec<u8>>,
    splitter: Option<WatchSplitter>,
    bytes_left: Option<usize>,
    events_left: Option<usize>,
    fault: Option<Fault>,
    bookmark: Option<Pin<Box<tokio::time::Sleep>>>,
    end: Pin<Box<tokio::time::Sleep>>,
}

impl Stream for ServerWatch {
    type Item = Result<Vec<WatchEvent>, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        use std::future::Future;
        let this = &mut *self;
        if matches!(this.fault, Some(Fault::Hang)) {
            return Poll::Pending;
        }
        let Some(splitter) = &mut this.splitter else {
            return Poll::Ready(None);
        };
        {
            let mut state = this.server.state.lock().unwrap();
            if state.epoch != this.epoch {
                this.splitter = None; // the server was restarted
                return Poll::Ready(Some(Err(super::refused())));
            }
            if this.after < state.oldest {
                let status = super::expired();
                this.ready.push_back(encode(&super::error(status)));
                this.after = u64::MAX;
            }
            let news = state
                .history
                .iter()
                .filter(|(revision, _)| *revision > this.after);
            for (_, event) in news {
                this.ready.push_back(encode(event));
                if matches!(this.fault, Some(Fault::Stutter)) {
                    this.ready.push_back(encode(event));
                }
            }
            if this.after != u64::MAX {
                this.after = this.after.max(state.revision);
            }
            if this.ready.is_empty() {
                state.wakers.push(context.waker().clone());
            }
        }
        if this.ready.is_empty()
            && let Some(bookmark) = &mut this.bookmark
            && bookmark.as_mut().poll(context).is_ready()
        {
            let every = this.server.bookmarks_every.unwrap();
            bookmark.as_mut().reset(tokio::time::Instant::now() + every);
            this.ready.push_back(encode(&super::bookmark(this.after)));
        }
        let ended = this.end.as_mut().poll(context).is_ready();
        if this.ready.is_empty()
            && !ended
            && this.events_left != Some(0)
            && this.bytes_left != Some(0)
        {
            return Poll::Pending;
        }
        let mut events = Vec::new();
        let mut outcome = None;
        if ended {
            outcome = Some(Poll::Ready(None));
        }
        while let Some(mut bytes) = this.ready.pop_front() {
            if this.events_left == Some(0) {
                break;
            }
            let cut = this.bytes_left.is_some_and(|left| left <= bytes.len());
            if let Some(left) = &mut this.bytes_left {
                bytes.truncate(*left);
                *left -= bytes.len();
            }
            // In two chunks, split at a random byte.
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            for chunk in [head, tail] {
                splitter.feed(chunk, |event| events.push(event)).unwrap();
            }
            if let Some(left) = &mut this.events_left {
                *left -= 1;
            }
            if cut {
                outcome = Some(Poll::Ready(Some(Err(super::refused()))));
                break;
            }
            if this.after == u64::MAX && this.ready.is_empty() {
                outcome = Some(Poll::Ready(None));
            }
        }
        if this.events_left == Some(0) && outcome.is_none() {
            outcome = Some(Poll::Ready(match &this.fault {
                Some(Fault::Error(_, status)) => Some(Ok(vec![WatchEvent::Error(status.clone())])),
                _ => None,
            }));
        }
        if this.bytes_left == Some(0) && outcome.is_none() {
            outcome = Some(Poll::Ready(Some(Err(super::refused()))));
        }
        match outcome {
            None => Poll::Ready(Some(Ok(events))),
            Some(outcome) if events.is_empty() => {
                this.splitter = None;
                outcome
            }
            Some(_) => {
                // The events before the end are returned first; the next poll ends the stream.
                this.splitter = None;
                let broken = this.bytes_left == Some(0);
                this.fault = match this.fault.take() {
                    Some(Fault::Error(_, status)) => {
                        events.push(WatchEvent::Error(status));
                        None
                    }
                    _ if broken => Some(Fault::Refused),
                    other => other,
                };
                Poll::Ready(Some(Ok(events)))
            }
        }
    }
}
