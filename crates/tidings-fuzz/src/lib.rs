//! Fuzz targets: for any bytes from a disk or a client, readers neither panic nor accept what the writers would not write.
//!
//! Each function is a fuzz target. `cargo +nightly fuzz run NAME` (in the folder `fuzz`) runs one of them. The tests of this
//! package run all of them briefly with changed examples, on stable Rust.

mod splitter;

pub use splitter::splitter;
pub use tidings_server::fuzzing::continue_token;
pub use tidings_storage::fuzzing::{frames, manifest};

use serde_json::Value;

/// Reads plain JSON, compares the result with serde_json, and reads it again after writing it.
///
/// # Panics
/// If the results differ.
pub fn json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Some(read) = tidings_json::Plain::read(text) else {
        return;
    };
    let expected: Value = serde_json::from_str(text).expect("it accepts only JSON");
    assert_eq!(Value::from(read.clone()), expected);
    let mut written = Vec::new();
    read.write(&mut written);
    let again: Value = serde_json::from_slice(&written).expect("it writes JSON");
    assert_eq!(again, expected);
}

/// Decodes protobuf, encodes the object, and decodes and encodes it again.
///
/// # Panics
/// If the two encodings differ.
pub fn protobuf(data: &[u8]) {
    use tidings_schema::protobuf::{decode_object, encode_object};
    let Ok(decoded) = decode_object(data, None) else {
        return;
    };
    serde_json::from_slice::<Value>(&decoded).expect("it writes JSON");
    // An object of an unknown kind cannot be encoded.
    let Ok(encoded) = encode_object(&decoded) else {
        return;
    };
    let again = decode_object(&encoded, None).expect("what was encoded is decoded");
    assert_eq!(encode_object(&again).expect("and encoded again"), encoded);
}
