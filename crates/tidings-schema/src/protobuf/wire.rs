//! The wire format of protobuf: numbered values, one after the other.

use super::DecodeError;

/// The fields of one message that are still unread.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The value of a field as it is on the wire.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed-size numbers and groups, which no Kubernetes type uses.
    Other,
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field, read whole: one that nobody wants needs no skipping.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Payload<'a>)>, DecodeError> {
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

    fn payload(&mut self, wire_type: u64) -> Result<Payload<'a>, DecodeError> {
        Ok(match wire_type {
            0 => Payload::Varint(self.varint()?),
            1 => self.take(8).map(|_| Payload::Other)?,
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Payload::Other)?,
            other => return Err(DecodeError::Tag(other)),
        })
    }

    /// Reads to the end of a group. Counts instead of recursing: groups nest as deep as the input is long.
    fn group(&mut self) -> Result<Payload<'a>, DecodeError> {
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
        Ok(Payload::Other)
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

const START_GROUP: u64 = 3;
const END_GROUP: u64 = 4;

/// Field numbers have 29 bits.
const MAX_NUMBER: u32 = (1 << 29) - 1;
