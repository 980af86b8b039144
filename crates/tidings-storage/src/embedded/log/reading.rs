//! How records are read: those that stand close to each other at once.

use bytes::Bytes;

use super::frame::{self, Entry};
use super::{Location, LogRecords, Readable, SegmentId};
use crate::contract::{Error, Revision};
use crate::embedded::disk;
use crate::embedded::record::Record;

/// Records that stand this close to each other are read at once.
const READ_GAP: u64 = 4 << 10;
const READ_AT_ONCE: u64 = 256 << 10;

/// Frames that are read at once: they stand in one file, close to each other.
struct Stretch {
    segment: SegmentId,
    start: u64,
    end: u64,
    /// Which of the wanted records, and where they stand.
    records: Vec<(usize, Location)>,
}

/// Puts locations together that can be read at once. They are in the order in which they are wanted.
fn stretches(locations: impl Iterator<Item = (usize, Location)>) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
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
            _ => stretches.push(Stretch {
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
    /// The records of some revisions, in the same order; `None` for those that have been forgotten.
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
            let file = |stretch: &Stretch| contents.files.get(&stretch.segment).cloned();
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
            let Readable { file, format } =
                readable.ok_or_else(|| failed(&"its segment is gone"))?;
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
                    Entry::Record(revision, record) if revision == revisions[*wanted] => {
                        found[*wanted] = Some(record);
                    }
                    _ => return Err(failed(&"another one stands where it should be")),
                }
            }
        }
        Ok(found)
    }
}
