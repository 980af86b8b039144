//! The format of log entries on disk.
//!
//! A frame is `magic (4), body length (4), start of its group (4), crc32 (4), body`, all little-endian. The checksum covers the
//! body, the header and the position of the frame (segment and offset), so that a copy of a frame elsewhere, for example in a
//! value, is not a valid frame. The body is a kind, a revision, a time and, for records, the key with its length and the value.
//!
//! Frames that are synced together are a group. A group is written after the previous one is durable, so a valid frame of a later
//! group proves that everything before that group was written completely: see [`is_torn_end`].
//!
//! Format 1, of earlier versions, has neither groups nor positions. It is read but not written.

use bytes::Bytes;

use super::SegmentId;
use crate::contract::Revision;
use crate::embedded::record::Record;

const MAGIC_1: [u8; 4] = *b"tdr1";
const MAGIC: [u8; 4] = *b"tdr2";
const HEADER_1: usize = 12;
pub(crate) const HEADER: usize = 16;
/// The size of a record's body before its key.
const RECORD_HEAD: usize = 21;
/// The maximum size of a body. It also bounds the memory that a damaged length can request.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The largest key and value together that can be read back.
pub(crate) const PAYLOAD_BYTES_MAX: usize = BODY_BYTES_MAX - RECORD_HEAD;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const OLDEST: u8 = 3;
const CLOSED: u8 = 4;
const BACKUP: u8 = 5;
const BACKUP_END: u8 = 6;

/// The format of the frames of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFormat {
    /// The format of earlier versions: no groups, and checksums that cover no position.
    One,
    Two,
}

/// The content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogEntry {
    Record(Revision, Record),
    /// History starts at this revision; the running time of this mark.
    Oldest(Revision, u64),
    /// The store was closed at this running time, so no crash interrupted the writes before.
    Closed(u64),
    /// The head of a backup: its revision, its time (milliseconds since 1970), the number of records that follow.
    Backup {
        revision: Revision,
        taken_ms: u64,
        records: u64,
    },
    /// The end of a backup: the number of records before it.
    BackupEnd(u64),
}

/// A frame that was read from a segment.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) entry: LogEntry,
    /// The length of the frame.
    pub(crate) bytes: usize,
    /// The offset at which its group starts.
    pub(crate) group: u32,
}

/// Frames that are written and synced together.
#[derive(Debug)]
pub(crate) struct FrameGroup {
    segment: SegmentId,
    start: u32,
    frames: Vec<u8>,
}

impl FrameGroup {
    /// An empty group that will be written at an offset of a segment.
    pub(crate) fn at(segment: SegmentId, start: u64) -> FrameGroup {
        FrameGroup {
            segment,
            start: start as u32,
            frames: Vec::new(),
        }
    }

    /// The bytes of all frames.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.frames
    }

    /// The offset of the next frame.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.start) + self.frames.len() as u64
    }

    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.frames.reserve(bytes);
    }

    pub(crate) fn push(&mut self, entry: &LogEntry) {
        match entry {
            LogEntry::Record(revision, record) => self.push_record(*revision, record),
            LogEntry::Oldest(revision, time_ms) => {
                self.push_mark(OLDEST, revision.0, *time_ms, None)
            }
            LogEntry::Closed(time_ms) => self.push_mark(CLOSED, 0, *time_ms, None),
            LogEntry::Backup {
                revision,
                taken_ms,
                records,
            } => self.push_mark(BACKUP, revision.0, *taken_ms, Some(*records)),
            LogEntry::BackupEnd(records) => self.push_mark(BACKUP_END, *records, 0, None),
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

/// The length of the body after a header.
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

/// Reads the frame at the start of `bytes`, which were read at an offset of a segment. Key and value share the allocation.
///
/// `Err` says what is wrong with the frame.
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

fn parse(body: &Bytes) -> Option<LogEntry> {
    let kind = *body.first()?;
    let long = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let number = long(1)?;
    // Marks in format 1 have no time.
    let time_ms = long(9).unwrap_or(0);
    match kind {
        OLDEST => return Some(LogEntry::Oldest(Revision(number), time_ms)),
        CLOSED => return Some(LogEntry::Closed(time_ms)),
        BACKUP => {
            return Some(LogEntry::Backup {
                revision: Revision(number),
                taken_ms: time_ms,
                records: long(17)?,
            });
        }
        BACKUP_END => return Some(LogEntry::BackupEnd(number)),
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
        LogEntry::Record(Revision(number), record)
    };
    match kind {
        PUT if key_end <= body.len() => Some(record(Some(body.slice(key_end..)))),
        DELETE if key_end <= body.len() => Some(record(None)),
        _ => None,
    }
}

/// True if the unreadable bytes at an offset of the last segment are from a write that a crash interrupted, which was never
/// acknowledged. False if they are damage to durable data.
///
/// Pages of one group can reach the disk in any order, so valid frames of that group may follow. A frame of a later group cannot
/// follow: it is written only after everything before its group is durable.
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

    /// Three groups of two, three and one records. Returns the bytes and the offsets of the frames.
    fn groups() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        let mut revision = 0;
        for size in [2, 3, 1] {
            let mut group = FrameGroup::at(9, bytes.len() as u64);
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
            LogEntry::Record(Revision(3), record("a", Some("b"))),
            LogEntry::Record(Revision(4), record("a", None)),
            LogEntry::Oldest(Revision(2), 5),
            LogEntry::Closed(6),
            LogEntry::Backup {
                revision: Revision(4),
                taken_ms: 8,
                records: 1,
            },
            LogEntry::BackupEnd(1),
        ];
        let mut group = FrameGroup::at(3, 100);
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
