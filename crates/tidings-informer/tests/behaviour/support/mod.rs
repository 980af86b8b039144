//! Helpers of the tests: objects, scripted sources, events as text.
#![allow(clippy::unwrap_used)]

pub(crate) mod logged;
pub(crate) mod server;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tidings_api::{ListMetadata, ListOptions, Object, Status, WatchEvent};
use tidings_informer::{
    BoxFuture, Cached, Event, EventStream, List, ListStream, Lister, SourceError, Subscription,
    Watcher,
};
use tokio::time::Instant;

/// A ConfigMap in the namespace `default`, at a version, with a uid made of its name.
pub(crate) fn object(name: &str, version: u64) -> Object {
    object_with(name, version, &format!("uid-{name}"), "{}")
}

/// A ConfigMap with a given uid and labels.
pub(crate) fn object_with(name: &str, version: u64, uid: &str, labels: &str) -> Object {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let json = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","labels":{labels}}},"data":{{"version":"{version}"}}}}"#
    );
    Object::parse(json).unwrap()
}

pub(crate) fn added(name: &str, version: u64) -> WatchEvent {
    WatchEvent::Added(object(name, version))
}

pub(crate) fn modified(name: &str, version: u64) -> WatchEvent {
    WatchEvent::Modified(object(name, version))
}

pub(crate) fn deleted(name: &str, version: u64) -> WatchEvent {
    WatchEvent::Deleted(object(name, version))
}

pub(crate) fn bookmark(version: u64) -> WatchEvent {
    WatchEvent::Bookmark {
        resource_version: version.to_string(),
        initial_events_end: false,
    }
}

pub(crate) fn initial_events_end(version: u64) -> WatchEvent {
    WatchEvent::Bookmark {
        resource_version: version.to_string(),
        initial_events_end: true,
    }
}

pub(crate) fn error(status: Status) -> WatchEvent {
    WatchEvent::Error(Box::new(status))
}

pub(crate) fn expired() -> Status {
    Status::expired("too old resource version")
}

pub(crate) fn refused() -> SourceError {
    SourceError::transport(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
}

pub(crate) fn list(version: &str, items: &[Object]) -> List {
    List {
        items: items.to_vec(),
        metadata: ListMetadata {
            resource_version: version.to_owned(),
            ..ListMetadata::default()
        },
    }
}

pub(crate) fn page(version: &str, items: &[Object], continue_token: &str) -> List {
    let mut page = list(version, items);
    page.metadata.continue_token = continue_token.to_owned();
    page
}

/// How a scripted watch ends.
pub(crate) enum End {
    /// The server closes it.
    Close,
    /// It stays open and sends nothing.
    Hang,
    /// It breaks.
    Break(SourceError),
}

/// A scripted watch: batches, each after a wait, and an end.
pub(crate) struct Watch {
    pub(crate) batches: VecDeque<(Duration, Vec<WatchEvent>)>,
    pub(crate) end: End,
}

impl Watch {
    pub(crate) fn of(events: Vec<WatchEvent>) -> Watch {
        Watch {
            batches: [(Duration::ZERO, events)].into(),
            end: End::Hang,
        }
    }

    pub(crate) fn silent() -> Watch {
        Watch {
            batches: VecDeque::new(),
            end: End::Hang,
        }
    }

    pub(crate) fn then(mut self, after: Duration, events: Vec<WatchEvent>) -> Watch {
        self.batches.push_back((after, events));
        self
    }

    pub(crate) fn end(mut self, end: End) -> Watch {
        self.end = end;
        self
    }

    /// Closes after a time.
    pub(crate) fn close_after(self, after: Duration) -> Watch {
        self.then(after, Vec::new()).end(End::Close)
    }
}

type Answer<T> = Box<dyn FnOnce(&ListOptions) -> Result<T, SourceError> + Send>;

#[derive(Default)]
struct ScriptState {
    lists: VecDeque<Answer<List>>,
    watches: VecDeque<Answer<Watch>>,
    requests: Vec<Request>,
    open: usize,
}

/// A received request and its time.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) options: ListOptions,
    pub(crate) at: Instant,
}

/// A source that plays a script and records requests. After the end of the script, lists fail and watches hang.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<ScriptState>>);

impl Script {
    pub(crate) fn new() -> Script {
        Script::default()
    }

    pub(crate) fn list(self, list: List) -> Script {
        self.0
            .lock()
            .unwrap()
            .lists
            .push_back(Box::new(|_| Ok(list)));
        self
    }

    pub(crate) fn list_fails(self, error: impl Into<SourceError>) -> Script {
        let error = error.into();
        self.0
            .lock()
            .unwrap()
            .lists
            .push_back(Box::new(|_| Err(error)));
        self
    }

    pub(crate) fn watch(self, watch: Watch) -> Script {
        self.0
            .lock()
            .unwrap()
            .watches
            .push_back(Box::new(|_| Ok(watch)));
        self
    }

