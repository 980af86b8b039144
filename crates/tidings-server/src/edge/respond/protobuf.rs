//! Answers in protobuf (W42, W117): encoded from the JSON that is stored, by the table of `tidings-schema`.

use bytes::Bytes;
use tidings_api::{EventType, Object, ResourceVersion, Status};
use tidings_cache::EncodingKey;
use tidings_schema::protobuf::{self, EncodeError};

use super::list::{CHUNK_BYTES, metadata_members};
use super::view::{ObjectView, metadata};
use crate::core::{ListHead, ListItems};
use crate::edge::negotiate::ObjectForm;

/// A list says how long it is before its items. This much of it is encoded once and kept until it is sent; what is behind it is
/// measured first and encoded again when its turn comes, so that memory does not grow with the list.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl ObjectView {
    /// The message of an object, without an envelope.
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

    /// The message of an object as the client sees it, or of its metadata.
    fn put_json(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self.schema {
            Some(schema) => protobuf::put_message(schema, json, out),
            None => Err(EncodeError::Json),
        }
    }

    /// What the envelope of an object says that it is.
    fn named(&self) -> (String, &str) {
        match self.form {
            ObjectForm::Whole => (self.kind.group_version().to_string(), &*self.kind.kind),
            _ => (
                format!("meta.k8s.io/{}", self.meta_version),
                "PartialObjectMetadata",
            ),
        }
    }

    /// An object as a document of its own.
    pub(super) fn message(&self, object: &Object) -> Result<Vec<u8>, Status> {
        let (api_version, kind) = self.named();
        protobuf::enclose(&api_version, kind, |out| self.put_message(object, out))
    }

    /// A watch event.
    pub(super) fn frame(&self, event: EventType, object: &Object) -> Result<Bytes, Status> {
        Ok(protobuf::watch_frame(event.as_str(), &self.message(object)?).into())
    }

    /// A bookmark (W109).
    pub(super) fn bookmark_frame(
        &self,
        revision: ResourceVersion,
        initial_events_end: bool,
    ) -> Result<Bytes, Status> {
        let json = self.bookmark_object(revision, initial_events_end);
        let no_object = |why: String| Status::internal(format!("a bookmark: {why}"));
        let body = match self.form {
            // It stands as the client sees it, not as it would be stored.
            ObjectForm::Whole => {
                let (api_version, kind) = self.named();
                let put = |out: &mut Vec<u8>| self.put_json(json.as_bytes(), out);
                protobuf::enclose(&api_version, kind, put)
                    .map_err(|error| no_object(error.to_string()))?
            }
            _ => {
                let object = Object::parse(Bytes::from(json));
                self.message(&object.map_err(|error| no_object(error.to_string()))?)?
            }
        };
        Ok(protobuf::watch_frame(EventType::Bookmark.as_str(), &body).into())
    }

    /// Names the encoding: watches with the same one share bytes. The log is of one resource.
    pub(super) fn encoding(&self) -> EncodingKey {
        let seen = self.kind.group_version();
        EncodingKey::new(match self.form {
            ObjectForm::Whole => format!("{seen}"),
            _ => format!("{seen} metadata {}", self.meta_version),
        })
    }
}

/// `ERROR` with a `Status` (W96).
pub(super) fn error_frame(status: &Status) -> Bytes {
    // Every Status encodes: its type is in the table.
    let body = protobuf::encode_object(&status.to_json()).unwrap_or_default();
    protobuf::watch_frame(EventType::Error.as_str(), &body).into()
}

/// The body of a LIST.
#[derive(Debug)]
pub(crate) struct ListMessage {
    /// Encoded and not handed out yet.
    front: Vec<u8>,
    /// What is not encoded yet.
    rest: Option<ListItems>,
    view: ObjectView,
    end: &'static [u8],
    done: bool,
}

impl ListMessage {
    /// Measures a list, and lets others work meanwhile.
    ///
    /// # Errors
    /// If an object cannot be encoded: nothing has been sent then.
    pub(super) async fn new(
        head: &ListHead,
        mut items: ListItems,
        view: ObjectView,
    ) -> Result<ListMessage, Status> {
        let mut kept = Vec::new();
        let list_meta = tidings_schema::find_type("meta/v1", "ListMeta")
            .ok_or_else(|| Status::internal("there is no ListMeta"))?;
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
        let (api_version, kind) = view.named();
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

    /// The next bytes.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.front);
        if bytes.is_empty()
            && let Some(items) = &mut self.rest
        {
            // The same objects were encoded when the list was measured.
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

    /// True when everything has been handed out.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }
}

/// Encodes items until there are enough bytes. Returns true at the end.
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
