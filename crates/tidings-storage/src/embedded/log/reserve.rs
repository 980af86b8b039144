//! Room on the disk that is kept for compaction: on a full disk it is what compaction begins with.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::embedded::disk::{self, Disk, OpenMode};

/// Written into the reserve at once.
const CHUNK: usize = 64 << 10;

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

    /// Sees to it that so much is kept.
    pub(super) fn fill(&mut self, wanted: u64) -> io::Result<()> {
        if self.bytes >= wanted {
            return Ok(());
        }
        let filled = self.write(wanted);
        if filled.is_err() {
            // Half a reserve would take from others what may be too little for us.
            let _ = self.disk.remove(&self.path);
            self.bytes = 0;
        }
        filled
    }

    fn write(&mut self, wanted: u64) -> io::Result<()> {
        let file = self.disk.open(&self.path, OpenMode::Create)?;
        // Not zeros: some file systems keep no room for those.
        let chunk: Vec<u8> = (0..CHUNK as u32).map(|at| (at % 251) as u8 + 1).collect();
        let mut written = 0;
        while written < wanted {
            let bytes = (wanted - written).min(CHUNK as u64);
            disk::write_all_at(&*file, &chunk[..bytes as usize], written)?;
            written += bytes;
        }
        file.sync()?;
        self.bytes = wanted;
        Ok(())
    }
}