    pub(crate) fn watch_fails(self, error: impl Into<SourceError>) -> Script {
        let error = error.into();
        self.0
            .lock()
            .unwrap()
            .watches
            .push_back(Box::new(|_| Err(error)));
        self
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.lock().unwrap().requests.clone()
    }

    /// The requests in short form: `list 0/500`, `watch 10`, `stream ""`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.requests()
            .iter()
            .map(|request| short(&request.options))
            .collect()
    }

    pub(crate) fn lists(&self) -> usize {
        self.requests()
            .iter()
            .filter(|request| !request.options.watch)
            .count()
    }

    pub(crate) fn watches(&self) -> usize {
        self.requests()
            .iter()
            .filter(|request| request.options.watch)
            .count()
    }

    /// The number of open watches.
    pub(crate) fn open(&self) -> usize {
        self.0.lock().unwrap().open
    }

    pub(crate) fn source(&self) -> Arc<Script> {
        Arc::new(self.clone())
    }
}

pub(crate) fn short(options: &ListOptions) -> String {
    let version = &options.resource_version;
    match (options.watch, options.send_initial_events) {
        (true, Some(true)) => format!("stream {version:?}"),
        (true, _) => format!("watch {version}"),
        (false, _) if options.continue_token.is_empty() => {
            format!("list {version:?} {}", options.limit)
        }
        (false, _) => format!("page {} {}", options.continue_token, options.limit),
    }
}

impl Lister for Script {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            let mut inner = self.0.lock().unwrap();
            let at = Instant::now();
            inner.requests.push(Request {
                options: options.clone(),
                at,
            });
            match inner.lists.pop_front() {
                Some(answer) => answer(&options).map(List::into_stream),
                None => Err(refused()),
            }
        })
    }
}

impl Watcher for Script {
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(async move {
            let mut inner = self.0.lock().unwrap();
            let at = Instant::now();
            inner.requests.push(Request {
                options: options.clone(),
                at,
            });
            let watch = match inner.watches.pop_front() {
                Some(answer) => answer(&options)?,
                None => Watch::silent(),
            };
            inner.open += 1;
            drop(inner);
            Ok(Box::pin(PlayedWatch {
                watch,
                wait: None,
                script: self.clone(),
            }) as EventStream)
        })
    }
}

struct PlayedWatch {
    watch: Watch,
    wait: Option<Pin<Box<tokio::time::Sleep>>>,
    script: Script,
}

impl Drop for PlayedWatch {
    fn drop(&mut self) {
        self.script.0.lock().unwrap().open -= 1;
    }
}

impl Stream for PlayedWatch {
    type Item = Result<Vec<WatchEvent>, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        use std::future::Future;
        let this = &mut *self;
        if let Some((after, _)) = this.watch.batches.front() {
            let after = *after;
            if !after.is_zero() {
                let wait = this
                    .wait
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
                if wait.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                this.wait = None;
            }
            let (_, batch) = this.watch.batches.pop_front().unwrap();
            if batch.is_empty() {
                return self.poll_next(context);
            }
            return Poll::Ready(Some(Ok(batch)));
        }
        match std::mem::replace(&mut this.watch.end, End::Close) {
            End::Close => Poll::Ready(None),
            End::Hang => {
                this.watch.end = End::Hang;
                Poll::Pending
            }
            End::Break(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

/// An event as text: `+a@1!` (initial), `~a@1>2`, `-a@3` or `-a@3?` (final state unknown), `=a@1` (resync), `synced`.
pub(crate) fn word<K>(event: &Event<K>) -> String {
    let say = |object: &Arc<Cached<K>>| format!("{}@{}", object.name(), object.version());
    match event {
        Event::Added { object, initial } => {
            format!("+{}{}", say(object), if *initial { "!" } else { "" })
        }
        Event::Updated { old, new } => format!("~{}>{}", say(old), new.version()),
        Event::Deleted {
            last,
            final_state_known,
        } => {
            format!(
                "-{}{}",
                say(last),
                if *final_state_known { "" } else { "?" }
            )
        }
        Event::Resync { object } => format!("={}", say(object)),
        Event::Synced => "synced".into(),
        _ => "?".into(),
    }
}

/// The next `count` events as text.
pub(crate) async fn words<K: Send + Sync + 'static>(
    subscription: &mut Subscription<K>,
    count: usize,
) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..count {
        match subscription.next().await {
            Some(event) => words.push(word(&event)),
            None => break,
        }
    }
    words
}

/// True if no event comes within a time.
pub(crate) async fn quiet<K: Send + Sync + 'static>(
    subscription: &mut Subscription<K>,
    duration: Duration,
) -> bool {
    tokio::time::timeout(duration, subscription.next())
        .await
        .is_err()
}

/// Polls a condition for up to two hours. For tests with paused time, which advances by itself.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    while start.elapsed() < Duration::from_secs(7200) {
        if condition() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    panic!("never: {what}");
}
