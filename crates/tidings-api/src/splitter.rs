//! Cuts a LIST body or a watch stream into objects while it arrives.
//!
//! A splitter is fed chunks that are split anywhere. Each object is copied once, out of the network buffer into an
//! allocation of its own size, and the spans of its metadata are noted while copying. The bytes around the objects (the
//! list's kind and metadata, an event's type) are few, and are kept as the *envelope*.
//!
//! Bounds: one object at a time, at most [`SplitOptions::object_bytes_max`]; an envelope of at most 1 MiB.

use serde::Deserialize;
use tidings_json::{ScanError, ScanEvents, Scanner, ValueKind, unquote};

use crate::event::{INITIAL_EVENTS_END, WatchEvent};
use crate::event_type::EventType;
use crate::last_manager::LastManagerFinder;
use crate::object::Object;
use crate::spans::SpanCollector;
use crate::status::Status;

/// How many containers of an object are around a member of an entry of `metadata.managedFields`.
const MANAGER_ENTRY_MEMBER: usize = 4;

/// The maximum size of the envelope of a list or event.
const ENVELOPE_BYTES_MAX: usize = 1 << 20;

/// Options of splitters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SplitOptions {
    /// Leave `metadata.managedFields` out while copying.
    pub drop_managed_fields: bool,
    /// Refuse objects larger than this; client-go refuses watch frames above 16 MiB.
    pub object_bytes_max: usize,
}

impl Default for SplitOptions {
    fn default() -> Self {
        SplitOptions {
            drop_managed_fields: false,
            object_bytes_max: 16 << 20,
        }
    }
}

impl SplitOptions {
    /// Leaves `metadata.managedFields` out of every object.
    #[must_use]
    pub fn without_managed_fields(mut self) -> Self {
        self.drop_managed_fields = true;
        self
    }
}

/// Why a body cannot be cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Scan(#[from] ScanError),
    /// It is JSON, but no list or watch event.
    #[error("expected {0}")]
    Shape(&'static str),
    /// Text that is not UTF-8.
    #[error("an object is not UTF-8")]
    Utf8,
    /// The envelope cannot be decoded.
    #[error("the envelope of the objects is malformed")]
    Envelope(#[source] serde_json::Error),
    /// A message in another format than JSON cannot be decoded.
    #[error("a message is malformed")]
    Message(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An object or an envelope is too large.
    #[error("{what} is larger than {bytes_max} bytes")]
    TooLarge {
        /// `object` or `envelope`.
        what: &'static str,
        /// The limit in bytes.
        bytes_max: usize,
    },
}

/// A LIST body without its items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListEnvelope {
    /// The list's kind, `ConfigMapList`.
    #[serde(default)]
    pub kind: String,
    /// The list's apiVersion.
    #[serde(default)]
    pub api_version: String,
    /// Its metadata.
    #[serde(default)]
    pub metadata: ListMetadata,
}

/// The metadata of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMetadata {
    /// The revision of the state that was listed.
    #[serde(default)]
    pub resource_version: String,
    /// The continue token of the next page; empty on the last page.
    #[serde(default, rename = "continue")]
    pub continue_token: String,
    /// The number of items after this page, if the server knows it.
    #[serde(default)]
    pub remaining_item_count: Option<i64>,
}

/// Cuts one LIST body.
#[derive(Debug)]
pub struct ListSplitter {
    scanner: Scanner,
    cutter: ObjectCutter,
    envelope: Option<ListEnvelope>,
    head_taken: bool,
}

impl ListSplitter {
    /// A splitter at the start of a body.
    pub fn new(options: SplitOptions) -> ListSplitter {
        ListSplitter {
            scanner: Scanner::new(),
            cutter: ObjectCutter::new(SplitShape::List, options),
            envelope: None,
            head_taken: false,
        }
    }

    /// Takes the next bytes of the body and emits the items that they complete.
    ///
    /// # Errors
    /// If the bytes are not a JSON list. The splitter cannot be used afterwards.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        mut on_item: impl FnMut(Object),
    ) -> Result<(), SplitError> {
        let envelope = &mut self.envelope;
        self.cutter
            .feed(&mut self.scanner, chunk, &mut |cut| match cut {
                SplitOutput::Object(object) => {
                    on_item(object);
                    Ok(())
                }
                SplitOutput::Document(_) if envelope.is_some() => Err(SplitError::Shape(
                    "one list, found another document after it",
                )),
                SplitOutput::Document(bytes) => {
                    *envelope = Some(serde_json::from_slice(&bytes).map_err(SplitError::Envelope)?);
                    Ok(())
                }
            })
    }

    /// The part of the envelope before the items, once the items have begun: the continue token of the next page is known before this
    /// page is complete. `None` if the server writes the items first.
    pub fn head(&mut self) -> Option<ListEnvelope> {
        if self.head_taken || !self.cutter.in_items {
            return None;
        }
        self.head_taken = true;
        let before_items = &self.cutter.envelope[..self.cutter.envelope_key.0];
        let members = before_items.trim_ascii_end();
        let members = members.strip_suffix(b",").unwrap_or(members);
        serde_json::from_slice(&[members, b"}"].concat()).ok()
    }

    /// Says that the body is complete.
    ///
    /// # Errors
    /// If it is not.
    pub fn finish(self) -> Result<ListEnvelope, SplitError> {
        self.scanner.finish()?;
        self.envelope
            .ok_or(SplitError::Scan(ScanError::Truncated { offset: 0 }))
    }
}

