//! Reserved disk space: on a full disk it is released, so that compaction has space to start.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::writing::RESERVE_LEAST;
use crate::embedded::disk::{self, Disk, OpenMode};

/// The size of one write to the reserve.
const CHUNK: usize = 64 << 10;
/// Free space that the reserve does not use.
const ROOM_FOR_OTHERS: u64 = 4 << 20;

/// A file that reserves disk space.
#[derive(Debug)]
pub(super) struct DiskReserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The size of the file.
    bytes: u64,
}

impl DiskReserve {
    /// Finds an existing reserve.
    pub(super) fn find(disk: Arc<dyn Disk>, path: PathBuf) -> DiskReserve {
        let there = disk
            .open(&path, OpenMode::Read)
            .and_then(|file| file.bytes());
        DiskReserve {
            bytes: there.unwrap_or(0),
            disk,
            path,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes the reserve to free its space. True if there was one.
    pub(super) fn release(&mut self) -> bool {
        if self.bytes == 0 || self.disk.remove(&self.path).is_err() {
            return false;
        }
        tracing::warn!(
            bytes = self.bytes,
            "the disk is full: released the reserve to compact history"
        );
        self.bytes = 0;
        true
    }

    /// Grows the reserve to `wanted`, or to a minimum if there is not enough free space.
    pub(super) fn fill(&mut self, wanted: u64, free_bytes: Option<u64>) -> io::Result<()> {
        let free = free_bytes.unwrap_or(u64::MAX);
        let fits = |wanted: u64| free.saturating_sub(ROOM_FOR_OTHERS) >= wanted - self.bytes;
        let wanted = if wanted <= self.bytes || fits(wanted) {
            wanted
        } else {
            wanted.min(RESERVE_LEAST)
        };
        if self.bytes >= wanted {
            return Ok(());
        }
        let had = self.bytes;
        let grown = self.grow(wanted);
        if grown.is_err() {
            self.shrink(had);
        }
        grown
    }

    fn grow(&mut self, wanted: u64) -> io::Result<()> {
        let mode = if self.bytes == 0 {
            OpenMode::Create
        } else {
            OpenMode::Write
        };
        let file = self.disk.open(&self.path, mode)?;
        // Not zeros, because some file systems do not allocate space for them.
        let chunk: Vec<u8> = (0..CHUNK as u32).map(|at| (at % 251) as u8 + 1).collect();
        let mut written = self.bytes;
        while written < wanted {
            let bytes = (wanted - written).min(CHUNK as u64);
            disk::write_all_at(&*file, &chunk[..bytes as usize], written)?;
            written += bytes;
        }
        file.sync()?;
        self.bytes = wanted;
        Ok(())
    }

    /// Undoes a growth that failed.
    fn shrink(&mut self, bytes: u64) {
        let shrunk = self
            .disk
            .open(&self.path, OpenMode::Write)
            .and_then(|file| file.set_bytes(bytes));
        if bytes == 0 || shrunk.is_err() {
            let _ = self.disk.remove(&self.path);
            self.bytes = 0;
        }
    }
}
