//! Cuts lists and watches in protobuf into objects, which become JSON by the table of types.
//!
//! Bounds: one object at a time, at most [`SplitOptions::object_bytes_max`] as JSON and twice that and 1 MiB as a message; an envelope of at most
//! 1 MiB.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidings_api::{
    EventType, ListMetadata, Object, Span, Spans, SplitError, SplitOptions, Status, WatchEvent,
};
use tidings_informer::{ListPart, SourceError};
use tidings_schema::protobuf::{
    self, DecodeError, DecodeOptions, FRAME_LENGTH_BYTES, FieldHeader, MAGIC, MemberPlace,
};
use tidings_schema::{ItemType, Type};

use crate::body::BodySplitter;

/// The largest envelope of a list, and what an event has beside its object.
const ENVELOPE_BYTES_MAX: usize = 1 << 20;

/// Whether a source may ask for protobuf. Once a message could not be decoded completely it may not: the server is newer than the table of
/// types, and as JSON its objects keep fields that nobody here knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProtobufAllowed(Arc<AtomicBool>);

impl ProtobufAllowed {
    pub(crate) fn new(allowed: bool) -> ProtobufAllowed {
        ProtobufAllowed(Arc::new(AtomicBool::new(allowed)))
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The error of a message that cannot be decoded completely. JSON is asked for from now on.
    fn end(&self, what: &str) -> SourceError {
        self.0.store(false, Ordering::Relaxed);
        SourceError::Unexpected(format!("{what}; asking for JSON from now on"))
    }

    fn malformed(&self, error: DecodeError) -> SourceError {
        self.0.store(false, Ordering::Relaxed);
        SplitError::Message(error.into()).into()
    }
}

/// Makes objects of messages.
#[derive(Debug)]
struct MessageReader {
    options: SplitOptions,
    allowed: ProtobufAllowed,
    json: Vec<u8>,
    /// The manager of an earlier object: most objects of a resource share a few.
    last_manager: Option<Arc<str>>,
}

impl MessageReader {
    fn new(options: SplitOptions, allowed: ProtobufAllowed) -> MessageReader {
        MessageReader {
            options,
            allowed,
            json: Vec::new(),
            last_manager: None,
        }
    }

    /// The largest message that is kept until it is complete. What is left out of an object may be larger than the rest.
    fn message_bytes_max(&self) -> usize {
        let most = self.options.object_bytes_max;
        most.saturating_mul(2).saturating_add(ENVELOPE_BYTES_MAX)
    }

    fn too_large(&self) -> SourceError {
        let bytes_max = self.options.object_bytes_max;
        let what = "an object";
        SplitError::TooLarge { what, bytes_max }.into()
    }

    fn object(
        &mut self,
        message_type: &Type,
        (api_version, kind): (&str, &str),
        raw: &[u8],
    ) -> Result<Object, SourceError> {
        let options = DecodeOptions {
            kind,
            api_version,
            drop_managed_fields: self.options.drop_managed_fields,
        };
        self.json.clear();
        let mut spans = Spans::default();
        let mut note = |place: MemberPlace| {
            let (start, end) = (place.start as u32, place.end as u32);
            spans.note(place.depth, place.name, Span { start, end });
        };
        let decoded = protobuf::put_json(message_type, raw, &options, &mut self.json, &mut note);
        let decoded = decoded.map_err(|error| self.allowed.malformed(error))?;
        if decoded.has_unknown_fields {
            return Err(self
                .allowed
                .end("fields in protobuf that this version does not know"));
        }
        if self.json.len() > self.options.object_bytes_max {
            return Err(self.too_large());
        }
        let last_manager = decoded.last_manager.map(|manager| self.shared(manager));
        Ok(Object::from_known(&self.json, spans, last_manager))
    }

    fn shared(&mut self, manager: Cow<'_, str>) -> Arc<str> {
        match &self.last_manager {
            Some(last) if **last == *manager => Arc::clone(last),
            _ => Arc::clone(self.last_manager.insert(manager.into())),
        }
    }

    /// The type of a kind.
    fn find(&self, api_version: &str, kind: &str) -> Result<&'static Type, SourceError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        tidings_schema::find(group, version, kind).ok_or_else(|| {
            let what = format!("{kind:?} of {api_version:?} in protobuf");
            self.allowed.end(&what)
        })
    }
}

/// Calls `parse` with all bytes that were not parsed yet. It returns how many it has parsed; the rest is kept for the next time.
fn parse_pending(
    pending: &mut Vec<u8>,
    bytes: &[u8],
    parse: impl FnOnce(&[u8]) -> Result<usize, SourceError>,
) -> Result<(), SourceError> {
    if pending.is_empty() {
        let parsed = parse(bytes)?;
        pending.extend_from_slice(&bytes[parsed..]);
    } else {
        pending.extend_from_slice(bytes);
        let parsed = parse(pending)?;
        pending.drain(..parsed);
    }
    Ok(())
}

fn truncated() -> SourceError {
    SplitError::Message(DecodeError::Truncated.into()).into()
}

