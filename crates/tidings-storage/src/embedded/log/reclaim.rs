//! Reclaims disk space: copies the needed records of wasteful segments to a new segment, which replaces them.

use std::io;
use std::ops::Range;

use bytes::Bytes;

use super::frame::{FrameGroup, LogEntry};
use super::open_error::OpenError;
use super::segment::{self, HEADER_BYTES, PlacedFrame};
use super::writing::refused;
use super::{LogRecords, LogWriter, ReadableSegment, RecordLocation, SegmentId, SegmentInfo};
use crate::contract::Revision;
use crate::embedded::record::AppendError;

impl LogRecords {
    /// Rewrites some segments, if that is worth it, and returns the keys of the values that were dropped. If it is `urgent` and
    /// half of the open segment is unneeded, closes that segment first.
    pub(super) fn reclaim_step(
        &self,
        writer: &mut LogWriter,
        urgent: bool,
    ) -> Result<Option<Vec<Bytes>>, AppendError> {
        self.repair(writer).map_err(|error| refused(&error))?;
        let is_worth_it = |last: &SegmentInfo| {
            let frames = last.bytes - HEADER_BYTES;
            !last.closed && last.live_bytes * 2 < frames && frames > self.segment_bytes_max / 16
        };
        if urgent && writer.segments.last().is_some_and(is_worth_it) {
            self.roll(writer).map_err(|error| refused(&error))?;
        }
        // A segment that cannot be read does not prevent the others from being rewritten.
        let mut skipped = writer.unreadable.clone();
        let mut failed = None;
        while let Some(wasteful) = wasteful(&writer.segments, &skipped, self.segment_bytes_max) {
            match self.rewrite(writer, &wasteful) {
                Ok(dropped) => return Ok(Some(dropped)),
                Err(NotRewritten::Unwritable(error)) => return Err(error),
                Err(NotRewritten::Unreadable(segment, error)) => {
                    skipped.push(segment);
                    if matches!(error, OpenError::Damaged { .. }) {
                        tracing::error!(%error, "a segment is damaged and cannot be compacted; it stays until the next start");
                        writer.unreadable.push(segment);
                    } else {
                        failed = Some(error);
                    }
                }
            }
        }
        match failed {
            None => Ok(None),
            Some(error) => Err(AppendError::Refused {
                why: error.to_string(),
                full: false,
            }),
        }
    }

    /// Replaces some segments by one with their needed records, or by none.
    fn rewrite(
        &self,
        writer: &mut LogWriter,
        wasteful: &Range<usize>,
    ) -> Result<Vec<Bytes>, NotRewritten> {
        let old: Vec<SegmentInfo> = writer.segments[wasteful.clone()].to_vec();
        let mut group = FrameGroup::at(writer.next_id, HEADER_BYTES);
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        for info in &old {
            let sorted = self.sort_out(info, writer.next_id, &mut group, &mut kept, &mut dropped);
            sorted.map_err(|error| NotRewritten::Unreadable(info.id, error))?;
        }
        let mut segments = writer.segments.clone();
        segments.drain(wasteful.clone());
        let replaced = if kept.is_empty() {
            self.replace_list(writer, &segments)
                .map(|()| writer.segments = segments)
        } else {
            self.insert_segment(writer, segments, wasteful.start, &group, true)
        };
        replaced.map_err(|error| NotRewritten::Unwritable(refused(&error)))?;
        {
            let mut contents = self.contents_mut();
            contents.locations.extend(kept);
            for info in &old {
                contents.files.remove(&info.id);
            }
        }
        let paths = old.iter().map(|info| self.directory.segment_path(info.id));
        writer.leftovers.extend(paths);
        self.sweep(writer);
        Ok(dropped)
    }

