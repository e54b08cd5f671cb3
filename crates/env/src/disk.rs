//! The disk as a seam: positioned reads and writes, syncs, and names in directories.
//!
//! The contract is what POSIX file systems really promise, which is little:
//!
//! * Written bytes are visible to readers at once and durable only after [`DiskFile::sync_data`] or
//!   [`DiskFile::sync_all`] returned `Ok`. Until then a crash may keep any part of them.
//! * A name that was created, renamed or removed is durable only after [`Disk::sync_dir`] of its directory. The
//!   content of a file may be durable and its name lost.
//! * After a failed sync nothing is known about the bytes that it should have covered: a later sync that
//!   succeeds proves nothing. Callers stop; they never retry.
//! * An overwrite inside a file that was filled with [`DiskFile::fill_zero`] needs no new space. Growing a file may
//!   fail with [`std::io::ErrorKind::StorageFull`].

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::real::FileMap;

/// How [`Disk::open`] opens a file.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum OpenMode {
    /// An existing file, for reading only.
    Read,
    /// An existing file, for reading and writing; nothing is truncated.
    ReadWrite,
    /// A new, empty file for reading and writing; an error of kind `AlreadyExists` when the name is taken.
    CreateNew,
}

/// How large a file system is, in bytes.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What of it this process may still fill.
    pub free: u64,
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Creates `dir` and its missing parents. Every directory that this call created is durable when it returns, and its
    /// owner's alone.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Opens a file. What has the name and is no regular file (a FIFO, a device, a socket, a folder) is never opened, as
    /// that alone may block or do something: an error of kind `InvalidInput`.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// The names in `dir`, sorted. A name that isn't UTF-8 comes with replacement characters, so that it is seen
    /// but matches no name of ours.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Gives the file `from` the name `to`, replacing what had that name, in one step. Both names are in the same
    /// directory, because one [`Disk::sync_dir`] must be able to make the whole step durable.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes the name of a file. Open handles stay usable; the space comes back when the last one is dropped.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives the file `from` a second name, in any directory of the same file system; durable like other names. For files
    /// that never change: whoever writes to one name writes to both. `Unsupported`, or what the system says, where that
    /// cannot be done; the caller copies then.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes all names of `dir` as durable as they are now.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Whether `path` names a file or a directory.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Takes the exclusive lock on `path`, creating the file when missing. `None` when someone else holds it.
    /// The lock is released when the guard is dropped and when the process dies. Like [`Disk::open`], never of what is
    /// no regular file.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;

    /// How large the file system with `path` is, and how much of it is free; none where nothing knows. May wait for the
    /// device.
    fn space(&self, path: &Path) -> io::Result<Option<Space>> {
        let _ = path;
        Ok(None)
    }
}

/// Holds a lock until it is dropped.
pub trait DiskLock: Send + Sync + Debug {}

/// An open file. All positions and lengths are in bytes; handles can be shared between threads.
pub trait DiskFile: Send + Sync + Debug {
    /// Fills `buf` from position `at`; `UnexpectedEof` when the file ends before that.
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()>;

    /// Fills `buf` from position `at` if that needs no waiting for the device: `false`, with `buf` in any state, if it
    /// would. A file system that cannot tell always says so.
    fn read_cached_at(&self, buf: &mut [u8], at: u64) -> io::Result<bool> {
        let _ = (buf, at);
        Ok(false)
    }

    /// The file as memory that can be sent without copying it first, if the system can do that. Only for files that
    /// are finished and never change.
    fn map(&self) -> io::Result<Option<FileMap>> {
        Ok(None)
    }

    /// Writes the buffers one after another from position `at`, growing the file when needed. On an error any part
    /// of them may have been written.
    fn write_all_at(&self, bufs: &[&[u8]], at: u64) -> io::Result<()>;

    /// Hands the bytes of a range to the device and waits until it has taken them. Promises nothing about durability:
    /// it only leaves a later sync of this file, or of another one behind it in the queue of the device, less to wait
    /// for. An error is that of a write: the file is not to be trusted any more.
    fn write_back(&self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// Makes the content, and as much of the metadata as is needed to read it back, durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the content and all metadata durable.
    fn sync_all(&self) -> io::Result<()>;

    /// The current length.
    fn len(&self) -> io::Result<u64>;

    /// When the content was last changed, in seconds since the Unix epoch; none where nothing knows.
    fn modified_s(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file to `len` bytes; a file that is not longer stays as it is. Durable only after a sync: until then
    /// a crash may bring what was cut back.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Overwrites the first `len` bytes with zeros that are really written, so that later overwrites need neither
    /// space nor a change of metadata. Durable only after a sync, like any other write.
    fn fill_zero(&self, len: u64) -> io::Result<()>;
}
