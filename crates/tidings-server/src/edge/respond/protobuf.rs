//! Responses in protobuf (W42, W117), encoded from the stored JSON by the table of types in `tidings-schema`.

use bytes::Bytes;
use tidings_api::{EventType, Object, ResourceVersion, Status};
use tidings_cache::EncodingKey;
use tidings_schema::protobuf::{self, EncodeError};

use super::list::CHUNK_BYTES;
use super::list_meta::metadata_members;
use super::view::{ObjectView, metadata};
use crate::core::{ListHead, ListItems};
use crate::edge::negotiate::ObjectForm;

/// A list in protobuf begins with its length, so all items must be encoded before the first byte is sent. This many encoded bytes are kept
/// until they are sent; the rest is encoded once to measure it and once more to send it, so that memory does not grow with the list.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl ObjectView {
    /// Encodes an object, without an envelope.
    fn put_message(&self, object: &Object, out: &mut Vec<u8>) -> Result<(), Status> {
        match self.form {
            ObjectForm::Whole => self.put_json(&self.whole(object), out),
            _ => protobuf::put_nested(1, out, |out| self.put_json(metadata(object), out)),
        }
        .map_err(|error| {
            let what = format!("{} {}", self.kind.kind, object.key());
            Status::internal(format!("{what} cannot be encoded: {error}"))
        })
    }

    /// Encodes the JSON of an object, or of its metadata.
    fn put_json(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self.schema {
            Some(schema) => protobuf::put_message(schema, json, out),
            None => Err(EncodeError::Json),
        }
    }

    /// The apiVersion and kind in the envelope of an object.
    fn envelope_names(&self) -> (String, &str) {
        match self.form {
            ObjectForm::Whole => (self.kind.group_version().to_string(), &*self.kind.kind),
            _ => (
                format!("meta.k8s.io/{}", self.meta_version),
                "PartialObjectMetadata",
            ),
        }
    }

    /// An object with its envelope.
    pub(super) fn message(&self, object: &Object) -> Result<Vec<u8>, Status> {
        let (api_version, kind) = self.envelope_names();
        protobuf::enclose(&api_version, kind, |out| self.put_message(object, out))
    }

    /// A watch event as a frame: its length, and the message.
    pub(super) fn frame(&self, event: EventType, object: &Object) -> Result<Bytes, Status> {
        Ok(protobuf::watch_frame(event.as_str(), &self.message(object)?).into())
    }

    /// A bookmark as a frame (W109).
    pub(super) fn bookmark_frame(
        &self,
        revision: ResourceVersion,
        initial_events_end: bool,
    ) -> Result<Bytes, Status> {
        let json = self.bookmark_object(revision, initial_events_end);
        let bookmark_error =
            |why: String| Status::internal(format!("cannot encode a bookmark: {why}"));
        let body = match self.form {
            // The bookmark's JSON already has the client's version, so it is not converted from the stored one.
            ObjectForm::Whole => {
                let (api_version, kind) = self.envelope_names();
                let put = |out: &mut Vec<u8>| self.put_json(json.as_bytes(), out);
                protobuf::enclose(&api_version, kind, put)
                    .map_err(|error| bookmark_error(error.to_string()))?
            }
            _ => {
                let object = Object::parse(json);
                self.message(&object.map_err(|error| bookmark_error(error.to_string()))?)?
            }
        };
        Ok(protobuf::watch_frame(EventType::Bookmark.as_str(), &body).into())
    }

    /// The key under which watches of a resource share encoded events.
    pub(super) fn encoding(&self) -> EncodingKey {
        let seen = self.kind.group_version();
        EncodingKey::new(match self.form {
            ObjectForm::Whole => format!("{seen}"),
            _ => format!("{seen} metadata {}", self.meta_version),
        })
    }
}

/// An ERROR event with a `Status`, as a frame (W96).
pub(super) fn error_frame(status: &Status) -> Bytes {
    // Encoding does not fail: the type Status is in the table.
    let body = protobuf::encode_object(&status.to_json()).unwrap_or_default();
    protobuf::watch_frame(EventType::Error.as_str(), &body).into()
}

/// The body of a LIST in protobuf.
#[derive(Debug)]
pub(crate) struct ListMessage {
    /// Encoded bytes that are not returned yet.
    front: Vec<u8>,
    /// The items that are not encoded yet.
    rest: Option<ListItems>,
    view: ObjectView,
    end: &'static [u8],
    done: bool,
}

impl ListMessage {
    /// Measures a list, and yields to other tasks meanwhile.
    ///
    /// # Errors
    /// If an object cannot be encoded. Nothing has been sent by then.
    pub(super) async fn new(
        head: &ListHead,
        mut items: ListItems,
        view: ObjectView,
    ) -> Result<ListMessage, Status> {
        let mut kept = Vec::new();
        let list_meta = tidings_schema::find_type("meta/v1", "ListMeta")
            .ok_or_else(|| Status::internal("the type ListMeta is not in the schema"))?;
        let json = format!("{{{}}}", metadata_members(head));
        protobuf::put_nested(1, &mut kept, |out| {
            protobuf::put_message(list_meta, json.as_bytes(), out)
        })
        .map_err(|error| Status::internal(error.to_string()))?;
        let mut ended = false;
        while !ended && kept.len() < KEPT_BYTES_MAX {
            let enough = kept.len() + CHUNK_BYTES;
            ended = put_items(&view, &mut items, enough, &mut kept)?;
            tokio::task::yield_now().await;
        }
        let mut length = kept.len();
        let mut measured = (!ended).then(|| items.clone());
        let mut buffer = Vec::new();
        while let Some(items) = &mut measured {
            buffer.clear();
            if put_items(&view, items, CHUNK_BYTES, &mut buffer)? {
                measured = None;
            }
            length += buffer.len();
            tokio::task::yield_now().await;
        }
        let (api_version, kind) = view.envelope_names();
        let (mut front, end) = protobuf::envelope(&api_version, &format!("{kind}List"), length);
        front.append(&mut kept);
        Ok(ListMessage {
            front,
            rest: (!ended).then_some(items),
            view,
            end,
            done: false,
        })
    }

    /// The next chunk.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.front);
        if bytes.is_empty()
            && let Some(items) = &mut self.rest
        {
            // Encoding cannot fail here: the objects were encoded before, when the list was measured.
            let ended = put_items(&self.view, items, CHUNK_BYTES, &mut bytes).unwrap_or(true);
            if ended {
                self.rest = None;
            }
        }
        if self.rest.is_none() {
            bytes.extend_from_slice(self.end);
            self.done = true;
        }
        Some(bytes.into())
    }

    /// True when the last chunk has been returned.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }
}

/// Encodes items until `out` has `enough` bytes. Returns true if the last item is encoded.
fn put_items(
    view: &ObjectView,
    items: &mut ListItems,
    enough: usize,
    out: &mut Vec<u8>,
) -> Result<bool, Status> {
    let mut failed = None;
    let ended = items.visit(|object| {
        let put = protobuf::put_nested(2, out, |out| view.put_message(object, out));
        failed = put.err();
        failed.is_none() && out.len() < enough
    });
    match failed {
        Some(status) => Err(status),
        None => Ok(ended),
    }
}
