//! A disk in memory that keeps no promise it didn't make.
//!
//! * Written and not yet synced: each 512-byte sector survives a crash on its own, in any version it had since the
//!   last sync, or torn between two versions. So does the length.
//! * A name created, renamed or removed is only certain after `sync_dir`; until then each step survives on its
//!   own (a rename is one step). Synced content whose name was lost is lost.
//! * After a failed sync part of the unsynced content is silently never written, though reads still show it and
//!   the next sync succeeds.
//! * Space is a byte budget: growth fails when it is used up, overwrites never do.
//!
//! What survives is drawn from the seed. After a crash every operation fails with [`Crashed`] until
//! [`SimDisk::restart`]; handles and locks from before stay dead for ever. Every operation is hashed into a trace,
//! so that two runs can be shown to be the same run.

mod content;
mod fault;
mod names;
mod state;
mod trace;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile, DiskLock, OpenMode, Space};
pub use crate::sim::disk::content::SECTOR_BYTES;
pub use crate::sim::disk::fault::{Crashed, FaultCounts, FaultRule, Operation, is_crash};
use crate::sim::disk::state::State;

/// A simulated disk. Clones share it.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    /// An empty disk with only a root directory; what its crashes keep follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State::new(seed))))
    }

    /// Crashes in the middle of the mutating operation with this number (see [`SimDisk::operations`]).
    pub fn crash_at(&self, operation: u64) {
        self.0.lock().crash_at = Some(operation);
    }

    /// Crashes now. Nothing happens when the disk is already down.
    pub fn crash(&self) {
        self.0.lock().power_off();
    }

    /// Whether the disk has crashed and wasn't restarted.
    pub fn is_down(&self) -> bool {
        self.0.lock().down
    }

    /// Ends the process's view of the disk (crashing first when it is still up) and starts a new one: handles and
    /// locks from before are dead, planned faults are forgotten. The space budget and bit rot stay.
    pub fn restart(&self) {
        self.0.lock().restart();
    }

    /// Ends the process's view of the disk without a loss: what a `kill -9` does, where the kernel lives on.
    /// Unsynced content stays unsynced, and planned faults stay planned.
    pub fn kill(&self) {
        self.0.lock().next_epoch();
    }

    /// How many mutating operations were started. The next one has this number.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// How many bytes were written so far, each as often as it was; zeros of a fill are not.
    pub fn written_bytes(&self) -> u64 {
        self.0.lock().written_bytes
    }

    /// Plans a fault.
    pub fn plan(&self, rule: FaultRule) {
        self.0.lock().rules.push(rule);
    }

    /// Lets reads fail that touch this range of bytes of this file, until the next restart.
    pub fn fail_reads(&self, path: &Path, range: Range<u64>) {
        self.0.lock().bad_ranges.push((path.to_owned(), range));
    }

    /// Bounds the bytes that all files together may have; `None` is no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// The bytes that all files together have now.
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().used_bytes()
    }

    /// Inverts the bits of `mask` in one stored byte. False when the file has no such byte.
    pub fn rot(&self, path: &Path, at: u64, mask: u8) -> bool {
        self.0.lock().rot(path, at, mask)
    }

    /// Paths of all files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.lock().names.files()
    }

    /// The length of a file as readers see it.
    pub fn file_len(&self, path: &Path) -> Option<u64> {
        self.0.lock().file_len(path)
    }

    /// The number of files opened and not dropped, for tests that look for leaks.
    pub fn open_handles(&self) -> usize {
        self.0.lock().open_handles()
    }

    /// Which faults have fired so far.
    pub fn counts(&self) -> FaultCounts {
        self.0.lock().counts
    }

    /// A hash over every operation and its outcome so far.
    pub fn trace_hash(&self) -> u64 {
        self.0.lock().trace.hash()
    }

    /// Starts to keep the trace as readable lines too.
    pub fn keep_trace(&self) {
        self.0.lock().trace.keep_lines();
    }

    /// Takes the lines kept since the last call.
    pub fn take_trace(&self) -> Vec<String> {
        self.0.lock().trace.take_lines()
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.lock().create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        let inode = state.open(path, mode)?;
        let epoch = state.epoch;
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile { state: Arc::clone(&self.0), path: path.to_owned(), inode, epoch, writable }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.lock().list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.lock().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.lock().sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.lock().exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = self.0.lock();
        if !state.lock(path)? {
            return Ok(None);
        }
        let epoch = state.epoch;
        Ok(Some(Box::new(SimLock { state: Arc::clone(&self.0), path: path.to_owned(), epoch })))
    }

    fn space(&self, _path: &Path) -> io::Result<Option<Space>> {
        let state = self.0.lock();
        Ok(state.capacity.map(|total| Space { total, free: total.saturating_sub(state.used_bytes()) }))
    }
}

/// A handle. `path` is the name it was opened by; it may have another one by now.
#[derive(Debug)]
struct SimFile {
    state: Arc<Mutex<State>>,
    path: PathBuf,
    inode: u64,
    /// The life of the process that opened it; in a later one every use fails.
    epoch: u64,
    writable: bool,
}

impl SimFile {
    fn run<T>(&self, operation: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        state.check_epoch(self.epoch)?;
        operation(&mut state)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl DiskFile for SimFile {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.run(|state| state.read(self.inode, &self.path, buf, at))
    }

    fn write_all_at(&self, bufs: &[&[u8]], at: u64) -> io::Result<()> {
        self.check_writable()?;
        self.run(|state| state.write(self.inode, &self.path, &bufs.concat(), at))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.run(|state| state.sync(self.inode, &self.path))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.run(|state| Ok(state.content(self.inode).len()))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.run(|state| state.truncate(self.inode, &self.path, len))
    }

    fn fill_zero(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.run(|state| state.fill_zero(self.inode, &self.path, len))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.state.lock().close(self.inode, self.epoch);
    }
}

#[derive(Debug)]
struct SimLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
    epoch: u64,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.state.lock().unlock(&self.path, self.epoch);
    }
}

#[cfg(test)]
mod tests;
