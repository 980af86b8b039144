//! Lists and watches in protobuf.

use kube::core::{ApiResource, GroupVersionKind};
use tidings_api::{ListOptions, Object, WatchEvent};
use tidings_informer::SourceError;
use tidings_kube::RestListWatch;
use tidings_schema::protobuf::{encode_object, watch_frame};

use crate::script::{EMPTY, ScriptStep, Server, answer, list, list_error, pieces, pods, watch};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

fn pod(name: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"u-{name}","resourceVersion":"{version}","labels":{{"a":"b"}},"managedFields":[{{"manager":"old","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{}}}}}},{{"manager":"new","operation":"Apply","apiVersion":"v1","time":"2026-01-01T00:00:05Z"}}]}},"spec":{{"containers":[{{"name":"c","image":"i","resources":{{"limits":{{"cpu":"100m"}}}},"ports":[{{"containerPort":80}}]}}],"nodeName":"n \"1\"\n☃"}},"status":{{"phase":"Running","startTime":"2026-01-01T00:00:00Z"}}}}"#
    )
}

fn pod_list(count: u32) -> String {
    let items: Vec<String> = (0..count)
        .map(|at| pod(&format!("pod-{at}"), at + 1))
        .collect();
    let metadata = r#"{"resourceVersion":"7","continue":"next","remainingItemCount":3}"#;
    format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":[{}]}}"#,
        items.join(",")
    )
}

fn protobuf(step: ScriptStep) -> ScriptStep {
    step.header("content-type", PROTOBUF)
}

/// The event of a watch for an object with its kind.
fn frame(event: &str, json: &str) -> Vec<u8> {
    watch_frame(event, &encode_object(json.as_bytes()).unwrap())
}

