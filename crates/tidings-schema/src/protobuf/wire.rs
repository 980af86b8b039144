//! The wire format of protobuf: a sequence of numbered fields.

use std::ops::Range;

use super::DecodeError;

/// Reads the fields of a message.
pub(super) struct WireReader<'a> {
    rest: &'a [u8],
}

/// The value of a field, by wire type.
#[derive(Debug, Clone, Copy)]
pub(super) enum WirePayload<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Eight bytes, the lowest first.
    Fixed64(u64),
    /// Groups and numbers of 32 bits, which no Kubernetes type uses.
    Other,
}

impl<'a> WireReader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Reads the next field with its value, so that unknown fields are skipped.
    pub(super) fn next(&mut self) -> Result<Option<(u32, WirePayload<'a>)>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let payload = match wire_type {
            START_GROUP => self.group()?,
            _ => self.payload(wire_type)?,
        };
        Ok(Some((number, payload)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.take(1)?.first().copied().unwrap_or_default();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    fn tag(&mut self) -> Result<(u32, u64), DecodeError> {
        let tag = self.varint()?;
        match u32::try_from(tag >> 3) {
            Ok(number) if (1..=MAX_NUMBER).contains(&number) => Ok((number, tag & 7)),
            _ => Err(DecodeError::Tag(tag)),
        }
    }

    fn payload(&mut self, wire_type: u64) -> Result<WirePayload<'a>, DecodeError> {
        Ok(match wire_type {
            0 => WirePayload::Varint(self.varint()?),
            1 => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                WirePayload::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
                WirePayload::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| WirePayload::Other)?,
            other => return Err(DecodeError::Tag(other)),
        })
    }

    /// Skips a group. Counts the depth instead of recursing, because groups can be nested as deep as the input is long.
    fn group(&mut self) -> Result<WirePayload<'a>, DecodeError> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.tag()?.1 {
                START_GROUP => depth += 1,
                END_GROUP => depth -= 1,
                other => {
                    self.payload(other)?;
                }
            }
        }
        Ok(WirePayload::Other)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// A field of which only the beginning may have arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldHeader {
    /// The number of the field.
    pub number: u32,
    /// True if the field has content of any length: a text, bytes or a message.
    pub is_delimited: bool,
    /// The indexes of the content. It may end after the bytes that have arrived.
    pub content: Range<usize>,
}

impl FieldHeader {
    /// Reads the field at the start of `bytes`. `None` if even its length has not arrived yet.
    ///
    /// # Errors
    /// If the bytes are not a field, or one of a type that no Kubernetes type uses.
    pub fn read(bytes: &[u8]) -> Result<Option<FieldHeader>, DecodeError> {
        let mut reader = WireReader::new(bytes);
        match reader.header(bytes.len()) {
            Ok(header) => Ok(Some(header)),
            Err(DecodeError::Truncated) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl WireReader<'_> {
    fn header(&mut self, whole: usize) -> Result<FieldHeader, DecodeError> {
        let (number, wire_type) = self.tag()?;
        let start = whole - self.rest.len();
        let content = match wire_type {
            VARINT => {
                self.varint()?;
                start..whole - self.rest.len()
            }
            FIXED64 => start..start + 8,
            LENGTH_DELIMITED => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let start = whole - self.rest.len();
                start..start.saturating_add(length)
            }
            other => return Err(DecodeError::Tag(other)),
        };
        Ok(FieldHeader {
            number,
            is_delimited: wire_type == LENGTH_DELIMITED,
            content,
        })
    }
}

const START_GROUP: u64 = 3;
const END_GROUP: u64 = 4;

/// The largest field number: 29 bits.
const MAX_NUMBER: u32 = (1 << 29) - 1;

pub(super) const VARINT: u64 = 0;
pub(super) const FIXED64: u64 = 1;
pub(super) const LENGTH_DELIMITED: u64 = 2;

/// The tag of a field whose number is below 16.
pub(super) const fn tag_byte(number: u8, wire_type: u64) -> u8 {
    number << 3 | wire_type as u8
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The size of a number as a varint.
pub(super) fn varint_len(number: usize) -> usize {
    let bits = (usize::BITS - number.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

/// Appends the length of `bytes`, then `bytes`.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Starts content whose length comes before it. Reserves one byte for the length, which is mostly enough.
#[must_use]
pub(super) fn open(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len()
}

/// Ends the content that [`open`] started, and writes its length before it.
pub(super) fn close(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    let more = varint_len(length) - 1;
    if more > 0 {
        out.resize(out.len() + more, 0);
        out.copy_within(start..start + length, start + more);
    }
    let mut rest = length;
    for byte in &mut out[start - 1..start + more] {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    out[start + more - 1] &= 0x7f;
}