/// Cuts a watch stream.
#[derive(Debug)]
pub struct WatchSplitter {
    scanner: Scanner,
    cutter: ObjectCutter,
    object: Option<Object>,
}

impl WatchSplitter {
    /// A splitter at the start of a body.
    pub fn new(options: SplitOptions) -> WatchSplitter {
        WatchSplitter {
            scanner: Scanner::new(),
            cutter: ObjectCutter::new(SplitShape::Watch, options),
            object: None,
        }
    }

    /// Takes the next bytes of the stream and emits the events that they complete.
    ///
    /// # Errors
    /// If the bytes are not watch events. The splitter cannot be used afterwards.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        mut on_event: impl FnMut(WatchEvent),
    ) -> Result<(), SplitError> {
        let pending = &mut self.object;
        self.cutter
            .feed(&mut self.scanner, chunk, &mut |cut| match cut {
                SplitOutput::Object(object) => {
                    *pending = Some(object);
                    Ok(())
                }
                SplitOutput::Document(envelope) => {
                    on_event(event(&envelope, pending.take())?);
                    Ok(())
                }
            })
    }

    /// Says that the stream has ended.
    ///
    /// # Errors
    /// If it ended inside an event.
    pub fn finish(self) -> Result<(), SplitError> {
        Ok(self.scanner.finish()?)
    }
}

fn event(envelope: &[u8], object: Option<Object>) -> Result<WatchEvent, SplitError> {
    #[derive(Deserialize)]
    struct Envelope {
        r#type: Option<EventType>,
        #[serde(default)]
        kind: String,
    }
    let Envelope { r#type, kind } =
        serde_json::from_slice(envelope).map_err(SplitError::Envelope)?;
    let Some(r#type) = r#type else {
        // Proxies and aggregated servers end a watch with a Status that is not in an event.
        return match &*kind {
            "Status" => status(envelope),
            _ => Err(SplitError::Shape("a watch event with a type")),
        };
    };
    let object = object.ok_or(SplitError::Shape("a watch event with an object"))?;
    WatchEvent::new(r#type, object)
}

impl WatchEvent {
    /// The event of a type with its object, which is a Status for [`EventType::Error`].
    ///
    /// # Errors
    /// If the object of an error is not a Status.
    pub fn new(r#type: EventType, object: Object) -> Result<WatchEvent, SplitError> {
        Ok(match r#type {
            EventType::Added => WatchEvent::Added(object),
            EventType::Modified => WatchEvent::Modified(object),
            EventType::Deleted => WatchEvent::Deleted(object),
            EventType::Bookmark => WatchEvent::Bookmark {
                resource_version: object.resource_version().into_owned(),
                initial_events_end: object.annotation(INITIAL_EVENTS_END).as_deref()
                    == Some("true"),
            },
            EventType::Error => status(object.as_bytes())?,
        })
    }
}

fn status(json: &[u8]) -> Result<WatchEvent, SplitError> {
    let status: Status = serde_json::from_slice(json).map_err(SplitError::Envelope)?;
    Ok(WatchEvent::Error(Box::new(status)))
}

impl Object {
    /// Reads one complete JSON object and leaves `metadata.managedFields` out, which are often larger than the rest.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    pub fn parse_without_managed_fields(json: &[u8]) -> Result<Object, SplitError> {
        let options = SplitOptions {
            object_bytes_max: json.len(),
            ..SplitOptions::default().without_managed_fields()
        };
        let (mut scanner, mut object) = (Scanner::new(), None);
        let mut cutter = ObjectCutter::new(SplitShape::Object, options);
        cutter.object.reserve(json.len());
        cutter.feed(&mut scanner, json, &mut |cut| match cut {
            SplitOutput::Object(_) if object.is_some() => {
                Err(SplitError::Shape("one object, found another one after it"))
            }
            SplitOutput::Object(found) => {
                object = Some(found);
                Ok(())
            }
            SplitOutput::Document(_) => Ok(()),
        })?;
        scanner.finish()?;
        object.ok_or(SplitError::Shape("a JSON object"))
    }
}

