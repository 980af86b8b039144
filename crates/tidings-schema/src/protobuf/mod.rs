//! Decodes protobuf into JSON, and encodes JSON as protobuf, as Go would write either.
//!
//! A body is an envelope that names the kind around the message of the object:
//!
//! ```
//! use tidings_schema::protobuf;
//!
//! let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x07\x0a\x05\x0a\x03abc";
//! let envelope = protobuf::decode_envelope(body)?;
//! assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", "Namespace"));
//! let object = protobuf::decode_object(body, None)?;
//! assert_eq!(object["metadata"]["name"], "abc");
//! assert_eq!(protobuf::encode_object(object.to_string().as_bytes())?[..4], body[..4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod encode;
mod message;
mod outline;
mod wire;

use std::borrow::Cow;

use tidings_json::Value;

use crate::types::Type;
use wire::{Payload, Reader};

/// What every protobuf body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// What Go's zero time is in seconds since 1970.
const ZERO_TIME: i64 = -62_135_596_800;

/// What an envelope ends with: that its message is not compressed, and of no other media type.
const ENVELOPE_END: &[u8] = &[
    wire::tag_byte(3, wire::BYTES),
    0,
    wire::tag_byte(4, wire::BYTES),
    0,
];

/// Why bytes do not decode. Says nothing of the values, which may be secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message is compressed.
    #[error("the message is encoded as {0}, which is not understood")]
    Encoded(String),
    /// The first four bytes are others.
    #[error("provided data does not appear to be a protobuf message")]
    Magic,
    /// A value is longer than what is left.
    #[error("unexpected EOF")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number or wire type that does not exist.
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    /// A field holds a number where text is expected, or the like.
    #[error("proto: wrong wireType for field {0}")]
    WireType(&'static str),
    /// A value that its type has no JSON for: a time beyond the calendar, embedded JSON that is none.
    #[error("invalid value for field {0}")]
    Value(&'static str),
    /// Messages nest too deep.
    #[error("exceeded max depth")]
    Depth,
    /// The object has too many values.
    #[error("too many values")]
    Values,
    /// The envelope names a kind that the table does not know.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The `apiVersion` of the envelope.
        api_version: String,
        /// The `kind` of the envelope.
        kind: String,
    },
}

/// Why JSON does not encode. Says nothing of the values, which may be secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// It is not one JSON value.
    #[error("not JSON")]
    Json,
    /// A value is not of the type of its field.
    #[error("invalid value for field {0}")]
    Value(&'static str),
    /// The object names a kind that the table does not know.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The `apiVersion` of the object.
        api_version: String,
        /// The `kind` of the object.
        kind: String,
    },
}

/// What is around the message of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The `apiVersion` of the object: may be empty.
    pub api_version: String,
    /// The `kind` of the object: may be empty.
    pub kind: String,
    /// The message of the object.
    pub raw: &'a [u8],
    /// How the message is compressed: empty if it is not.
    pub content_encoding: String,
    /// The media type of the message: empty for protobuf.
    pub content_type: String,
}

impl Envelope<'_> {
    /// The group and the version of `apiVersion`.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version))
    }
}

/// Whether a body is protobuf, whatever its content type says.
pub fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Opens the envelope of a body.
pub fn decode_envelope(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let mut reader = Reader::new(body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?);
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
        content_encoding: String::new(),
        content_type: String::new(),
    };
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, Payload::Bytes(type_meta)) => {
                let mut reader = Reader::new(type_meta);
                while let Some((number, payload)) = reader.next()? {
                    match (number, payload) {
                        (1, Payload::Bytes(text)) => envelope.api_version = message::text(text),
                        (2, Payload::Bytes(text)) => envelope.kind = message::text(text),
                        (1 | 2, _) => return Err(DecodeError::WireType("typeMeta")),
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(raw)) => envelope.raw = raw,
            (3, Payload::Bytes(text)) => envelope.content_encoding = message::text(text),
            (4, Payload::Bytes(text)) => envelope.content_type = message::text(text),
            (1..=4, _) => return Err(DecodeError::WireType("unknown")),
            _ => {}
        }
    }
    Ok(envelope)
}

/// The JSON of a message, without `kind` and `apiVersion`: these are in the envelope.
///
/// Fields that the type does not have are ignored. Of several values for one field the last counts.
pub fn decode(message_type: &Type, raw: &[u8]) -> Result<Value, DecodeError> {
    message::Decoder::new()
        .message(message_type, raw)
        .map(Value::Object)
}