    /// Copies the needed records of a segment to a group, and collects the keys of the other values.
    fn sort_out(
        &self,
        info: &SegmentInfo,
        into: SegmentId,
        group: &mut FrameGroup,
        kept: &mut Vec<(Revision, RecordLocation)>,
        dropped: &mut Vec<Bytes>,
    ) -> Result<(), OpenError> {
        let contents = self.contents();
        let path = self.directory.segment_path(info.id);
        let Some(ReadableSegment { file, .. }) = contents.files.get(&info.id) else {
            let source = io::Error::other("the segment is not open");
            return Err(OpenError::io(&path, source));
        };
        let visit = &mut |PlacedFrame {
                              entry,
                              offset,
                              bytes,
                          }: PlacedFrame| {
            let LogEntry::Record(revision, record) = entry else {
                return; // marks are not copied: the list of segments has their content
            };
            let here = RecordLocation {
                segment: info.id,
                offset,
                bytes,
            };
            if contents.locations.get(&revision) == Some(&here) {
                let start = group.end();
                group.push_record(revision, &record);
                let location = RecordLocation {
                    segment: into,
                    offset: start as u32,
                    bytes: (group.end() - start) as u32,
                };
                kept.push((revision, location));
            } else if record.value.is_some() {
                dropped.push(Bytes::copy_from_slice(&record.key));
            }
        };
        segment::load(&**file, &path, info.id, Some(info.bytes), visit).map(|_| ())
    }
}

/// Why segments were not rewritten.
enum NotRewritten {
    /// This segment cannot be read.
    Unreadable(SegmentId, OpenError),
    /// The new segment cannot be written.
    Unwritable(AppendError),
}

/// The segments to rewrite next, if any: segments without needed records; small neighbours; a segment of which half is unneeded.
/// The last segment is never rewritten, because it is open.
fn wasteful(
    segments: &[SegmentInfo],
    unreadable: &[SegmentId],
    segment_bytes_max: u64,
) -> Option<Range<usize>> {
    let closed = segments.iter().take_while(|segment| segment.closed).count();
    let closed = &segments[..closed.min(segments.len().saturating_sub(1))];
    let is_readable = |segment: &SegmentInfo| !unreadable.contains(&segment.id);
    let is_dead = |segment: &SegmentInfo| segment.live_bytes == 0 && is_readable(segment);
    if let Some(start) = closed.iter().position(is_dead) {
        let run = closed[start..]
            .iter()
            .take_while(|segment| is_dead(segment));
        return Some(start..start + run.count());
    }
    for (at, segment) in closed.iter().enumerate() {
        if !is_readable(segment) {
            continue;
        }
        if let Some(next) = closed.get(at + 1).filter(|next| is_readable(next))
            && joins(segment.live_bytes, next.live_bytes, segment_bytes_max)
        {
            return Some(at..at + 2);
        }
        if segment.live_bytes * 2 < segment.bytes && segment.bytes > segment_bytes_max / 4 {
            return Some(at..at + 1);
        }
    }
    None
}

/// True if two neighbours should be joined: half a segment holds both, and a large one is not copied often for small ones.
fn joins(one: u64, other: u64, segment_bytes_max: u64) -> bool {
    let (small, large) = (one.min(other), one.max(other));
    let both = small + large;
    both <= segment_bytes_max / 2 && (large <= small * 4 || both <= segment_bytes_max / 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wasteful_of(segments: &[(u64, u64)]) -> Option<Range<usize>> {
        let closed = |(id, (bytes, live_bytes)): (usize, &(u64, u64))| SegmentInfo {
            id: id as u64,
            bytes: *bytes,
            live_bytes: *live_bytes,
            closed: id + 1 < segments.len(),
        };
        let segments: Vec<_> = segments.iter().enumerate().map(closed).collect();
        wasteful(&segments, &[77], 1600)
    }

    #[test]
    fn segments_are_rewritten_when_that_gains_more_than_it_costs() {
        let open = (100, 0);
        assert_eq!(wasteful_of(&[open]), None, "the last one is written to");
        assert_eq!(wasteful_of(&[(1600, 1500), open]), None);
        assert_eq!(
            wasteful_of(&[(1600, 700), open]),
            Some(0..1),
            "half useless"
        );
        assert_eq!(wasteful_of(&[(300, 100), open]), None, "too little to gain");
        let dead = [(1600, 1500), (1600, 0), (1600, 0), (1600, 700), open];
        assert_eq!(wasteful_of(&dead), Some(1..3), "what is dead goes first");
        assert_eq!(wasteful_of(&[(400, 400), (300, 300), open]), Some(0..2));
        assert_eq!(
            wasteful_of(&[(700, 700), (50, 50), open]),
            None,
            "copied for little"
        );
        assert_eq!(
            wasteful_of(&[(60, 60), (5, 5), open]),
            Some(0..2),
            "both are little"
        );
        assert_eq!(wasteful_of(&[(900, 900), (800, 800), open]), None);
    }
}
