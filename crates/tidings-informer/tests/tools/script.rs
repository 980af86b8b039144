//! A scripted source: each watch plays the next part of the script.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tidings_api::{ListMetadata, ListOptions, Object, WatchEvent};
use tidings_informer::{BoxFuture, EventStream, List, ListStream, Lister, SourceError, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

/// One action of a stream.
pub(crate) enum Act {
    Send(Vec<WatchEvent>),
    Fail(SourceError),
    Pause(Duration),
    /// Stays open and sends nothing.
    Hang,
    /// Sends the events that the test puts into a channel.
    Live(mpsc::UnboundedReceiver<WatchEvent>),
}

/// The answer to a watch.
pub(crate) enum Answer {
    Refuse(SourceError),
    Stream(Vec<Act>),
}

/// A scripted source. After the end of the script, watches hang.
#[derive(Default)]
pub(crate) struct Script {
    answers: Mutex<VecDeque<Answer>>,
    list: Mutex<List>,
    list_hangs: bool,
    asked: Mutex<Vec<(Instant, ListOptions)>>,
    open: Arc<AtomicUsize>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Script> {
        Arc::new(Script {
            answers: Mutex::new(answers.into_iter().collect()),
            ..Script::default()
        })
    }

    pub(crate) fn listing(
        objects: Vec<Object>,
        version: &str,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Arc<Script> {
        let metadata = ListMetadata {
            resource_version: version.to_owned(),
            ..ListMetadata::default()
        };
        Arc::new(Script {
            answers: Mutex::new(answers.into_iter().collect()),
            list: Mutex::new(List {
                items: objects,
                metadata,
            }),
            ..Script::default()
        })
    }

    /// A source whose list is never answered.
    pub(crate) fn silent() -> Arc<Script> {
        Arc::new(Script {
            list_hangs: true,
            ..Script::default()
        })
    }

    pub(crate) fn set_list(&self, objects: Vec<Object>, version: &str) {
        let mut list = self.list.lock().unwrap();
        list.items = objects;
        list.metadata.resource_version = version.to_owned();
    }

    /// The resource versions of the watch requests.
    pub(crate) fn versions(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .map(|(_, options)| options.resource_version.clone())
            .collect()
    }

    /// The times of the watch requests, in milliseconds after the first.
    pub(crate) fn times(&self) -> Vec<u128> {
        let asked = self.asked.lock().unwrap();
        let first = asked[0].0;
        asked
            .iter()
            .map(|(at, _)| (*at - first).as_millis())
            .collect()
    }

    /// The number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Lister for Script {
    fn list(&self, _: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            if self.list_hangs {
                std::future::pending::<()>().await;
            }
            Ok(self.list.lock().unwrap().clone().into_stream())
        })
    }
}

impl Watcher for Script {
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(async move {
            assert!(options.watch && options.allow_watch_bookmarks);
            self.asked.lock().unwrap().push((Instant::now(), options));
            let answer = self.answers.lock().unwrap().pop_front();
            match answer.unwrap_or(Answer::Stream(vec![Act::Hang])) {
                Answer::Refuse(error) => Err(error),
                Answer::Stream(acts) => Ok(stream(acts, &self.open)),
            }
        })
    }
}

/// A stream that plays actions.
pub(crate) fn stream(acts: Vec<Act>, open: &Arc<AtomicUsize>) -> EventStream {
    open.fetch_add(1, Ordering::SeqCst);
    Box::pin(ActingStream {
        acts: acts.into(),
        pause: None,
        open: Arc::clone(open),
    })
}

struct ActingStream {
    acts: VecDeque<Act>,
    pause: Option<Pin<Box<Sleep>>>,
    open: Arc<AtomicUsize>,
}

impl Stream for ActingStream {
    type Item = Result<Vec<WatchEvent>, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match self.acts.pop_front() {
                None => return Poll::Ready(None),
                Some(Act::Send(events)) => return Poll::Ready(Some(Ok(events))),
                Some(Act::Fail(error)) => return Poll::Ready(Some(Err(error))),
                Some(Act::Pause(time)) => self.pause = Some(Box::pin(sleep(time))),
                Some(Act::Hang) => {
                    self.acts.push_front(Act::Hang);
                    return Poll::Pending;
                }
                Some(Act::Live(mut events)) => match events.poll_recv(context) {
                    Poll::Ready(None) => {}
                    Poll::Ready(Some(event)) => {
                        self.acts.push_front(Act::Live(events));
                        return Poll::Ready(Some(Ok(vec![event])));
                    }
                    Poll::Pending => {
                        self.acts.push_front(Act::Live(events));
                        return Poll::Pending;
                    }
                },
            }
        }
    }
}

impl Drop for ActingStream {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An object of the namespace `default`.
pub(crate) fn object(name: &str, version: &str) -> Object {
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"default","uid":"uid-{name}","resourceVersion":"{version}"}}}}"#
    );
    Object::parse(json).unwrap()
}

pub(crate) fn added(name: &str, version: u64) -> WatchEvent {
    WatchEvent::Added(object(name, &version.to_string()))
}

pub(crate) fn modified(name: &str, version: u64) -> WatchEvent {
    WatchEvent::Modified(object(name, &version.to_string()))
}

pub(crate) fn deleted(name: &str, version: u64) -> WatchEvent {
    WatchEvent::Deleted(object(name, &version.to_string()))
}

pub(crate) fn bookmark(version: u64) -> WatchEvent {
    WatchEvent::Bookmark {
        resource_version: version.to_string(),
        initial_events_end: false,
    }
}

/// An event as text: `+a@5`, `~a@6`, `-a@7`, `!410`.
pub(crate) fn word(event: &WatchEvent) -> String {
    let of = |sign: &str, object: &Object| {
        format!("{sign}{}@{}", object.name(), object.resource_version())
    };
    match event {
        WatchEvent::Added(object) => of("+", object),
        WatchEvent::Modified(object) => of("~", object),
        WatchEvent::Deleted(object) => of("-", object),
        WatchEvent::Bookmark {
            resource_version, ..
        } => format!("={resource_version}"),
        WatchEvent::Error(status) => format!("!{}", status.code),
    }
}