/// The JSON of the object in a body, `kind` and `apiVersion` first. A body that does not name a known kind is of the expected
/// type, if there is one.
pub fn decode_object(body: &[u8], expected: Option<&'static Type>) -> Result<Value, DecodeError> {
    let envelope = decode_envelope(body)?;
    if !envelope.content_encoding.is_empty() {
        return Err(DecodeError::Encoded(envelope.content_encoding));
    }
    let (group, version) = envelope.group_version();
    let said = crate::find(group, version, &envelope.kind);
    let Some(message_type) = said.or(expected) else {
        let Envelope {
            api_version, kind, ..
        } = envelope;
        return Err(DecodeError::UnknownKind { api_version, kind });
    };
    let mut object = message::Decoder::new().message(message_type, envelope.raw)?;
    for (name, text) in [
        ("apiVersion", envelope.api_version),
        ("kind", envelope.kind),
    ] {
        if !text.is_empty() {
            object.shift_insert(0, name.to_owned(), text.into());
        }
    }
    Ok(Value::Object(object))
}

/// Appends the message of a JSON object, without an envelope. Members that the type does not have are left out. After an error
/// there may be the beginning of a message.
pub fn put_message(message_type: &Type, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    // Messages are mostly shorter than their JSON.
    out.reserve(json.len());
    encode::Encoder::new(json, out)?.document(message_type)
}

/// Appends a message that is a field of the message around it; `write` appends what is in it.
pub fn put_nested<E>(
    number: u8,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    wire::put_varint(out, u64::from(number) << 3 | wire::BYTES);
    let message = wire::open(out);
    write(out)?;
    wire::close(out, message);
    Ok(())
}

/// What stands around a message, of which only the length needs to be known.
pub fn envelope(api_version: &str, kind: &str, message_bytes: usize) -> (Vec<u8>, &'static [u8]) {
    let mut front = envelope_front(api_version, kind);
    wire::put_varint(&mut front, message_bytes as u64);
    (front, ENVELOPE_END)
}

fn envelope_front(api_version: &str, kind: &str) -> Vec<u8> {
    let mut front = MAGIC.to_vec();
    front.push(wire::tag_byte(1, wire::BYTES));
    let type_meta = wire::open(&mut front);
    front.push(wire::tag_byte(1, wire::BYTES));
    wire::put_bytes(&mut front, api_version.as_bytes());
    front.push(wire::tag_byte(2, wire::BYTES));
    wire::put_bytes(&mut front, kind.as_bytes());
    wire::close(&mut front, type_meta);
    front.push(wire::tag_byte(2, wire::BYTES));
    front
}

/// A body: an envelope around the message that `write` appends.
pub fn enclose<E>(
    api_version: &str,
    kind: &str,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let mut body = envelope_front(api_version, kind);
    let message = wire::open(&mut body);
    write(&mut body)?;
    wire::close(&mut body, message);
    body.extend_from_slice(ENVELOPE_END);
    Ok(body)
}

/// The body of a JSON object of the kind that it says.
pub fn encode_object(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    #[derive(serde::Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Named<'a> {
        #[serde(borrow)]
        api_version: Cow<'a, str>,
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    let named: Named<'_> = serde_json::from_slice(json).map_err(|_| EncodeError::Json)?;
    let (group, version) = named
        .api_version
        .split_once('/')
        .unwrap_or(("", &named.api_version));
    match crate::find(group, version, &named.kind) {
        Some(found) => enclose(&named.api_version, &named.kind, |out| {
            put_message(found, json, out)
        }),
        None => Err(EncodeError::UnknownKind {
            api_version: named.api_version.into_owned(),
            kind: named.kind.into_owned(),
        }),
    }
}

/// One event of a watch: its length in four bytes, its type, and the body of its object. There is no envelope around it.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let field = |length: usize| 1 + wire::varint_len(length) + length;
    let extension = field(object.len());
    // Exactly as long as it will be: it is kept and shared.
    let length = field(event.len()) + field(extension);
    let mut frame = Vec::with_capacity(FRAME_LENGTH_BYTES + length);
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    frame.push(wire::tag_byte(1, wire::BYTES));
    wire::put_bytes(&mut frame, event.as_bytes());
    frame.push(wire::tag_byte(2, wire::BYTES));
    wire::put_varint(&mut frame, extension as u64);
    frame.push(wire::tag_byte(1, wire::BYTES));
    wire::put_bytes(&mut frame, object);
    frame
}

/// How many bytes of a watch frame are its length.
const FRAME_LENGTH_BYTES: usize = 4;
