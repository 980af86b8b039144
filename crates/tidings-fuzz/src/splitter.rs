//! Fuzz target of the list and watch splitters: they agree with serde_json on any bytes, in chunks of any size.

use serde_json::Value;
use tidings_api::{ListSplitter, Object, SplitOptions, WatchSplitter};

/// Cuts the data into chunks; the first byte is the size of a chunk.
fn chunks(data: &[u8]) -> (&[u8], std::slice::Chunks<'_, u8>) {
    let (size, body) = data
        .split_first()
        .map_or((1, data), |(first, rest)| (usize::from(*first) + 1, rest));
    (body, body.chunks(size))
}

/// Feeds bytes to the splitters and compares the objects with those of serde_json.
///
/// # Panics
/// If they differ.
pub fn splitter(data: &[u8]) {
    let (body, pieces) = chunks(data);
    let text = std::str::from_utf8(body).is_ok();
    let one = serde_json::from_slice::<&serde_json::value::RawValue>(body);
    let is_object = one.is_ok_and(|raw| raw.get().starts_with('{'));
    // serde_json accepts a nesting of 128, the scanner more. So only what serde_json accepts must be accepted.
    if text && is_object {
        agree(body);
    }
    for options in [
        SplitOptions::default(),
        SplitOptions::default().without_managed_fields(),
    ] {
        let lean = options.drop_managed_fields;
        let mut splitter = ListSplitter::new(options);
        let mut items = Vec::new();
        let mut rest = pieces.clone();
        let fed = rest.try_for_each(|piece| splitter.feed(piece, |object| items.push(object)));
        // Like Go, the splitters accept bytes inside of text that are not UTF-8; serde_json does not.
        if fed.is_ok() && splitter.finish().is_ok() && text {
            check_items(body, &items, lean);
        }
    }
    let mut splitter = WatchSplitter::new(SplitOptions::default());
    let mut rest = pieces;
    let _ = rest.try_for_each(|piece| splitter.feed(piece, |_| ()));
}

fn agree(body: &[u8]) {
    let object = Object::parse(body).expect("serde_json accepts it");
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(name) = value["metadata"]["name"].as_str() {
        assert_eq!(object.name(), name);
    }
    for (key, label) in object.labels().iter() {
        assert_eq!(value["metadata"]["labels"][key].as_str(), Some(label));
    }
}

fn check_items(body: &[u8], items: &[Object], lean: bool) {
    let list: Value = serde_json::from_slice(body).expect("the splitter accepts only JSON");
    // The splitter splits every member named `items`; serde_json keeps the last.
    let expected = list["items"].as_array().cloned().unwrap_or_default();
    let seen = items.iter().rev().take(expected.len()).rev();
    for (object, mut expected) in seen.zip(expected) {
        let meta = expected.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(meta) = meta.filter(|_| lean) {
            meta.shift_remove("managedFields");
        }
        let value: Value = serde_json::from_slice(object.as_bytes()).expect("an item is JSON");
        assert_eq!(value, expected);
    }
}
