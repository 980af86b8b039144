//! A list in JSON, encoded while it is sent, so that memory does not grow with its size.

use bytes::{BufMut, Bytes, BytesMut};

use super::view::ObjectView;
use crate::core::{ListHead, ListItems};

/// The size of a chunk of a response: four TLS records.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// The body of a LIST.
#[derive(Debug)]
pub(crate) struct ListBody {
    /// The text before the items; empty once it is returned.
    head: String,
    /// The text after the items.
    tail: String,
    items: ListItems,
    view: ObjectView,
    first: bool,
    done: bool,
}

impl ListBody {
    pub(crate) fn new(head: &ListHead, items: ListItems, view: ObjectView) -> ListBody {
        tracing::trace!(target: "tidings::walk", "writes the list while it is sent");
        ListBody {
            head: view.list_head(head),
            tail: view.list_tail(head),
            items,
            view,
            first: true,
            done: false,
        }
    }

    /// The next chunk.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        buffer.put_slice(std::mem::take(&mut self.head).as_bytes());
        let (first, view) = (&mut self.first, &self.view);
        let ended = self.items.visit(|object| {
            if !std::mem::replace(first, false) {
                buffer.put_u8(b',');
            }
            view.put_item(object, &mut buffer);
            buffer.len() < CHUNK_BYTES - (CHUNK_BYTES / 16)
        });
        if ended {
            buffer.put_slice(self.tail.as_bytes());
            self.done = true;
        }
        Some(buffer.freeze())
    }

    /// True when the last chunk has been returned.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }
}
