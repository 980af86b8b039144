//! Shared informers and their handlers: points B82 to B110.

mod events;
mod handlers;
mod lifetimes;

use crate::support::server::Server;
use crate::support::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidings_api::Object;
use tidings_informer::*;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn over(server: &Server) -> InformerBuilder<Object> {
    SharedInformer::builder(server.source(), Decode::bytes())
}

fn plain() -> HandlerOptions {
    HandlerOptions::default()
}

/// A handler that records its events.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<String>>>);

impl Noted {
    fn words(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl ResourceEventHandler<Object> for Noted {
    fn handle(&mut self, event: &Event<Object>) {
        self.0.lock().unwrap().push(word(event));
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

struct Panics {
    noted: Noted,
    times: Arc<Mutex<Vec<Instant>>>,
}

impl ResourceEventHandler<Object> for Panics {
    fn on_add(&mut self, object: &Arc<Cached<Object>>, _: bool) {
        self.noted.0.lock().unwrap().push(object.name().to_owned());
        self.times.lock().unwrap().push(Instant::now());
        assert!(object.name() == "fine", "no");
    }
}
