//! An incremental JSON scanner: bytes in, structure out, no values.
//!
//! It accepts exactly the JSON grammar (RFC 8259), keeps one entry per open container, and can be fed chunks that
//! are split anywhere. The meaning of the structure is up to the implementation of
//! [`ScanEvents`].

/// How deep containers may nest. A document deeper than this is refused instead of growing the stack without bound.
const DEPTH_MAX: usize = 1024;

/// Why bytes are not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// A byte that the grammar does not allow here.
    #[error("unexpected byte 0x{byte:02x} at offset {offset}: expected {expected}")]
    Unexpected {
        /// The byte.
        byte: u8,
        /// Where it is, counted from the first byte that was fed.
        offset: u64,
        /// What would have been right.
        expected: &'static str,
    },
    /// Containers nest too deeply.
    #[error("nesting is deeper than {DEPTH_MAX} levels at offset {offset}")]
    TooDeep {
        /// Where the container starts.
        offset: u64,
    },
    /// The input ended inside a document.
    #[error("the document ends too early, after {offset} bytes")]
    Truncated {
        /// How many bytes were fed.
        offset: u64,
    },
}

/// The kinds of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number, `true`, `false` or `null`.
    Other,
}

/// Receives the structure of a document. All positions are indexes into the chunk being scanned; `depth` is the number of
/// containers around the value, key or comma.
pub trait ScanEvents {
    /// Ends the scan.
    type Error: From<ScanError>;

    /// A value begins at `at`.
    ///
    /// # Errors
    /// To end the scan.
    fn value_start(
        &mut self,
        chunk: &[u8],
        at: usize,
        kind: ValueKind,
        depth: usize,
    ) -> Result<(), Self::Error>;

    /// A value has ended; `end` is one past its last byte.
    ///
    /// # Errors
    /// To end the scan.
    fn value_end(
        &mut self,
        chunk: &[u8],
        end: usize,
        kind: ValueKind,
        depth: usize,
    ) -> Result<(), Self::Error>;

    /// The name of a member begins at `at`, with its quote.
    fn key_start(&mut self, at: usize, depth: usize);

    /// The name of a member has ended; `end` is one past its quote.
    ///
    /// # Errors
    /// To end the scan.
    fn key_end(&mut self, chunk: &[u8], end: usize, depth: usize) -> Result<(), Self::Error>;

