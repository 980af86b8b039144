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

/// Finds the same while `managedFields` are scanned and left out. What is kept of them is at most a name and a value of an entry at a time.
#[derive(Debug, Default)]
pub(crate) struct LastManagerFinder {
    newest: ManagerEntry,
    entry: ManagerEntry,
    /// The name or value that is being read, as far as it has arrived.
    text: Vec<u8>,
    reading: Reading,
    /// The manager of an earlier object: most objects of a resource share a few.
    last: Option<Arc<str>>,
}

/// The part of an entry that is being read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reading {
    #[default]
    Nothing,
    Name,
    /// Between a name and its value.
    Colon,
    Manager,
    Time,
}

/// A name or value that is longer than this tells nothing.
const TEXT_BYTES_MAX: usize = 1024;

impl LastManagerFinder {
    /// `managedFields` begin.
    pub(crate) fn start(&mut self) {
        self.newest = ManagerEntry::default();
        self.entry = ManagerEntry::default();
        self.reading = Reading::Nothing;
    }

    /// The name of a member of an entry begins.
    pub(crate) fn name_start(&mut self) {
        self.text.clear();
        self.reading = Reading::Name;
    }

    /// More bytes of what is being read.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let is_wanted = !matches!(self.reading, Reading::Nothing | Reading::Colon);
        if is_wanted && self.text.len() + bytes.len() <= TEXT_BYTES_MAX {
            self.text.extend_from_slice(bytes);
        }
    }

    /// The name of a member has ended.
    pub(crate) fn name_end(&mut self) {
        self.reading = Reading::Colon;
    }

    /// The value of a member begins. True if its bytes are wanted.
    pub(crate) fn value_start(&mut self) -> bool {
        self.reading = match &*self.text {
            b"\"manager\"" => Reading::Manager,
            b"\"time\"" => Reading::Time,
            _ => Reading::Nothing,
        };
        self.text.clear();
        self.reading != Reading::Nothing
    }

    /// The value of a member has ended.
    pub(crate) fn value_end(&mut self) {
        let place = match self.reading {
            Reading::Manager => &mut self.entry.manager,
            Reading::Time => &mut self.entry.time,
            Reading::Nothing | Reading::Name | Reading::Colon => return,
        };
        let text = unquote(&self.text).unwrap_or_default();
        place.clear();
        place.push_str(std::str::from_utf8(&text).unwrap_or_default());
        self.reading = Reading::Nothing;
    }

    /// An entry has ended.
    pub(crate) fn entry_end(&mut self) {
        if self.entry.time >= self.newest.time {
            std::mem::swap(&mut self.entry, &mut self.newest);
        }
        self.entry.manager.clear();
        self.entry.time.clear();
    }

    /// The manager of the newest entry since the start.
    pub(crate) fn take(&mut self) -> Option<Arc<str>> {
        let manager = std::mem::take(&mut self.newest).manager;
        if manager.is_empty() {
            return None;
        }
        if self.last.as_deref() != Some(&*manager) {
            self.last = Some(manager.into());
        }
        self.last.clone()
    }
}
