//! What a controller applied last, told by the child itself: an annotation with a hash of the configuration.
//!
//! An apply is needed if the configuration has changed since the last one, also by leaving something out, or if somebody changed what was
//! applied. The first is told by the hash, which survives restarts and hand-overs between replicas; the second by comparing the
//! configuration with the cached object, once for each version of it.

use tidings_api::Object;
use tidings_json::{ScanError, ScanEvents, Scanner, ValueKind};

/// Before the name of a controller, the annotation of its children.
const ANNOTATION_PREFIX: &str = "applied.tidings.dev/";
/// The longest name of an annotation after its prefix, and the longest value of a label.
const NAME_MAX: usize = 63;

/// The annotation in which a controller notes what it applied.
pub(crate) fn annotation(controller: &str) -> String {
    format!("{ANNOTATION_PREFIX}{}", name_of(controller))
}

/// The name of a controller as a label or an annotation may have it: a hash if it has other characters, or too many.
pub(crate) fn name_of(controller: &str) -> String {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = controller.as_bytes();
    let is_name = bytes.len() <= NAME_MAX
        && bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    if is_name {
        controller.to_owned()
    } else {
        format!("{:016x}", hash_bytes(START, bytes))
    }
}

/// True for the annotation of any controller.
pub(crate) fn is_applied_annotation(name: &str) -> bool {
    name.starts_with(ANNOTATION_PREFIX)
}

/// The hash in the annotation of an object; zero if there is none, or if several controllers applied it: then nobody knows whose is meant.
pub(crate) fn applied_hash(object: &Object) -> u64 {
    let annotations = object.annotations().into_iter();
    let mut applied = annotations.filter(|(name, _)| is_applied_annotation(name));
    match (applied.next(), applied.next()) {
        (Some((_, hash)), None) => u64::from_str_radix(&hash, 16).unwrap_or_default(),
        _ => 0,
    }
}

/// A hash of a configuration that a controller applies: the same in every process and version, and whatever the order of members is. Never
/// zero.
pub(crate) fn configuration_hash(controller: &str, json: &[u8]) -> u64 {
    let mut hash = JsonHash::default();
    // What is not JSON has a hash too: that of as much of it as is.
    let _ = Scanner::new().scan(json, &mut hash);
    mixed(hash_bytes(START, controller.as_bytes()), hash.result).max(1)
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// A hash of bytes, eight at a time.
fn hash_bytes(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let hash = words.fold(mixed(start, bytes.len() as u64), mixed);
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mixed(hash, u64::from_le_bytes(last))
}

/// A hash of two hashes, in this order.
fn mixed(first: u64, second: u64) -> u64 {
    let mut mixed = (first ^ second.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Hashes JSON while it is scanned. The members of an object are summed up, so that their order does not count.
#[derive(Default)]
struct JsonHash {
    open: Vec<OpenContainer>,
    start: usize,
    result: u64,
}

struct OpenContainer {
    is_object: bool,
    hash: u64,
    /// The hash of the name of the member that is being read.
    name: u64,
}

impl ScanEvents for JsonHash {
    type Error = ScanError;

    fn value_start(
        &mut self,
        _: &[u8],
        at: usize,
        kind: ValueKind,
        _: usize,
    ) -> Result<(), ScanError> {
        self.start = at;
        if matches!(kind, ValueKind::Object | ValueKind::Array) {
            let is_object = kind == ValueKind::Object;
            self.open.push(OpenContainer {
                is_object,
                hash: START ^ u64::from(is_object),
                name: 0,
            });
        }
        Ok(())
    }

    fn value_end(
        &mut self,
        chunk: &[u8],
        end: usize,
        kind: ValueKind,
        _: usize,
    ) -> Result<(), ScanError> {
        let hash = match kind {
            ValueKind::Object | ValueKind::Array => self.open.pop().map_or(0, |open| open.hash),
            ValueKind::String | ValueKind::Other => {
                hash_bytes(START, chunk.get(self.start..end).unwrap_or_default())
            }
        };
        match self.open.last_mut() {
            Some(open) if open.is_object => {
                open.hash = open.hash.wrapping_add(mixed(open.name, hash));
            }
            Some(open) => open.hash = mixed(open.hash, hash),
            None => self.result = hash,
        }
        Ok(())
    }

    fn key_start(&mut self, at: usize, _: usize) {
        self.start = at;
    }

    fn key_end(&mut self, chunk: &[u8], end: usize, _: usize) -> Result<(), ScanError> {
        if let Some(open) = self.open.last_mut() {
            open.name = hash_bytes(START, chunk.get(self.start..end).unwrap_or_default());
        }
        Ok(())
    }

    fn comma(&mut self, _: &[u8], _: usize, _: usize) -> Result<(), ScanError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_members_does_not_count_and_everything_else_does() {
        let hash = |json: &str| configuration_hash("web", json.as_bytes());
        let known = hash(r#"{"a":{"b":[1,2],"c":"x"},"d":{}}"#);
        assert_eq!(known, hash(r#"{ "d":{}, "a":{"c":"x", "b":[1, 2]}}"#));
        for other in [
            r#"{"a":{"b":[2,1],"c":"x"},"d":{}}"#,
            r#"{"a":{"b":[1,2],"c":"y"},"d":{}}"#,
            r#"{"a":{"b":[1,2],"e":"x"},"d":{}}"#,
            r#"{"a":{"b":[1,2],"c":"x"},"d":[]}"#,
            r#"{"a":{"b":[1,2],"c":"x"}}"#,
            r#"{"a":{"b":[[1],2],"c":"x"},"d":{}}"#,
            r#"{"a":{"c":[1,2],"b":"x"},"d":{}}"#,
            r#"{"d":{"b":[1,2],"c":"x"},"a":{}}"#,
        ] {
            assert_ne!(known, hash(other), "{other}");
        }
        let of_another = configuration_hash("db", br#"{"a":{"b":[1,2],"c":"x"},"d":{}}"#);
        assert_ne!(known, of_another);
    }

    /// Programs of later versions find the hashes of earlier ones.
    #[test]
    fn hashes_stay_what_they_are() {
        let json = br#"{"metadata":{"name":"web"},"data":{"a":"b"}}"#;
        assert_eq!(
            configuration_hash("website", json),
            7_719_221_657_545_686_515
        );
    }

    #[test]
    fn every_controller_has_an_annotation_that_servers_take() {
        assert_eq!(annotation("website"), "applied.tidings.dev/website");
        for odd in ["", "a b", "-a", &"x".repeat(64), "a/b"] {
            let annotation = annotation(odd);
            let name = annotation.strip_prefix(ANNOTATION_PREFIX).unwrap();
            assert!(name.len() == 16, "{annotation}");
        }
    }

    #[test]
    fn the_hash_is_read_unless_several_controllers_applied() {
        let read = |annotations: &str| {
            let json = format!(r#"{{"metadata":{{"name":"a","annotations":{annotations}}}}}"#);
            applied_hash(&Object::parse(json).unwrap())
        };
        assert_eq!(
            read(r#"{"x":"1","applied.tidings.dev/web":"00000000000000ff"}"#),
            255
        );
        assert_eq!(read(r#"{"applied.tidings.dev/web":"odd"}"#), 0);
        assert_eq!(read("{}"), 0);
        assert_eq!(
            read(r#"{"applied.tidings.dev/a":"ff","applied.tidings.dev/b":"ff"}"#),
            0
        );
    }
}