/// Where in a document the objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitShape {
    /// The document itself.
    Object,
    /// The elements of `items`.
    List,
    /// The value of `object`.
    Watch,
}

enum SplitOutput {
    Object(Object),
    /// A document ended; these are its bytes without the objects.
    Document(Vec<u8>),
}

#[derive(Debug)]
struct ObjectCutter {
    shape: SplitShape,
    options: SplitOptions,
    envelope: Vec<u8>,
    object: Vec<u8>,
    collector: SpanCollector,
    /// The depth of the object that is being copied.
    cut_depth: Option<usize>,
    /// Between the brackets of `items`.
    in_items: bool,
    /// The position in the envelope of the last key of the document itself.
    envelope_key: (usize, usize),
    /// True inside `managedFields` that are not copied.
    dropping: bool,
    /// Reads who wrote last from what is left out.
    last_manager: LastManagerFinder,
    /// The member that was left out was the first, so the comma after it is left out too.
    skip_comma: bool,
    /// Bytes of the chunk before this index have been copied or left out.
    from: usize,
}

impl ObjectCutter {
    fn new(shape: SplitShape, options: SplitOptions) -> ObjectCutter {
        ObjectCutter {
            shape,
            options,
            envelope: Vec::new(),
            object: Vec::new(),
            collector: SpanCollector::default(),
            cut_depth: None,
            in_items: false,
            envelope_key: (0, 0),
            dropping: false,
            last_manager: LastManagerFinder::default(),
            skip_comma: false,
            from: 0,
        }
    }

    fn feed(
        &mut self,
        scanner: &mut Scanner,
        chunk: &[u8],
        emit: &mut dyn FnMut(SplitOutput) -> Result<(), SplitError>,
    ) -> Result<(), SplitError> {
        self.from = 0;
        scanner.scan(chunk, &mut CutterPass { cutter: self, emit })?;
        self.flush(chunk, chunk.len())
    }

    /// Copies the scanned bytes up to `to`.
    fn flush(&mut self, chunk: &[u8], to: usize) -> Result<(), SplitError> {
        let fresh = &chunk[self.from..to];
        self.from = to;
        let (buffer, bytes_max, what) = match self.cut_depth {
            Some(_) if self.dropping => {
                self.last_manager.chunk_end(fresh);
                return Ok(());
            }
            Some(_) => (&mut self.object, self.options.object_bytes_max, "an object"),
            None => (
                &mut self.envelope,
                ENVELOPE_BYTES_MAX,
                "the envelope of the objects",
            ),
        };
        if buffer.len() + fresh.len() > bytes_max {
            return Err(SplitError::TooLarge { what, bytes_max });
        }
        buffer.extend_from_slice(fresh);
        Ok(())
    }

    /// The position in the object of the byte `at` of the chunk.
    fn position(&self, at: usize) -> u32 {
        (self.object.len() + at - self.from) as u32
    }

    fn envelope_key(&self) -> std::borrow::Cow<'_, [u8]> {
        if self.envelope_key.0 == self.envelope_key.1 {
            return (&b""[..]).into();
        }
        unquote(&self.envelope[self.envelope_key.0..self.envelope_key.1]).unwrap_or_default()
    }

    fn start_object(&mut self, chunk: &[u8], at: usize, depth: usize) -> Result<(), SplitError> {
        self.flush(chunk, at)?;
        self.cut_depth = Some(depth);
        self.object.clear();
        self.collector = SpanCollector::default();
        Ok(())
    }

    fn take_object(&mut self) -> Result<Object, SplitError> {
        self.cut_depth = None;
        if std::str::from_utf8(&self.object).is_err() {
            return Err(SplitError::Utf8);
        }
        let spans = self.collector.spans();
        Ok(Object::from_known(
            &self.object,
            spans,
            self.last_manager.take(),
        ))
    }

    fn drop_member(&mut self) {
        self.object
            .truncate(self.collector.key_start_position() as usize);
        while self.object.last().is_some_and(u8::is_ascii_whitespace) {
            self.object.pop();
        }
        if self.object.last() == Some(&b',') {
            self.object.pop();
        } else {
            self.skip_comma = true;
        }
        self.collector.forget_member();
        self.dropping = true;
        self.last_manager.start();
    }
}

struct CutterPass<'a> {
    cutter: &'a mut ObjectCutter,
    emit: &'a mut dyn FnMut(SplitOutput) -> Result<(), SplitError>,
}

