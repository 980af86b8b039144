//! Runs every fuzz target briefly, with examples in which bytes are changed, removed, duplicated or combined.
//!
//! `TIDINGS_FUZZ_TIMES=100 cargo test --release -p tidings-fuzz` runs a hundred times as many cases.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tidings_fuzz::{continue_token, frames, json, manifest, protobuf, splitter};

/// A change of an example. Positions are fractions of its length.
#[derive(Debug, Clone)]
enum ByteChange {
    Set(u16, u8),
    Flip(u16, u8),
    Cut(u16, u8),
    Double(u16, u8),
    Insert(u16, u8),
    End(u16),
    Splice(u16, prop::sample::Index),
}

fn change() -> impl Strategy<Value = ByteChange> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"\0\xff{}[]\",:\\/ 0-.eE".to_vec())
    ];
    prop_oneof![
        4 => (any::<u16>(), byte.clone()).prop_map(|(at, byte)| ByteChange::Set(at, byte)),
        4 => (any::<u16>(), 0..8_u8).prop_map(|(at, bit)| ByteChange::Flip(at, bit)),
        2 => any::<(u16, u8)>().prop_map(|(at, count)| ByteChange::Cut(at, count)),
        2 => any::<(u16, u8)>().prop_map(|(at, count)| ByteChange::Double(at, count)),
        2 => (any::<u16>(), byte).prop_map(|(at, byte)| ByteChange::Insert(at, byte)),
        1 => any::<u16>().prop_map(ByteChange::End),
        1 => (any::<u16>(), any::<prop::sample::Index>()).prop_map(|(at, other)| ByteChange::Splice(at, other)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &ByteChange, examples: &[Vec<u8>]) {
    let place = |at: u16| (usize::from(at) * bytes.len()) >> 16;
    match change {
        ByteChange::Set(at, byte) => {
            let at = place(*at);
            bytes.splice(at..(at + 1).min(bytes.len()), [*byte]);
        }
        ByteChange::Flip(at, bit) => {
            let at = place(*at);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        ByteChange::Cut(at, count) => {
            let at = place(*at);
            let end = (at + usize::from(*count)).min(bytes.len());
            bytes.drain(at..end);
        }
        ByteChange::Double(at, count) => {
            let at = place(*at);
            let end = (at + usize::from(*count)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        ByteChange::Insert(at, byte) => bytes.insert(place(*at), *byte),
        ByteChange::End(at) => bytes.truncate(place(*at)),
        ByteChange::Splice(at, other) => {
            let at = place(*at);
            let other = other.get(examples);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[at.min(other.len())..]);
        }
    }
}

/// Runs a target with the examples and with changed examples.
fn feed(examples: &[Vec<u8>], cases: u32, target: fn(&[u8])) {
    for example in examples {
        target(example);
    }
    let example = any::<prop::sample::Index>();
    let changes = prop::collection::vec(change(), 0..6);
    let times = std::env::var("TIDINGS_FUZZ_TIMES").ok();
    let times = times.and_then(|times| times.parse().ok()).unwrap_or(1);
    let mut config = ProptestConfig::with_cases(cases * times);
    config.failure_persistence = None;
    proptest!(config, |(example in example, changes in changes)| {
        let mut bytes = example.get(examples).clone();
        for change in &changes {
            apply(&mut bytes, change, examples);
        }
        target(&bytes);
    });
}

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"default","uid":"u","labels":{"a":"b","é":"\u00e9"},"managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:spec":{}}}]},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"100m"}}}],"restartPolicy":"Always"},"status":{"phase":"Running"}}"#;
const CONFIG_MAP: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","annotations":{"k":"a \"quoted\" \\ value"}},"data":{"k":"v","empty":""},"binaryData":{"b":"AAEC"}}"#;
const SERVICE: &str = r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"s"},"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":-1,"targetPort":8080}],"clusterIP":"None"}}"#;
const OTHER: &str =
    r#"{"a":[1,-2.5,3e10,true,false,null,{"b":[]},[[]]],"n":12345678901234567890,"f":0.1,"":""}"#;

fn documents() -> Vec<Vec<u8>> {
    [POD, CONFIG_MAP, SERVICE, OTHER]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

#[test]
fn plain_json() {
    feed(&documents(), 4000, json);
}

#[test]
fn protobuf_bodies() {
    let encoded = [POD, CONFIG_MAP, SERVICE]
        .map(|text| tidings_schema::protobuf::encode_object(text.as_bytes()).unwrap());
    feed(&encoded, 4000, protobuf);
}

#[test]
fn log_frames() {
    feed(&tidings_storage::fuzzing::examples(), 4000, frames);
}

#[test]
fn lists_of_segments() {
    let lists = [
        "1\n2\n3\n",
        "tidings segments\noldest 5\ntime 77\nconverted 3\nsegment 4 100\nsegment 9\ncrc32 00000000\n",
    ];
    let lists = lists.map(|text| text.as_bytes().to_vec());
    feed(&lists, 1000, manifest);
}

#[test]
fn continue_tokens() {
    feed(&tidings_server::fuzzing::tokens(), 4000, continue_token);
}

#[test]
fn streams_that_are_split() {
    let list = format!(
        r#"7{{"kind":"List","metadata":{{"resourceVersion":"5"}},"items":[{POD},{CONFIG_MAP}]}}"#
    );
    let events = format!(
        "\x01{{\"type\":\"ADDED\",\"object\":{POD}}}\n{{\"type\":\"DELETED\",\"object\":{SERVICE}}}\n"
    );
    let object = format!("\x40{CONFIG_MAP}");
    feed(
        &[list, events, object].map(String::into_bytes),
        2000,
        splitter,
    );
}
