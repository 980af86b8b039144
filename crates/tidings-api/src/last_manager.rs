//! Who wrote an object last: the manager of the newest entry of `metadata.managedFields`.

use std::sync::Arc;

use serde::Deserialize;
use tidings_json::unquote;

/// The members of an entry that tell who wrote, and when.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ManagerEntry {
    manager: String,
    /// In RFC 3339, in UTC: texts sort as times do.
    time: String,
}

/// The manager of the newest entry of `managedFields`, as JSON. Times are of whole seconds: of several entries in one second the last counts.
pub(crate) fn last_manager(managed_fields: &[u8]) -> Option<Arc<str>> {
    let entries: Vec<ManagerEntry> = serde_json::from_slice(managed_fields).ok()?;
    let newest = entries.into_iter().max_by(|a, b| a.time.cmp(&b.time))?;
    (!newest.manager.is_empty()).then(|| newest.manager.into())
}

/// Finds the same while `managedFields` are scanned and left out. What is kept of them is at most a name and two values of an entry.
#[derive(Debug, Default)]
pub(crate) struct LastManagerFinder {
    newest: FoundEntry,
    entry: FoundEntry,
    /// The beginning of the name or value that is being read, if it came in an earlier chunk.
    begun: Vec<u8>,
    reading: Reading,
    /// The manager of an earlier object: most objects of a resource share a few.
    last: Option<Arc<str>>,
}

/// Values of an entry, as JSON.
#[derive(Debug, Default)]
struct FoundEntry {
    manager: Vec<u8>,
    time: Vec<u8>,
}

/// The part of an entry that is being read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reading {
    #[default]
    Nothing,
    Name,
    /// Between a name and its value, which is wanted.
    Colon(WantedMember),
    Value(WantedMember),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedMember {
    Manager,
    Time,
}

/// A name or value that is longer than this tells nothing.
const TEXT_BYTES_MAX: usize = 1024;

impl LastManagerFinder {
    /// `managedFields` begin.
    pub(crate) fn start(&mut self) {
        self.newest.clear();
        self.entry.clear();
        self.reading = Reading::Nothing;
    }

    /// The name of a member of an entry begins.
    pub(crate) fn name_start(&mut self) {
        self.reading = Reading::Name;
    }

    /// The bytes so far of what is being read; the rest comes in another chunk.
    pub(crate) fn chunk_end(&mut self, bytes: &[u8]) {
        let is_wanted = matches!(self.reading, Reading::Name | Reading::Value(_));
        if is_wanted && self.begun.len() + bytes.len() <= TEXT_BYTES_MAX {
            self.begun.extend_from_slice(bytes);
        }
    }

    /// The name of a member has ended; these are its bytes, in this chunk.
    pub(crate) fn name_end(&mut self, bytes: &[u8]) {
        let name = if self.begun.is_empty() {
            bytes
        } else {
            self.begun.extend_from_slice(bytes);
            &self.begun
        };
        self.reading = match name {
            b"\"manager\"" => Reading::Colon(WantedMember::Manager),
            b"\"time\"" => Reading::Colon(WantedMember::Time),
            _ => Reading::Nothing,
        };
        self.begun.clear();
    }

    /// The value of a member begins. True if it is wanted.
    pub(crate) fn value_start(&mut self) -> bool {
        let Reading::Colon(member) = self.reading else {
            return false;
        };
        self.reading = Reading::Value(member);
        true
    }

    /// The value of a member has ended; these are its bytes in this chunk, if it is wanted.
    pub(crate) fn value_end(&mut self, bytes: &[u8]) {
        let Reading::Value(member) = self.reading else {
            return;
        };
        let value = match member {
            WantedMember::Manager => &mut self.entry.manager,
            WantedMember::Time => &mut self.entry.time,
        };
        value.clear();
        value.extend_from_slice(&self.begun);
        value.extend_from_slice(bytes);
        self.begun.clear();
        self.reading = Reading::Nothing;
    }

    /// An entry has ended.
    pub(crate) fn entry_end(&mut self) {
        if self.entry.time >= self.newest.time {
            std::mem::swap(&mut self.entry, &mut self.newest);
        }
        self.entry.clear();
    }

    /// The manager of the newest entry since the start.
    pub(crate) fn take(&mut self) -> Option<Arc<str>> {
        let manager = unquote(&self.newest.manager).unwrap_or_default();
        let manager = std::str::from_utf8(&manager).unwrap_or_default();
        if manager.is_empty() {
            return None;
        }
        if self.last.as_deref() != Some(manager) {
            self.last = Some(manager.into());
        }
        self.newest.clear();
        self.last.clone()
    }
}

impl FoundEntry {
    fn clear(&mut self) {
        self.manager.clear();
        self.time.clear();
    }
}
