//! Bodies: their forms, and how they break.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use http_body::Frame;
use tidings_api::{ListOptions, WatchEvent};
use tidings_informer::{SourceError, Watcher};
use tidings_kube::{Compression, RestListWatch};
use tokio::time::{Instant, timeout};

use crate::script::{
    EMPTY, ScriptStep, Server, answer, event, list, list_error, next, open, pieces, pods, watch,
};

fn gzipped(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Level::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn gzip(step: ScriptStep) -> ScriptStep {
    step.header("content-encoding", "gzip")
}

fn names(events: &[WatchEvent]) -> Vec<String> {
    let name = |event: &WatchEvent| match event {
        WatchEvent::Added(object) => object.name().into_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
        other => panic!("{other:?}"),
    };
    events.iter().map(name).collect()
}

const STATUS: &str = "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \"message\": \"too old\",\n  \"reason\": \"Expired\",\n  \"code\": 410\n}";

#[tokio::test(start_paused = true)]
async fn k15_pretty_printed_status_split_anywhere_10_mb_object_and_multi_member_gzip() {
    // A Status over several lines, in an event and alone, in pieces of every size, plain and with a gzip member for each event.
    let in_event = format!("{{\n  \"type\": \"ERROR\",\n  \"object\": {STATUS}\n}}\n");
    for last in [&*in_event, STATUS] {
        let parts = [event("a", 5), event("b", 6), last.to_owned()];
        let plain = parts.concat().into_bytes();
        let members: Vec<u8> = parts
            .iter()
            .flat_map(|part| gzipped(part.as_bytes()))
            .collect();
        for size in (1..=plain.len()).step_by(7).chain([1 << 20]) {
            let steps = [pieces(&plain, size), gzip(pieces(&members, size))];
            let server = Server::script(steps);
            for _ in 0..2 {
                let (events, outcome) = watch(&server.pods()).await;
                outcome.unwrap();
                assert_eq!(names(&events), ["a", "b", "error 410"], "{size}");
            }
        }
    }

    let payload = "x".repeat(10 << 20);
    let item =
        format!(r#"{{"metadata":{{"name":"big","resourceVersion":"3"}},"data":"{payload}"}}"#);
    let body = EMPTY.replace("[]", &format!("[{item}]"));
    let event = format!(r#"{{"type":"ADDED","object":{item}}}"#);
    let zipped = gzipped(body.as_bytes());
    let server = Server::script([
        pieces(body.as_bytes(), 16_411),
        gzip(pieces(&zipped, 997)),
        pieces(event.as_bytes(), 16_411),
    ]);
    for _ in 0..2 {
        let (items, outcome) = list(&server.pods(), ListOptions::default()).await;
        assert_eq!(outcome.unwrap().resource_version, "7");
        assert_eq!(items[0].as_bytes(), item.as_bytes());
    }
    let (events, outcome) = watch(&server.pods()).await;
    outcome.unwrap();
    assert_eq!(names(&events), ["big"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_delivered_when_its_bytes_have_come() {
    // A gzip member for each event, as API servers send; and one member that is flushed, as proxies send.
    let mut encoder = GzEncoder::new(Vec::new(), Level::default());
    let mut flushed = Vec::new();
    let mut members = Vec::new();
    for name in ["a", "b", "c"] {
        encoder.write_all(event(name, 5).as_bytes()).unwrap();
        encoder.flush().unwrap();
        flushed.push(std::mem::take(encoder.get_mut()));
        members.push(gzipped(event(name, 5).as_bytes()));
    }
    for frames in [flushed, members] {
        let (sender, step) = open(200);
        let server = Server::script([gzip(step)]);
        let client = server.client().compression(Compression::Gzip);
        let pods = RestListWatch::new(&client, &pods(), "");
        let mut events = pods.watch(ListOptions::default()).await.unwrap();
        for (frame, name) in frames.into_iter().zip(["a", "b", "c"]) {
            sender.send(Ok(Frame::data(Bytes::from(frame)))).unwrap();
            let batch = timeout(Duration::from_secs(1), next(&mut events)).await;
            let batch = batch.unwrap().unwrap().unwrap();
            assert_eq!(names(&batch), [name]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_no_list() {
    let body = EMPTY.replace(
        "[]",
        r#"[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]"#,
    );
    let zipped = gzipped(body.as_bytes());
    for cut in 0..body.len() {
        let server = Server::script([pieces(&body.as_bytes()[..cut], 10)]);
        let error = list_error(&server.pods()).await;
        assert!(
            matches!(error, SourceError::Malformed(_)),
            "{cut}: {error:?}"
        );
    }
    for cut in 0..zipped.len() {
        let server = Server::script([gzip(pieces(&zipped[..cut], 10))]);
        list_error(&server.pods()).await;
    }
    let mut damaged = zipped;
    *damaged.last_mut().unwrap() ^= 1;
    let server = Server::script([gzip(pieces(&damaged, 10))]);
    assert!(matches!(
        list_error(&server.pods()).await,
        SourceError::Transport(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn what_came_before_a_break_is_delivered_first() {
    let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let half = [event("a", 5), event("b", 6)[..40].to_owned()].concat();

    // The connection breaks.
    let (sender, step) = open(200);
    sender
        .send(Ok(Frame::data(Bytes::from(half.clone()))))
        .unwrap();
    sender.send(Err(broken())).unwrap();
    let (events, outcome) = watch(&Server::script([step]).pods()).await;
    assert_eq!(names(&events), ["a"]);
    assert!(matches!(outcome, Err(SourceError::Transport(_))));

    // The body ends as if it were complete.
    let (events, outcome) = watch(&Server::script([answer(200, half)]).pods()).await;
    assert_eq!(names(&events), ["a"]);
    assert!(matches!(outcome, Err(SourceError::Malformed(_))));

    // The rest of the piece is not JSON.
    let nonsense = event("a", 5) + "nonsense" + &event("b", 6);
    let (events, outcome) = watch(&Server::script([answer(200, nonsense)]).pods()).await;
    assert_eq!(names(&events), ["a"]);
    assert!(matches!(outcome, Err(SourceError::Malformed(_))));

    // A list that has partly arrived.
    let (sender, step) = open(200);
    let start = EMPTY.replace("[]}", r#"[{"metadata":{"name":"a"}},"#);
    sender.send(Ok(Frame::data(Bytes::from(start)))).unwrap();
    sender.send(Err(broken())).unwrap();
    let server = Server::script([step]);
    let (items, outcome) = list(&server.pods(), ListOptions::default()).await;
    assert_eq!(items.len(), 1);
    assert!(matches!(outcome, Err(SourceError::Transport(_))));
    assert_eq!(server.count(), 1, "whoever has the first half asks again");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_falls_silent_is_given_up() {
    let (sender, step) = open(200);
    let server = Server::script([step]);
    let slow = tokio::spawn(async move {
        for byte in EMPTY.bytes().take(3) {
            tokio::time::sleep(Duration::from_secs(100)).await;
            sender
                .send(Ok(Frame::data(Bytes::from(vec![byte]))))
                .unwrap();
        }
        std::future::pending::<()>().await;
    });
    let start = Instant::now();
    let error = list_error(&server.pods()).await;
    assert!(matches!(error, SourceError::Transport(_)));
    assert_eq!(start.elapsed().as_secs(), 420);
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_no_list_is_refused() {
    let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"rows":[]}"#;
    for (body, named) in [(table, "Table"), (STATUS, "Status")] {
        let server = Server::new(move |_| answer(200, body));
        let error = list_error(&server.pods()).await;
        assert!(
            matches!(&error, SourceError::Unexpected(what) if what.contains(named)),
            "{error}"
        );
    }
    // A custom resource may name its list kind `Table`.
    let body = EMPTY
        .replace("PodList", "Table")
        .replace("v1", "furniture.example/v1");
    let server = Server::new(move |_| answer(200, body.clone()));
    assert!(list(&server.pods(), ListOptions::default()).await.1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_encoding_that_nobody_asked_for_is_refused() {
    let server = Server::new(|_| answer(200, EMPTY).header("content-encoding", "br"));
    assert!(matches!(
        list_error(&server.pods()).await,
        SourceError::Unexpected(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_left_out_unless_they_are_wanted() {
    let item = r#"{"metadata":{"name":"a","managedFields":[{"manager":"m"}]}}"#;
    let body = EMPTY.replace("[]", &format!("[{item}]"));
    let server = Server::new(move |_| answer(200, body.clone()));
    let (items, _) = list(&server.pods(), ListOptions::default()).await;
    assert_eq!(items[0].as_bytes(), br#"{"metadata":{"name":"a"}}"#);
    let (items, _) = list(&server.pods().keep_managed_fields(), ListOptions::default()).await;
    assert_eq!(items[0].as_bytes(), item.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn objects_have_a_bound() {
    let body = EMPTY.replace("[]", r#"[{"metadata":{"name":"a"}}]"#);
    let server = Server::new(move |_| answer(200, body.clone()));
    let pods = server.pods().object_bytes_max(10);
    assert!(matches!(list_error(&pods).await, SourceError::Malformed(_)));
}
