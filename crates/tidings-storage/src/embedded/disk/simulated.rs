//! A file system in memory that fails on purpose, and repeats its failures from a seed.
//!
//! It keeps both the state that processes see and the state that survives a power loss. Contents become durable page by page when
//! a file is synced, names when their directory is synced. A power loss keeps a random subset of the pages that were not synced,
//! and a random prefix of the changes of names. A failed sync may lose its pages: processes still see them, but later syncs do
//! not write them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, Lock, OpenMode};

/// What fails at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The power fails: data that was not synced may be lost.
    PowerLoss,
    /// The process is killed: all its writes survive.
    Kill,
    /// The device returns an error.
    Error,
    /// A write writes fewer bytes than given. Other calls succeed.
    Short,
    /// The calling thread panics.
    Panic,
}

/// A function that runs at a call.
struct CallHook(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for CallHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

/// A file system in memory. Clones share it and belong to the same process.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    inner: Arc<Mutex<SimulatedState>>,
    /// The number of the process that uses this handle. Handles of ended processes do not work.
    process: u64,
}

type FileId = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SimulatedNode {
    File(FileId),
    Directory,
}

/// A created or removed name in a directory.
#[derive(Debug, Clone)]
struct NameChange {
    path: PathBuf,
    /// `None` removes the name.
    node: Option<SimulatedNode>,
}

/// The content of a file, as processes see it and as it would survive a power loss.
#[derive(Debug, Default, Clone)]
struct SimulatedContent {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Pages that the next sync writes.
    dirty: BTreeSet<usize>,
}

/// The file system, and the failures that are planned for it.
#[derive(Debug)]
struct SimulatedState {
    random: fastrand::Rng,
    page_bytes: usize,
    process: u64,
    calls: u64,
    plan: BTreeMap<u64, Fault>,
    hooks: BTreeMap<u64, CallHook>,
    capacity: Option<u64>,
    files: HashMap<FileId, SimulatedContent>,
    next_file: FileId,
    names: BTreeMap<PathBuf, SimulatedNode>,
    durable_names: BTreeMap<PathBuf, SimulatedNode>,
    /// Changes of names that are not durable, by directory.
    pending: BTreeMap<PathBuf, Vec<NameChange>>,
    locked: BTreeSet<PathBuf>,
}

fn device_error() -> io::Error {
    io::Error::other("the device has failed")
}

fn gone() -> io::Error {
    io::Error::other("the process is gone")
}

impl SimulatedDisk {
    /// An empty file system. The seed decides the effects of failures and the page size.
    pub fn new(seed: u64) -> SimulatedDisk {
        let mut random = fastrand::Rng::with_seed(seed);
        let page_bytes = 1 << random.u32(4..9);
        let root = (PathBuf::from("/"), SimulatedNode::Directory);
        let inner = SimulatedState {
            random,
            page_bytes,
            process: 0,
            calls: 0,
            plan: BTreeMap::new(),
            hooks: BTreeMap::new(),
            capacity: None,
            files: HashMap::new(),
            next_file: 0,
            names: [root.clone()].into(),
            durable_names: [root].into(),
            pending: BTreeMap::new(),
            locked: BTreeSet::new(),
        };
        SimulatedDisk {
            inner: Arc::new(Mutex::new(inner)),
            process: 0,
        }
    }

