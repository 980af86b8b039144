//! The positions of metadata in the bytes of an object.

use tidings_json::{ScanError, ScanEvents, Scanner, Span, ValueKind, unquote};

macro_rules! spans {
    ($($field:ident = $depth:literal $key:literal),* $(,)?) => {
        /// The spans of the values that selecting, keying and ordering need. Strings include their quotes.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Spans {
            $(#[doc = concat!("`", $key, "`")] pub $field: Span,)*
        }

        impl Spans {
            fn field(&mut self, depth: usize, key: &[u8]) -> Option<&mut Span> {
                match (depth, key) {
                    $(($depth, key) if key == $key.as_bytes() => Some(&mut self.$field),)*
                    _ => None,
                }
            }

            /// Notes where the value of a member is. The depth is 1 for members of the object and 2 for those of its metadata.
            pub fn note(&mut self, depth: usize, key: &str, span: Span) {
                if let Some(field) = self.field(depth, key.as_bytes()) {
                    *field = span;
                }
            }

            /// The spans after `by` bytes were inserted at `position`, or removed there where `by` is negative.
            pub fn shifted(self, position: u32, by: i64) -> Spans {
                Spans { $($field: self.$field.shifted(position, by),)* }
            }
        }
    };
}

// The depth is 1 for members of the object and 2 for members of its metadata.
spans! {
    kind = 1 "kind",
    api_version = 1 "apiVersion",
    metadata = 1 "metadata",
    name = 2 "name",
    namespace = 2 "namespace",
    uid = 2 "uid",
    resource_version = 2 "resourceVersion",
    labels = 2 "labels",
}

impl Spans {
    /// Reads one complete JSON object.
    ///
    /// # Errors
    /// If the bytes are not one JSON object.
    pub fn of(json: &[u8]) -> Result<Spans, ScanError> {
        collect(json)
    }
}

/// Collects the spans of one object while it is scanned. Positions are indexes into the bytes that are passed along with them.
#[derive(Debug, Default)]
pub(crate) struct SpanCollector {
    spans: Spans,
    key_start: u32,
    /// The key whose value is being read, at depths 1 and 2.
    current: [Option<(u32, u32)>; 3],
    in_metadata: bool,
}

impl SpanCollector {
    pub(crate) fn spans(&self) -> Spans {
        self.spans
    }

    pub(crate) fn key_start(&mut self, position: u32) {
        self.key_start = position;
    }

    /// `depth` counts the containers inside the object: 1 for its own members.
    pub(crate) fn key_end(&mut self, position: u32, depth: usize) {
        if depth == 1 || (depth == 2 && self.in_metadata) {
            self.current[depth] = Some((self.key_start, position));
        }
    }

    pub(crate) fn value_start(
        &mut self,
        bytes: &[u8],
        position: u32,
        kind: ValueKind,
        depth: usize,
    ) {
        let Some(key) = self.key_at(bytes, depth) else {
            return;
        };
        if depth == 1 && *key == *b"metadata" {
            self.in_metadata = kind == ValueKind::Object;
            // The last of duplicate members counts, as in every JSON reader, so spans inside an earlier one are dropped.
            let Spans {
                kind, api_version, ..
            } = self.spans;
            self.spans = Spans {
                kind,
                api_version,
                ..Spans::default()
            };
        }
        if let Some(span) = self.spans.field(depth, &key) {
            *span = Span {
                start: position,
                end: position,
            };
        }
    }

    pub(crate) fn value_end(&mut self, bytes: &[u8], position: u32, depth: usize) {
        let Some(key) = self.key_at(bytes, depth) else {
            return;
        };
        if let Some(span) = self.spans.field(depth, &key) {
            span.end = position;
        }
        self.current[depth] = None;
        if depth == 1 {
            self.in_metadata = false;
        }
    }

    /// The name of the member whose value is being read, without quotes and escapes.
    fn key_at<'a>(&self, bytes: &'a [u8], depth: usize) -> Option<std::borrow::Cow<'a, [u8]>> {
        if depth == 0 || depth > 2 {
            return None;
        }
        let (start, end) = self.current[depth]?;
        unquote(&bytes[start as usize..end as usize])
    }

    /// True if the name that was just read is that of `metadata.managedFields`.
    pub(crate) fn at_managed_fields(&self, bytes: &[u8]) -> bool {
        self.in_metadata
            && self
                .key_at(bytes, 2)
                .is_some_and(|key| *key == *b"managedFields")
    }

    pub(crate) fn key_start_position(&self) -> u32 {
        self.key_start
    }

    /// The member whose name was just read is not copied into the bytes.
    pub(crate) fn forget_member(&mut self) {
        self.current[2] = None;
    }
}

/// Collects the spans of one complete object.
pub(crate) fn collect(bytes: &[u8]) -> Result<Spans, ScanError> {
    struct WholeObject {
        collector: SpanCollector,
        documents: usize,
    }
    impl ScanEvents for WholeObject {
        type Error = ScanError;
        fn value_start(
            &mut self,
            chunk: &[u8],
            at: usize,
            kind: ValueKind,
            depth: usize,
        ) -> Result<(), ScanError> {
            if depth == 0 {
                self.documents += 1;
                if kind != ValueKind::Object || self.documents > 1 {
                    let expected = if self.documents > 1 {
                        "the end of the object"
                    } else {
                        "an object"
                    };
                    return Err(ScanError::Unexpected {
                        byte: chunk[at],
                        offset: at as u64,
                        expected,
                    });
                }
            }
            self.collector.value_start(chunk, at as u32, kind, depth);
            Ok(())
        }
        fn value_end(
            &mut self,
            chunk: &[u8],
            end: usize,
            _: ValueKind,
            depth: usize,
        ) -> Result<(), ScanError> {
            self.collector.value_end(chunk, end as u32, depth);
            Ok(())
        }
        fn key_start(&mut self, at: usize, _: usize) {
            self.collector.key_start(at as u32);
        }
        fn key_end(&mut self, _: &[u8], end: usize, depth: usize) -> Result<(), ScanError> {
            self.collector.key_end(end as u32, depth);
            Ok(())
        }
        fn comma(&mut self, _: &[u8], _: usize, _: usize) -> Result<(), ScanError> {
            Ok(())
        }
    }
    let mut whole = WholeObject {
        collector: SpanCollector::default(),
        documents: 0,
    };
    let mut scanner = Scanner::new();
    scanner.scan(bytes, &mut whole)?;
    scanner.finish()?;
    if whole.documents == 0 {
        return Err(ScanError::Truncated {
            offset: bytes.len() as u64,
        });
    }
    Ok(whole.collector.spans())
}
