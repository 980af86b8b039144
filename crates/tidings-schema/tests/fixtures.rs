//! Decodes protobuf that kube-apiserver 1.36.4 wrote and compares it with the JSON that it wrote for the same object.
//!
//! `TIDINGS_SCHEMA_FIXTURES=DIR` adds a directory of such pairs, `NAME.pb` and `NAME.json`. For example, `testdata/HEAD` of the
//! Go module k8s.io/api has every field of every kind.

use std::path::{Path, PathBuf};

use tidings_json::Value;
use tidings_schema::protobuf::{
    DecodeError, decode_envelope, decode_object, encode_object, is_protobuf,
};

fn pairs(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = dir
        .read_dir()
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pb"))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no fixtures in {}", dir.display());
    found
}

fn fixtures() -> Vec<PathBuf> {
    pairs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"))
}

/// Checks a pair of files. `None` if the kind is not in the type table.
fn check(path: &Path) -> Option<()> {
    let body = std::fs::read(path).expect("protobuf");
    let json = std::fs::read(path.with_extension("json")).expect("JSON");
    let expected: Value = serde_json::from_slice(&json).expect("valid JSON");
    assert!(is_protobuf(&body));
    let envelope = decode_envelope(&body).expect("an envelope");
    let (group, version) = envelope.group_version();
    tidings_schema::find(group, version, &envelope.kind)?;
    assert_eq!(expected["kind"], *envelope.kind);
    assert_eq!(expected["apiVersion"], *envelope.api_version);
    let decoded = decode_object(&body, None).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let decoded: Value = serde_json::from_slice(&decoded).expect("JSON");
    // Compares texts, because values are equal in any order of members.
    let (decoded, expected) = (format!("{decoded:#}"), format!("{expected:#}"));
    if let Some((ours, theirs)) = decoded.lines().zip(expected.lines()).find(|(a, b)| a != b) {
        panic!("{path:?}: {ours} instead of {theirs}");
    }
    assert_eq!(decoded, expected, "{path:?}");
    // Removes the line breaks of testdata.
    let compact = serde_json::from_slice::<Value>(&json).expect("valid JSON");
    check_encoding(path, compact.to_string().as_bytes(), &body);
    Some(())
}

/// Checks that JSON encodes to the bytes that kube-apiserver wrote.
fn check_encoding(path: &Path, json: &[u8], body: &[u8]) {
    let encoded = encode_object(json).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    // Its embedded JSON has spaces in protobuf but not in the JSON file.
    if path.ends_with("controller-revision.pb") {
        assert_eq!(decode_object(&encoded, None), decode_object(body, None));
    } else if encoded != body {
        let same = encoded.iter().zip(body).take_while(|(a, b)| a == b).count();
        let near = |bytes: &[u8]| {
            bytes
                .iter()
                .skip(same)
                .take(40)
                .copied()
                .collect::<Vec<u8>>()
        };
        let (ours, theirs) = (near(&encoded), near(body));
        panic!("{path:?}: from byte {same} on {ours:02x?} instead of {theirs:02x?}");
    }
}

#[test]
fn protobuf_decodes_to_the_json_of_the_same_object_and_back() {
    for path in fixtures() {
        assert!(check(&path).is_some(), "{path:?}: unknown kind");
    }
    if let Some(dir) = std::env::var_os("TIDINGS_SCHEMA_FIXTURES") {
        let all = pairs(Path::new(&dir));
        let known = all.iter().filter_map(|path| check(path)).count();
        println!("{known} of {} are of known kinds", all.len());
    }
}

/// About 500 positions in a body; all positions of a short one.
fn places(body: &[u8]) -> impl Iterator<Item = usize> + use<> {
    (0..body.len()).step_by(1 + body.len() / 500)
}

#[test]
fn truncated_bodies_never_panic() {
    for path in fixtures() {
        let body = std::fs::read(&path).expect("protobuf");
        for length in places(&body) {
            let _ = decode_object(&body[..length], None);
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    for path in fixtures() {
        let mut body = std::fs::read(&path).expect("protobuf");
        for place in places(&body) {
            for bit in 0..8 {
                body[place] ^= 1 << bit;
                let _ = decode_object(&body, None);
                body[place] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn delete_options_decode() {
    let body = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\
        \x12\x1c\x08\x00\x12\x07\x0a\x05other\x22\x0aBackground\x2a\x03All";
    let decoded = decode_object(body, None).expect("decodes");
    let expected = r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"other"},"propagationPolicy":"Background","dryRun":["All"]}"#;
    assert_eq!(String::from_utf8_lossy(&decoded), expected);
}

#[test]
fn what_is_no_envelope_is_refused() {
    assert!(!is_protobuf(b"{}"));
    assert_eq!(decode_object(b"{}", None), Err(DecodeError::Magic));
    assert_eq!(decode_object(b"k8s", None), Err(DecodeError::Magic));
    let unknown = DecodeError::UnknownKind {
        api_version: String::new(),
        kind: String::new(),
    };
    assert_eq!(decode_object(b"k8s\0", None), Err(unknown));
}