    fn inner(&self) -> MutexGuard<'_, SimulatedState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.inner().calls
    }

    /// Plans a fault for the call after `calls` more calls; 0 is the next call.
    pub fn fail_after(&self, calls: u64, fault: Fault) {
        let mut inner = self.inner();
        let at = inner.calls + calls;
        inner.plan.insert(at, fault);
    }

    /// Runs a function before the call after `calls` more calls, as another thread might do at that moment.
    pub fn call_after(&self, calls: u64, act: impl FnOnce() + Send + 'static) {
        let mut inner = self.inner();
        let at = inner.calls + calls;
        inner.hooks.insert(at, CallHook(Box::new(act)));
    }

    /// True if a fault is planned.
    pub fn may_fail(&self) -> bool {
        !self.inner().plan.is_empty()
    }

    /// Drops all planned faults.
    pub fn heal(&self) {
        self.inner().plan.clear();
    }

    /// Sets the capacity in bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.inner().capacity = bytes;
    }

    /// The number of used bytes.
    pub fn used(&self) -> u64 {
        self.inner().used()
    }

    /// True if the process of this handle has ended.
    pub fn has_crashed(&self) -> bool {
        self.inner().process != self.process
    }

    /// Ends the process of this handle, with or without a power loss.
    pub fn crash(&self, fault: Fault) {
        let mut inner = self.inner();
        if inner.process == self.process {
            inner.end_process(fault == Fault::PowerLoss);
        }
    }

    /// A handle for the next process.
    pub fn next_process(&self) -> SimulatedDisk {
        SimulatedDisk {
            inner: self.inner.clone(),
            process: self.inner().process,
        }
    }

    /// Changes the durable bytes of a file, for tests of damage.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.inner();
        if let Some(SimulatedNode::File(file)) = inner.names.get(path).copied()
            && let Some(content) = inner.files.get_mut(&file)
        {
            edit(&mut content.seen);
            content.durable.clone_from(&content.seen);
            content.dirty.clear();
        }
    }

    /// Starts a call: runs the planned function and returns the planned fault.
    fn call(&self) -> io::Result<(MutexGuard<'_, SimulatedState>, Option<Fault>)> {
        let calls = self.inner().calls;
        let hook = self.inner().hooks.remove(&calls);
        if let Some(CallHook(act)) = hook {
            act();
        }
        let mut inner = self.inner();
        if inner.process != self.process {
            return Err(gone());
        }
        let at = inner.calls;
        inner.calls += 1;
        let fault = inner.plan.remove(&at);
        assert!(fault != Some(Fault::Panic), "a panic was asked for");
        Ok((inner, fault))
    }

    /// Runs an atomic call. A crash happens before or after it.
    fn whole<T>(&self, act: impl FnOnce(&mut SimulatedState) -> io::Result<T>) -> io::Result<T> {
        let (mut inner, fault) = self.call()?;
        match fault {
            None | Some(Fault::Short) => act(&mut inner),
            Some(Fault::Error) => Err(device_error()),
            Some(crash) => {
                if inner.random.bool() {
                    let _ = act(&mut inner);
                }
                inner.end_process(crash == Fault::PowerLoss);
                Err(gone())
            }
        }
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl SimulatedState {
    fn used(&self) -> u64 {
        let files = self.names.values().filter_map(|node| match node {
            SimulatedNode::File(file) => self.files.get(file),
            SimulatedNode::Directory => None,
        });
        let pages = files.map(|content| content.seen.len().div_ceil(self.page_bytes));
        (pages.sum::<usize>() * self.page_bytes) as u64
    }

    fn change_name(&mut self, path: &Path, node: Option<SimulatedNode>) {
        match node {
            Some(node) => self.names.insert(path.to_owned(), node),
            None => self.names.remove(path),
        };
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        self.pending.entry(directory).or_default().push(NameChange {
            path: path.to_owned(),
            node,
        });
    }

    fn apply_durably(&mut self, changes: impl IntoIterator<Item = NameChange>) {
        for NameChange { path, node } in changes {
            match node {
                Some(node) => self.durable_names.insert(path, node),
                None => self.durable_names.remove(&path),
            };
        }
    }

    fn end_process(&mut self, power_loss: bool) {
        self.process += 1;
        self.locked.clear();
        self.plan.clear();
        if !power_loss {
            return;
        }
        for (_, changes) in std::mem::take(&mut self.pending) {
            let survive = self.random.usize(..=changes.len());
            self.apply_durably(changes.into_iter().take(survive));
        }
        // Drops everything in directories that were lost.
        let directories: BTreeSet<PathBuf> = self
            .durable_names
            .iter()
            .filter(|(_, node)| **node == SimulatedNode::Directory)
            .map(|(path, _)| path.clone())
            .collect();
        let reachable = |path: &PathBuf| {
            path.ancestors()
                .skip(1)
                .all(|above| directories.contains(above))
        };
        self.durable_names.retain(|path, _| reachable(path));
        self.names = self.durable_names.clone();
        let page_bytes = self.page_bytes;
        for content in self.files.values_mut() {
            for page in std::mem::take(&mut content.dirty) {
                if self.random.bool() {
                    content.write_back(page, page_bytes);
                }
            }
            content.seen = content.durable.clone();
        }
    }
}

impl SimulatedContent {
    /// Makes one page durable.
    fn write_back(&mut self, page: usize, page_bytes: usize) {
        let start = page * page_bytes;
        let end = (start + page_bytes).min(self.seen.len());
        if start < end {
            if self.durable.len() < end {
                self.durable.resize(end, 0);
            }
            self.durable[start..end].copy_from_slice(&self.seen[start..end]);
        }
    }

    fn touch(&mut self, start: usize, end: usize, page_bytes: usize) {
        if start < end {
            self.dirty
                .extend(start / page_bytes..=(end - 1) / page_bytes);
        }
    }
}

impl Disk for SimulatedDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.whole(|inner| {
            let mut missing: Vec<&Path> = path.ancestors().collect();
            missing.retain(|above| !inner.names.contains_key(*above));
            for above in missing.into_iter().rev() {
                inner.change_name(above, Some(SimulatedNode::Directory));
            }
            Ok(())
        })
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.whole(|inner| {
            let inside = inner
                .names
                .keys()
                .filter(|path| path.parent() == Some(directory));
            let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
            Ok(inside.filter_map(name).collect())
        })
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.whole(|inner| match (inner.names.get(path).copied(), mode) {
            (Some(SimulatedNode::Directory), _) => Err(io::ErrorKind::IsADirectory.into()),
            (Some(SimulatedNode::File(file)), OpenMode::Read | OpenMode::Write) => Ok(file),
            (there, OpenMode::Create) => {
                if there.is_some() {
                    inner.change_name(path, None);
                }
                if inner
                    .capacity
                    .is_some_and(|capacity| inner.used() >= capacity)
                {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let file = inner.next_file;
                inner.next_file += 1;
                inner.files.insert(file, SimulatedContent::default());
                inner.change_name(path, Some(SimulatedNode::File(file)));
                Ok(file)
            }
            (None, _) => Err(not_found()),
        })?;
        let disk = self.clone();
        Ok(Arc::new(SimulatedFile { disk, file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole(|inner| {
            let node = *inner.names.get(from).ok_or_else(not_found)?;
            inner.change_name(to, Some(node));
            inner.change_name(from, None);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.whole(|inner| {
            inner.names.get(path).ok_or_else(not_found)?;
            inner.change_name(path, None);
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.remove(path)
    }

    fn sync_names(&self, directory: &Path) -> io::Result<()> {
        self.whole(|inner| {
            let changes = inner.pending.remove(directory).unwrap_or_default();
            inner.apply_durably(changes);
            Ok(())
        })
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Box<dyn Lock>> {
        if !create && !self.inner().names.contains_key(path) {
            return Err(not_found());
        }
        if create && !self.inner().names.contains_key(path) {
            self.open(path, OpenMode::Create)?;
        }
        self.whole(|inner| match inner.locked.insert(path.to_owned()) {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })?;
        Ok(Box::new(SimulatedLock {
            disk: self.clone(),
            path: path.to_owned(),
        }))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let inner = self.inner();
        let capacity = inner.capacity.unwrap_or(u64::MAX);
        Ok(capacity.saturating_sub(inner.used()))
    }
}

#[derive(Debug)]
struct SimulatedLock {
    disk: SimulatedDisk,
    path: PathBuf,
}

impl Lock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut inner = self.disk.inner();
        if inner.process == self.disk.process {
            inner.locked.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    file: FileId,
}

impl DiskFile for SimulatedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.disk.whole(|inner| {
            let content = inner.files.get(&self.file).ok_or_else(not_found)?;
            Ok(content.seen.len() as u64)
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.whole(|inner| {
            let content = inner.files.get(&self.file).ok_or_else(not_found)?;
            let rest = content.seen.get(offset as usize..).unwrap_or_default();
            let read = rest.len().min(buffer.len());
            buffer[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (mut guard, fault) = self.disk.call()?;
        let inner = &mut *guard;
        let (used, page_bytes) = (inner.used(), inner.page_bytes);
        let mut count = match fault {
            None => bytes.len(),
            Some(_) => inner.random.usize(..=bytes.len()),
        };
        let content = inner.files.get_mut(&self.file).ok_or_else(not_found)?;
        if let Some(capacity) = inner.capacity {
            let own = content.seen.len().div_ceil(page_bytes) * page_bytes;
            let room = own as u64 + capacity.saturating_sub(used);
            count = count.min(room.saturating_sub(offset) as usize);
        }
        let (start, end) = (offset as usize, offset as usize + count);
        let old_end = content.seen.len();
        if old_end < end {
            content.seen.resize(end, 0);
        }
        content.seen[start..end].copy_from_slice(&bytes[..count]);
        content.touch(start.min(old_end), end, page_bytes);
        match fault {
            Some(crash @ (Fault::PowerLoss | Fault::Kill)) => {
                inner.end_process(crash == Fault::PowerLoss);
                Err(gone())
            }
            Some(Fault::Error) => Err(device_error()),
            _ if count == 0 && !bytes.is_empty() => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(count),
        }
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.disk.whole(|inner| {
            let page_bytes = inner.page_bytes;
            let content = inner.files.get_mut(&self.file).ok_or_else(not_found)?;
            let (old, new) = (content.seen.len(), bytes as usize);
            content.seen.resize(new, 0);
            content.dirty.retain(|page| page * page_bytes < new);
            // The rest of the last page becomes zeros.
            if new < old && !new.is_multiple_of(page_bytes) {
                content.dirty.insert(new / page_bytes);
            }
            content.touch(old.min(new), new, page_bytes);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        let (mut guard, fault) = self.disk.call()?;
        let inner = &mut *guard;
        let page_bytes = inner.page_bytes;
        let content = inner.files.get_mut(&self.file).ok_or_else(not_found)?;
        let failed = !matches!(fault, None | Some(Fault::Short));
        if let Some(crash @ (Fault::PowerLoss | Fault::Kill)) = fault {
            inner.end_process(crash == Fault::PowerLoss);
            return Err(gone());
        }
        for page in std::mem::take(&mut content.dirty) {
            if !failed || inner.random.bool() {
                content.write_back(page, page_bytes);
            }
        }
        if failed {
            return Err(device_error());
        }
        content.durable.resize(content.seen.len(), 0);
        Ok(())
    }
}