fn with_kind(kind: &str, json: &str) -> String {
    format!(r#"{{"kind":"{kind}","apiVersion":"v1",{}"#, &json[1..])
}

fn compare(found: &Object, expected: &Object) {
    let parsed = |object: &Object| -> serde_json::Value {
        serde_json::from_slice(object.as_bytes()).unwrap()
    };
    assert_eq!(parsed(found), parsed(expected));
    assert_eq!(found.key(), expected.key());
    assert_eq!(found.uid(), expected.uid());
    assert_eq!(found.kind(), expected.kind());
    assert_eq!(found.api_version(), expected.api_version());
    assert_eq!(found.revision(), expected.revision());
    assert_eq!(found.labels(), expected.labels());
    assert_eq!(found.last_manager(), expected.last_manager());
    assert_eq!(found.last_manager().as_deref(), Some("new"));
}

#[tokio::test(start_paused = true)]
async fn a_list_in_protobuf_is_the_list_in_json_in_pieces_of_any_size() {
    let json = pod_list(5);
    let message = encode_object(json.as_bytes()).unwrap();
    let server = Server::script([answer(200, json.clone())]);
    let (expected, outcome) = list(&server.pods(), ListOptions::default()).await;
    let metadata = outcome.unwrap();
    assert_eq!(expected.len(), 5);
    assert_eq!(metadata.continue_token, "next");
    for size in (1..message.len()).step_by(13).chain([message.len()]) {
        let server = Server::script([protobuf(pieces(&message, size))]);
        let (found, outcome) = list(&server.pods(), ListOptions::default()).await;
        assert_eq!(outcome.unwrap(), metadata, "{size}");
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            compare(found, expected);
        }
    }
    let server = Server::script([protobuf(answer(200, message))]);
    let (kept, _) = list(&server.pods().keep_managed_fields(), ListOptions::default()).await;
    assert!(String::from_utf8_lossy(kept[0].as_bytes()).contains(r#""f:spec""#));
    assert_eq!(kept[0].last_manager().as_deref(), Some("new"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_protobuf_is_the_watch_in_json_in_pieces_of_any_size() {
    let changed = with_kind("Pod", &pod("a", 8));
    let bookmark = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}"#;
    let body = [
        frame("ADDED", &changed),
        frame("MODIFIED", &changed),
        frame("DELETED", &changed),
        frame("BOOKMARK", bookmark),
        frame("ERROR", status),
    ]
    .concat();
    let expected = Object::parse_without_managed_fields(changed.as_bytes()).unwrap();
    for size in (1..body.len()).step_by(17).chain([body.len()]) {
        let server = Server::script([protobuf(pieces(&body, size))]);
        let (events, outcome) = watch(&server.pods()).await;
        outcome.unwrap();
        let [
            WatchEvent::Added(added),
            WatchEvent::Modified(modified),
            WatchEvent::Deleted(deleted),
            WatchEvent::Bookmark {
                resource_version,
                initial_events_end: true,
            },
            WatchEvent::Error(status),
        ] = &*events
        else {
            panic!("{size}: {events:?}");
        };
        for object in [added, modified, deleted] {
            compare(object, &expected);
        }
        assert_eq!(resource_version, "9");
        assert!(status.is_expired());
        assert_eq!(status.message, "too old");
    }
}

#[tokio::test(start_paused = true)]
async fn fields_that_nobody_here_knows_are_not_lost() {
    // A newer server: a Pod with a field of the number 1000.
    let mut newer = encode_object(pod_list(1).as_bytes()).unwrap();
    // The list, the item, and its metadata grow by an unknown field at the end of the item.
    let unknown = [0xc2, 0x3e, 0x01, b'x'];
    grow_item(&mut newer, &unknown);
    let server = Server::new(move |request| match request.header("accept") {
        JSON => answer(200, pod_list(1)),
        _ => protobuf(answer(200, newer.clone())),
    });
    let source = server.pods();
    let (items, outcome) = list(&source, ListOptions::default()).await;
    assert!(items.is_empty());
    let error = outcome.unwrap_err();
    assert!(matches!(&error, SourceError::Unexpected(_)), "{error:?}");
    assert!(error.story().contains("asking for JSON"), "{error}");
    let (items, outcome) = list(&source, ListOptions::default()).await;
    assert_eq!(outcome.unwrap().resource_version, "7");
    assert_eq!(items.len(), 1);
    // The watch asks for JSON too, and another source still for protobuf.
    let _ = watch(&source).await;
    let _ = watch(&server.pods()).await;
    let accepts: Vec<String> = server
        .asked()
        .iter()
        .map(|request| request.header("accept").to_owned())
        .collect();
    let either = format!("{PROTOBUF},{JSON}");
    assert_eq!(accepts, [&*either, JSON, JSON, &*either]);
}

/// Appends bytes to the only item of a list and corrects the lengths around it. The lengths must have two bytes before and after.
fn grow_item(body: &mut Vec<u8>, more: &[u8]) {
    // magic, type, then the list and its length
    let type_meta = 4 + 2 + usize::from(body[5]);
    let list_length = type_meta + 1;
    // in the list: metadata, then the item
    let list = list_length + 2;
    let item_length = list + 2 + usize::from(body[list + 1]) + 1;
    let item = item_length + 2;
    assert_eq!(
        (body[type_meta], body[list], body[item_length - 1]),
        (0x12, 0x0a, 0x12)
    );
    let end = item + length_at(body, item_length);
    body.splice(end..end, more.iter().copied());
    for at in [list_length, item_length] {
        let length = length_at(body, at) + more.len();
        body[at] = (length & 0x7f) as u8 | 0x80;
        body[at + 1] = (length >> 7) as u8;
    }
}

/// A length of two bytes.
fn length_at(body: &[u8], at: usize) -> usize {
    assert!(body[at] >= 0x80 && body[at + 1] < 0x80);
    usize::from(body[at] & 0x7f) | usize::from(body[at + 1]) << 7
}

#[tokio::test(start_paused = true)]
async fn broken_messages_are_refused_and_json_is_asked_for() {
    let message = encode_object(pod_list(2).as_bytes()).unwrap();
    // Cut anywhere. Only the end of the envelope, which is empty, may be missing.
    for length in 0..message.len() - 4 {
        let server = Server::script([protobuf(answer(200, message[..length].to_vec()))]);
        let outcome = list(&server.pods(), ListOptions::default()).await.1;
        assert!(outcome.is_err(), "{length}");
    }
    let event = frame("ADDED", &with_kind("Pod", &pod("a", 1)));
    for length in 1..event.len() {
        let server = Server::script([protobuf(answer(200, event[..length].to_vec()))]);
        let (events, outcome) = watch(&server.pods()).await;
        assert!(events.is_empty() && outcome.is_err(), "{length}");
    }
    // A list that ends inside a field, in a body that does not end.
    let endless = [
        b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x01\x0a",
        &[0; 4096][..],
    ]
    .concat();
    let server = Server::script([protobuf(pieces(&endless, 64))]);
    let error = list_error(&server.pods()).await;
    assert!(matches!(error, SourceError::Malformed(_)), "{error:?}");
    // A proxy that answers something else.
    let server = Server::new(|request| match request.header("accept") {
        JSON => answer(200, EMPTY),
        _ => protobuf(answer(200, "<html>")),
    });
    let source = server.pods();
    assert!(matches!(
        list_error(&source).await,
        SourceError::Malformed(_)
    ));
    assert!(list(&source, ListOptions::default()).await.1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn objects_larger_than_the_limit_are_refused() {
    let message = encode_object(pod_list(1).as_bytes()).unwrap();
    let server = Server::script([
        protobuf(pieces(&message, 16)),
        protobuf(answer(200, frame("ADDED", &with_kind("Pod", &pod("a", 1))))),
        protobuf(answer(200, vec![0x7f; 64])),
    ]);
    let source = server.pods().object_bytes_max(100);
    let too_large = |error: SourceError| {
        assert!(error.story().contains("larger than 100 bytes"), "{error:?}");
    };
    too_large(list_error(&source).await);
    too_large(watch(&source).await.1.unwrap_err());
    too_large(watch(&source).await.1.unwrap_err());

    // What is left out does not count.
    let message = encode_object(pod_list(1).as_bytes()).unwrap();
    let server = Server::script([protobuf(answer(200, message))]);
    let lean = pod("pod-0", 1).len() - 200;
    let (items, outcome) = list(
        &server.pods().object_bytes_max(lean),
        ListOptions::default(),
    )
    .await;
    outcome.unwrap();
    assert_eq!(items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_ends_a_watch_without_an_event() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}"#;
    let message = encode_object(status.as_bytes()).unwrap();
    for body in [status.as_bytes().to_vec(), message] {
        let server = Server::script([protobuf(answer(200, body))]);
        let error = watch(&server.pods()).await.1.unwrap_err();
        assert!(error.is_expired(), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_has_the_kind_that_it_has_in_json() {
    let item =
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
    let list_of = format!(
        r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"7"}},"items":[{item}]}}"#
    );
    let message = encode_object(list_of.as_bytes()).unwrap();
    let server = Server::script([protobuf(answer(200, message))]);
    let pods = server.pods().metadata_only();
    let (items, outcome) = list(&pods, ListOptions::default()).await;
    outcome.unwrap();
    assert_eq!(items[0].kind(), "PartialObjectMetadata");
    assert_eq!(items[0].api_version(), "meta.k8s.io/v1");
}

#[tokio::test(start_paused = true)]
async fn b127_a_status_in_protobuf_is_kept() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Expired","code":410}"#;
    let body = encode_object(status.as_bytes()).unwrap();
    let server = Server::script([protobuf(answer(410, body))]);
    let error = list_error(&server.pods()).await;
    assert!(error.is_expired());
    assert_eq!(error.status().unwrap().message, "no");
}

#[tokio::test(start_paused = true)]
async fn protobuf_is_asked_for_where_it_can_be_read() {
    let server = Server::new(|_| answer(200, EMPTY));
    let custom = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let custom = ApiResource::from_gvk_with_plural(&custom, "widgets");
    let widgets = RestListWatch::new(&server.client(), &custom, "");
    let nodes_metadata = RestListWatch::new(&server.client(), &pods(), "").metadata_only();
    for source in [
        server.pods(),
        server.pods().json_only(),
        nodes_metadata,
        widgets.clone(),
        widgets.metadata_only(),
    ] {
        list(&source, ListOptions::default()).await.1.unwrap();
    }
    let asked = server.asked();
    let accepts: Vec<&str> = asked
        .iter()
        .map(|request| request.header("accept"))
        .collect();
    let prefers: Vec<&str> = asked
        .iter()
        .map(|request| request.header("prefer"))
        .collect();
    let either = format!("{PROTOBUF},{JSON}");
    let metadata = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let metadata = format!("{PROTOBUF};{metadata},{JSON};{metadata},{JSON}");
    assert_eq!(accepts, [&*either, JSON, &*metadata, JSON, &*metadata]);
    let stored = "format=stored";
    assert_eq!(prefers, [stored, "", stored, "", stored]);
}
