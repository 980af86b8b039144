//! Reads records; records that are close together are read with one call.

use bytes::Bytes;

use super::frame::{self, LogEntry};
use super::{LogRecords, ReadableSegment, RecordLocation, SegmentId};
use crate::contract::{Error, Revision};
use crate::embedded::disk;
use crate::embedded::record::Record;

/// The maximum gap between records that are read with one call.
const READ_GAP: u64 = 4 << 10;
/// The maximum size of one read.
const READ_AT_ONCE: u64 = 256 << 10;

/// Frames of one segment that are read with one call.
struct ReadStretch {
    segment: SegmentId,
    start: u64,
    end: u64,
    /// The index and the position of each requested record.
    records: Vec<(usize, RecordLocation)>,
}

/// Groups positions that can be read with one call, in the requested order.
fn stretches(locations: impl Iterator<Item = (usize, RecordLocation)>) -> Vec<ReadStretch> {
    let mut stretches: Vec<ReadStretch> = Vec::new();
    for (wanted, location) in locations {
        let (start, end) = (
            u64::from(location.offset),
            u64::from(location.offset) + u64::from(location.bytes),
        );
        match stretches.last_mut() {
            Some(last)
                if last.segment == location.segment
                    && start >= last.end
                    && start - last.end <= READ_GAP
                    && end - last.start <= READ_AT_ONCE =>
            {
                last.end = end;
                last.records.push((wanted, location));
            }
            _ => stretches.push(ReadStretch {
                segment: location.segment,
                start,
                end,
                records: vec![(wanted, location)],
            }),
        }
    }
    stretches
}

impl LogRecords {
    /// The records of some revisions, in the same order; `None` for forgotten ones.
    pub(super) fn read_records(
        &self,
        revisions: &[Revision],
    ) -> Result<Vec<Option<Record>>, Error> {
        let (stretches, files) = {
            let contents = self.contents();
            let locations = revisions.iter().enumerate();
            let locations = locations.filter_map(|(wanted, revision)| {
                Some((wanted, *contents.locations.get(revision)?))
            });
            let stretches = stretches(locations);
            let file = |stretch: &ReadStretch| contents.files.get(&stretch.segment).cloned();
            let files: Vec<_> = stretches.iter().map(file).collect();
            (stretches, files)
        };
        let mut found = vec![None; revisions.len()];
        for (stretch, readable) in stretches.iter().zip(files) {
            let failed = |why: &dyn std::fmt::Display| {
                Error::Failed(format!(
                    "the store cannot read revision {}: {why}",
                    revisions[stretch.records[0].0]
                ))
            };
            let ReadableSegment { file, format } =
                readable.ok_or_else(|| failed(&"its segment is not open"))?;
            let mut bytes = vec![0; (stretch.end - stretch.start) as usize];
            disk::read_exact_at(&*file, &mut bytes, stretch.start)
                .map_err(|error| failed(&error))?;
            let bytes = Bytes::from(bytes);
            for (wanted, location) in &stretch.records {
                let offset = u64::from(location.offset);
                let from = (offset - stretch.start) as usize;
                let frame = bytes.slice(from..from + location.bytes as usize);
                let frame = frame::read(&frame, format, location.segment, offset);
                match frame.map_err(|what| failed(&what))?.entry {
                    LogEntry::Record(revision, record) if revision == revisions[*wanted] => {
                        found[*wanted] = Some(record);
                    }
                    _ => return Err(failed(&"there is another record at its position")),
                }
            }
        }
        Ok(found)
    }
}