/// Cuts a list.
#[derive(Debug)]
pub(crate) struct ProtobufListSplitter {
    reader: MessageReader,
    pending: Vec<u8>,
    list: ListCut,
}

/// The position in a list, and what is known of it.
#[derive(Debug)]
struct ListCut {
    place: ListPlace,
    item_type: Option<&'static Type>,
    metadata: Option<ListMetadata>,
    begun: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListPlace {
    /// Before the magic bytes.
    Start,
    /// Between fields of the envelope, before the list.
    Envelope,
    /// In the list, of which this many bytes are left.
    List { left: usize },
    /// Between fields of the envelope, after the list.
    End,
}

impl ProtobufListSplitter {
    pub(crate) fn new(options: SplitOptions, allowed: ProtobufAllowed) -> ProtobufListSplitter {
        ProtobufListSplitter {
            reader: MessageReader::new(options, allowed),
            pending: Vec::new(),
            list: ListCut {
                place: ListPlace::Start,
                item_type: None,
                metadata: None,
                begun: false,
            },
        }
    }
}

impl ListCut {
    /// Parses what is complete. Returns how many bytes that is.
    fn parse(
        &mut self,
        reader: &mut MessageReader,
        bytes: &[u8],
        items: &mut Vec<Object>,
    ) -> Result<usize, SourceError> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match self.place {
                ListPlace::Start => {
                    let arrived = rest.len().min(MAGIC.len());
                    if rest[..arrived] != MAGIC[..arrived] {
                        return Err(reader.allowed.malformed(DecodeError::Magic));
                    }
                    if arrived < MAGIC.len() {
                        return Ok(at);
                    }
                    at += MAGIC.len();
                    self.place = ListPlace::Envelope;
                }
                ListPlace::List { left: 0 } => self.place = ListPlace::End,
                ListPlace::Envelope | ListPlace::End => {
                    let Some(header) = read_header(reader, rest)? else {
                        return Ok(at);
                    };
                    if header.number == 2 && self.place == ListPlace::Envelope {
                        at += header.content.start;
                        let left = header.content.len();
                        self.place = ListPlace::List { left };
                        continue;
                    }
                    if header.content.len() > ENVELOPE_BYTES_MAX {
                        let (what, bytes_max) = ("the envelope of the objects", ENVELOPE_BYTES_MAX);
                        return Err(SplitError::TooLarge { what, bytes_max }.into());
                    }
                    let Some(content) = rest.get(header.content.clone()) else {
                        return Ok(at);
                    };
                    match header.number {
                        1 => self.item_type = Some(item_type(reader, content)?),
                        3 if !content.is_empty() => {
                            let coding = String::from_utf8_lossy(content).into_owned();
                            return Err(reader.allowed.malformed(DecodeError::Encoded(coding)));
                        }
                        _ => {}
                    }
                    at += header.content.end;
                }
                ListPlace::List { left } => {
                    let header = read_header(reader, &rest[..rest.len().min(left)])?;
                    let broken = match &header {
                        Some(header) => header.content.end > left,
                        // No more of the list comes.
                        None => rest.len() >= left,
                    };
                    if broken {
                        return Err(reader.allowed.malformed(DecodeError::Truncated));
                    }
                    let Some(header) = header else {
                        return Ok(at);
                    };
                    if header.content.len() > reader.message_bytes_max() {
                        return Err(reader.too_large());
                    }
                    let Some(content) = rest.get(header.content.clone()) else {
                        return Ok(at);
                    };
                    match (header.number, self.item_type) {
                        (1, _) => self.metadata = Some(list_metadata(reader, content)?),
                        (2, Some(item_type)) => {
                            items.push(reader.object(
                                item_type,
                                listed_kind(item_type),
                                content,
                            )?);
                        }
                        _ => return Err(reader.allowed.end("a list in protobuf without its kind")),
                    }
                    at += header.content.end;
                    let left = left - header.content.end;
                    self.place = ListPlace::List { left };
                }
            }
        }
    }
}

fn read_header(reader: &MessageReader, bytes: &[u8]) -> Result<Option<FieldHeader>, SourceError> {
    FieldHeader::read(bytes).map_err(|error| reader.allowed.malformed(error))
}

/// The `apiVersion` and `kind` that the items of a list have in JSON, where only those of metadata have them.
fn listed_kind(item_type: &Type) -> (&'static str, &'static str) {
    match item_type.name {
        "PartialObjectMetadata" => ("meta.k8s.io/v1", "PartialObjectMetadata"),
        _ => ("", ""),
    }
}

/// The type of the items of a list, from the type in its envelope.
fn item_type(reader: &MessageReader, type_meta: &[u8]) -> Result<&'static Type, SourceError> {
    let decoded = protobuf::decode_type_meta(type_meta);
    let (api_version, kind) = decoded.map_err(|error| reader.allowed.malformed(error))?;
    let list_type = reader.find(&api_version, &kind)?;
    let items = list_type.field("items").map(tidings_schema::Field::item);
    match items {
        Some(ItemType::Struct(item_type)) => Ok(item_type),
        _ => Err(SourceError::Unexpected(format!(
            "a {kind} of {api_version}"
        ))),
    }
}

