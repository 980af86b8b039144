//! The splitter agrees with serde_json on every body, however it is cut into chunks.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};
use tidings_api::{ListSplitter, Object, ServedObject, SplitOptions, WatchEvent, WatchSplitter};

/// Any JSON value; keys are drawn from those that the splitter treats in a special way.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é\n\"\\\\]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let key = prop_oneof![
            Just("metadata".to_owned()),
            Just("managedFields".to_owned()),
            Just("items".to_owned()),
            Just("object".to_owned()),
            Just("name".to_owned()),
            "[a-z\"é]{0,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    (any_value(), any_value(), "[a-z]{1,5}").prop_map(|(spec, managed, name)| {
        json!({"kind": "K", "metadata": {"name": name, "managedFields": managed, "labels": {"a": "b"}}, "spec": spec})
    })
}

fn feed_list(
    body: &[u8],
    cuts: &[usize],
    options: SplitOptions,
) -> (Vec<Object>, tidings_api::ListEnvelope) {
    let mut splitter = ListSplitter::new(options);
    let mut objects = Vec::new();
    for chunk in chunks(body, cuts) {
        splitter.feed(chunk, |object| objects.push(object)).unwrap();
    }
    (objects, splitter.finish().unwrap())
}

fn chunks<'a>(body: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    at.extend([0, body.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn lists_equal_what_serde_reads(
        items in prop::collection::vec(any_object(), 0..5),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        pretty in any::<bool>(),
        metadata_last in any::<bool>(),
    ) {
        let list = if metadata_last {
            json!({"apiVersion": "v1", "items": items, "kind": "KList", "metadata": {"resourceVersion": "7", "continue": "c"}})
        } else {
            json!({"kind": "KList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": "c"}, "items": items})
        };
        let body = if pretty { serde_json::to_vec_pretty(&list) } else { serde_json::to_vec(&list) }.unwrap();

        let (objects, envelope) = feed_list(&body, &cuts, SplitOptions::default());
        let values: Vec<Value> = objects.iter().map(|object| serde_json::from_slice(object.as_bytes()).unwrap()).collect();
        prop_assert_eq!(&values, &items);
        prop_assert_eq!(envelope.metadata.resource_version, "7");
        prop_assert_eq!(envelope.metadata.continue_token, "c");
        for (object, item) in objects.iter().zip(&items) {
            prop_assert_eq!(object.name(), item["metadata"]["name"].as_str().unwrap());
            prop_assert_eq!(object.labels().get("a"), Some("b"));
        }

        let (lean, _) = feed_list(&body, &cuts, SplitOptions::default().without_managed_fields());
        for (object, item) in lean.iter().zip(&items) {
            let mut expected = item.clone();
            expected["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
            prop_assert_eq!(&serde_json::from_slice::<Value>(object.as_bytes()).unwrap(), &expected);
            let fresh = Object::parse(object.bytes()).unwrap();
            prop_assert_eq!(object.spans(), fresh.spans());
        }
    }

    #[test]
    fn watches_equal_what_serde_reads(
        objects in prop::collection::vec(any_object(), 0..5),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let mut body = Vec::new();
        for object in &objects {
            serde_json::to_writer(&mut body, &json!({"type": "MODIFIED", "object": object})).unwrap();
            body.push(b'\n');
        }
        let mut splitter = WatchSplitter::new(SplitOptions::default());
        let mut seen = Vec::new();
        for chunk in chunks(&body, &cuts) {
            splitter.feed(chunk, |event| match event {
                WatchEvent::Modified(object) => seen.push(serde_json::from_slice::<Value>(object.as_bytes()).unwrap()),
                other => panic!("{other:?}"),
            }).unwrap();
        }
        splitter.finish().unwrap();
        prop_assert_eq!(seen, objects);
    }

    /// Whatever the bytes: the scanner accepts one object exactly when serde_json does.
    #[test]
    fn acceptance_equals_serdes(bytes in prop_oneof![
        "[-0-9.eE+{}\\[\\]\",:a-f\\\\ntrulse ]{0,24}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..24),
        (any_object(), any::<usize>(), any::<u8>()).prop_map(|(object, at, byte)| {
            let mut bytes = serde_json::to_vec(&object).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes
        }),
    ]) {
        let serde = serde_json::from_slice::<&serde_json::value::RawValue>(&bytes);
        let serde_accepts = serde.is_ok_and(|raw| raw.get().starts_with('{')) && std::str::from_utf8(&bytes).is_ok();
        let ours = Object::parse(bytes.clone()).is_ok() && std::str::from_utf8(&bytes).is_ok();
        prop_assert_eq!(ours, serde_accepts, "{:?}", String::from_utf8_lossy(&bytes));
    }
}

