//! Ranges of bytes in a document, and the content of strings.

use std::borrow::Cow;

/// A range of bytes inside a document. Empty means that there is no such value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// True if there is no such value.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes of the span.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }

    /// The span after `by` bytes were inserted at `position`, or removed where `by` is negative.
    pub fn shifted(self, position: u32, by: i64) -> Span {
        let shift = |at: u32| {
            if at > position {
                (i64::from(at) + by) as u32
            } else {
                at
            }
        };
        if self.is_empty() {
            return self;
        }
        // A span that starts exactly at the position moves as a whole.
        let start = if self.start == position {
            (i64::from(self.start) + by) as u32
        } else {
            shift(self.start)
        };
        Span {
            start,
            end: shift(self.end),
        }
    }
}

/// The content of a JSON string; `None` if `quoted` is no string. Only a string with escapes is copied.
pub fn unquote(quoted: &[u8]) -> Option<Cow<'_, [u8]>> {
    let content = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', content).is_none() {
        return Some(content.into());
    }
    let unescaped: String = serde_json::from_slice(quoted).ok()?;
    Some(unescaped.into_bytes().into())
}
