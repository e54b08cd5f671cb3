//! Files that are written once from start to end, and read the same way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};

use crate::error::{Damage, IoFault, io_fault};

/// How much is gathered before it is written, and how much is read at a time.
const CHUNK_BYTES: usize = 512 * 1024;

/// Writes a new file from start to end.
#[derive(Debug)]
pub(crate) struct SequentialWriter {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    written: u64,
    buffer: Vec<u8>,
}

impl SequentialWriter {
    /// Creates the file; the name must be free.
    pub(crate) fn create(disk: &dyn Disk, path: &Path) -> Result<Self, IoFault> {
        let file = disk.open(path, OpenMode::CreateNew).map_err(io_fault("create", path))?;
        Ok(Self { path: path.to_owned(), file, written: 0, buffer: Vec::new() })
    }

    /// The length of the file so far in bytes.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), IoFault> {
        if self.buffer.len() + bytes.len() > CHUNK_BYTES {
            self.flush_with(bytes)
        } else {
            self.buffer.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn flush_with(&mut self, bytes: &[u8]) -> Result<(), IoFault> {
        self.file
            .write_all_at(&[&self.buffer, bytes], self.written)
            .map_err(io_fault("write", &self.path))?;
        let len = (self.buffer.len() + bytes.len()) as u64;
        // At once, so that syncs of the journal never wait behind more than this.
        self.file.write_back(self.written, len).map_err(io_fault("write", &self.path))?;
        self.written += len;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is gathered and hands it to the device, without making it durable.
    pub(crate) fn flush(&mut self) -> Result<(), IoFault> {
        if self.buffer.is_empty() { Ok(()) } else { self.flush_with(&[]) }
    }

    /// Writes what is gathered and syncs the file; its length in bytes.
    pub(crate) fn finish(mut self) -> Result<u64, IoFault> {
        self.flush()?;
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::UnsyncedTable) {
            return Ok(self.written);
        }
        self.file.sync_all().map_err(io_fault("sync", &self.path))?;
        Ok(self.written)
    }
}

/// Reads a file from start to end.
#[derive(Debug)]
pub(crate) struct SequentialReader {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    len: u64,
    /// Where in the file `buffer` ends.
    read: u64,
    buffer: Vec<u8>,
    /// How much of `buffer` was taken.
    taken: usize,
}

impl SequentialReader {
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, IoFault> {
        let file = disk.open(path, OpenMode::Read).map_err(io_fault("open", path))?;
        let len = file.len().map_err(io_fault("measure", path))?;
        Ok(Self { path: path.to_owned(), file, len, read: 0, buffer: Vec::new(), taken: 0 })
    }

    /// The position in bytes of what is taken next.
    pub(crate) fn position(&self) -> u64 {
        self.read - self.buffered() as u64
    }

    /// How many bytes were not taken yet.
    pub(crate) fn remaining(&self) -> u64 {
        self.len - self.position()
    }

    fn buffered(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// Takes the next `len` bytes; `None` when the file ends before.
    pub(crate) fn take(&mut self, len: usize) -> Result<Option<&[u8]>, IoFault> {
        if len as u64 > self.remaining() {
            return Ok(None);
        }
        if len > self.buffered() {
            self.fill(len)?;
        }
        let start = self.taken;
        self.taken += len;
        Ok(Some(&self.buffer[start..self.taken]))
    }

    fn fill(&mut self, len: usize) -> Result<(), IoFault> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let kept = self.buffer.len();
        let unread = usize::try_from(self.len - self.read).unwrap_or(usize::MAX);
        let more = (len - kept).max(CHUNK_BYTES).min(unread);
        self.buffer.resize(kept + more, 0);
        self.file.read_exact_at(&mut self.buffer[kept..], self.read).map_err(io_fault("read", &self.path))?;
        self.read += more as u64;
        Ok(())
    }

    pub(crate) fn damage(&self, at: u64, reason: &'static str) -> Damage {
        Damage { file: self.path.clone(), at, reason }
    }
}
