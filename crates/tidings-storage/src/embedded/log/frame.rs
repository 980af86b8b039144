//! How entries of the log look on disk.
//!
//! A frame is `magic (4) · body length (4) · start of its group (4) · crc32 (4) · body`, all little-endian. The checksum covers
//! the body, the header and the place of the frame (segment and offset), so that a copy of a frame elsewhere, in a value for
//! instance, is no frame. The body is a kind, a revision, a time and, for records, the key with its length and the value.
//!
//! Frames that are synced together are a group. A group is written when the one before it is durable, so a whole frame of a
//! later group proves that what stands before that group was written completely: see [`is_torn_end`].
//!
//! Format 1, of earlier versions, has neither groups nor places. It is read and not written.

use bytes::Bytes;

use super::SegmentId;
use crate::contract::Revision;
use crate::embedded::record::Record;

const MAGIC_1: [u8; 4] = *b"tdr1";
const MAGIC: [u8; 4] = *b"tdr2";
const HEADER_1: usize = 12;
pub(crate) const HEADER: usize = 16;
/// What a body has before its key.
const RECORD_HEAD: usize = 21;
/// No body is larger: [`BODY_BYTES_MAX`] bounds what a damaged length can ask for.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The largest key and value together that can be read back.
pub(crate) const PAYLOAD_BYTES_MAX: usize = BODY_BYTES_MAX - RECORD_HEAD;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const OLDEST: u8 = 3;
const CLOSED: u8 = 4;
const BACKUP: u8 = 5;
const BACKUP_END: u8 = 6;

/// How the frames of a segment are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFormat {
    /// Without groups, checksums of the body alone.
    One,
    Two,
}

/// What a frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Record(Revision, Record),
    /// History starts here since this time.
    Oldest(Revision, u64),
    /// The store was closed here, at this time: what stands before was not cut off by a crash.
    Closed(u64),
    /// The head of a backup: its revision, when it was taken (milliseconds since 1970), how many records follow.
    Backup {
        revision: Revision,
        taken_ms: u64,
        records: u64,
    },
    /// The end of a backup: how many records stood before it.
    BackupEnd(u64),
}

/// A frame that was read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) entry: Entry,
    /// How long it is.
    pub(crate) bytes: usize,
    /// Where its group starts.
    pub(crate) group: u32,
}

/// Frames that are written and synced together.
#[derive(Debug)]
pub(crate) struct Group {
    segment: SegmentId,
    start: u32,
    frames: Vec<u8>,
}

impl Group {
    /// A group that will stand at an offset of a segment.
    pub(crate) fn at(segment: SegmentId, start: u64) -> Group {
        Group {
            segment,
            start: start as u32,
            frames: Vec::new(),
        }
    }