fn entry(manager: &str, time: &str) -> Value {
    let fields = json!({"f:data": {"f:manager": {}, "f:time": {}, ".": {}}});
    json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

proptest! {
    /// Who wrote last is the same whether `managedFields` are kept or left out, and however the body is cut.
    #[test]
    fn the_last_manager_is_known_without_managed_fields(
        entries in prop::collection::vec(("[a-z\"é]{0,3}", 0..4_u8), 0..4),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let managed: Vec<Value> = entries.iter()
            .map(|(manager, second)| entry(manager, &format!("2026-01-01T00:00:0{second}Z")))
            .collect();
        let newest = entries.iter().max_by_key(|(_, second)| *second);
        let newest = newest.map(|(manager, _)| &**manager).filter(|manager| !manager.is_empty());
        let newest = newest.map(std::sync::Arc::from);
        let object = json!({"kind": "K", "metadata": {"managedFields": managed, "name": "n"}});
        let whole = Object::parse(serde_json::to_vec(&object).unwrap()).unwrap();
        prop_assert_eq!(&whole.last_manager(), &newest);

        let body = serde_json::to_vec(&json!({"items": [object, {"metadata": {"name": "m"}}]})).unwrap();
        let (objects, _) = feed_list(&body, &cuts, SplitOptions::default().without_managed_fields());
        prop_assert_eq!(&objects[0].last_manager(), &newest);
        prop_assert_eq!(objects[0].as_bytes(), br#"{"kind":"K","metadata":{"name":"n"}}"#);
        prop_assert_eq!(objects[1].last_manager(), None);

        let lean = Object::parse_without_managed_fields(whole.as_bytes()).unwrap();
        prop_assert_eq!(lean.as_bytes(), objects[0].as_bytes());
        prop_assert_eq!(&lean.last_manager(), &newest);
    }
}

#[test]
fn one_object_is_read_without_managed_fields() {
    let read = |json: &str| Object::parse_without_managed_fields(json.as_bytes());
    let object = read(r#" {"metadata":{"managedFields":[],"name":"a"}} "#).unwrap();
    assert_eq!(object.as_bytes(), br#"{"metadata":{"name":"a"}}"#);
    assert_eq!(object.name(), "a");
    for broken in ["", "[]", "{", "{}{}", "null", "{} x"] {
        assert!(read(broken).is_err(), "{broken}");
    }
}

#[test]
fn bookmarks_and_errors_are_understood() {
    let stream = concat!(
        r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        "\n",
        r#"{"object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"Expired","code":410},"type":"ERROR"}"#,
    );
    let mut splitter = WatchSplitter::new(SplitOptions::default());
    let mut events = Vec::new();
    splitter
        .feed(stream.as_bytes(), |event| events.push(event))
        .unwrap();
    splitter.finish().unwrap();
    assert!(
        matches!(&events[0], WatchEvent::Bookmark { resource_version, initial_events_end: true } if resource_version == "9")
    );
    assert!(matches!(&events[1], WatchEvent::Error(status) if status.is_expired()));
}

#[test]
fn a_status_that_stands_in_no_event_ends_the_watch() {
    let stream = "{\n  \"kind\": \"Status\",\n  \"status\": \"Failure\",\n  \"code\": 410\n}\n";
    for size in 1..=stream.len() {
        let mut splitter = WatchSplitter::new(SplitOptions::default());
        let mut events = Vec::new();
        for chunk in stream.as_bytes().chunks(size) {
            splitter.feed(chunk, |event| events.push(event)).unwrap();
        }
        splitter.finish().unwrap();
        assert!(matches!(&events[..], [WatchEvent::Error(status)] if status.is_expired()));
    }
    let mut splitter = WatchSplitter::new(SplitOptions::default());
    let refused = splitter.feed(br#"{"kind":"Secret"}"#, |_| panic!("no event"));
    assert!(refused.is_err());
}

#[test]
fn objects_beyond_their_bound_are_refused() {
    let mut options = SplitOptions::default();
    options.object_bytes_max = 100;
    let mut splitter = ListSplitter::new(options);
    let body = format!(r#"{{"items":[{{"data":"{}"}}]}}"#, "x".repeat(200));
    let error = splitter.feed(body.as_bytes(), |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "an object is larger than 100 bytes");
}

#[test]
fn a_list_cut_short_is_an_error() {
    let mut splitter = ListSplitter::new(SplitOptions::default());
    splitter.feed(br#"{"items":[{"a":1}"#, |_| ()).unwrap();
    assert!(splitter.finish().is_err());
}

#[test]
fn what_stands_in_front_of_the_items_is_known_when_they_begin() {
    let body = br#"{"kind":"List", "metadata":{"resourceVersion":"7","continue":"next"} , "items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#;
    for cut in 0..body.len() {
        let mut splitter = ListSplitter::new(SplitOptions::default());
        splitter.feed(&body[..cut], |_| {}).unwrap();
        let head = splitter.head();
        let items = memchr::memmem::find(body, b"[").unwrap();
        let begun = (items + 1..body.len() - 1).contains(&cut);
        let token = head.map(|head| head.metadata.continue_token);
        assert_eq!(token.as_deref(), begun.then_some("next"), "cut at {cut}");
        assert!(splitter.head().is_none(), "once");
        splitter.feed(&body[cut..], |_| {}).unwrap();
        assert_eq!(splitter.finish().unwrap().metadata.continue_token, "next");
    }
    // Items first: nothing is known.
    let mut splitter = ListSplitter::new(SplitOptions::default());
    splitter.feed(br#"{"items":[{"metadata"#, |_| {}).unwrap();
    assert_eq!(
        splitter.head().map(|head| head.metadata.continue_token),
        Some(String::new())
    );
}