    /// A comma between two elements or members.
    ///
    /// # Errors
    /// To end the scan.
    fn comma(&mut self, chunk: &[u8], at: usize, depth: usize) -> Result<(), Self::Error>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberState {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl NumberState {
    /// A number may end in these states.
    fn complete(self) -> bool {
        matches!(
            self,
            NumberState::Zero
                | NumberState::Integer
                | NumberState::Fraction
                | NumberState::ExponentDigits
        )
    }

    fn next(self, byte: u8) -> Option<NumberState> {
        use NumberState::{
            Exponent, ExponentDigits, ExponentSign, Fraction, Integer, Minus, Point, Zero,
        };
        match (self, byte) {
            (Minus, b'0') => Some(Zero),
            (Minus, b'1'..=b'9') | (Integer, b'0'..=b'9') => Some(Integer),
            (Zero | Integer, b'.') => Some(Point),
            (Point | Fraction, b'0'..=b'9') => Some(Fraction),
            (Zero | Integer | Fraction, b'e' | b'E') => Some(Exponent),
            (Exponent, b'+' | b'-') => Some(ExponentSign),
            (Exponent | ExponentSign | ExponentDigits, b'0'..=b'9') => Some(ExponentDigits),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ScanState {
    /// Before a document.
    #[default]
    Document,
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    String {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Unicode {
        key: bool,
        digits_left: u8,
    },
    Number(NumberState),
    Literal(&'static [u8]),
}

/// Scans documents. They may come in pieces, and one after another.
#[derive(Debug, Default)]
pub struct Scanner {
    state: ScanState,
    /// One entry per open container: true for objects.
    stack: Vec<bool>,
    /// Bytes fed before the current chunk.
    offset: u64,
}

impl Scanner {
    /// Begins before a document.
    pub fn new() -> Scanner {
        Scanner::default()
    }

    /// Scans one chunk. Documents may follow each other, with or without white space between them.
    ///
    /// # Errors
    /// If the bytes are not JSON, or `sink` ends the scan.
    pub fn scan<S: ScanEvents>(&mut self, chunk: &[u8], sink: &mut S) -> Result<(), S::Error> {
        let mut at = 0;
        while at < chunk.len() {
            at = self.step(chunk, at, sink)?;
        }
        self.offset += chunk.len() as u64;
        Ok(())
    }

    /// Says that no more bytes follow.
    ///
    /// # Errors
    /// If the last document is not complete.
    pub fn finish(&self) -> Result<(), ScanError> {
        if self.state == ScanState::Document {
            Ok(())
        } else {
            Err(ScanError::Truncated {
                offset: self.offset,
            })
        }
    }

    /// Handles the bytes from `at` up to the next point of interest and returns its position.
    #[inline]
    fn step<S: ScanEvents>(
        &mut self,
        chunk: &[u8],
        at: usize,
        sink: &mut S,
    ) -> Result<usize, S::Error> {
        let byte = chunk[at];
        match self.state {
            ScanState::String { key } => self.string(chunk, at, key, sink),
            ScanState::Escape { key } => {
                self.state = match byte {
                    b'u' => ScanState::Unicode {
                        key,
                        digits_left: 4,
                    },
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                        ScanState::String { key }
                    }
                    _ => return Err(self.unexpected(byte, at, "an escape").into()),
                };
                Ok(at + 1)
            }
            ScanState::Unicode { key, digits_left } => {
                if !byte.is_ascii_hexdigit() {
                    return Err(self.unexpected(byte, at, "a hexadecimal digit").into());
                }
                self.state = if digits_left == 1 {
                    ScanState::String { key }
                } else {
                    ScanState::Unicode {
                        key,
                        digits_left: digits_left - 1,
                    }
                };
                Ok(at + 1)
            }
            ScanState::Number(number) => match number.next(byte) {
                Some(next) => {
                    self.state = ScanState::Number(next);
                    Ok(at + 1)
                }
                None if number.complete() => {
                    self.end_value(chunk, at, ValueKind::Other, sink)?;
                    Ok(at) // the byte belongs to what follows
                }
                None => Err(self.unexpected(byte, at, "a digit").into()),
            },
            ScanState::Literal(rest) => {
                if byte != rest[0] {
                    return Err(self.unexpected(byte, at, "true, false or null").into());
                }
                if rest.len() == 1 {
                    self.end_value(chunk, at + 1, ValueKind::Other, sink)?;
                } else {
                    self.state = ScanState::Literal(&rest[1..]);
                }
                Ok(at + 1)
            }
            _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => Ok(at + 1),
            ScanState::Document | ScanState::Value => self.start_value(chunk, at, sink),
            ScanState::ValueOrEnd if byte == b']' => self.end_container(chunk, at, sink),
            ScanState::ValueOrEnd => self.start_value(chunk, at, sink),
            ScanState::KeyOrEnd if byte == b'}' => self.end_container(chunk, at, sink),
            ScanState::KeyOrEnd | ScanState::Key => {
                if byte != b'"' {
                    return Err(self.unexpected(byte, at, "a key").into());
                }
                sink.key_start(at, self.stack.len());
                self.state = ScanState::String { key: true };
                Ok(at + 1)
            }
            ScanState::Colon => {
                if byte != b':' {
                    return Err(self.unexpected(byte, at, "':'").into());
                }
                self.state = ScanState::Value;
                Ok(at + 1)
            }
            ScanState::CommaOrEnd => {
                let in_object = self.stack.last().copied().unwrap_or(false);
                match (byte, in_object) {
                    (b',', _) => {
                        sink.comma(chunk, at, self.stack.len())?;
                        self.state = if in_object {
                            ScanState::Key
                        } else {
                            ScanState::Value
                        };
                        Ok(at + 1)
                    }
                    (b'}', true) | (b']', false) => self.end_container(chunk, at, sink),
                    _ => Err(self
                        .unexpected(byte, at, "',' or the end of the container")
                        .into()),
                }
            }
        }
    }

    #[inline]
    fn start_value<S: ScanEvents>(
        &mut self,
        chunk: &[u8],
        at: usize,
        sink: &mut S,
    ) -> Result<usize, S::Error> {
        let byte = chunk[at];
        let kind = match byte {
            b'{' => ValueKind::Object,
            b'[' => ValueKind::Array,
            b'"' => ValueKind::String,
            _ => ValueKind::Other,
        };
        let next = match byte {
            b'{' => ScanState::KeyOrEnd,
            b'[' => ScanState::ValueOrEnd,
            b'"' => ScanState::String { key: false },
            b't' => ScanState::Literal(b"rue"),
            b'f' => ScanState::Literal(b"alse"),
            b'n' => ScanState::Literal(b"ull"),
            b'-' => ScanState::Number(NumberState::Minus),
            b'0' => ScanState::Number(NumberState::Zero),
            b'1'..=b'9' => ScanState::Number(NumberState::Integer),
            _ => return Err(self.unexpected(byte, at, "a value").into()),
        };
        sink.value_start(chunk, at, kind, self.stack.len())?;
        if matches!(kind, ValueKind::Object | ValueKind::Array) {
            if self.stack.len() == DEPTH_MAX {
                return Err(ScanError::TooDeep {
                    offset: self.offset + at as u64,
                }
                .into());
            }
            self.stack.push(kind == ValueKind::Object);
        }
        self.state = next;
        Ok(at + 1)
    }

    #[inline]
    fn end_value<S: ScanEvents>(
        &mut self,
        chunk: &[u8],
        end: usize,
        kind: ValueKind,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        self.state = if self.stack.is_empty() {
            ScanState::Document
        } else {
            ScanState::CommaOrEnd
        };
        sink.value_end(chunk, end, kind, self.stack.len())
    }

    fn end_container<S: ScanEvents>(
        &mut self,
        chunk: &[u8],
        at: usize,
        sink: &mut S,
    ) -> Result<usize, S::Error> {
        let kind = if self.stack.pop() == Some(true) {
            ValueKind::Object
        } else {
            ValueKind::Array
        };
        self.end_value(chunk, at + 1, kind, sink)?;
        Ok(at + 1)
    }

    /// Runs to the end of the string, to an escape that is not simple, or to the end of the chunk.
    #[inline]
    fn string<S: ScanEvents>(
        &mut self,
        chunk: &[u8],
        at: usize,
        key: bool,
        sink: &mut S,
    ) -> Result<usize, S::Error> {
        let mut end = at;
        loop {
            end = plain_until(chunk, end);
            let Some(byte) = chunk.get(end) else {
                return Ok(end);
            };
            match (byte, chunk.get(end + 1)) {
                (b'"', _) => break,
                (b'\\', Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')) => end += 2,
                (b'\\', _) => {
                    self.state = ScanState::Escape { key };
                    return Ok(end + 1);
                }
                (control, _) => {
                    let expected = "an escaped control character";
                    return Err(self.unexpected(*control, end, expected).into());
                }
            }
        }
        if key {
            self.state = ScanState::Colon;
            sink.key_end(chunk, end + 1, self.stack.len())?;
        } else {
            self.end_value(chunk, end + 1, ValueKind::String, sink)?;
        }
        Ok(end + 1)
    }

    fn unexpected(&self, byte: u8, at: usize, expected: &'static str) -> ScanError {
        ScanError::Unexpected {
            byte,
            offset: self.offset + at as u64,
            expected,
        }
    }
}

/// For each byte: true if it stands for itself in a string.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut control = 0;
    while control < 0x20 {
        plain[control] = false;
        control += 1;
    }
    plain[b'"' as usize] = false;
    plain[b'\\' as usize] = false;
    plain
};

/// This many bytes are checked one by one. Most strings are shorter, and starting a vector search costs more.
const NEAR: usize = 32;

/// The position of the next quote, backslash or control character, or the end of the chunk.
#[inline]
fn plain_until(chunk: &[u8], at: usize) -> usize {
    let is_special = |byte: &u8| !PLAIN[usize::from(*byte)];
    let near = &chunk[at..chunk.len().min(at + NEAR)];
    if let Some(distance) = near.iter().position(is_special) {
        return at + distance;
    }
    let at = at + near.len();
    let found = memchr::memchr2(b'"', b'\\', &chunk[at..]);
    let end = found.map_or(chunk.len(), |distance| at + distance);
    // A fold without an early exit compiles to vector instructions.
    let far = &chunk[at..end];
    if far.iter().fold(false, |found, byte| found | (*byte < 0x20)) {
        return at + far.iter().position(is_special).unwrap_or(0);
    }
    end
}