    /// The frames that it has so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.frames
    }

    /// Where the next frame will stand.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.start) + self.frames.len() as u64
    }

    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.frames.reserve(bytes);
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        match entry {
            Entry::Record(revision, record) => self.push_record(*revision, record),
            Entry::Oldest(revision, time_ms) => self.push_mark(OLDEST, revision.0, *time_ms, None),
            Entry::Closed(time_ms) => self.push_mark(CLOSED, 0, *time_ms, None),
            Entry::Backup {
                revision,
                taken_ms,
                records,
            } => self.push_mark(BACKUP, revision.0, *taken_ms, Some(*records)),
            Entry::BackupEnd(records) => self.push_mark(BACKUP_END, *records, 0, None),
        }
    }

    pub(crate) fn push_record(&mut self, revision: Revision, record: &Record) {
        self.push_frame(|body| {
            body.push(if record.value.is_some() { PUT } else { DELETE });
            body.extend_from_slice(&revision.0.to_le_bytes());
            body.extend_from_slice(&record.written_ms.to_le_bytes());
            body.extend_from_slice(&(record.key.len() as u32).to_le_bytes());
            body.extend_from_slice(&record.key);
            body.extend_from_slice(record.value.as_deref().unwrap_or_default());
        });
    }

    fn push_mark(&mut self, kind: u8, number: u64, time_ms: u64, more: Option<u64>) {
        self.push_frame(|body| {
            body.push(kind);
            body.extend_from_slice(&number.to_le_bytes());
            body.extend_from_slice(&time_ms.to_le_bytes());
            if let Some(more) = more {
                body.extend_from_slice(&more.to_le_bytes());
            }
        });
    }

    fn push_frame(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        let at = self.frames.len();
        let offset = self.end();
        self.frames.extend_from_slice(&[0; HEADER]);
        body(&mut self.frames);
        let length = (self.frames.len() - at - HEADER) as u32;
        let crc = checksum(
            self.segment,
            offset,
            length,
            self.start,
            &self.frames[at + HEADER..],
        );
        let header = &mut self.frames[at..at + HEADER];
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&length.to_le_bytes());
        header[8..12].copy_from_slice(&self.start.to_le_bytes());
        header[12..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn checksum(segment: SegmentId, offset: u64, length: u32, group: u32, body: &[u8]) -> u32 {
    let mut place = [0; 24];
    place[..8].copy_from_slice(&segment.to_le_bytes());
    place[8..16].copy_from_slice(&offset.to_le_bytes());
    place[16..20].copy_from_slice(&length.to_le_bytes());
    place[20..].copy_from_slice(&group.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place);
    hasher.update(body);
    hasher.finalize()
}

fn checksum_1(length: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

const CUT_SHORT: &str = "a record is cut short";

/// How long the body is that follows a header.
pub(crate) fn body_bytes(header: &[u8]) -> Result<usize, &'static str> {
    match header {
        [magic @ .., a, b, c, d, _, _, _, _, _, _, _, _] if *magic == MAGIC => {
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            if length <= BODY_BYTES_MAX {
                Ok(length)
            } else {
                Err(CUT_SHORT)
            }
        }
        _ => Err("there is no record where one should start"),
    }
}

/// Reads the frame at the start of `bytes`, which stands at an offset of a segment. The value shares the allocation.
///
/// `Err` says what is wrong with it.
pub(crate) fn read(
    bytes: &Bytes,
    format: FrameFormat,
    segment: SegmentId,
    offset: u64,
) -> Result<Frame, &'static str> {
    let (magic, header) = match format {
        FrameFormat::One => (MAGIC_1, HEADER_1),
        FrameFormat::Two => (MAGIC, HEADER),
    };
    let head = bytes.get(..header).ok_or(CUT_SHORT)?;
    if head[..4] != magic {
        return Err("there is no record where one should start");
    }
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = number(4);
    let end = header + length as usize;
    if length as usize > BODY_BYTES_MAX || bytes.len() < end {
        return Err(CUT_SHORT);
    }
    let body = bytes.slice(header..end);
    let group = if format == FrameFormat::Two {
        number(8)
    } else {
        0
    };
    let right = match format {
        FrameFormat::One => checksum_1(length, &body) == number(8),
        FrameFormat::Two => checksum(segment, offset, length, group, &body) == number(12),
    };
    if !right {
        return Err("a record does not match its checksum");
    }
    let entry = parse(&body).ok_or("a record has an unknown form")?;
    Ok(Frame {
        entry,
        bytes: end,
        group,
    })
}

fn parse(body: &Bytes) -> Option<Entry> {
    let kind = *body.first()?;
    let long = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let number = long(1)?;
    // Marks of format 1 have no time.
    let time_ms = long(9).unwrap_or(0);
    match kind {
        OLDEST => return Some(Entry::Oldest(Revision(number), time_ms)),
        CLOSED => return Some(Entry::Closed(time_ms)),
        BACKUP => {
            return Some(Entry::Backup {
                revision: Revision(number),
                taken_ms: time_ms,
                records: long(17)?,
            });
        }
        BACKUP_END => return Some(Entry::BackupEnd(number)),
        _ => {}
    }
    let key_bytes = u32::from_le_bytes(body.get(17..RECORD_HEAD)?.try_into().ok()?);
    let key_end = RECORD_HEAD + key_bytes as usize;
    let record = |value| {
        let key = body.slice(RECORD_HEAD..key_end);
        let record = Record {
            written_ms: time_ms,
            key,
            value,
        };
        Entry::Record(Revision(number), record)
    };
    match kind {
        PUT if key_end <= body.len() => Some(record(Some(body.slice(key_end..)))),
        DELETE if key_end <= body.len() => Some(record(None)),
        _ => None,
    }
}

