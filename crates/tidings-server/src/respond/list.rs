//! A list, written while it is sent: memory does not grow with it.

use std::ops::Bound;

use bytes::{BufMut, Bytes, BytesMut};
use tidings_api::{Object, ObjectKey, ResourceVersion, go};

use crate::cache::log::State;
use crate::registry::Kind;
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

/// Walks a snapshot.
#[derive(Debug)]
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

#[derive(Debug)]
enum Items {
    Walk(Walk),
    Page(std::vec::IntoIter<Object>),
}

/// The body of a LIST.
#[derive(Debug)]
pub(crate) struct ListBody {
    /// What stands before the items; empty when it is written.
    head: Bytes,
    items: Items,
    first: bool,
    done: bool,
    /// How many bytes of an object a list item leaves out (W70).
    object_head: usize,
}

impl ListBody {
    /// All of a walk.
    pub(crate) fn whole(kind: &Kind, head: &ListHead, walk: Walk) -> ListBody {
        ListBody::new(kind, head, Items::Walk(walk))
    }

    /// One page.
    pub(crate) fn page(kind: &Kind, head: &ListHead, page: Vec<Object>) -> ListBody {
        ListBody::new(kind, head, Items::Page(page.into_iter()))
    }

    fn new(kind: &Kind, head: &ListHead, items: Items) -> ListBody {
        let mut text = format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{}\"",
            kind.kind,
            kind.group_version(),
            head.revision
        );
        if !head.continue_token.is_empty() {
            // The token is of the base64 alphabet: it needs no escapes.
            text.push_str(&format!(",\"continue\":\"{}\"", head.continue_token));
        }
        if let Some(remaining) = head.remaining.filter(|remaining| *remaining > 0) {
            text.push_str(&format!(",\"remainingItemCount\":{remaining}"));
        }
        text.push_str("},\"items\":[");
        let object_head = kind.object_head().len();
        ListBody {
            head: text.into(),
            items,
            first: true,
            done: false,
            object_head,
        }
    }

    /// The next bytes.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        if self.head.len() >= CHUNK_BYTES / 2 {
            return Some(std::mem::take(&mut self.head));
        }
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        buffer.put_slice(&std::mem::take(&mut self.head));
        let (first, object_head) = (&mut self.first, self.object_head);
        let mut put = |object: &Object| {
            if !std::mem::replace(first, false) {
                buffer.put_u8(b',');
            }
            buffer.put_u8(b'{');
            buffer.put_slice(&object.as_bytes()[object_head..]);
            buffer.len() < CHUNK_BYTES - (CHUNK_BYTES / 16)
        };
        let ended = match &mut self.items {
            Items::Walk(walk) => walk.visit(&mut put),
            Items::Page(page) => loop {
                match page.next() {
                    None => break true,
                    Some(object) if put(&object) => {}
                    Some(_) => break page.len() == 0,
                }
            },
        };
        if ended {
            buffer.put_slice(b"]}\n");
            self.done = true;
        }
        Some(buffer.freeze())
    }

    /// The same body with bytes that were taken from it put back at its front.
    pub(crate) fn resumed(mut self, front: Bytes) -> ListBody {
        self.head = front;
        self
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