impl ScanEvents for CutterPass<'_> {
    type Error = SplitError;

    fn value_start(
        &mut self,
        chunk: &[u8],
        at: usize,
        kind: ValueKind,
        depth: usize,
    ) -> Result<(), SplitError> {
        let cutter = &mut *self.cutter;
        if let Some(cut_depth) = cutter.cut_depth {
            if !cutter.dropping {
                let position = cutter.position(at);
                cutter
                    .collector
                    .value_start(&cutter.object, position, kind, depth - cut_depth);
            } else if depth - cut_depth == MANAGER_ENTRY_MEMBER && cutter.last_manager.value_start()
            {
                cutter.from = at;
            }
            return Ok(());
        }
        match (cutter.shape, depth) {
            (SplitShape::Object, 0) if kind == ValueKind::Object => {
                cutter.from = at; // white space before the object
                cutter.start_object(chunk, at, depth)
            }
            (_, 0) if kind != ValueKind::Object => Err(SplitError::Shape("a JSON object")),
            (_, 0) => {
                cutter.from = at; // white space between documents
                Ok(())
            }
            (SplitShape::List, 1)
                if kind == ValueKind::Array && *cutter.envelope_key() == *b"items" =>
            {
                cutter.in_items = true;
                Ok(())
            }
            (SplitShape::List, 2) if cutter.in_items => match kind {
                ValueKind::Object => cutter.start_object(chunk, at, depth),
                _ => Err(SplitError::Shape("objects as the items of the list")),
            },
            (SplitShape::Watch, 1)
                if kind == ValueKind::Object && *cutter.envelope_key() == *b"object" =>
            {
                cutter.start_object(chunk, at, depth)?;
                cutter.envelope.extend_from_slice(b"null");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn value_end(
        &mut self,
        chunk: &[u8],
        end: usize,
        _: ValueKind,
        depth: usize,
    ) -> Result<(), SplitError> {
        let cutter = &mut *self.cutter;
        let Some(cut_depth) = cutter.cut_depth else {
            if depth == 1 {
                cutter.in_items = false;
            }
            if depth == 0 {
                cutter.flush(chunk, end)?;
                return (self.emit)(SplitOutput::Document(std::mem::take(&mut cutter.envelope)));
            }
            return Ok(());
        };
        match depth - cut_depth {
            0 => {
                cutter.flush(chunk, end)?;
                let object = cutter.take_object()?;
                return (self.emit)(SplitOutput::Object(object));
            }
            2 if cutter.dropping => {
                cutter.flush(chunk, end)?;
                cutter.dropping = false;
            }
            inner if cutter.dropping && inner == MANAGER_ENTRY_MEMBER => {
                cutter.last_manager.value_end(&chunk[cutter.from..end]);
                cutter.from = end;
            }
            inner if cutter.dropping && inner + 1 == MANAGER_ENTRY_MEMBER => {
                cutter.last_manager.entry_end();
            }
            inner if !cutter.dropping => {
                let position = cutter.position(end);
                cutter.collector.value_end(&cutter.object, position, inner);
                if inner == 1 {
                    cutter.skip_comma = false;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn key_start(&mut self, at: usize, depth: usize) {
        let cutter = &mut *self.cutter;
        match cutter.cut_depth {
            Some(_) if !cutter.dropping => {
                let position = cutter.position(at);
                cutter.collector.key_start(position);
            }
            Some(cut_depth) if depth - cut_depth == MANAGER_ENTRY_MEMBER => {
                cutter.from = at;
                cutter.last_manager.name_start();
            }
            None if depth == 1 => {
                cutter.envelope_key.0 = cutter.envelope.len() + at - cutter.from;
            }
            _ => {}
        }
    }

    fn key_end(&mut self, chunk: &[u8], end: usize, depth: usize) -> Result<(), SplitError> {
        let cutter = &mut *self.cutter;
        match cutter.cut_depth {
            Some(cut_depth) if !cutter.dropping && depth - cut_depth <= 2 => {
                // The key is copied into the object before it is compared.
                cutter.flush(chunk, end)?;
                cutter
                    .collector
                    .key_end(cutter.object.len() as u32, depth - cut_depth);
                if cutter.options.drop_managed_fields
                    && depth - cut_depth == 2
                    && cutter.collector.at_managed_fields(&cutter.object)
                {
                    cutter.drop_member();
                }
                Ok(())
            }
            Some(cut_depth) if cutter.dropping && depth - cut_depth == MANAGER_ENTRY_MEMBER => {
                cutter.last_manager.name_end(&chunk[cutter.from..end]);
                cutter.from = end;
                Ok(())
            }
            None if depth == 1 => {
                cutter.flush(chunk, end)?;
                cutter.envelope_key.1 = cutter.envelope.len();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn comma(&mut self, chunk: &[u8], at: usize, depth: usize) -> Result<(), SplitError> {
        let cutter = &mut *self.cutter;
        let left_out = match cutter.cut_depth {
            Some(cut_depth) => depth - cut_depth == 2 && std::mem::take(&mut cutter.skip_comma),
            None => cutter.in_items && depth == 2,
        };
        if left_out {
            cutter.flush(chunk, at)?;
            cutter.from = at + 1;
        }
        Ok(())
    }
}
