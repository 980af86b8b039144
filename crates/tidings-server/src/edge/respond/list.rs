//! A list, written while it is sent: memory does not grow with it.

use bytes::{BufMut, Bytes, BytesMut};

use super::view::ObjectView;
use crate::core::{ListHead, ListItems};

/// Bytes that are written at once: four TLS records.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// The members of a list's metadata, as JSON.
pub(crate) fn metadata_members(head: &ListHead) -> String {
    let mut meta = format!("\"resourceVersion\":\"{}\"", head.revision);
    if !head.continue_token.is_empty() {
        // The token is of the base64 alphabet: it needs no escapes.
        meta.push_str(&format!(",\"continue\":\"{}\"", head.continue_token));
    }
    if let Some(remaining) = head.remaining.filter(|remaining| *remaining > 0) {
        meta.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    meta
}

/// The members of a list's metadata in the order of their names, as lists of custom resources have them: an empty token is written too.
pub(crate) fn sorted_metadata_members(head: &ListHead) -> String {
    let mut meta = format!("\"continue\":\"{}\"", head.continue_token);
    if let Some(remaining) = head.remaining.filter(|remaining| *remaining > 0) {
        meta.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    meta.push_str(&format!(",\"resourceVersion\":\"{}\"", head.revision));
    meta
}

/// The body of a LIST.
#[derive(Debug)]
pub(crate) struct ListBody {
    /// The text before the items; empty when it is written.
    head: String,
    /// The text behind them.
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

    /// The next bytes.
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

    /// True when everything has been handed out.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }
}
