//! Fuzz targets: properties that must hold for any bytes in the files of a store.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::frame::{FrameFormat, FrameGroup, LogEntry};
use super::manifest::Manifest;
use super::segment::{self, HEADER_BYTES, PlacedFrame};
use crate::contract::Revision;
use crate::embedded::disk::DiskFile;
use crate::embedded::record::Record;

/// The segment number of the examples.
const ID: u64 = 3;

/// Bytes as a read-only file.
#[derive(Debug)]
struct InMemoryFile(Vec<u8>);

impl DiskFile for InMemoryFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_bytes(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads bytes as the last segment, whose end may be torn, and as a closed segment.
///
/// # Panics
/// If a frame is accepted that this version would not write.
pub fn frames(data: &[u8]) {
    let file = InMemoryFile(data.to_vec());
    for closed_at in [None, Some(data.len() as u64)] {
        let mut placed = Vec::new();
        let loaded = segment::load(&file, Path::new("fuzzed"), ID, closed_at, &mut |frame| {
            placed.push(frame);
        });
        let Ok(loaded) = loaded else {
            continue;
        };
        assert_eq!(loaded.end + loaded.left_over, data.len() as u64);
        let mut expected = HEADER_BYTES;
        for PlacedFrame {
            entry,
            offset,
            bytes,
        } in placed
        {
            assert_eq!(u64::from(offset), expected, "frames follow each other");
            expected += u64::from(bytes);
            if loaded.format == FrameFormat::Two {
                check_written(&entry, data, offset, bytes);
            }
        }
        assert!(expected == loaded.end || loaded.end < HEADER_BYTES);
    }
}

/// Checks that a frame equals what this version would write, except for the start of its group.
fn check_written(entry: &LogEntry, data: &[u8], offset: u32, bytes: u32) {
    let mut group = FrameGroup::at(ID, u64::from(offset));
    group.push(entry);
    let frame = &data[offset as usize..(offset + bytes) as usize];
    // A mark that is longer than this version writes is accepted by its first bytes.
    if !matches!(entry, LogEntry::Record(..)) {
        return;
    }
    let written = group.as_bytes();
    assert_eq!(written[..8], frame[..8]);
    assert_eq!(
        written[super::frame::HEADER..],
        frame[super::frame::HEADER..]
    );
}

/// Reads bytes as a list of segments.
///
/// # Panics
/// If a list is accepted that this version would not write.
pub fn manifest(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(manifest) = Manifest::parse(text) {
        let again = Manifest::parse(&manifest.to_text());
        assert_eq!(again, Some(manifest));
    }
}

/// Valid segments, as seeds for the fuzzer.
pub fn examples() -> Vec<Vec<u8>> {
    let record = |value: Option<&'static str>| Record {
        written_ms: 9,
        key: Bytes::from_static(b"configmaps/default/a"),
        value: value.map(Bytes::from),
    };
    let mut segment = b"tidings2".to_vec();
    let mut revision = 0;
    for size in [1, 3, 2] {
        let mut group = FrameGroup::at(ID, segment.len() as u64);
        for _ in 0..size {
            revision += 1;
            group.push_record(Revision(revision), &record(Some("a value")));
        }
        group.push_record(Revision(revision + 1), &record(None));
        revision += 1;
        group.push(&LogEntry::Oldest(Revision(revision), 5));
        segment.extend_from_slice(group.as_bytes());
    }
    let mut closed = segment.clone();
    let mut mark = FrameGroup::at(ID, closed.len() as u64);
    mark.push(&LogEntry::Closed(8));
    closed.extend_from_slice(mark.as_bytes());
    vec![segment, closed, b"tidings1".to_vec()]
}
