//! Everything a simulated disk knows, behind one lock, so that a run is one sequence of operations.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::disk::OpenMode;
use crate::sim::disk::content::{Content, Keep};
use crate::sim::disk::fault::{FaultCounts, FaultRule, Operation, crashed, input_output};
use crate::sim::disk::names::{Entry, Names};
use crate::sim::disk::trace::Trace;
use crate::sim::random::Rng;

/// What is to become of an operation that starts.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Fate {
    Runs,
    Fails,
    /// Its effect is in flight when the power goes.
    Crashes,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) names: Names,
    inodes: BTreeMap<u64, Content>,
    next_inode: u64,
    /// Open handles per inode, of this life of the process only.
    handles: BTreeMap<u64, usize>,
    locks: BTreeSet<PathBuf>,
    rng: Rng,
    pub(super) down: bool,
    /// Counts the lives of the process.
    pub(super) epoch: u64,
    pub(super) operations: u64,
    /// Bytes handed to [`State::write`].
    pub(super) written_bytes: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) rules: Vec<FaultRule>,
    pub(super) bad_ranges: Vec<(PathBuf, Range<u64>)>,
    pub(super) capacity: Option<u64>,
    pub(super) counts: FaultCounts,
    pub(super) trace: Trace,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            names: Names::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            handles: BTreeMap::new(),
            locks: BTreeSet::new(),
            rng: Rng::new(seed),
            down: false,
            epoch: 0,
            operations: 0,
            written_bytes: 0,
            crash_at: None,
            rules: Vec::new(),
            bad_ranges: Vec::new(),
            capacity: None,
            counts: FaultCounts::default(),
            trace: Trace::new(),
        }
    }

    // ---- Lives and deaths ----

    pub(super) fn power_off(&mut self) {
        if self.down {
            return;
        }
        self.down = true;
        self.counts.crashes += 1;
        let keep = Keep::draw(&mut self.rng);
        self.names.crash(&mut self.rng, keep, &mut self.counts);
        let named = self.names.inodes();
        self.inodes.retain(|inode, _| named.contains(inode));
        for content in self.inodes.values_mut() {
            content.crash(&mut self.rng, keep, &mut self.counts);
        }
    }

    pub(super) fn restart(&mut self) {
        self.power_off();
        self.down = false;
        self.crash_at = None;
        self.rules.clear();
        self.bad_ranges.clear();
        self.next_epoch();
    }

    pub(super) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.handles.clear();
        self.locks.clear();
    }

    pub(super) fn check_epoch(&self, epoch: u64) -> io::Result<()> {
        if self.epoch == epoch { Ok(()) } else { Err(crashed()) }
    }

    /// Counts an operation, records it, and decides its fate.
    fn begin(&mut self, operation: Operation, path: &Path, at: u64, data: &[u8]) -> io::Result<Fate> {
        if self.down {
            return Err(crashed());
        }
        let number = self.operations;
        let fate = self.fate(operation, path);
        let end = match fate {
            Fate::Runs => "runs",
            Fate::Fails => "fails",
            Fate::Crashes => "crashes",
        };
        self.trace.record(number, operation, path, at, data, end);
        Ok(fate)
    }

    fn fate(&mut self, operation: Operation, path: &Path) -> Fate {
        if operation.mutates() {
            let number = self.operations;
            self.operations += 1;
            if self.crash_at == Some(number) {
                return Fate::Crashes;
            }
        }
        let Some(found) = self.rules.iter().position(|rule| rule.matches(operation, path)) else {
            return Fate::Runs;
        };
        if self.rules[found].skip > 0 {
            self.rules[found].skip -= 1;
            return Fate::Runs;
        }
        self.rules.remove(found);
        match operation {
            Operation::SyncFile | Operation::SyncDir => self.counts.syncs_failed += 1,
            operation if operation.mutates() => self.counts.writes_failed += 1,
            _ => self.counts.reads_failed += 1,
        }
        Fate::Fails
    }

    /// Ends an operation whose effect has been applied as far as its fate allows.
    fn end(&mut self, fate: Fate) -> io::Result<()> {
        match fate {
            Fate::Runs => Ok(()),
            Fate::Fails => Err(input_output()),
            Fate::Crashes => {
                self.power_off();
                Err(crashed())
            }
        }
    }

    // ---- Names ----

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        if self.names.is_directory(dir) {
            return Ok(());
        }
        let parent = dir.parent().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        self.create_dir_all(&parent)?;
        if self.names.get(dir).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let fate = self.begin(Operation::CreateDir, dir, 0, &[])?;
        if fate != Fate::Fails {
            self.names.put(dir, Entry::Directory);
        }
        self.end(fate)?;
        self.sync_dir(&parent)
    }

    pub(super) fn open(&mut self, path: &Path, mode: OpenMode) -> io::Result<u64> {
        let create = mode == OpenMode::CreateNew;
        let fate = self.begin(if create { Operation::Create } else { Operation::Open }, path, 0, &[])?;
        let inode = match (self.names.get(path), create) {
            (Some(_), true) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, false) => return Err(io::ErrorKind::NotFound.into()),
            (Some(Entry::Directory), false) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Entry::File(inode)), false) => inode,
            (None, true) if fate == Fate::Fails => 0,
            (None, true) => self.create(path)?,
        };
        self.end(fate)?;
        *self.handles.entry(inode).or_default() += 1;
        Ok(inode)
    }

    fn create(&mut self, path: &Path) -> io::Result<u64> {
        if !path.parent().is_some_and(|parent| self.names.is_directory(parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Content::default());
        self.names.put(path, Entry::File(inode));
        Ok(inode)
    }

    pub(super) fn close(&mut self, inode: u64, epoch: u64) {
        if self.epoch == epoch
            && let Some(count) = self.handles.get_mut(&inode)
        {
            *count -= 1;
        }
    }

    pub(super) fn open_handles(&self) -> usize {
        self.handles.values().sum()
    }

    pub(super) fn list(&mut self, dir: &Path) -> io::Result<Vec<String>> {
        let fate = self.begin(Operation::List, dir, 0, &[])?;
        self.end(fate)?;
        if !self.names.is_directory(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.names.list(dir))
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if from.parent() != to.parent() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a rename stays in its directory"));
        }
        let fate = self.begin(Operation::Rename, to, 0, from.as_os_str().as_encoded_bytes())?;
        let Some(Entry::File(inode)) = self.names.get(from) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if fate != Fate::Fails {
            self.names.rename(from, to, inode);
        }
        self.end(fate)
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let fate = self.begin(Operation::Remove, path, 0, &[])?;
        let Some(Entry::File(_)) = self.names.get(path) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if fate != Fate::Fails {
            self.names.remove(path);
        }
        self.end(fate)
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        let fate = self.begin(Operation::SyncDir, dir, 0, &[])?;
        if !self.names.is_directory(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match fate {
            Fate::Runs => self.names.sync(dir),
            Fate::Fails => self.names.sync_fails(dir, &mut self.rng),
            // What the sync would have covered is as uncertain as before it.
            Fate::Crashes => {}
        }
        self.end(fate)
    }

    pub(super) fn exists(&mut self, path: &Path) -> io::Result<bool> {
        if self.down { Err(crashed()) } else { Ok(self.names.get(path).is_some()) }
    }

    /// False when the lock is held.
    pub(super) fn lock(&mut self, path: &Path) -> io::Result<bool> {
        let fate = self.begin(Operation::Lock, path, 0, &[])?;
        self.end(fate)?;
        if self.names.get(path).is_none() {
            self.create(path)?;
        }
        Ok(self.locks.insert(path.to_owned()))
    }

    pub(super) fn unlock(&mut self, path: &Path, epoch: u64) {
        if self.epoch == epoch {
            self.locks.remove(path);
        }
    }

    // ---- Content ----

    /// The content of a file that some handle of this life holds; it can't have gone.
    pub(super) fn content(&mut self, inode: u64) -> &mut Content {
        self.inodes.entry(inode).or_default()
    }

    pub(super) fn read(&mut self, inode: u64, path: &Path, buf: &mut [u8], at: u64) -> io::Result<()> {
        let len = buf.len() as u64;
        let fate = self.begin(Operation::Read, path, at, &len.to_le_bytes())?;
        self.end(fate)?;
        let bad =
            |(of, range): &(PathBuf, Range<u64>)| of == path && range.start < at + len && at < range.end;
        if self.bad_ranges.iter().any(bad) {
            self.counts.reads_failed += 1;
            return Err(input_output());
        }
        if self.content(inode).read(buf, at) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(super) fn write(&mut self, inode: u64, path: &Path, data: &[u8], at: u64) -> io::Result<()> {
        let fate = self.begin(Operation::Write, path, at, data)?;
        self.written_bytes += data.len() as u64;
        self.place(inode, data, at, fate)
    }

    pub(super) fn fill_zero(&mut self, inode: u64, path: &Path, len: u64) -> io::Result<()> {
        let fate = self.begin(Operation::FillZero, path, len, &[])?;
        let zeros = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::StorageFull)?];
        self.place(inode, &zeros, 0, fate)
    }

    pub(super) fn truncate(&mut self, inode: u64, path: &Path, len: u64) -> io::Result<()> {
        let fate = self.begin(Operation::Truncate, path, len, &[])?;
        if fate != Fate::Fails {
            self.content(inode).truncate(len);
        }
        self.end(fate)
    }

    fn place(&mut self, inode: u64, data: &[u8], at: u64, fate: Fate) -> io::Result<()> {
        let mut data = data;
        if fate == Fate::Fails {
            // Any part may have been written; a leading part is what a kernel leaves.
            data = &data[..self.rng.index(data.len() + 1)];
        }
        let growth = (at + data.len() as u64).saturating_sub(self.content(inode).len());
        let full = self.capacity.map_or(0, |capacity| (self.used_bytes() + growth).saturating_sub(capacity));
        // Never more than the growth: what lies inside the file needs no space.
        let full = usize::try_from(full.min(growth)).unwrap_or(usize::MAX);
        let data = &data[..data.len().saturating_sub(full)];
        self.content(inode).write(data, at);
        self.end(fate)?;
        if full > 0 {
            self.counts.full += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, inode: u64, path: &Path) -> io::Result<()> {
        let fate = self.begin(Operation::SyncFile, path, 0, &[])?;
        match fate {
            Fate::Runs => self.content(inode).sync(),
            Fate::Fails => {
                let mut rng = self.rng.clone();
                self.content(inode).sync_fails(&mut rng);
                self.rng = rng;
            }
            Fate::Crashes => {}
        }
        self.end(fate)
    }

    /// Bytes of all files that have a name or an open handle.
    pub(super) fn used_bytes(&self) -> u64 {
        let mut used = self.names.inodes();
        used.extend(self.handles.iter().filter(|(_, count)| **count > 0).map(|(inode, _)| *inode));
        used.iter().filter_map(|inode| self.inodes.get(inode)).map(Content::len).sum()
    }

    pub(super) fn file_len(&self, path: &Path) -> Option<u64> {
        match self.names.get(path)? {
            Entry::File(inode) => self.inodes.get(&inode).map(Content::len),
            Entry::Directory => None,
        }
    }

    pub(super) fn rot(&mut self, path: &Path, at: u64, mask: u8) -> bool {
        let Some(Entry::File(inode)) = self.names.get(path) else {
            return false;
        };
        let rotten = self.content(inode).rot(at, mask);
        self.counts.bytes_rotten += u64::from(rotten);
        rotten
    }
}
