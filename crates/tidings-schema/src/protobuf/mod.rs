//! Decodes protobuf into JSON and encodes JSON as protobuf, with the output of Go in both directions.
//!
//! A body is an envelope with the kind of the object and its message:
//!
//! ```
//! use tidings_schema::protobuf;
//!
//! let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x07\x0a\x05\x0a\x03abc";
//! let envelope = protobuf::decode_envelope(body)?;
//! assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", "Namespace"));
//! let object = protobuf::decode_object(body, None)?;
//! assert!(object.starts_with(br#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"abc""#));
//! assert_eq!(protobuf::encode_object(&object)?[..4], body[..4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decode;
mod encode;
mod wire;

use std::borrow::Cow;

use tidings_go::quote;

use crate::types::Type;
pub use decode::{DecodeOptions, Decoded, MemberPlace};
pub use wire::FieldHeader;
use wire::{WirePayload, WireReader};

/// The first bytes of every protobuf body.
pub const MAGIC: &[u8] = b"k8s\0";

/// Go's zero time, in seconds since 1970.
const ZERO_TIME: i64 = -62_135_596_800;

/// The end of an envelope: empty `contentEncoding` and `contentType`.
const ENVELOPE_END: &[u8] = &[
    wire::tag_byte(3, wire::LENGTH_DELIMITED),
    0,
    wire::tag_byte(4, wire::LENGTH_DELIMITED),
    0,
];

/// Why bytes do not decode. Contains no values, because they may be secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message is compressed.
    #[error(
        "the message has the content encoding {0}, which is not supported: send it without one"
    )]
    Encoded(String),
    /// The body does not start with the magic bytes.
    #[error("provided data does not appear to be a protobuf message")]
    Magic,
    /// A value is longer than the rest of the body.
    #[error("unexpected EOF")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number or wire type is invalid.
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    /// A field has the wire type of another type.
    #[error("proto: wrong wireType for field {0}")]
    WireType(&'static str),
    /// A value has no JSON: a time out of range, or embedded JSON that is malformed.
    #[error("invalid value for field {0}")]
    Value(&'static str),
    /// Messages are nested too deep.
    #[error("exceeded max depth")]
    Depth,
    /// The object has too many values.
    #[error("too many values")]
    Values,
    /// The kind of the envelope is not in the type table.
    #[error(
        "no kind {} is registered for version {}",
        quote(kind),
        quote(api_version)
    )]
    UnknownKind {
        /// The `apiVersion` of the envelope.
        api_version: String,
        /// The `kind` of the envelope.
        kind: String,
    },
}

/// Why JSON does not encode. Contains no values, because they may be secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The text is not one JSON value.
    #[error("not JSON")]
    Json,
    /// A value has the wrong type for its field.
    #[error("invalid value for field {0}")]
    Value(&'static str),
    /// The kind of the object is not in the type table.
    #[error(
        "no kind {} is registered for version {}",
        quote(kind),
        quote(api_version)
    )]
    UnknownKind {
        /// The `apiVersion` of the object.
        api_version: String,
        /// The `kind` of the object.
        kind: String,
    },
}

/// The envelope around the message of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The `apiVersion` of the object; may be empty.
    pub api_version: String,
    /// The `kind` of the object; may be empty.
    pub kind: String,
    /// The message of the object.
    pub raw: &'a [u8],
    /// The compression of the message; empty if there is none.
    pub content_encoding: String,
    /// The media type of the message; empty for protobuf.
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

/// True if a body starts as protobuf does, whatever its content type is.
pub fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Decodes the envelope of a body.
pub fn decode_envelope(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let text = |bytes| decode::text(bytes).into_owned();
    let mut reader = WireReader::new(body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?);
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
        content_encoding: String::new(),
        content_type: String::new(),
    };
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, WirePayload::Bytes(type_meta)) => {
                (envelope.api_version, envelope.kind) = decode_type_meta(type_meta)?;
            }
            (2, WirePayload::Bytes(raw)) => envelope.raw = raw,
            (3, WirePayload::Bytes(bytes)) => envelope.content_encoding = text(bytes),
            (4, WirePayload::Bytes(bytes)) => envelope.content_type = text(bytes),
            (1..=4, _) => return Err(DecodeError::WireType("unknown")),
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes the first field of an envelope: the `apiVersion` and the `kind` of the object.
pub fn decode_type_meta(type_meta: &[u8]) -> Result<(String, String), DecodeError> {
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut reader = WireReader::new(type_meta);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, WirePayload::Bytes(bytes)) => api_version = decode::text(bytes).into_owned(),
            (2, WirePayload::Bytes(bytes)) => kind = decode::text(bytes).into_owned(),
            (1 | 2, _) => return Err(DecodeError::WireType("typeMeta")),
            _ => {}
        }
    }
    Ok((api_version, kind))
}

/// Decodes the message of an object and appends it as JSON, with the members in the order of their fields. Unknown fields are left
/// out. Of several values for one field the last counts. After an error, `out` may contain a part of the object.
///
/// `on_member` hears where the members of the object and of its metadata stand in `out`.
pub fn put_json<'a>(
    message_type: &Type,
    raw: &'a [u8],
    options: &DecodeOptions<'_>,
    out: &mut Vec<u8>,
    on_member: &mut dyn FnMut(MemberPlace),
) -> Result<Decoded<'a>, DecodeError> {
    // JSON is mostly longer than its message.
    out.reserve(raw.len() + raw.len() / 4);
    decode::MessageDecoder::new(out, on_member, options.drop_managed_fields).object(
        message_type,
        options,
        raw,
    )
}

