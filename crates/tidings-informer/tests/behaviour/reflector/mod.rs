//! How a reflector lists, watches, waits and resumes: points B38 to B81.

mod lists;
mod streams;
mod waits;
mod watches;

use crate::support::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidings_api::{ObjectKey, WatchEvent};
use tidings_informer::*;
use tokio::time::Instant;

/// A store that records its calls as text.
#[derive(Clone, Default)]
struct Recorder {
    words: Arc<Mutex<Vec<String>>>,
    collected: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn words(&self) -> Vec<String> {
        self.words.lock().unwrap().clone()
    }

    fn say(&self, word: String) {
        self.words.lock().unwrap().push(word);
    }
}

fn say(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Added(object) => format!("+{}@{}", object.name(), object.revision()),
        WatchEvent::Modified(object) => format!("~{}@{}", object.name(), object.revision()),
        WatchEvent::Deleted(object) => format!("-{}@{}", object.name(), object.revision()),
        WatchEvent::Bookmark {
            resource_version, ..
        } => format!("mark {resource_version}"),
        WatchEvent::Error(_) => "error".into(),
    }
}

impl ReflectorStore for Recorder {
    fn collect(&mut self, part: Vec<WatchEvent>) {
        let mut collected = self.collected.lock().unwrap();
        for event in part {
            match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let name = object.name().into_owned();
                    collected.retain(|known| !known.starts_with(&format!("{name}@")));
                    collected.push(format!("{name}@{}", object.revision()));
                }
                WatchEvent::Deleted(object) => {
                    collected.retain(|known| !known.starts_with(&format!("{}@", object.name())));
                }
                _ => {}
            }
        }
    }

    fn discard(&mut self) {
        self.collected.lock().unwrap().clear();
    }

    fn distrust(&mut self) {
        self.say("distrust".into());
        self.discard();
    }

    fn replace(&mut self, version: &ServerVersion) {
        let mut collected = std::mem::take(&mut *self.collected.lock().unwrap());
        collected.sort();
        self.say(format!("replace {version} [{}]", collected.join(" ")));
    }

    fn apply(&mut self, events: Vec<WatchEvent>) {
        for event in events {
            self.say(say(&event));
        }
    }

    fn latest(&self, _: &ObjectKey) -> Option<u64> {
        None
    }
}

fn options() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.seed = Some(7);
    options
}

fn streamed() -> ReflectorOptions {
    let mut options = options();
    options.initial_state = InitialState::Streamed;
    options
}

/// Runs a reflector over a script for a time.
async fn run_for(script: &Script, options: ReflectorOptions, time: Duration) -> Recorder {
    let recorder = Recorder::default();
    let reflector = Reflector::new("test", script.source(), recorder.clone(), options);
    let _ = tokio::time::timeout(time, reflector.run()).await;
    recorder
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn gaps(script: &Script, of: impl Fn(&Request) -> bool) -> Vec<Duration> {
    let times: Vec<Instant> = script
        .requests()
        .iter()
        .filter(|request| of(request))
        .map(|request| request.at)
        .collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}
