//! What must hold for any bytes that come from a disk or from a client: readers neither panic nor accept what they would not
//! write.
//!
//! Each function is a fuzz target. `cargo +nightly fuzz run NAME` (in the folder `fuzz`) feeds one of them for as long as asked;
//! the tests of this package feed all of them with changed examples for a moment, on stable Rust.

mod splitter;

pub use splitter::splitter;
pub use tidings_server::fuzzing::continue_token;
pub use tidings_storage::fuzzing::{frames, manifest};

use serde_json::Value;

/// The reader of plain JSON agrees with serde_json, and what is written is read again.
///
/// # Panics
/// If they do not agree.
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

/// What is decoded from protobuf can be encoded, and is then the same.
///
/// # Panics
/// If it is not.
pub fn protobuf(data: &[u8]) {
    use tidings_schema::protobuf::{decode_object, encode_object};
    let Ok(decoded) = decode_object(data, None) else {
        return;
    };
    let mut json = Vec::new();
    decoded.write(&mut json);
    // An unknown kind has no message of its own.
    let Ok(encoded) = encode_object(&json) else {
        return;
    };
    let again = decode_object(&encoded, None).expect("what was encoded is decoded");
    let once_more = {
        let mut json = Vec::new();
        again.write(&mut json);
        encode_object(&json).expect("and encoded again")
    };
    assert_eq!(once_more, encoded);
}