fn list_metadata(reader: &MessageReader, raw: &[u8]) -> Result<ListMetadata, SourceError> {
    let Some(metadata_type) = tidings_schema::find_type("meta/v1", "ListMeta") else {
        return Err(reader.allowed.end("a list in protobuf"));
    };
    let mut json = Vec::new();
    let options = DecodeOptions::default();
    protobuf::put_json(metadata_type, raw, &options, &mut json, &mut |_| {})
        .map_err(|error| reader.allowed.malformed(error))?;
    serde_json::from_slice(&json).map_err(|error| SplitError::Envelope(error).into())
}

impl BodySplitter for ProtobufListSplitter {
    type Piece = Object;
    type Batch = ListPart;

    fn feed(&mut self, bytes: &[u8], items: &mut Vec<Object>) -> Result<(), SourceError> {
        let (list, reader) = (&mut self.list, &mut self.reader);
        parse_pending(&mut self.pending, bytes, |bytes| {
            list.parse(reader, bytes, items)
        })
    }

    fn batch(items: Vec<Object>) -> ListPart {
        ListPart::Items(items)
    }

    fn begun(&mut self) -> Option<ListPart> {
        if self.list.begun {
            return None;
        }
        let metadata = self.list.metadata.clone()?;
        self.list.begun = true;
        Some(ListPart::Begin(metadata))
    }

    fn end(self) -> Result<Option<ListPart>, SourceError> {
        let at_end = matches!(
            self.list.place,
            ListPlace::End | ListPlace::List { left: 0 }
        );
        if !at_end || !self.pending.is_empty() {
            return Err(truncated());
        }
        let metadata = self.list.metadata.unwrap_or_default();
        Ok(Some(ListPart::End(metadata)))
    }
}

/// Cuts a watch.
#[derive(Debug)]
pub(crate) struct ProtobufWatchSplitter {
    reader: MessageReader,
    pending: Vec<u8>,
}

impl ProtobufWatchSplitter {
    pub(crate) fn new(options: SplitOptions, allowed: ProtobufAllowed) -> ProtobufWatchSplitter {
        ProtobufWatchSplitter {
            reader: MessageReader::new(options, allowed),
            pending: Vec::new(),
        }
    }
}

impl MessageReader {
    /// Parses the complete frames. Returns how many bytes they have.
    fn frames(&mut self, bytes: &[u8], events: &mut Vec<WatchEvent>) -> Result<usize, SourceError> {
        let mut at = 0;
        while let Some((length, rest)) = bytes[at..].split_first_chunk::<FRAME_LENGTH_BYTES>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > self.message_bytes_max() {
                return Err(self.no_frame(&bytes[at..]));
            }
            let Some(frame) = rest.get(..length) else {
                break;
            };
            events.push(self.event(frame)?);
            at += FRAME_LENGTH_BYTES + length;
        }
        Ok(at)
    }

    /// The error of bytes that are no frame: a proxy has ended the watch with a Status, or the object is too large.
    fn no_frame(&self, bytes: &[u8]) -> SourceError {
        let json = match protobuf::is_protobuf(bytes) {
            true => protobuf::decode_object(bytes, None).unwrap_or_default(),
            false => bytes.to_vec(),
        };
        match serde_json::from_slice::<Status>(&json) {
            Ok(status) if status.code >= 400 => status.into(),
            _ => self.too_large(),
        }
    }

    fn event(&mut self, frame: &[u8]) -> Result<WatchEvent, SourceError> {
        let malformed = |reader: &MessageReader, error| reader.allowed.malformed(error);
        let (event, body) =
            protobuf::decode_event(frame).map_err(|error| malformed(self, error))?;
        let event = EventType::from_name(&event)
            .ok_or(SplitError::Shape("a watch event with a known type"))?;
        let envelope = protobuf::decode_envelope(body).map_err(|error| malformed(self, error))?;
        if !envelope.content_encoding.is_empty() {
            let error = DecodeError::Encoded(envelope.content_encoding);
            return Err(malformed(self, error));
        }
        let message_type = self.find(&envelope.api_version, &envelope.kind)?;
        let named = (&*envelope.api_version, &*envelope.kind);
        let object = self.object(message_type, named, envelope.raw)?;
        Ok(WatchEvent::new(event, object)?)
    }
}

impl BodySplitter for ProtobufWatchSplitter {
    type Piece = WatchEvent;
    type Batch = Vec<WatchEvent>;

    fn feed(&mut self, bytes: &[u8], events: &mut Vec<WatchEvent>) -> Result<(), SourceError> {
        let reader = &mut self.reader;
        parse_pending(&mut self.pending, bytes, |bytes| {
            reader.frames(bytes, events)
        })
    }

    fn batch(events: Vec<WatchEvent>) -> Vec<WatchEvent> {
        events
    }

    fn end(self) -> Result<Option<Vec<WatchEvent>>, SourceError> {
        match self.pending.is_empty() {
            true => Ok(None),
            false => Err(truncated()),
        }
    }
}