/// True if what stands at an offset of the last segment, where no frame can be read, is the end of a write that was cut off by
/// a crash: nobody was told of it. False if it is damage to something that was durable.
///
/// Pages of one group can reach the disk in any order, so whole frames of that group may follow. A frame of a later group may
/// not: it was written when everything before its group was durable.
pub(crate) fn is_torn_end(
    contents: &Bytes,
    format: FrameFormat,
    segment: SegmentId,
    offset: u64,
) -> bool {
    let magic = match format {
        FrameFormat::One => MAGIC_1,
        FrameFormat::Two => MAGIC,
    };
    let first = offset as usize + 1;
    let rest = contents.get(first..).unwrap_or_default();
    let starts = rest.windows(magic.len()).enumerate();
    let starts = starts.filter(|(_, window)| **window == magic);
    let mut frames = starts.filter_map(|(at, _)| {
        let at = first + at;
        read(&contents.slice(at..), format, segment, at as u64).ok()
    });
    !frames.any(|frame| format == FrameFormat::One || u64::from(frame.group) > offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &'static str, value: Option<&'static str>) -> Record {
        Record {
            written_ms: 7,
            key: key.into(),
            value: value.map(Bytes::from),
        }
    }

    /// Three groups: one of two records, one of three, one of one. Returns the bytes and where frames start.
    fn groups() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        let mut revision = 0;
        for size in [2, 3, 1] {
            let mut group = Group::at(9, bytes.len() as u64);
            for _ in 0..size {
                starts.push(group.end() as usize);
                revision += 1;
                group.push_record(Revision(revision), &record("key", Some("value")));
            }
            bytes.extend_from_slice(group.as_bytes());
        }
        (bytes, starts)
    }

    #[test]
    fn every_entry_is_read_as_it_was_written() {
        let entries = [
            Entry::Record(Revision(3), record("a", Some("b"))),
            Entry::Record(Revision(4), record("a", None)),
            Entry::Oldest(Revision(2), 5),
            Entry::Closed(6),
            Entry::Backup {
                revision: Revision(4),
                taken_ms: 8,
                records: 1,
            },
            Entry::BackupEnd(1),
        ];
        let mut group = Group::at(3, 100);
        for entry in &entries {
            group.push(entry);
        }
        let bytes = Bytes::copy_from_slice(group.as_bytes());
        let mut at = 0;
        for entry in entries {
            let frame = read(&bytes.slice(at..), FrameFormat::Two, 3, 100 + at as u64).unwrap();
            assert_eq!(frame.entry, entry);
            at += frame.bytes;
        }
        assert_eq!(at, bytes.len());
        assert!(
            read(&bytes, FrameFormat::Two, 3, 101).is_err(),
            "a frame is of its place"
        );
        assert!(
            read(&bytes, FrameFormat::Two, 4, 100).is_err(),
            "and of its segment"
        );
    }

    #[test]
    fn a_torn_group_is_told_from_damage_whichever_pages_arrived() {
        let (bytes, starts) = groups();
        let torn = |zeroed: std::ops::Range<usize>, end: usize| {
            let mut bytes = bytes.clone();
            bytes[zeroed.clone()].fill(0);
            bytes.truncate(end);
            is_torn_end(&bytes.into(), FrameFormat::Two, 9, zeroed.start as u64)
        };
        let all = bytes.len();
        assert!(torn(starts[5]..all, all), "the last record has not arrived");
        assert!(
            torn(starts[2]..starts[3], starts[5]),
            "the first record of the last group has not arrived, the others have"
        );
        assert!(torn(starts[3]..starts[4], starts[5]), "one in the middle");
        assert!(!torn(starts[2]..starts[3], all), "a later group is there");
        assert!(!torn(starts[0]..starts[1], starts[5]));
    }
}
