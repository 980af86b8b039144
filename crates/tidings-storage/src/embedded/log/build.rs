//! Writes a whole log at once, to restore a backup.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::DataDirectory;
use super::frame::FrameGroup;
use super::manifest::Manifest;
use super::open_error::OpenError;
use super::segment::{self, HEADER_BYTES};
use super::{SegmentId, SegmentInfo};
use crate::contract::Revision;
use crate::embedded::disk::Disk;
use crate::embedded::record::Record;

/// A log that is being written. Until [`LogBuilder::finish`] has returned, the directory has no store.
#[derive(Debug)]
pub(crate) struct LogBuilder {
    directory: DataDirectory,
    segment_bytes_max: u64,
    segments: Vec<SegmentInfo>,
    group: FrameGroup,
}

impl LogBuilder {
    /// Starts a log in a directory; `None` if the directory has a store.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        path: &Path,
        beside: &[&str],
        segment_bytes_max: u64,
    ) -> Result<Option<LogBuilder>, OpenError> {
        let Some(directory) = DataDirectory::claim(disk, path, beside)? else {
            return Ok(None);
        };
        Ok(Some(LogBuilder {
            directory,
            segment_bytes_max,
            segments: Vec::new(),
            group: FrameGroup::at(1, HEADER_BYTES),
        }))
    }

    fn next_id(&self) -> SegmentId {
        self.segments.len() as SegmentId + 1
    }

    /// Adds a record; records must be in the order of their revisions. After an error all files are removed.
    pub(crate) fn push(&mut self, revision: Revision, record: &Record) -> Result<(), OpenError> {
        self.group.push_record(revision, record);
        if self.group.end() < self.segment_bytes_max {
            return Ok(());
        }
        self.close_segment()
    }

    fn close_segment(&mut self) -> Result<(), OpenError> {
        let id = self.next_id();
        let path = self.directory.segment_path(id);
        self.segments.push(SegmentInfo {
            id,
            bytes: self.group.end(),
            live_bytes: self.group.as_bytes().len() as u64,
            closed: true,
        });
        let made = segment::create(&*self.directory.disk, &path, &self.group);
        self.group = FrameGroup::at(self.next_id(), HEADER_BYTES);
        match made {
            Ok(_) => Ok(()),
            Err(source) => {
                self.abandon();
                Err(OpenError::io(&path, source))
            }
        }
    }

    /// Completes the store, whose history starts at `oldest`.
    pub(crate) fn finish(mut self, oldest: Revision) -> Result<(), OpenError> {
        if !self.group.as_bytes().is_empty() {
            self.close_segment()?;
        }
        let closed = |segment: &SegmentInfo| (segment.id, Some(segment.bytes));
        let manifest = Manifest {
            oldest,
            segments: self.segments.iter().map(closed).collect(),
            ..Manifest::default()
        };
        let finished = self
            .directory
            .write_manifest(&manifest)
            .and_then(|()| self.directory.publish_manifest())
            .and_then(|()| self.directory.write_format())
            .and_then(|()| self.directory.sync_path());
        finished.map_err(|source| {
            self.abandon();
            OpenError::io(self.directory.path(), source)
        })
    }

    /// Removes all files that were written.
    pub(crate) fn abandon(&mut self) {
        let segments = self.segments.iter();
        let made: Vec<PathBuf> = segments
            .map(|info| self.directory.segment_path(info.id))
            .collect();
        self.directory.abandon(&made);
    }
}