/// Decodes the object of a body into JSON, with `kind` and `apiVersion` first. A body of an unknown kind is decoded as the
/// expected type, if one is given.
pub fn decode_object(body: &[u8], expected: Option<&'static Type>) -> Result<Vec<u8>, DecodeError> {
    let envelope = decode_envelope(body)?;
    if !envelope.content_encoding.is_empty() {
        return Err(DecodeError::Encoded(envelope.content_encoding));
    }
    let (group, version) = envelope.group_version();
    let named = crate::find(group, version, &envelope.kind);
    let Some(message_type) = named.or(expected) else {
        let Envelope {
            api_version, kind, ..
        } = envelope;
        return Err(DecodeError::UnknownKind { api_version, kind });
    };
    let options = DecodeOptions {
        kind: &envelope.kind,
        api_version: &envelope.api_version,
        drop_managed_fields: false,
    };
    let mut json = Vec::new();
    put_json(message_type, envelope.raw, &options, &mut json, &mut |_| {})?;
    Ok(json)
}

/// Encodes a JSON object as a message without an envelope and appends it. Unknown members are left out. After an error, `out` may
/// contain a part of the message.
pub fn put_message(message_type: &Type, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    // A message is mostly shorter than its JSON.
    out.reserve(json.len());
    encode::MessageEncoder::new(json, out)?.document(message_type)
}

/// Appends a nested message as the field `number`; `write` appends its content.
pub fn put_nested<E>(
    number: u8,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    wire::put_varint(out, u64::from(number) << 3 | wire::LENGTH_DELIMITED);
    let message = wire::open(out);
    write(out)?;
    wire::close(out, message);
    Ok(())
}

/// The bytes of an envelope before and after a message of `message_bytes` bytes.
pub fn envelope(api_version: &str, kind: &str, message_bytes: usize) -> (Vec<u8>, &'static [u8]) {
    let mut front = envelope_front(api_version, kind);
    wire::put_varint(&mut front, message_bytes as u64);
    (front, ENVELOPE_END)
}

fn envelope_front(api_version: &str, kind: &str) -> Vec<u8> {
    let mut front = MAGIC.to_vec();
    front.push(wire::tag_byte(1, wire::LENGTH_DELIMITED));
    let type_meta = wire::open(&mut front);
    front.push(wire::tag_byte(1, wire::LENGTH_DELIMITED));
    wire::put_bytes(&mut front, api_version.as_bytes());
    front.push(wire::tag_byte(2, wire::LENGTH_DELIMITED));
    wire::put_bytes(&mut front, kind.as_bytes());
    wire::close(&mut front, type_meta);
    front.push(wire::tag_byte(2, wire::LENGTH_DELIMITED));
    front
}

/// Makes a body: an envelope around the message that `write` appends.
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

/// Encodes a JSON object as a body, by its `kind` and `apiVersion`.
pub fn encode_object(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    #[derive(serde::Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct TypeMeta<'a> {
        #[serde(borrow)]
        api_version: Cow<'a, str>,
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    let named: TypeMeta<'_> = serde_json::from_slice(json).map_err(|_| EncodeError::Json)?;
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

/// Encodes an event of a watch: the length in four bytes, then a message with the event type and the body of the object. Events
/// have no envelope.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let field = |length: usize| 1 + wire::varint_len(length) + length;
    let extension = field(object.len());
    // The exact capacity, because frames are kept and shared.
    let length = field(event.len()) + field(extension);
    let mut frame = Vec::with_capacity(FRAME_LENGTH_BYTES + length);
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    frame.push(wire::tag_byte(1, wire::LENGTH_DELIMITED));
    wire::put_bytes(&mut frame, event.as_bytes());
    frame.push(wire::tag_byte(2, wire::LENGTH_DELIMITED));
    wire::put_varint(&mut frame, extension as u64);
    frame.push(wire::tag_byte(1, wire::LENGTH_DELIMITED));
    wire::put_bytes(&mut frame, object);
    frame
}

/// The size of the length in front of a watch frame.
pub const FRAME_LENGTH_BYTES: usize = 4;

/// Decodes the message of a watch frame, without the length in front of it: the event type and the body of the object.
///
/// # Errors
/// If the bytes are not such a message.
pub fn decode_event(frame: &[u8]) -> Result<(Cow<'_, str>, &[u8]), DecodeError> {
    let (mut event, mut object) = (Cow::Borrowed(""), &b""[..]);
    let mut reader = WireReader::new(frame);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, WirePayload::Bytes(bytes)) => event = decode::text(bytes),
            (2, WirePayload::Bytes(bytes)) => {
                let mut extension = WireReader::new(bytes);
                while let Some((number, payload)) = extension.next()? {
                    match (number, payload) {
                        (1, WirePayload::Bytes(bytes)) => object = bytes,
                        (1, _) => return Err(DecodeError::WireType("raw")),
                        _ => {}
                    }
                }
            }
            (1 | 2, _) => return Err(DecodeError::WireType("object")),
            _ => {}
        }
    }
    Ok((event, object))
}
