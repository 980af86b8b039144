//! How a record looks on disk.
//!
//! `magic (4) · body length (4) · crc32 of length and body (4) · body`, all little-endian. The body is a kind, a revision and,
//! for records, the time, the key with its length, and the value.

use bytes::Bytes;

use super::super::record::Record;
use crate::contract::Revision;

const MAGIC: [u8; 4] = *b"tdr1";
const HEADER: usize = 12;
/// No record is larger: values are bounded by the limits of requests, far below.
const BODY_BYTES_MAX: usize = 64 << 20;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const OLDEST: u8 = 3;
const CLOSED: u8 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Record(Revision, Record),
    /// History starts here.
    Oldest(Revision),
    /// The store was closed here: what stands before was not cut off by a crash.
    Closed,
}

fn put_frame(frames: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = frames.len();
    frames.extend_from_slice(&[0; HEADER]);
    body(frames);
    let length = (frames.len() - start - HEADER) as u32;
    frames[start..start + 4].copy_from_slice(&MAGIC);
    frames[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    let crc = checksum(length, &frames[start + HEADER..]);
    frames[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(length: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

pub(super) fn put_record(frames: &mut Vec<u8>, revision: Revision, record: &Record) {
    put_frame(frames, |body| {
        body.push(if record.value.is_some() { PUT } else { DELETE });
        body.extend_from_slice(&revision.0.to_le_bytes());
        body.extend_from_slice(&record.written_ms.to_le_bytes());
        body.extend_from_slice(&(record.key.len() as u32).to_le_bytes());
        body.extend_from_slice(&record.key);
        body.extend_from_slice(record.value.as_deref().unwrap_or_default());
    });
}

pub(super) fn put_oldest(frames: &mut Vec<u8>, oldest: Revision) {
    put_frame(frames, |body| {
        body.push(OLDEST);
        body.extend_from_slice(&oldest.0.to_le_bytes());
    });
}

pub(super) fn put_closed(frames: &mut Vec<u8>) {
    put_frame(frames, |body| {
        body.push(CLOSED);
        body.extend_from_slice(&[0; 8]);
    });
}

/// Reads the frame at the start of `bytes`: the entry and how long the frame is. The value shares the allocation.
///
/// `Err` says what is wrong with it.
pub(super) fn read(bytes: &Bytes) -> Result<(Entry, usize), &'static str> {
    let header: &[u8; HEADER] = bytes.first_chunk().ok_or("a record is cut short")?;
    if header[..4] != MAGIC {
        return Err("there is no record where one should start");
    }
    let number = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let length = number(4);
    let end = HEADER + length as usize;
    if length as usize > BODY_BYTES_MAX || bytes.len() < end {
        return Err("a record is cut short");
    }
    let body = bytes.slice(HEADER..end);
    if checksum(length, &body) != number(8) {
        return Err("a record does not match its checksum");
    }
    parse(&body)
        .map(|entry| (entry, end))
        .ok_or("a record has an unknown form")
}

fn parse(body: &Bytes) -> Option<Entry> {
    let kind = *body.first()?;
    let revision = Revision(u64::from_le_bytes(body.get(1..9)?.try_into().ok()?));
    match kind {
        OLDEST => return Some(Entry::Oldest(revision)),
        CLOSED => return Some(Entry::Closed),
        _ => {}
    }
    let written_ms = u64::from_le_bytes(body.get(9..17)?.try_into().ok()?);
    let key_end = 21 + u32::from_le_bytes(body.get(17..21)?.try_into().ok()?) as usize;
    if key_end > body.len() {
        return None;
    }
    let value = match kind {
        PUT => Some(body.slice(key_end..)),
        DELETE => None,
        _ => return None,
    };
    Some(Entry::Record(
        revision,
        Record {
            written_ms,
            key: body.slice(21..key_end),
            value,
        },
    ))
}

/// True if a whole frame starts anywhere in `bytes`: then what stands before it was not the end of the log.
pub(super) fn follows(bytes: &Bytes) -> bool {
    let starts = bytes
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(_, window)| **window == MAGIC);
    starts
        .map(|(at, _)| at)
        .any(|at| read(&bytes.slice(at..)).is_ok())
}
