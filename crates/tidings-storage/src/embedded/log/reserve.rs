//! Room on the disk that is kept for compaction: on a full disk it is what compaction begins with.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::writing::RESERVE_LEAST;
use crate::embedded::disk::{self, Disk, OpenMode};

/// Written into the reserve at once.
const CHUNK: usize = 64 << 10;
/// The reserve does not grow into the last of the room.
const ROOM_FOR_OTHERS: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// How much is kept now.
    bytes: u64,
}

impl Reserve {
    /// The reserve that is there, if any.
    pub(super) fn find(disk: Arc<dyn Disk>, path: PathBuf) -> Reserve {
        let there = disk
            .open(&path, OpenMode::Read)
            .and_then(|file| file.bytes());
        Reserve {
            bytes: there.unwrap_or(0),
            disk,
            path,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the room back to the disk. True if there was any.
    pub(super) fn release(&mut self) -> bool {
        if self.bytes == 0 || self.disk.remove(&self.path).is_err() {
            return false;
        }
        tracing::warn!(
            bytes = self.bytes,
            "the disk is full: the reserve is used to compact history"
        );
        self.bytes = 0;
        true
    }

    /// Sees to it that so much is kept, or at least a little, as far as there is room.
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
        // Not zeros: some file systems keep no room for those.
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

    /// Takes back what was begun.
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
