//! What an observer of a client hears of its writes.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tidings_kube::{ObjectPath, ObservedWrite, RequestObserver, RestClient};
use tokio::time::timeout;

use crate::script::{ScriptStep, Server, answer, fail, open, pods};

/// Notes what it hears.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn note(&self, what: &str, write: &ObservedWrite) {
        let object = write.object.as_ref().map(|object| object.revision().get());
        let name = &write.name;
        let text = match object {
            Some(version) => format!("{what} {name} at {version}"),
            None => format!("{what} {name}"),
        };
        self.0.lock().unwrap().push(text);
    }
}

impl RequestObserver for Heard {
    fn unanswered(&self) {
        self.0.lock().unwrap().push("unanswered".into());
    }

    fn wrote(&self, write: &ObservedWrite) {
        self.note("wrote", write);
    }

    fn in_doubt(&self, write: &ObservedWrite) {
        self.note("in doubt", write);
    }
}

const STORED: &str = r#"{"kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
    "managedFields":[{"manager":"m","time":"2026-01-01T00:00:00Z"}]}}"#;

/// Creates a Pod and returns what the observer heard.
async fn heard_of_create(step: ScriptStep, body: serde_json::Value) -> Vec<String> {
    let heard = Arc::new(Heard::default());
    let client = Server::script([step]).client().observed_by(heard.clone());
    let resource = pods();
    let created = client.create_object(&resource, "n", &body);
    let _ = timeout(Duration::from_secs(1), created).await;
    let heard = heard.0.lock().unwrap();
    heard.clone()
}

#[tokio::test(start_paused = true)]
async fn a_write_is_seen_refused_or_in_doubt() {
    let named = || json!({"metadata": {"name": "a"}});
    let unnamed = || json!({"metadata": {"generateName": "a-"}});
    assert_eq!(
        heard_of_create(answer(201, STORED), named()).await,
        ["wrote a at 7"]
    );
    assert_eq!(
        heard_of_create(answer(201, STORED), unnamed()).await,
        ["wrote  at 7"]
    );
    assert!(heard_of_create(answer(409, ""), named()).await.is_empty());
    assert_eq!(
        heard_of_create(answer(500, ""), named()).await,
        ["in doubt a"]
    );
    assert_eq!(
        heard_of_create(fail(ErrorKind::ConnectionReset), named()).await,
        ["unanswered", "in doubt a"]
    );
    assert_eq!(
        heard_of_create(ScriptStep::Hang, unnamed()).await,
        ["in doubt "]
    );
    // The server has done it, and the answer breaks off, or does not end.
    let (sender, step) = open(201);
    sender
        .send(Err(std::io::Error::from(ErrorKind::ConnectionReset)))
        .unwrap();
    assert_eq!(heard_of_create(step, named()).await, ["in doubt a"]);
    let (_sender, step) = open(201);
    assert_eq!(heard_of_create(step, named()).await, ["in doubt a"]);
    let compressed = answer(201, STORED).header("content-encoding", "gzip");
    assert_eq!(heard_of_create(compressed, named()).await, ["in doubt a"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_client_returns_has_no_managed_fields_observed_or_not() {
    let observed = |client: RestClient| client.observed_by(Arc::new(Heard::default()));
    for observe in [observed, |client| client] {
        let client = observe(Server::script([answer(200, STORED), answer(200, STORED)]).client());
        let resource = pods();
        let path = ObjectPath::new(&resource, "n", "a");
        let patch = json!({});
        let patched = client.patch_object(&path, tidings_kube::PatchKind::Merge, &patch);
        for object in [
            patched.await.unwrap(),
            client.get_object(&path).await.unwrap().unwrap(),
        ] {
            assert_eq!(object.last_manager().as_deref(), Some("m"));
            let text = String::from_utf8_lossy(object.as_bytes()).into_owned();
            assert!(!text.contains("managedFields"), "{text}");
        }
    }
}
