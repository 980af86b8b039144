//! The reflector: it makes a store reflect what a lister-watcher sees.
//!
//! The decisions are in [`machine`], which knows no clock and does no I/O; here is the task that carries them out.

mod machine;

use std::future::poll_fn;
use std::sync::Arc;

use tidings_api::{ListOptions, ResourceVersion, WatchEvent};

use crate::source::{List, ListerWatcher, SourceError};
use machine::{Machine, Outcome, Step};

/// What a reflector keeps up to date.
pub trait ReflectorStore: Send {
    /// This is the whole state.
    fn replace(&mut self, list: List);

    /// These are the next changes, in order. Bookmarks say how far the store is complete; errors never come here.
    fn apply(&mut self, events: Vec<WatchEvent>);
}

/// Drives a lister-watcher into a store.
#[derive(Debug)]
pub struct Reflector<L: ?Sized, S> {
    source: Arc<L>,
    store: S,
    name: String,
}

impl<L: ListerWatcher + ?Sized, S: ReflectorStore> Reflector<L, S> {
    /// A reflector that has not started. The name is for logs.
    pub fn new(name: impl Into<String>, source: Arc<L>, store: S) -> Reflector<L, S> {
        Reflector {
            source,
            store,
            name: name.into(),
        }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) -> std::convert::Infallible {
        let mut machine = Machine::new();
        loop {
            let outcome = match machine.step() {
                Step::List { resource_version } => self.list(resource_version).await,
                Step::Watch { resource_version } => self.watch(resource_version).await,
                Step::Wait { delay } => {
                    tokio::time::sleep(delay).await;
                    Outcome::Waited
                }
            };
            if let Outcome::Failed(error)
            | Outcome::Ended {
                error: Some(error), ..
            } = &outcome
            {
                tracing::warn!(reflector = self.name, %error, "list and watch were interrupted; they go on");
            }
            machine.observe(&outcome);
        }
    }

    async fn list(&mut self, resource_version: String) -> Outcome {
        let options = ListOptions {
            resource_version,
            ..ListOptions::default()
        };
        match self.source.list(options).await {
            Ok(list) => {
                let version = list.resource_version;
                self.store.replace(list);
                Outcome::Listed(version)
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    async fn watch(&mut self, from: ResourceVersion) -> Outcome {
        let options = ListOptions {
            watch: true,
            allow_watch_bookmarks: true,
            resource_version: from.to_string(),
            ..ListOptions::default()
        };
        let mut reached = from;
        let mut stream = match self.source.watch(options).await {
            Ok(stream) => stream,
            Err(error) => return Outcome::Failed(error),
        };
        loop {
            match poll_fn(|context| stream.as_mut().poll_next(context)).await {
                None => {
                    return Outcome::Ended {
                        reached,
                        error: None,
                    };
                }
                Some(Err(error)) => {
                    return Outcome::Ended {
                        reached,
                        error: Some(error),
                    };
                }
                Some(Ok(events)) => {
                    if let Some(WatchEvent::Error(status)) = events.last() {
                        let error = SourceError::Status(status.clone());
                        return Outcome::Ended {
                            reached,
                            error: Some(error),
                        };
                    }
                    reached = events
                        .iter()
                        .filter_map(version)
                        .next_back()
                        .unwrap_or(reached);
                    self.store.apply(events);
                }
            }
        }
    }
}

fn version(event: &WatchEvent) -> Option<ResourceVersion> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            Some(object.revision())
        }
        WatchEvent::Bookmark {
            resource_version, ..
        } => resource_version.parse().ok(),
        WatchEvent::Error(_) => None,
    }
}
