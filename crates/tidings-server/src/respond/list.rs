//! A list, written while it is sent: memory does not grow with it.

use std::ops::Bound;

use bytes::{BufMut, Bytes, BytesMut};
use tidings_api::{Object, ObjectKey, ResourceVersion, go};

use super::view::View;
use crate::cache::log::State;
use crate::selection::Selection;

/// How much is written at once: four TLS records.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// What a list says about itself.
#[derive(Debug)]
pub(crate) struct ListHead {
    pub(crate) revision: ResourceVersion,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<u64>,
}

impl ListHead {
    /// The members of the list's metadata.
    pub(crate) fn json(&self) -> String {
        let mut meta = format!("\"resourceVersion\":\"{}\"", self.revision);
        if !self.continue_token.is_empty() {
            // The token is of the base64 alphabet: it needs no escapes.
            meta.push_str(&format!(",\"continue\":\"{}\"", self.continue_token));
        }
        if let Some(remaining) = self.remaining.filter(|remaining| *remaining > 0) {
            meta.push_str(&format!(",\"remainingItemCount\":{remaining}"));
        }
        meta
    }
}

impl ListHead {
    /// The same in the order of names, with what others leave out if it is empty.
    pub(crate) fn sorted_json(&self) -> String {
        let mut meta = format!("\"continue\":\"{}\"", self.continue_token);
        if let Some(remaining) = self.remaining.filter(|remaining| *remaining > 0) {
            meta.push_str(&format!(",\"remainingItemCount\":{remaining}"));
        }
        meta.push_str(&format!(",\"resourceVersion\":\"{}\"", self.revision));
        meta
    }
}

/// Walks a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    state: State,
    selection: Selection,
    prefix: String,
    /// Where the next step starts.
    next: Bound<ObjectKey>,
}

impl Walk {
    /// Walks the selection, from a key on if one is given.
    pub(crate) fn new(state: State, selection: Selection, start: Option<&str>) -> Walk {
        let prefix = selection.key_prefix();
        let next = match start {
            Some(start) => Bound::Included(ObjectKey::from_joined(start)),
            None => Bound::Included(ObjectKey::from_joined(&prefix)),
        };
        Walk {
            state,
            selection,
            prefix,
            next,
        }
    }

    /// Visits the selected objects in order until the visitor has had enough. Returns true at the end.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&Object) -> bool) -> bool {
        if let Some(key) = self.selection.single_key() {
            let unseen = match std::mem::replace(&mut self.next, Bound::Unbounded) {
                Bound::Included(start) => key >= start,
                Bound::Excluded(start) => key > start,
                Bound::Unbounded => false,
            };
            if let Some(object) = self
                .state
                .get(&key)
                .filter(|object| unseen && self.selection.selects(object))
            {
                visit(object);
            }
            return true;
        }
        let mut stopped_at = None;
        for (key, object) in self.state.range((self.next.clone(), Bound::Unbounded)) {
            if !key.as_str().starts_with(&self.prefix) {
                break;
            }
            if self.selection.selects(object) && !visit(object) {
                stopped_at = Some(key.clone());
                break;
            }
        }
        match stopped_at {
            Some(key) => {
                self.next = Bound::Excluded(key);
                false
            }
            None => true,
        }
    }

    /// How many objects of the scope follow, selected or not.
    pub(crate) fn remaining(&self) -> u64 {
        let rest = self.state.range((self.next.clone(), Bound::Unbounded));
        rest.take_while(|(key, _)| key.as_str().starts_with(&self.prefix))
            .count() as u64
    }

    /// True if a selected object follows.
    pub(crate) fn has_more(&self) -> bool {
        let rest = self.state.range((self.next.clone(), Bound::Unbounded));
        let mut here = rest.take_while(|(key, _)| key.as_str().starts_with(&self.prefix));
        here.any(|(_, object)| self.selection.selects(object))
    }

    /// The key after which the walk goes on.
    pub(crate) fn last_key(&self) -> Option<&ObjectKey> {
        match &self.next {
            Bound::Excluded(key) => Some(key),
            _ => None,
        }
    }
}

/// The objects of a list. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) enum Items {
    /// All that a walk comes by.
    Walk(Walk),
    Page(std::vec::IntoIter<Object>),
}

impl Items {
    /// Visits the next objects until the visitor has had enough. Returns true at the end.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&Object) -> bool) -> bool {
        match self {
            Items::Walk(walk) => walk.visit(visit),
            Items::Page(page) => loop {
                match page.next() {
                    None => return true,
                    Some(object) if visit(&object) => {}
                    Some(_) => return page.len() == 0,
                }
            },
        }
    }

    /// All of them.
    pub(crate) fn collect(mut self) -> Vec<Object> {
        let mut objects = Vec::new();
        self.visit(|object| {
            objects.push(object.clone());
            true
        });
        objects
    }
}

/// The body of a LIST.
#[derive(Debug)]
pub(crate) struct ListBody {
    /// What stands before the items; empty when it is written.
    head: String,
    /// What stands behind them.
    tail: String,
    items: Items,
    view: View,
    first: bool,
    done: bool,
}

impl ListBody {
    pub(crate) fn new(head: &ListHead, items: Items, view: View) -> ListBody {
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

/// The token of the page that starts behind a key (W81).
pub(crate) fn continue_token(
    revision: i64,
    last_key: &str,
    prefix: &str,
    issued_ms: u64,
) -> String {
    use base64::Engine;
    let relative = last_key.strip_prefix(prefix).unwrap_or(last_key);
    let start = go::quote(relative);
    let start = start.trim_matches('"');
    let json = format!(
        r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"{start}\u0000","t":{issued_ms}}}"#
    );
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json)
}
